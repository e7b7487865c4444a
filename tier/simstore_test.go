package tier

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"time"

	"github.com/varvelog/varve/tier/objstore"
)

// simStore is the shared bucket of a simulation: a memory store with faults, that
// reports every mutation to the checker.
type simStore struct {
	mem  *objstore.Mem
	rng  *rand.Rand
	now  func() int64 // true time, ms
	down bool
	// Probabilities of a failure before and after the operation took effect.
	before, after float64

	modified map[string]int64
	onPut    func(key string)
	onDelete func(keys []string)
}

var errInjected = errors.New("injected")

func (s *simStore) fail(op objstore.Op, key string, conditional bool) error {
	kind := objstore.ErrUnavailable
	if conditional {
		kind = objstore.ErrUnknownOutcome
	}
	return &objstore.Error{Op: op, Place: "sim:", Key: key, Kind: kind, Err: errInjected}
}

func (s *simStore) broken() bool { return s.down || s.rng.Float64() < s.before }

func (s *simStore) Put(ctx context.Context, key string, body objstore.Body, o objstore.PutOptions) (objstore.Object, error) {
	if s.broken() {
		return objstore.Object{}, s.fail(objstore.OpPut, key, false)
	}
	obj, err := s.mem.Put(ctx, key, body, o)
	if err != nil {
		return obj, err
	}
	s.modified[key] = s.now()
	s.onPut(key)
	if s.rng.Float64() < s.after {
		return objstore.Object{}, s.fail(objstore.OpPut, key, o.IfMatch != "" || o.IfNoneMatch)
	}
	return obj, nil
}

func (s *simStore) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, objstore.Object, error) {
	if s.broken() {
		return nil, objstore.Object{}, s.fail(objstore.OpGet, key, false)
	}
	return s.mem.Get(ctx, key, off, n)
}

func (s *simStore) Head(ctx context.Context, key string) (objstore.Object, error) {
	if s.broken() {
		return objstore.Object{}, s.fail(objstore.OpHead, key, false)
	}
	return s.mem.Head(ctx, key)
}

func (s *simStore) Delete(ctx context.Context, keys ...string) error {
	if s.broken() {
		return s.fail(objstore.OpDelete, keys[0], false)
	}
	s.onDelete(keys)
	if err := s.mem.Delete(ctx, keys...); err != nil {
		return err
	}
	if s.rng.Float64() < s.after {
		return s.fail(objstore.OpDelete, keys[0], false)
	}
	return nil
}

func (s *simStore) List(ctx context.Context, prefix, after string, fn func(objstore.Object) bool) error {
	if s.broken() {
		return s.fail(objstore.OpList, prefix, false)
	}
	return s.mem.List(ctx, prefix, after, func(o objstore.Object) bool {
		o.Modified = time.UnixMilli(s.modified[o.Key] + simEpoch)
		return fn(o)
	})
}
