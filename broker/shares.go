package broker

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/varvelog/varve/coordinator"
)

// Shares is the share coordinator as the handlers use it; *coordinator.Shares is one.
type Shares interface {
	Locate(ctx context.Context, key string) (broker int32, err error)
	Initialize(ctx context.Context, q *coordinator.ShareInitialize) error
	Read(ctx context.Context, q *coordinator.ShareRead) coordinator.ShareReadResult
	Write(ctx context.Context, q *coordinator.ShareWrite) error
	Delete(ctx context.Context, k coordinator.ShareKey) error
	Summary(ctx context.Context, k coordinator.ShareKey) coordinator.ShareSummary
}

var _ Shares = (*coordinator.Shares)(nil)

// shareAnswer is the code and the text for an error of the share coordinator.
func (s *Server) shareAnswer(r *request, err error) (int16, *string) {
	return s.codeOf(r, err), refusal(err)
}

// abreastMax bounds the parts of one request that are worked on at once.
const abreastMax = 64

// abreast calls fn for 0 to n-1, several at once, and returns when all have: parts of a request that wait for the same append
// are to be in it together. A panic of one of them is the caller's, once the others are done: nobody else would recover it.
func abreast(n int, fn func(i int)) { abreastOf(abreastMax, n, fn) }

// abreastOf is abreast with a bound of its own.
func abreastOf(most, n int, fn func(i int)) {
	if n == 1 {
		fn(0)
		return
	}
	var next atomic.Int64
	var run sync.WaitGroup
	var failed atomic.Pointer[string]
	for range min(n, most) {
		run.Go(func() {
			defer func() {
				if v := recover(); v != nil {
					text := fmt.Sprintf("%v\n%s", v, debug.Stack())
					failed.CompareAndSwap(nil, &text)
				}
			}()
			for i := int(next.Add(1)) - 1; i < n && failed.Load() == nil; i = int(next.Add(1)) - 1 {
				fn(i)
			}
		})
	}
	run.Wait()
	if text := failed.Load(); text != nil {
		panic(*text)
	}
}
