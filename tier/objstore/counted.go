package objstore

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"
)

// OpStats counts the calls of one operation.
type OpStats struct {
	// Requests counts what S3 bills: one per call, one per 1,000 keys of a Delete, one per 1,000 objects of a List.
	// Repetitions inside the s3 store, and parts, are not seen here.
	Requests int64
	// Failures counts calls that failed. ErrNotFound, ErrPrecondition and ErrRange are answers, not failures.
	Failures int64
	// Bytes counts the body bytes of successful puts and those that readers of gets have read.
	Bytes int64
}

// Stats are the counts of all operations.
type Stats struct{ Put, Get, Head, Delete, List OpStats }

// Of gives the counts of one operation.
func (s Stats) Of(op Op) OpStats {
	switch op {
	case OpPut:
		return s.Put
	case OpGet:
		return s.Get
	case OpHead:
		return s.Head
	case OpDelete:
		return s.Delete
	case OpList:
		return s.List
	}
	return OpStats{}
}

// Requests sums the requests of all operations.
func (s Stats) Requests() int64 {
	return s.Put.Requests + s.Get.Requests + s.Head.Requests + s.Delete.Requests + s.List.Requests
}

// Observer is told of each call when it returns; for a Get that is when the body begins.
type Observer func(op Op, took time.Duration, err error)

// Counted wraps a store and counts its requests.
type Counted struct {
	inner   Store
	observe Observer
	counts  [5]opCounts // by opIndex
}

type opCounts struct{ requests, failures, bytes atomic.Int64 }

var _ Store = (*Counted)(nil)

// NewCounted wraps a store. observe may be nil; it must be fast and safe for concurrent use.
func NewCounted(inner Store, observe Observer) *Counted {
	return &Counted{inner: inner, observe: observe}
}

// Stats gives the counts so far.
func (c *Counted) Stats() Stats {
	var s Stats
	for _, e := range []struct {
		to *OpStats
		op Op
	}{{&s.Put, OpPut}, {&s.Get, OpGet}, {&s.Head, OpHead}, {&s.Delete, OpDelete}, {&s.List, OpList}} {
		n := c.of(e.op)
		*e.to = OpStats{Requests: n.requests.Load(), Failures: n.failures.Load(), Bytes: n.bytes.Load()}
	}
	return s
}

// String is the inner store's address.
func (c *Counted) String() string { return placeOf(c.inner) }

func (c *Counted) of(op Op) *opCounts {
	for i, o := range Ops() {
		if o == op {
			return &c.counts[i]
		}
	}
	panic("objstore: unknown operation " + string(op))
}

func (c *Counted) done(op Op, requests int, start time.Time, err error) {
	n := c.of(op)
	n.requests.Add(int64(requests))
	if err != nil && !isAnswer(err) {
		n.failures.Add(1)
	}
	if c.observe != nil {
		c.observe(op, time.Since(start), err)
	}
}

// isAnswer tells errors that say something about the object from those that say something about the store.
func isAnswer(err error) bool {
	return errors.Is(err, ErrNotFound) || errors.Is(err, ErrPrecondition) || errors.Is(err, ErrRange)
}

// Put implements Store.
func (c *Counted) Put(ctx context.Context, key string, body Body, o PutOptions) (Object, error) {
	start := time.Now()
	obj, err := c.inner.Put(ctx, key, body, o)
	c.done(OpPut, 1, start, err)
	if err == nil {
		c.of(OpPut).bytes.Add(body.Size())
	}
	return obj, err
}

// Get implements Store.
func (c *Counted) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, Object, error) {
	start := time.Now()
	body, obj, err := c.inner.Get(ctx, key, off, n)
	c.done(OpGet, 1, start, err)
	if err != nil {
		return nil, Object{}, err
	}
	return &countedBody{ReadCloser: body, counts: c.of(OpGet)}, obj, nil
}

// Head implements Store.
func (c *Counted) Head(ctx context.Context, key string) (Object, error) {
	start := time.Now()
	obj, err := c.inner.Head(ctx, key)
	c.done(OpHead, 1, start, err)
	return obj, err
}

// Delete implements Store.
func (c *Counted) Delete(ctx context.Context, keys ...string) error {
	start := time.Now()
	err := c.inner.Delete(ctx, keys...)
	c.done(OpDelete, (len(keys)+deleteBatch-1)/deleteBatch, start, err)
	return err
}

// List implements Store.
func (c *Counted) List(ctx context.Context, prefix, after string, fn func(Object) bool) error {
	start := time.Now()
	seen := 0
	err := c.inner.List(ctx, prefix, after, func(o Object) bool {
		seen++
		return fn(o)
	})
	c.done(OpList, max(1, (seen+listPage-1)/listPage), start, err)
	return err
}

// listPage is how many objects S3 lists with one request.
const listPage = 1000

// countedBody counts what is read, and one failure if the reading fails.
type countedBody struct {
	io.ReadCloser
	counts *opCounts
	failed bool
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.counts.bytes.Add(int64(n))
	if err != nil && err != io.EOF && !b.failed {
		b.failed = true
		b.counts.failures.Add(1)
	}
	return n, err
}
