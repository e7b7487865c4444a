package objstore

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Mem is a store in memory, for tests and for trying things out. The zero value is not usable; call NewMem.
type Mem struct {
	maxBytes int64

	mu      sync.Mutex // guards the following
	objects map[string]memObject
	bytes   int64
	version uint64
}

// memObject's data is never changed after it was stored: readers hold it without a lock.
type memObject struct {
	data     []byte
	etag     string
	modified time.Time
}

var _ Store = (*Mem)(nil)

// NewMem makes an empty store that holds up to maxBytes of content (0: no bound). A put that does not fit fails with
// ErrUnavailable, as on a full disk.
func NewMem(maxBytes int64) *Mem {
	return &Mem{maxBytes: maxBytes, objects: make(map[string]memObject)}
}

// String is the store's address.
func (m *Mem) String() string { return "mem:" }

// Put implements Store.
func (m *Mem) Put(ctx context.Context, key string, body Body, o PutOptions) (Object, error) {
	fail := func(kind error, detail string, err error) (Object, error) {
		return Object{}, &Error{Op: OpPut, Place: m.String(), Key: key, Kind: kind, Detail: detail, Err: err}
	}
	if err := checkPut(ctx, m.String(), key, o); err != nil {
		return Object{}, err
	}
	size := body.Size()
	if m.maxBytes > 0 && size > m.maxBytes {
		return fail(ErrTooLarge, fmt.Sprintf("%d bytes, the store holds %d", size, m.maxBytes), nil)
	}
	data := make([]byte, size)
	sum := newCRC()
	if _, err := io.ReadFull(io.TeeReader(&contextReader{ctx, bodyReader(body)}, sum), data); err != nil {
		return fail(ErrUnavailable, "read body", err)
	}
	if o.CRC32C != nil && *o.CRC32C != sum.Sum32() {
		return fail(ErrRejected, "body differs from its checksum", nil)
	}
	now := time.Now()

	m.mu.Lock()
	defer m.mu.Unlock()
	old, exists := m.objects[key]
	if why := refusal(o, old.etag, exists); why != "" {
		return fail(ErrPrecondition, why, nil)
	}
	if m.maxBytes > 0 && m.bytes-int64(len(old.data))+size > m.maxBytes {
		return fail(ErrUnavailable, fmt.Sprintf("store is full (%d of %d bytes)", m.bytes, m.maxBytes), nil)
	}
	m.version++
	obj := memObject{data: data, etag: strconv.Quote("m" + strconv.FormatUint(m.version, 36)), modified: now}
	m.objects[key] = obj
	m.bytes += size - int64(len(old.data))
	return obj.describe(key), nil
}

// Get implements Store.
func (m *Mem) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, Object, error) {
	obj, err := m.find(ctx, OpGet, key)
	if err != nil {
		return nil, Object{}, err
	}
	size := int64(len(obj.data))
	n, ok := clampRange(off, n, size)
	if !ok {
		return nil, Object{}, errRange(m.String(), key, off, n, size)
	}
	src := io.NopCloser(bytes.NewReader(obj.data[off : off+n]))
	return newExactReader(ctx, src, n, m.String(), key), obj.describe(key), nil
}

// Head implements Store.
func (m *Mem) Head(ctx context.Context, key string) (Object, error) {
	obj, err := m.find(ctx, OpHead, key)
	if err != nil {
		return Object{}, err
	}
	return obj.describe(key), nil
}

// Delete implements Store.
func (m *Mem) Delete(ctx context.Context, keys ...string) error {
	if err := checkKeys(ctx, m.String(), keys); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range keys {
		if obj, ok := m.objects[key]; ok {
			m.bytes -= int64(len(obj.data))
			delete(m.objects, key)
		}
	}
	return nil
}

// List implements Store. It shows the objects that existed when it started.
func (m *Mem) List(ctx context.Context, prefix, after string, fn func(Object) bool) error {
	if err := checkContext(ctx, OpList, m.String(), prefix); err != nil {
		return err
	}
	m.mu.Lock()
	var found []Object
	for key, obj := range m.objects {
		if strings.HasPrefix(key, prefix) && key > after {
			found = append(found, obj.describe(key))
		}
	}
	m.mu.Unlock()
	slices.SortFunc(found, func(a, b Object) int { return strings.Compare(a.Key, b.Key) })
	for _, obj := range found {
		if err := ctx.Err(); err != nil {
			return &Error{Op: OpList, Place: m.String(), Key: prefix, Kind: ErrUnavailable, Err: err}
		}
		if !fn(obj) {
			return nil
		}
	}
	return nil
}

func (m *Mem) find(ctx context.Context, op Op, key string) (memObject, error) {
	if err := checkKey(op, m.String(), key); err != nil {
		return memObject{}, err
	}
	if err := checkContext(ctx, op, m.String(), key); err != nil {
		return memObject{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	obj, ok := m.objects[key]
	if !ok {
		return memObject{}, &Error{Op: op, Place: m.String(), Key: key, Kind: ErrNotFound}
	}
	return obj, nil
}

func (o memObject) describe(key string) Object {
	return Object{Key: key, ETag: o.etag, Size: int64(len(o.data)), Modified: o.modified}
}
