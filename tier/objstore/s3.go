package objstore

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"
)

const (
	defaultConcurrency = 64
	defaultAttempts    = 4
	maxBackoff         = 5 * time.Second
	// singlePutMax is S3's limit for one PUT; larger bodies go up in parts.
	singlePutMax = 5 << 30
	// headerTimeout bounds the wait for an answer once a request is sent in full. It only catches servers that hang;
	// a call's own deadline comes from its context.
	headerTimeout = 90 * time.Second
	// connBufferBytes is the size of a connection's read and of its write buffer.
	connBufferBytes = 32 << 10
	// defaultRegion signs requests to servers that are not AWS and do not care.
	defaultRegion = "us-east-1"
)

// S3 is a store in a bucket of AWS S3 or of a server that speaks its API. It keeps no state but its connections.
type S3 struct {
	client *s3.Client
	place  string // for messages: s3://bucket/prefix
	bucket string
	prefix string // "" or ending in '/'
	region string
	config Config
	log    *slog.Logger

	singlePutMax  int64
	partBytes     int64
	singleDeletes atomic.Bool
}

var _ Store = (*S3)(nil)

func openS3(ctx context.Context, c Config, o Options) (*S3, error) {
	fail := func(err error) (*S3, error) {
		return nil, fmt.Errorf("open object store s3://%s/%s: %w", c.Bucket, c.Prefix, err)
	}
	load := []func(*awsconfig.LoadOptions) error{
		awsconfig.WithHTTPClient(httpClient(o)),
		awsconfig.WithLogger(sdkLog(o.Logger)),
		awsconfig.WithRequestChecksumCalculation(aws.RequestChecksumCalculationWhenRequired),
		awsconfig.WithResponseChecksumValidation(aws.ResponseChecksumValidationWhenRequired),
	}
	if c.Region != "" {
		load = append(load, awsconfig.WithRegion(c.Region))
	}
	if k := o.Credentials; k.AccessKey != "" {
		load = append(load, awsconfig.WithCredentialsProvider(
			credentials.NewStaticCredentialsProvider(k.AccessKey, k.SecretKey, k.SessionToken)))
	}
	cfg, err := awsconfig.LoadDefaultConfig(ctx, load...)
	if err != nil {
		return fail(fmt.Errorf("%w: AWS configuration: %w", ErrRejected, err))
	}
	if cfg.Region == "" {
		if c.Endpoint == "" && cfg.BaseEndpoint == nil {
			return fail(fmt.Errorf("%w: no region: add ?region=… to the URL or set AWS_REGION", ErrInvalidURL))
		}
		cfg.Region = defaultRegion
	}
	if _, err := cfg.Credentials.Retrieve(ctx); err != nil {
		return fail(fmt.Errorf("%w: no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "+
			"AWS_PROFILE, or run with a role: %w", ErrDenied, err))
	}
	return newS3(cfg, c, o), nil
}

// sdkLog takes what the AWS library would write to standard error. All of it is about ways that it tries before it
// returns an error, which is told.
func sdkLog(log *slog.Logger) logging.Logger {
	return logging.LoggerFunc(func(_ logging.Classification, format string, v ...any) {
		if log != nil {
			log.Debug("the AWS library says", "words", fmt.Sprintf(format, v...))
		}
	})
}

func newS3(cfg aws.Config, c Config, o Options) *S3 {
	s := &S3{
		place: "s3://" + c.Bucket, bucket: c.Bucket, region: cfg.Region, config: c, log: o.Logger,
		singlePutMax: singlePutMax, partBytes: minPartBytes,
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.singleDeletes.Store(c.SingleDeletes)
	if c.Prefix != "" {
		s.prefix = c.Prefix + "/"
		s.place += "/" + c.Prefix
	}
	attempts := o.Attempts
	if attempts <= 0 {
		attempts = defaultAttempts
	}
	s.client = s3.NewFromConfig(cfg, func(so *s3.Options) {
		if c.Endpoint != "" {
			so.BaseEndpoint = aws.String(c.Endpoint)
		}
		so.UsePathStyle = c.PathStyle
		so.DisableLogOutputChecksumValidationSkipped = true
		so.Retryer = retry.NewStandard(func(ro *retry.StandardOptions) {
			ro.MaxAttempts = attempts
			ro.MaxBackoff = maxBackoff
			ro.RateLimiter = ratelimit.None // callers bound their own rate; a shared budget would fail the innocent
		})
	})
	return s
}

// httpClient keeps as many idle connections as run at once, speaks HTTP/1.1 (one stream per connection is faster for
// large bodies), and leaves bodies as they are.
func httpClient(o Options) *awshttp.BuildableClient {
	n := o.Concurrency
	if n <= 0 {
		n = defaultConcurrency
	}
	return awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.MaxIdleConnsPerHost = n
		t.MaxIdleConns = 2 * n
		t.DisableCompression = true
		t.ForceAttemptHTTP2 = false
		t.Protocols = new(http.Protocols)
		t.Protocols.SetHTTP1(true)
		t.ResponseHeaderTimeout = headerTimeout
		t.ReadBufferSize = connBufferBytes
		t.WriteBufferSize = connBufferBytes
	})
}

// String is the store's address.
func (s *S3) String() string { return s.place }

// Put implements Store. One request, unless the body is over S3's limit for one. A plain put may be sent again after a
// failure; a conditional put is sent once.
func (s *S3) Put(ctx context.Context, key string, body Body, o PutOptions) (Object, error) {
	if err := checkPut(ctx, s.place, key, o); err != nil {
		return Object{}, err
	}
	if body.Size() > s.singlePutMax {
		return s.putParts(ctx, key, body, o)
	}
	call := s3Call{op: OpPut, key: key, conditional: o.conditional(), ifMatch: o.IfMatch != ""}
	in := &s3.PutObjectInput{
		Bucket: &s.bucket, Key: aws.String(s.prefix + key),
		Body: bodyReader(body), ContentLength: aws.Int64(body.Size()),
	}
	if o.IfMatch != "" {
		in.IfMatch = &o.IfMatch
	}
	if o.IfNoneMatch {
		in.IfNoneMatch = aws.String("*")
	}
	sum, err := s.bodySum(ctx, body, o)
	if err != nil {
		return Object{}, &Error{Op: OpPut, Place: s.place, Key: key, Kind: bodyErrorKind(err), Err: err}
	}
	if !s.config.NoChecksum {
		in.ChecksumCRC32C = aws.String(encodeCRC(sum))
	}
	out, err := s.client.PutObject(ctx, in, s.putOptions(call.conditional)...)
	if err != nil {
		return Object{}, s.blameBody(ctx, body, sum, s.fail(ctx, call, err))
	}
	return s.putDone(call, out.ETag, body)
}

// putDone describes what was put. An answer without an ETag would turn the caller's next compare-and-swap into a plain
// put, so it counts as no answer.
func (s *S3) putDone(call s3Call, etag *string, body Body) (Object, error) {
	obj := Object{Key: call.key, ETag: quoteETag(etag), Size: body.Size(), Modified: time.Now()}
	if obj.ETag == "" {
		return Object{}, &Error{Op: OpPut, Place: s.place, Key: call.key, Kind: lost(call.conditional), Detail: noETag}
	}
	return obj, nil
}

const noETag = "the answer has no ETag"

// putOptions are the request options of everything that carries a body.
func (s *S3) putOptions(once bool) []func(*s3.Options) {
	return []func(*s3.Options){func(so *s3.Options) {
		if !s.config.SignPayload {
			so.APIOptions = append(so.APIOptions, v4.SwapComputePayloadSHA256ForUnsignedPayloadMiddleware)
		}
		if once {
			so.Retryer = aws.NopRetryer{}
		}
	}}
}

// bodySum gives the body's checksum: the caller's, or one that is computed when it has to be sent.
func (s *S3) bodySum(ctx context.Context, body Body, o PutOptions) (uint32, error) {
	if o.CRC32C != nil && !s.config.NoChecksum {
		return *o.CRC32C, nil // the server compares
	}
	if o.CRC32C == nil && s.config.NoChecksum {
		return 0, nil
	}
	sum, err := bodyCRC32C(ctx, body)
	if err == nil && o.CRC32C != nil && sum != *o.CRC32C {
		err = errChecksum
	}
	return sum, err
}

func bodyErrorKind(err error) error {
	if errors.Is(err, errChecksum) {
		return ErrRejected
	}
	return ErrUnavailable
}

// blameBody looks again at a body that the server found damaged: when it is as its checksum says, the damage happened on
// the way and another try may help.
func (s *S3) blameBody(ctx context.Context, body Body, sum uint32, err *Error) error {
	if err.Kind != ErrRejected || !strings.Contains(err.Detail, codeBadDigest) || s.config.NoChecksum {
		return err
	}
	if now, sumErr := bodyCRC32C(ctx, body); sumErr == nil && now == sum {
		err.Kind = ErrUnavailable
	}
	return err
}

// encodeCRC is the form of x-amz-checksum-crc32c: base64 of the big-endian value.
func encodeCRC(sum uint32) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, sum))
}

// Get implements Store.
func (s *S3) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, Object, error) {
	if err := s.prologue(ctx, OpGet, key); err != nil {
		return nil, Object{}, err
	}
	switch {
	case off < 0:
		return nil, Object{}, &Error{Op: OpGet, Place: s.place, Key: key, Kind: ErrRange, Detail: fmt.Sprintf("offset %d", off)}
	case n == 0: // HTTP has no range without bytes
		return s.getNothing(ctx, key, off)
	}
	in := &s3.GetObjectInput{Bucket: &s.bucket, Key: aws.String(s.prefix + key)}
	switch {
	case n > 0:
		in.Range = aws.String(fmt.Sprintf("bytes=%d-%d", off, off+n-1))
	case off > 0:
		in.Range = aws.String(fmt.Sprintf("bytes=%d-", off))
	}
	out, err := s.client.GetObject(ctx, in)
	if err != nil {
		return nil, Object{}, s.fail(ctx, s3Call{op: OpGet, key: key}, err)
	}
	size, length, err := s.checkAnswer(key, off, n, in.Range != nil, out)
	if err != nil {
		_ = out.Body.Close() // the answer is of no use
		return nil, Object{}, err
	}
	obj := Object{Key: key, ETag: quoteETag(out.ETag), Size: size, Modified: aws.ToTime(out.LastModified)}
	if obj.ETag == "" {
		_ = out.Body.Close() // the answer is of no use
		return nil, Object{}, &Error{Op: OpGet, Place: s.place, Key: key, Kind: ErrUnavailable, Detail: noETag}
	}
	return newExactReader(ctx, out.Body, length, s.place, key), obj, nil
}

func (s *S3) getNothing(ctx context.Context, key string, off int64) (io.ReadCloser, Object, error) {
	obj, err := s.Head(ctx, key)
	if err != nil {
		return nil, Object{}, err
	}
	if off > obj.Size {
		return nil, Object{}, errRange(s.place, key, off, 0, obj.Size)
	}
	return io.NopCloser(strings.NewReader("")), obj, nil
}

// checkAnswer makes sure that the server sends the range it was asked for, and gives the object's size and the body's
// length.
func (s *S3) checkAnswer(key string, off, n int64, ranged bool, out *s3.GetObjectOutput) (size, length int64, err error) {
	bad := func(kind error, format string, args ...any) (int64, int64, error) {
		return 0, 0, &Error{Op: OpGet, Place: s.place, Key: key, Kind: kind, Detail: fmt.Sprintf(format, args...)}
	}
	if out.ContentLength == nil || *out.ContentLength < 0 {
		return bad(ErrUnavailable, "the answer does not say its length")
	}
	length = *out.ContentLength
	if !ranged {
		return length, length, nil
	}
	if out.ContentRange == nil {
		if off == 0 && n == length {
			return length, length, nil
		}
		return bad(ErrCapability, "the server ignores the Range header and answers with the whole object")
	}
	first, last, size, ok := parseContentRange(*out.ContentRange)
	switch {
	case !ok || first != off || last-first+1 != length:
		return bad(ErrUnavailable, "asked for %d bytes at %d, the answer of %d bytes claims %q", n, off, length, *out.ContentRange)
	case n > 0 && length < n && last == size-1:
		return 0, 0, errRange(s.place, key, off, n, size)
	case n > 0 && length != n, n < 0 && last != size-1:
		return bad(ErrUnavailable, "asked for %d bytes at %d, the answer is %q", n, off, *out.ContentRange)
	}
	return size, length, nil
}

// parseContentRange reads "bytes FIRST-LAST/SIZE".
func parseContentRange(v string) (first, last, size int64, ok bool) {
	v, found := strings.CutPrefix(strings.TrimSpace(v), "bytes ")
	span, total, slash := strings.Cut(v, "/")
	from, to, dash := strings.Cut(span, "-")
	if !found || !slash || !dash {
		return 0, 0, 0, false
	}
	first, err1 := strconv.ParseInt(from, 10, 64)
	last, err2 := strconv.ParseInt(to, 10, 64)
	size, err3 := strconv.ParseInt(total, 10, 64)
	ok = err1 == nil && err2 == nil && err3 == nil && first >= 0 && first <= last && last < size
	return first, last, size, ok
}

// Head implements Store.
func (s *S3) Head(ctx context.Context, key string) (Object, error) {
	if err := s.prologue(ctx, OpHead, key); err != nil {
		return Object{}, err
	}
	out, err := s.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &s.bucket, Key: aws.String(s.prefix + key)})
	if err != nil {
		e := s.fail(ctx, s3Call{op: OpHead, key: key}, err)
		if e.Kind == ErrNotFound {
			s.checkBucketExists(ctx, e)
		}
		return Object{}, e
	}
	if out.ContentLength == nil || *out.ContentLength < 0 {
		return Object{}, &Error{Op: OpHead, Place: s.place, Key: key, Kind: ErrUnavailable, Detail: "the answer does not say the object's size"}
	}
	obj := Object{Key: key, ETag: quoteETag(out.ETag), Size: *out.ContentLength, Modified: aws.ToTime(out.LastModified)}
	if obj.ETag == "" {
		return Object{}, &Error{Op: OpHead, Place: s.place, Key: key, Kind: ErrUnavailable, Detail: noETag}
	}
	return obj, nil
}

// checkBucketExists settles what a HEAD's 404, which has no body, leaves open: is it the object that is absent, or the
// bucket? Whoever may not ask about the bucket has one.
func (s *S3) checkBucketExists(ctx context.Context, e *Error) {
	_, err := s.client.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: &s.bucket})
	if err == nil {
		return
	}
	switch about := s.fail(ctx, s3Call{op: OpHead, key: e.Key}, err); about.Kind {
	case ErrNotFound, ErrNoBucket:
		e.Kind = ErrNoBucket
	case ErrDenied:
	default:
		e.Kind, e.Detail, e.Err = about.Kind, "cannot tell whether the bucket exists: "+about.Detail, about.Err
	}
}

func (s *S3) prologue(ctx context.Context, op Op, key string) error {
	if err := checkKey(op, s.place, key); err != nil {
		return err
	}
	return checkContext(ctx, op, s.place, key)
}

// quoteETag gives every ETag the same form, whether a server quotes it or not.
func quoteETag(etag *string) string {
	v := aws.ToString(etag)
	if v == "" || strings.HasPrefix(v, "W/") {
		return v
	}
	return `"` + strings.Trim(v, `"`) + `"`
}
