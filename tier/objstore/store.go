package objstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Store keeps objects under keys. All methods may be called concurrently.
type Store interface {
	// Put writes the whole object. The body must not change before Put returns, and may be read more than once.
	Put(ctx context.Context, key string, body Body, o PutOptions) (Object, error)
	// Get opens n bytes from off, or everything from off when n < 0. The range must lie inside the object, else
	// ErrRange. The returned Object describes the whole object. The reader yields exactly the bytes asked for or fails;
	// the caller closes it. The context bounds the reading too.
	Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, Object, error)
	// Head describes an object.
	Head(ctx context.Context, key string) (Object, error)
	// Delete removes objects; absent keys are fine. After an error some keys may be gone and others not.
	Delete(ctx context.Context, keys ...string) error
	// List calls fn for each object whose key starts with prefix and is greater than after, in byte order of the keys,
	// until fn returns false.
	List(ctx context.Context, prefix, after string, fn func(Object) bool) error
}

// Object describes a stored object.
type Object struct {
	Key string
	// ETag changes with every put of different content; give it back in PutOptions.IfMatch. Opaque.
	ETag     string
	Size     int64
	Modified time.Time
}

// Body is an object's content, readable again and again and from several goroutines. *bytes.Reader and
// *io.SectionReader are bodies as they are.
type Body interface {
	io.ReaderAt
	Size() int64
}

// Bytes is a body over b, which must not change while a Put uses it.
func Bytes(b []byte) Body { return bytes.NewReader(b) }

// File is a body over the whole of an open file as long as it is now.
func File(f *os.File) (Body, error) {
	fi, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("size of %s: %w", f.Name(), err)
	}
	return io.NewSectionReader(f, 0, fi.Size()), nil
}

// PutOptions are the conditions of a put, and what is known about its body. The zero value is a plain put.
type PutOptions struct {
	// IfMatch makes the put conditional: the object must exist with this ETag, else ErrPrecondition.
	IfMatch string
	// IfNoneMatch makes the put conditional: the object must not exist, else ErrPrecondition.
	IfNoneMatch bool
	// CRC32C, when not nil, is the body's CRC-32C (Castagnoli): a store checks it, or lets the server check it, and
	// need not read the body once more to compute it. A body that differs is refused with ErrRejected.
	CRC32C *uint32
}

func (o PutOptions) conditional() bool { return o.IfMatch != "" || o.IfNoneMatch }

func (o PutOptions) validate() error {
	if o.IfMatch != "" && o.IfNoneMatch {
		return errors.New("IfMatch and IfNoneMatch exclude each other")
	}
	return nil
}

// ReadAll reads a whole object of at most maxBytes; a larger one is ErrTooLarge and is not read.
func ReadAll(ctx context.Context, s Store, key string, maxBytes int64) ([]byte, Object, error) {
	r, obj, err := s.Get(ctx, key, 0, -1)
	if err != nil {
		return nil, Object{}, err
	}
	defer r.Close()
	if obj.Size > maxBytes {
		return nil, obj, &Error{Op: OpGet, Place: placeOf(s), Key: key, Kind: ErrTooLarge,
			Detail: fmt.Sprintf("%d bytes, allowed are %d", obj.Size, maxBytes)}
	}
	b := make([]byte, obj.Size)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, obj, shortRead(s, key, err)
	}
	return b, obj, nil
}

// ReadAt fills p with the object's bytes from off: all of p, or an error.
func ReadAt(ctx context.Context, s Store, key string, p []byte, off int64) (Object, error) {
	r, obj, err := s.Get(ctx, key, off, int64(len(p)))
	if err != nil {
		return Object{}, err
	}
	defer r.Close()
	if _, err := io.ReadFull(r, p); err != nil {
		return obj, shortRead(s, key, err)
	}
	return obj, nil
}

// shortRead makes sure that a failed read names operation and key, also when a foreign Store ended early with io.EOF.
func shortRead(s Store, key string, err error) error {
	var own *Error
	if errors.As(err, &own) {
		return err
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return &Error{Op: OpGet, Place: placeOf(s), Key: key, Kind: ErrUnavailable, Detail: "short body", Err: err}
}

// placeOf is the store's address for messages.
func placeOf(s Store) string {
	if p, ok := s.(fmt.Stringer); ok {
		return p.String()
	}
	return ""
}
