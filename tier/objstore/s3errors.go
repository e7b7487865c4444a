package objstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// Error codes of the S3 API that decide something here.
const (
	codeAccessDenied = "AccessDenied"
	codeBadDigest    = "BadDigest"
	codeNoSuchBucket = "NoSuchBucket"
	codeNoSuchKey    = "NoSuchKey"
	codeNotFound     = "NotFound" // what the client library calls a 404 without a body
)

// s3Call is what classifying a failure needs to know about the call.
type s3Call struct {
	op          Op
	key         string
	conditional bool
	ifMatch     bool
}

// fail classifies what the client library returned. When in doubt about a conditional put, the outcome is unknown.
func (s *S3) fail(ctx context.Context, call s3Call, err error) *Error {
	e := &Error{Op: call.op, Place: s.place, Key: call.key}
	attempts := ""
	var exhausted *retry.MaxAttemptsError
	if errors.As(err, &exhausted) && exhausted.Attempt > 1 {
		attempts = fmt.Sprintf(" (%d attempts)", exhausted.Attempt)
	}
	var answer *smithyhttp.ResponseError
	if errors.As(err, &answer) && answer.Response != nil && answer.HTTPStatusCode() >= 300 {
		code, message := errorCode(err)
		e.Kind = kindOfStatus(call, answer.HTTPStatusCode(), code)
		e.Detail = s.describeAnswer(answer, code, message, err) + attempts
		return e
	}
	e.Kind = lost(call.conditional && !neverSent(err))
	e.Detail = strings.TrimSpace(attempts)
	e.Err = trimCause(err)
	if ctxErr := ctx.Err(); ctxErr != nil && !errors.Is(err, ctxErr) {
		e.Err = fmt.Errorf("%w: %w", ctxErr, e.Err)
	}
	return e
}

func errorCode(err error) (code, message string) {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode(), api.ErrorMessage()
	}
	return "", ""
}

// kindOfStatus maps an HTTP error answer, by status first and code second.
func kindOfStatus(call s3Call, status int, code string) error {
	switch code {
	case codeNoSuchBucket:
		return ErrNoBucket
	case "RequestTimeout", "RequestTimeTooSkewed": // the request was not carried out; the clock is corrected meanwhile
		return ErrUnavailable
	case "ObjectParentIsFile", "ExistingObjectIsDirectory": // versitygw: a key that is a folder of another
		return ErrInvalidKey
	}
	switch status {
	case http.StatusNotFound:
		return kindOfNotFound(call, code)
	case http.StatusPreconditionFailed:
		return ErrPrecondition
	case http.StatusConflict:
		if call.conditional {
			return ErrPrecondition
		}
		return ErrUnavailable
	case http.StatusRequestedRangeNotSatisfiable:
		return ErrRange
	case http.StatusUnauthorized, http.StatusForbidden:
		return ErrDenied
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return ErrUnavailable
	case http.StatusNotImplemented, http.StatusMethodNotAllowed:
		return ErrCapability
	}
	if status >= 500 {
		return lost(call.conditional)
	}
	return ErrRejected
}

// kindOfNotFound believes a 404 only when it speaks S3: a wrong proxy's 404 page must never look like an absent object.
// A HEAD has no body to tell by; Head asks about the bucket as well.
func kindOfNotFound(call s3Call, code string) error {
	switch {
	case code == codeNoSuchKey && call.op == OpPut && call.ifMatch:
		return ErrPrecondition
	case code == codeNoSuchKey && call.op != OpPut && call.op != OpList, code == codeNotFound && call.op == OpHead:
		return ErrNotFound
	}
	return lost(call.conditional)
}

// describeAnswer says in one line what the server answered, and what to do where that is known.
func (s *S3) describeAnswer(answer *smithyhttp.ResponseError, code, message string, err error) string {
	status := answer.HTTPStatusCode()
	var b strings.Builder
	b.WriteString(statusText(status))
	if code != "" && code != codeNotFound {
		b.WriteString(" " + code)
	}
	if message != "" && message != code {
		b.WriteString(", " + strings.TrimSuffix(message, "."))
	}
	var withID *awshttp.ResponseError
	if errors.As(err, &withID) && withID.ServiceRequestID() != "" {
		b.WriteString(", request id " + withID.ServiceRequestID())
	}
	home := answer.Response.Header.Get("X-Amz-Bucket-Region")
	switch {
	case home != "" && home != s.region:
		fmt.Fprintf(&b, "; the bucket is in region %s, not %s: set region=%s", home, s.region, home)
	case status/100 == 3:
		b.WriteString("; the bucket is served elsewhere: check endpoint and region")
	case code == "SignatureDoesNotMatch":
		b.WriteString("; check the secret key, and the region for servers that are strict about it")
	}
	return b.String()
}

// neverSent says that a request surely did not reach the server.
func neverSent(err error) bool {
	var dns *net.DNSError
	if errors.As(err, &dns) {
		return true
	}
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// trimCause drops the client library's outer layers, which repeat what an Error already says.
func trimCause(err error) error {
	var send *smithyhttp.RequestSendError
	if errors.As(err, &send) && send.Err != nil {
		return send.Err
	}
	var op *smithy.OperationError
	if errors.As(err, &op) && op.Err != nil {
		return op.Err
	}
	return err
}
