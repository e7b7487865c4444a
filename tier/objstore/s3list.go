package objstore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// deleteBatch is the most keys one DeleteObjects may name.
const deleteBatch = 1000

// List implements Store. It holds one page (1,000 objects) at a time.
func (s *S3) List(ctx context.Context, prefix, after string, fn func(Object) bool) error {
	if err := checkContext(ctx, OpList, s.place, prefix); err != nil {
		return err
	}
	in := &s3.ListObjectsV2Input{Bucket: &s.bucket}
	if full := s.prefix + prefix; full != "" {
		in.Prefix = &full
	}
	if after != "" {
		in.StartAfter = aws.String(s.prefix + after)
	}
	last := ""
	for {
		out, err := s.client.ListObjectsV2(ctx, in)
		if err != nil {
			return s.fail(ctx, s3Call{op: OpList, key: prefix}, err)
		}
		for i := range out.Contents {
			obj, ok := s.describeListed(&out.Contents[i])
			if !ok || obj.Key <= after || !strings.HasPrefix(obj.Key, prefix) {
				continue
			}
			if obj.Key <= last {
				return &Error{Op: OpList, Place: s.place, Key: prefix, Kind: ErrCapability,
					Detail: fmt.Sprintf("the server lists %q after %q: not in byte order", obj.Key, last)}
			}
			last = obj.Key
			if !fn(obj) {
				return nil
			}
		}
		if !aws.ToBool(out.IsTruncated) {
			return nil
		}
		next := aws.ToString(out.NextContinuationToken)
		if next == "" || next == aws.ToString(in.ContinuationToken) {
			return &Error{Op: OpList, Place: s.place, Key: prefix, Kind: ErrUnavailable, Detail: "a truncated page does not say where to go on"}
		}
		in.ContinuationToken, in.StartAfter = &next, nil
	}
}

// describeListed passes by what is not one of the store's objects, such as folder markers of other tools.
func (s *S3) describeListed(o *types.Object) (Object, bool) {
	key, ok := strings.CutPrefix(aws.ToString(o.Key), s.prefix)
	if !ok || ValidateKey(key) != nil {
		return Object{}, false
	}
	return Object{Key: key, ETag: quoteETag(o.ETag), Size: aws.ToInt64(o.Size), Modified: aws.ToTime(o.LastModified)}, true
}

// Delete implements Store.
func (s *S3) Delete(ctx context.Context, keys ...string) error {
	if err := checkKeys(ctx, s.place, keys); err != nil {
		return err
	}
	if len(keys) == 1 || s.singleDeletes.Load() {
		return s.deleteSingly(ctx, keys)
	}
	for batch := range slices.Chunk(keys, deleteBatch) {
		err := s.deleteMany(ctx, batch)
		if errors.Is(err, ErrCapability) {
			s.log.Warn("object store lacks DeleteObjects, deleting one by one", "store", s.place, "err", err)
			s.singleDeletes.Store(true)
			err = s.deleteSingly(ctx, batch)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *S3) deleteSingly(ctx context.Context, keys []string) error {
	for _, key := range keys {
		_, err := s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.bucket, Key: aws.String(s.prefix + key)})
		if err == nil {
			continue
		}
		if e := s.fail(ctx, s3Call{op: OpDelete, key: key}, err); e.Kind != ErrNotFound {
			return e
		}
	}
	return nil
}

func (s *S3) deleteMany(ctx context.Context, keys []string) error {
	ids := make([]types.ObjectIdentifier, len(keys))
	for i, key := range keys {
		ids[i].Key = aws.String(s.prefix + key)
	}
	out, err := s.client.DeleteObjects(ctx, &s3.DeleteObjectsInput{
		Bucket: &s.bucket, Delete: &types.Delete{Objects: ids, Quiet: aws.Bool(true)},
	}, withContentMD5)
	named := keys[0]
	if len(keys) > 1 {
		named = fmt.Sprintf("%s and %d more", keys[0], len(keys)-1)
	}
	if err != nil {
		return s.fail(ctx, s3Call{op: OpDelete, key: named}, err)
	}
	var errs []error
	for _, e := range out.Errors {
		code := aws.ToString(e.Code)
		if code == codeNoSuchKey {
			continue
		}
		if len(errs) == 10 {
			errs = append(errs, fmt.Errorf("and %d more keys", len(out.Errors)-10))
			break
		}
		key := strings.TrimPrefix(aws.ToString(e.Key), s.prefix)
		errs = append(errs, &Error{Op: OpDelete, Place: s.place, Key: key, Kind: kindOfDelete(code),
			Detail: strings.TrimSpace(code + " " + aws.ToString(e.Message))})
	}
	return errors.Join(errs...)
}

// kindOfDelete classifies the code that DeleteObjects gives for one key.
func kindOfDelete(code string) error {
	switch code {
	case codeAccessDenied:
		return ErrDenied
	case codeNoSuchBucket:
		return ErrNoBucket
	case "InvalidArgument", "MethodNotAllowed":
		return ErrRejected
	}
	return ErrUnavailable
}

// withContentMD5 protects a DeleteObjects by Content-MD5 alone. AWS takes that or a newer checksum, and several other
// servers refuse the request without it.
func withContentMD5(o *s3.Options) {
	o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
		if _, err := stack.Finalize.Remove("AWSChecksum:ComputeInputPayloadChecksum"); err != nil {
			return err
		}
		return smithyhttp.AddContentChecksumMiddleware(stack)
	})
}

// statusText names an HTTP status for messages.
func statusText(code int) string {
	if text := http.StatusText(code); text != "" {
		return fmt.Sprintf("%d %s", code, text)
	}
	return fmt.Sprint(code)
}
