package tier

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/varvelog/varve/tier/objstore"
)

// Body is the object's bytes, re-readable until Close.
func (o *Object) Body() objstore.Body { return o.body }

// Key is where the object goes.
func (o *Object) Key() string { return o.remote.Key(o.add.Segment.ID) }

// Size is the number of bytes to upload.
func (o *Object) Size() int64 { return o.add.Segment.StoredBytes }

// Add is the edit part that commits the object.
func (o *Object) Add() AddSegment { return o.add }

// Put uploads the object and makes sure that the store holds all of it. When the
// store refuses because the name exists, or loses the answer, it looks: only an
// object of the same size that ends in the same footer, random name and all,
// counts as ours. wrap, when not nil, stands between the body and the store (the
// upload limiter).
func (o *Object) Put(ctx context.Context, wrap func(objstore.Body) objstore.Body) error {
	var body objstore.Body = o.body
	if wrap != nil {
		body = wrap(body)
	}
	crc := o.add.Segment.ObjectCRC
	stored, err := o.remote.a.deps.Store.Put(ctx, o.Key(), body, objstore.PutOptions{IfNoneMatch: true, CRC32C: &crc})
	switch {
	case err == nil:
		if stored.Size != o.Size() {
			return &CorruptError{Key: o.Key(), Offset: -1, Reason: fmt.Sprintf("store holds %d of %d bytes", stored.Size, o.Size())}
		}
	case errors.Is(err, objstore.ErrPrecondition), errors.Is(err, objstore.ErrUnknownOutcome):
		if err := o.confirm(ctx, err); err != nil {
			return err
		}
	default:
		return storeError("upload", err)
	}
	o.remote.a.indexes.put(o.remote.objectKey(o.add.Segment.ID), o.index)
	return nil
}

// confirm reads the footer back after a put whose outcome is open.
func (o *Object) confirm(ctx context.Context, cause error) error {
	got := make([]byte, footerBytes)
	obj, err := objstore.ReadAt(ctx, o.remote.a.deps.Store, o.Key(), got, o.Size()-footerBytes)
	if err != nil {
		return storeError("upload", errors.Join(cause, err))
	}
	if obj.Size != o.Size() || !bytes.Equal(got, o.footer) {
		return &CorruptError{Key: o.Key(), Offset: -1, Reason: fmt.Sprintf("store holds another object of %d bytes", obj.Size)}
	}
	return nil
}

// Close lets go of the segment and of the memory; the body is not readable any
// more.
func (o *Object) Close() error { return o.body.close() }

// storeError says what was being done and maps the store's failure to
// ErrUnavailable, the only answer a caller can act on, keeping the cause.
func storeError(verb string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, ErrCorrupt) || errors.Is(err, ErrUnsupported) {
		return fmt.Errorf("%s: %w", verb, err)
	}
	return fmt.Errorf("%s: %w: %w", verb, ErrUnavailable, err)
}
