package objstore

import (
	"context"
	"hash"
	"hash/crc32"
)

// refusal says why a conditional put must be refused, or "" when it may go on.
func refusal(o PutOptions, etag string, exists bool) string {
	switch {
	case o.IfNoneMatch && exists:
		return "the object exists"
	case o.IfMatch != "" && !exists:
		return "the object does not exist"
	case o.IfMatch != "" && o.IfMatch != etag:
		return "the object has changed"
	}
	return ""
}

// checkPut is what every store checks before it touches anything.
func checkPut(ctx context.Context, place, key string, o PutOptions) error {
	if err := checkKey(OpPut, place, key); err != nil {
		return err
	}
	if err := o.validate(); err != nil {
		return &Error{Op: OpPut, Place: place, Key: key, Kind: ErrRejected, Err: err}
	}
	return checkContext(ctx, OpPut, place, key)
}

// checkKeys is what every store checks before a delete.
func checkKeys(ctx context.Context, place string, keys []string) error {
	for _, key := range keys {
		if err := checkKey(OpDelete, place, key); err != nil {
			return err
		}
	}
	if len(keys) == 0 {
		return nil
	}
	return checkContext(ctx, OpDelete, place, keys[0])
}

// clampRange gives the length of a read of n bytes at off, n < 0 meaning all the rest, and whether it lies inside.
// As with S3, a read of the rest must have something to read unless the whole object is empty.
func clampRange(off, n, size int64) (int64, bool) {
	if off < 0 || off > size {
		return n, false
	}
	if n < 0 {
		return size - off, off < size || size == 0
	}
	return n, n <= size-off
}

func newCRC() hash.Hash32 { return crc32.New(castagnoli) }
