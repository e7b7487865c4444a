package objstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

const (
	// minPartBytes is the size of a part unless that made too many: fewer, larger parts cost fewer requests.
	minPartBytes = 25 << 20
	// maxParts is S3's limit for one upload.
	maxParts = 10_000
	// abortTimeout bounds giving up an upload after its own context may have ended.
	abortTimeout = 15 * time.Second
)

// partSize gives the size of a body's parts, a multiple of 1 MiB.
func partSize(size, least int64) int64 {
	const mib = 1 << 20
	need := (size + maxParts - 1) / maxParts
	return max(least, (need+mib-1)/mib*mib)
}

// putParts uploads a body that is too large for one request, one part after the other. The object appears at the end, in
// one step, and under the same condition as a single put. Parts may be sent again; the last step is sent once.
func (s *S3) putParts(ctx context.Context, key string, body Body, o PutOptions) (Object, error) {
	call := s3Call{op: OpPut, key: key}
	in := &s3.CreateMultipartUploadInput{Bucket: &s.bucket, Key: aws.String(s.prefix + key)}
	if !s.config.NoChecksum {
		in.ChecksumAlgorithm = types.ChecksumAlgorithmCrc32c
	}
	created, err := s.client.CreateMultipartUpload(ctx, in)
	if err != nil {
		return Object{}, s.fail(ctx, call, err)
	}
	u := partsUpload{s: s, key: in.Key, id: created.UploadId, body: body}
	if err := u.sendParts(ctx, o.CRC32C); err != nil {
		u.abort(ctx)
		var own *Error
		if errors.As(err, &own) {
			return Object{}, err
		}
		if kind := bodyErrorKind(err); kind == ErrRejected || ctx.Err() != nil {
			return Object{}, &Error{Op: OpPut, Place: s.place, Key: key, Kind: kind, Err: err}
		}
		return Object{}, s.fail(ctx, call, err)
	}
	finish := &s3.CompleteMultipartUploadInput{Bucket: &s.bucket, Key: in.Key, UploadId: u.id,
		MultipartUpload: &types.CompletedMultipartUpload{Parts: u.parts}}
	if o.IfMatch != "" {
		finish.IfMatch = &o.IfMatch
	}
	if o.IfNoneMatch {
		finish.IfNoneMatch = aws.String("*")
	}
	call.conditional, call.ifMatch = o.conditional(), o.IfMatch != ""
	done, err := s.client.CompleteMultipartUpload(ctx, finish, func(so *s3.Options) { so.Retryer = aws.NopRetryer{} })
	if err != nil {
		e := s.fail(ctx, call, err)
		if e.Kind != ErrUnknownOutcome {
			u.abort(ctx)
		}
		return Object{}, e
	}
	return s.putDone(call, done.ETag, body)
}

type partsUpload struct {
	s     *S3
	key   *string
	id    *string
	body  Body
	parts []types.CompletedPart
}

// sendParts sends all parts, and checks the whole body's checksum when there is one to compare with.
func (u *partsUpload) sendParts(ctx context.Context, want *uint32) error {
	size := u.body.Size()
	step := partSize(size, u.s.partBytes)
	whole := newCRC()
	for off := int64(0); off < size; off += step {
		part := io.NewSectionReader(u.body, off, min(step, size-off))
		sum := newCRC()
		n, err := io.Copy(io.MultiWriter(sum, whole), &contextReader{ctx, part})
		if err == nil && n != part.Size() {
			err = fmt.Errorf("body ended at %d of %d bytes: %w", off+n, size, io.ErrUnexpectedEOF)
		}
		if err != nil {
			return fmt.Errorf("read body: %w", err)
		}
		if err := u.sendPart(ctx, part, sum.Sum32()); err != nil {
			return err
		}
	}
	if want != nil && *want != whole.Sum32() {
		return errChecksum
	}
	return nil
}

func (u *partsUpload) sendPart(ctx context.Context, part *io.SectionReader, sum uint32) error {
	number := aws.Int32(int32(len(u.parts) + 1))
	if _, err := part.Seek(0, io.SeekStart); err != nil {
		return err
	}
	in := &s3.UploadPartInput{Bucket: &u.s.bucket, Key: u.key, UploadId: u.id, PartNumber: number,
		Body: part, ContentLength: aws.Int64(part.Size())}
	if !u.s.config.NoChecksum {
		in.ChecksumCRC32C = aws.String(encodeCRC(sum))
	}
	out, err := u.s.client.UploadPart(ctx, in, u.s.putOptions(false)...)
	if err != nil {
		return err
	}
	u.parts = append(u.parts, types.CompletedPart{PartNumber: number, ETag: out.ETag, ChecksumCRC32C: in.ChecksumCRC32C})
	return nil
}

// abort frees the parts. When that fails too, the bucket's rule for incomplete uploads has to.
func (u *partsUpload) abort(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	_, err := u.s.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &u.s.bucket, Key: u.key, UploadId: u.id})
	if err != nil {
		u.s.log.Warn("cannot abort an upload in parts; let the bucket expire incomplete uploads",
			"store", u.s.place, "key", *u.key, "upload", aws.ToString(u.id), "err", err)
	}
}
