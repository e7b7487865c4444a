package tier

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// carryOut does what the core decided. It runs on the loop's goroutine and never
// blocks: what may block goes to a goroutine of its own (the core bounds how many
// there are) or to the look pool.
func (m *Manager) carryOut(fx effect) {
	if b, ok := fx.(fxBury); ok {
		m.start(b, b.timeoutMillis, func() { m.bury(b) })
		return
	}
	r := refOf(fx)
	l := m.byGen[r.gen]
	if l == nil {
		return
	}
	a := answer{p: r.p, gen: r.gen}
	switch e := fx.(type) {
	case fxLook:
		m.peek(e, func() { m.look(l, e, a) })
	case fxRoll:
		m.peek(e, func() { m.post(evRolled{a.with(l.call(l.log.Roll))}) })
	case fxAdvanceStart:
		m.peek(e, func() {
			m.post(evStarted{a.with(l.call(func() error {
				if !l.log.Leased() {
					return errNoLease
				}
				return l.log.AdvanceLogStart(e.offset)
			}))})
		})
	case fxSetRemoteEnd:
		if !l.resigned.Load() {
			l.log.SetRemoteEnd(e.end)
		}
	case fxWatch:
		l.watch(e.stable)
	case fxCancel:
		l.cancel() // left, or fenced: nothing more is started for it
		if l.resigned.Load() {
			delete(m.byGen, r.gen)
		}
	case fxRelease:
		l.settle(e.ids)
	case fxReport:
		m.report(l, e)
	case fxTell:
		m.tell(e)
	default:
		m.carryOutCall(l, fx, a)
	}
}

// carryOutCall starts the calls that go to the archive.
func (m *Manager) carryOutCall(l *Leadership, fx effect, a answer) {
	ctx := l.ctx
	switch e := fx.(type) {
	case fxLoad:
		m.start(e, e.timeoutMillis, func() { m.load(ctx, l, e, a) })
	case fxClaim:
		m.start(e, e.timeoutMillis, func() { m.claim(ctx, l, e, a) })
	case fxUpload:
		m.start(e, e.timeoutMillis, func() { m.upload(ctx, l, e, a) })
	case fxCommit:
		m.start(e, e.timeoutMillis, func() { m.commit(ctx, l, e, a) })
	case fxOldest:
		m.start(e, e.timeoutMillis, func() { m.oldest(ctx, l, e, a) })
	case fxMarked:
		m.start(e, e.timeoutMillis, func() { m.marked(ctx, l, e, a) })
	case fxDelete:
		m.start(e, e.timeoutMillis, func() { m.remove(ctx, l, e, a) })
	case fxCollect:
		m.start(e, e.timeoutMillis, func() { m.collect(ctx, l, e, a) })
	case fxScrub:
		m.start(e, e.timeoutMillis, func() { m.scrub(ctx, l, e, a) })
	case fxExamine:
		m.start(e, e.timeoutMillis, func() { m.examine(ctx, l, e, a) })
	case fxMend:
		m.start(e, e.timeoutMillis, func() { m.mend(ctx, l, e, a) })
	default:
		panic(fmt.Sprintf("tier: effect %T is not carried out", fx))
	}
}

func (r ref) reference() ref { return r }

func refOf(fx effect) ref {
	return fx.(interface{ reference() ref }).reference()
}

func (a answer) with(err error) answer {
	a.err = err
	return a
}

// errResigned answers calls that came too late.
var errResigned = errors.New("tier: leadership resigned")

// errNoLease is returned when something is to be claimed, uploaded, committed or let
// go while the cluster may have given up on this broker. Somebody else may lead by
// now, or the topic be deleted, and what this broker puts into the bucket would be
// found by nobody. Or retention may have been raised since: a leader that has had
// nothing to commit yet fences nobody, so nobody but this rule keeps the one before
// it from deleting by settings of yesterday.
var errNoLease = errors.New("tier: the session with the controller has ended: nothing is put into the bucket or deleted before it is back")

// call runs fn unless the leadership is over.
func (l *Leadership) call(fn func() error) error {
	if l.resigned.Load() {
		return errResigned
	}
	return fn()
}

// deadlineSlack is how long a call may take to notice that its context ended.
const deadlineSlack = 5 * time.Second

// errNotEnded is returned when a call was left behind that goes on still.
var errNotEnded = errors.New("tier: call does not end")

// within runs fn under a hard deadline. A call that ignores its context is left
// behind when the slack is over, so that it cannot hold a slot for ever; what it
// still does in the store is an unknown outcome like any other.
func within[T any](m *Manager, ctx context.Context, timeoutMillis int64, fn func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(timeoutMillis)*time.Millisecond)
	if m.stepped != nil {
		defer cancel()
		return fn(ctx)
	}
	type result struct {
		v   T
		err error
	}
	out := make(chan result, 1)
	m.wg.Go(func() { // owned by this call; ends with fn
		defer cancel()
		v, err := fn(ctx)
		out <- result{v, err}
	})
	select {
	case r := <-out:
		return r.v, r.err
	case <-ctx.Done():
	}
	slack := time.NewTimer(deadlineSlack)
	defer slack.Stop()
	select {
	case r := <-out:
		return r.v, r.err
	case <-slack.C:
		var zero T
		return zero, fmt.Errorf("%w: %w", errNotEnded, context.Cause(ctx))
	}
}

func (m *Manager) look(l *Leadership, e fxLook, a answer) {
	var view logView
	err := l.call(func() error {
		view.LogOffsets = l.log.Offsets()
		view.judged = judgement{offset: e.judge, epoch: -1}
		if e.judge >= 0 {
			view.judged.epoch, view.judged.below = l.log.EpochAt(e.judge)
		}
		from := e.above
		if e.all {
			from = -1
		}
		for _, s := range l.log.Sealed(from, math.MaxInt64) {
			view.add(localSegment{
				base: s.BaseOffset(), end: s.EndOffset(), bytes: s.SizeBytes(), maxTimestamp: s.MaxTimestamp(),
				modified: s.Modified(),
			}, e.above)
		}
		return nil
	})
	m.post(evLooked{answer: a.with(err), view: view})
}

func (m *Manager) load(ctx context.Context, l *Leadership, e fxLoad, a answer) {
	state, ok := l.remote.Cached()
	var err error
	if !ok {
		state, err = within(m, ctx, e.timeoutMillis, l.remote.State)
	}
	ev := evLoaded{answer: a.with(err), state: state}
	if e.scrub {
		ev.scrub = m.archive.db.scrubAt(l.remote.key)
	}
	m.post(ev)
}

func (m *Manager) claim(ctx context.Context, l *Leadership, e fxClaim, a answer) {
	state, err := within(m, ctx, e.timeoutMillis, func(ctx context.Context) (State, error) {
		if !l.log.Leased() {
			return State{}, errNoLease
		}
		if err := l.remote.Claim(ctx, e.epoch); err != nil {
			return State{}, err
		}
		if e.fresh {
			return l.remote.Refresh(ctx)
		}
		return l.remote.State(ctx)
	})
	m.post(evClaimed{answer: a.with(err), state: state})
}

func (m *Manager) commit(ctx context.Context, l *Leadership, e fxCommit, a answer) {
	state, err := within(m, ctx, e.timeoutMillis, func(ctx context.Context) (State, error) {
		if !l.log.Leased() {
			return State{}, errNoLease
		}
		if err := l.remote.Commit(ctx, e.edit); err != nil {
			return State{}, err
		}
		return l.remote.State(ctx)
	})
	m.counts.update(e.p.Topic, func(t *TopicCounters) {
		t.Commits++
		if err != nil {
			t.CommitErrors++
		}
	})
	m.post(evCommitted{answer: a.with(err), state: state})
}

func (m *Manager) oldest(ctx context.Context, l *Leadership, e fxOldest, a answer) {
	type window struct {
		state    State
		segments []RemoteSegment
		complete bool
	}
	w, err := within(m, ctx, e.timeoutMillis, func(ctx context.Context) (window, error) {
		state, err := l.remote.State(ctx)
		if err != nil {
			return window{}, err
		}
		w := window{state: state, complete: true}
		err = l.remote.Segments(ctx, state.Start, func(s RemoteSegment) bool {
			if len(w.segments) == e.n {
				w.complete = false
				return false
			}
			w.segments = append(w.segments, s)
			return true
		})
		return w, err
	})
	m.post(evOldest{answer: a.with(err), state: w.state, segments: w.segments, complete: w.complete})
}

func (m *Manager) marked(ctx context.Context, l *Leadership, e fxMarked, a answer) {
	type list struct {
		state  State
		marked []Marked
	}
	got, err := within(m, ctx, e.timeoutMillis, func(ctx context.Context) (list, error) {
		state, err := l.remote.State(ctx)
		if err != nil {
			return list{}, err
		}
		marked, err := l.remote.Marked(ctx)
		return list{state, marked}, err
	})
	m.post(evMarked{answer: a.with(err), state: got.state, marked: got.marked})
}

func (m *Manager) remove(ctx context.Context, l *Leadership, e fxDelete, a answer) {
	_, err := within(m, ctx, e.timeoutMillis, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, m.archive.deps.Store.Delete(ctx, e.keys...)
	})
	m.counts.update(e.p.Topic, func(t *TopicCounters) {
		t.DeleteRequests++
		if err != nil {
			t.DeleteErrors++
		} else {
			t.DeletedObjects += int64(len(e.keys))
		}
	})
	m.post(evDeleted{answer: a.with(err), ids: e.ids, key: e.keys[0]})
}

func (m *Manager) report(l *Leadership, e fxReport) {
	log := m.log.With("topic", e.p.Topic, "partition", e.p.Index)
	if !e.stuck {
		log.Info("tiering makes progress again")
		return
	}
	attrs := []any{"what", e.what, "since", time.UnixMilli(e.since).UTC()}
	if pr := e.problem; pr != nil {
		attrs = append(attrs, "op", pr.Op, "key", pr.Key, "failures", pr.Count, "err", pr.Err)
	}
	log.Warn("tiering makes no progress", attrs...)
}
