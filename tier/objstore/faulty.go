package objstore

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"
)

// Fault is what goes wrong in a call.
type Fault int

// The faults.
const (
	// FaultNone only delays: see Rule.Delay.
	FaultNone Fault = iota
	// FaultBefore fails the call with ErrUnavailable; nothing was applied, and the caller knows.
	FaultBefore
	// FaultLostRequest fails the call as a cut connection does; nothing was applied, but a conditional put gets
	// ErrUnknownOutcome.
	FaultLostRequest
	// FaultLostAnswer carries the call out and then fails it as FaultLostRequest does. A put that the store refuses
	// fails the same way.
	FaultLostAnswer
	// FaultTruncate ends a Get's body, or a List, with an error half-way. Other calls fail as with FaultLostRequest.
	FaultTruncate
	// FaultStall makes a Get's body hang half-way, and any other call at its start, until its context ends.
	FaultStall
	// FaultCorrupt flips one bit of a Get's body. Other calls are not harmed.
	FaultCorrupt
	// FaultNotFound answers 404 (ErrNotFound) and FaultPrecondition 412 (ErrPrecondition) whatever the truth is.
	FaultNotFound
	FaultPrecondition
	// FaultSlowDown answers 503: ErrUnavailable, or ErrUnknownOutcome for a conditional put. Nothing was applied.
	FaultSlowDown
	// FaultDenied answers 403 (ErrDenied).
	FaultDenied
)

var faultNames = [...]string{"none", "before", "lost request", "lost answer", "truncate", "stall", "corrupt",
	"not found", "precondition", "slow down", "denied"}

func (f Fault) String() string {
	if f < 0 || int(f) >= len(faultNames) {
		return fmt.Sprintf("fault %d", int(f))
	}
	return faultNames[f]
}

// Rule says which calls a fault hits. Conditions that are zero always hold; all must hold.
type Rule struct {
	Op  Op     // which operation
	Key string // glob over keys; '*' stands for any run of characters, '/' included, and '?' for one. A delete matches by its first key.
	// Nth hits only the nth call that matches Op and Key, counted from 1.
	Nth int
	// Times ends the rule after so many hits.
	Times int
	// Probability hits at random, by the wrapper's seed.
	Probability float64
	// Only hits the calls for which it says yes.
	Only func(op Op, key string) bool

	Fault Fault
	// Delay passes before anything else happens.
	Delay time.Duration
}

// Faulty wraps a store and injects faults by rules. The first rule that hits a call counts. Given the same seed and the
// same calls in the same order it does the same.
type Faulty struct {
	inner Store

	mu    sync.Mutex // guards the following
	rand  *rand.Rand
	rules []ruleState
	hits  int
}

type ruleState struct {
	Rule
	matched int
	hits    int
}

var _ Store = (*Faulty)(nil)

// NewFaulty wraps a store; without rules it changes nothing.
func NewFaulty(inner Store, seed uint64, rules ...Rule) *Faulty {
	f := &Faulty{inner: inner, rand: rand.New(rand.NewPCG(seed, 0x5bd1e995))}
	f.Set(rules...)
	return f
}

// Set replaces all rules, and starts their counts anew.
func (f *Faulty) Set(rules ...Rule) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = make([]ruleState, len(rules))
	for i, r := range rules {
		f.rules[i].Rule = r
	}
}

// Hits says how many calls rules have hit, in all.
func (f *Faulty) Hits() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hits
}

// String is the inner store's address.
func (f *Faulty) String() string { return placeOf(f.inner) }

// decide picks the rule that hits a call.
func (f *Faulty) decide(op Op, key string) Rule {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.rules {
		r := &f.rules[i]
		if r.Op != "" && r.Op != op || r.Key != "" && !matchGlob(r.Key, key) || r.Only != nil && !r.Only(op, key) {
			continue
		}
		r.matched++
		if r.Nth != 0 && r.Nth != r.matched || r.Times != 0 && r.hits >= r.Times ||
			r.Probability != 0 && f.rand.Float64() >= r.Probability {
			continue
		}
		r.hits++
		f.hits++
		return r.Rule
	}
	return Rule{}
}

// begin waits out the delay and fails the call if its fault does so before it reaches the store.
func (f *Faulty) begin(ctx context.Context, op Op, key string, conditional bool) (Fault, error) {
	r := f.decide(op, key)
	fail := func(kind error, err error) (Fault, error) {
		return r.Fault, &Error{Op: op, Place: f.String(), Key: key, Kind: kind, Detail: "injected: " + r.Fault.String(), Err: err}
	}
	if r.Delay > 0 {
		if err := sleep(ctx, r.Delay); err != nil {
			return fail(lost(conditional), err)
		}
	}
	switch r.Fault {
	case FaultBefore:
		return fail(ErrUnavailable, nil)
	case FaultLostRequest, FaultSlowDown:
		return fail(lost(conditional), nil)
	case FaultTruncate:
		if op != OpGet && op != OpList {
			return fail(lost(conditional), nil)
		}
	case FaultStall:
		if op != OpGet {
			<-ctx.Done()
			return fail(lost(conditional), ctx.Err())
		}
	case FaultNotFound:
		return fail(ErrNotFound, nil)
	case FaultPrecondition:
		return fail(ErrPrecondition, nil)
	case FaultDenied:
		return fail(ErrDenied, nil)
	}
	return r.Fault, nil
}

func (f *Faulty) lostAnswer(op Op, key string, conditional bool) error {
	return &Error{Op: op, Place: f.String(), Key: key, Kind: lost(conditional), Detail: "injected: " + FaultLostAnswer.String()}
}

// Put implements Store.
func (f *Faulty) Put(ctx context.Context, key string, body Body, o PutOptions) (Object, error) {
	fault, err := f.begin(ctx, OpPut, key, o.conditional())
	if err != nil {
		return Object{}, err
	}
	obj, err := f.inner.Put(ctx, key, body, o)
	if fault == FaultLostAnswer {
		return Object{}, f.lostAnswer(OpPut, key, o.conditional())
	}
	return obj, err
}

// Get implements Store.
func (f *Faulty) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, Object, error) {
	fault, err := f.begin(ctx, OpGet, key, false)
	if err != nil {
		return nil, Object{}, err
	}
	body, obj, err := f.inner.Get(ctx, key, off, n)
	if err != nil {
		return nil, Object{}, err
	}
	length := n
	if n < 0 {
		length = obj.Size - off
	}
	switch fault {
	case FaultLostAnswer:
		_ = body.Close() // the caller never sees it
		return nil, Object{}, f.lostAnswer(OpGet, key, false)
	case FaultTruncate, FaultStall, FaultCorrupt:
		body = &faultyBody{ReadCloser: body, ctx: ctx, place: f.String(), key: key, fault: fault, at: length / 2}
	}
	return body, obj, nil
}

// Head implements Store.
func (f *Faulty) Head(ctx context.Context, key string) (Object, error) {
	fault, err := f.begin(ctx, OpHead, key, false)
	if err != nil {
		return Object{}, err
	}
	obj, err := f.inner.Head(ctx, key)
	if fault == FaultLostAnswer {
		return Object{}, f.lostAnswer(OpHead, key, false)
	}
	return obj, err
}

// Delete implements Store.
func (f *Faulty) Delete(ctx context.Context, keys ...string) error {
	if len(keys) == 0 {
		return f.inner.Delete(ctx)
	}
	fault, err := f.begin(ctx, OpDelete, keys[0], false)
	if err != nil {
		return err
	}
	err = f.inner.Delete(ctx, keys...)
	if fault == FaultLostAnswer {
		return f.lostAnswer(OpDelete, keys[0], false)
	}
	return err
}

// List implements Store.
func (f *Faulty) List(ctx context.Context, prefix, after string, fn func(Object) bool) error {
	fault, err := f.begin(ctx, OpList, prefix, false)
	if err != nil {
		return err
	}
	if fault != FaultTruncate && fault != FaultLostAnswer {
		return f.inner.List(ctx, prefix, after, fn)
	}
	var all []Object
	if err := f.inner.List(ctx, prefix, after, func(o Object) bool { all = append(all, o); return true }); err != nil {
		return err
	}
	for _, o := range all[:len(all)/2] {
		if !fn(o) {
			return nil
		}
	}
	return &Error{Op: OpList, Place: f.String(), Key: prefix, Kind: ErrUnavailable, Detail: "injected: " + fault.String()}
}

// faultyBody harms a body at one position.
type faultyBody struct {
	io.ReadCloser
	ctx   context.Context
	place string
	key   string
	fault Fault
	at    int64 // bytes until the fault
}

func (b *faultyBody) Read(p []byte) (int, error) {
	if b.at == 0 && b.fault != FaultCorrupt {
		if b.fault == FaultStall {
			<-b.ctx.Done()
		}
		return 0, &Error{Op: OpGet, Place: b.place, Key: b.key, Kind: ErrUnavailable, Detail: "injected: " + b.fault.String(),
			Err: bodyCause(b.ctx)}
	}
	if b.fault != FaultCorrupt && int64(len(p)) > b.at {
		p = p[:b.at]
	}
	n, err := b.ReadCloser.Read(p)
	if b.fault == FaultCorrupt && b.at >= 0 && b.at < int64(n) {
		p[b.at] ^= 0x10
	}
	b.at -= int64(n)
	return n, err
}

func bodyCause(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return io.ErrUnexpectedEOF
}

// matchGlob matches a whole key; '*' is any run, '?' any one byte.
func matchGlob(pattern, key string) bool {
	p, k := 0, 0
	star, resume := -1, 0
	for k < len(key) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, resume = p, k
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == key[k]):
			p++
			k++
		case star >= 0:
			resume++
			p, k = star+1, resume
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// sleep waits for d or until the context ends.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
