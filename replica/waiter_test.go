package replica

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// watchBare registers a watch without a partition around it: bounds and tail are the test's.
func watchBare(w *Waiter, ws *watchers, t *tail, offset int64, isolation int8, bound int64) {
	e := &watch{waiter: w, in: ws, isolation: isolation, counting: w.min > 1, offset: offset}
	e.counted = t.at(max(bound, offset))
	w.watches = append(w.watches, e)
	ws.add(e)
}

func fired(w *Waiter) bool {
	select {
	case <-w.C():
		return true
	default:
		return false
	}
}

func TestWaiterWakesOnlyWhenItsIsolationReachesIt(t *testing.T) {
	var ws watchers
	var tl tail
	dirty, committed := newWaiter(1), newWaiter(1)
	watchBare(dirty, &ws, &tl, 10, ReadUncommitted, 10)
	watchBare(committed, &ws, &tl, 10, ReadCommitted, 10)
	tl.add(11, 70)
	ws.advanced([isolations]int64{10, 10, 11}, &tl)
	if fired(dirty) || fired(committed) {
		t.Fatal("woken by a batch nobody may see yet")
	}
	ws.advanced([isolations]int64{11, 10, 11}, &tl)
	if !fired(dirty) || fired(committed) {
		t.Fatal("the high watermark wakes read_uncommitted only")
	}
	ws.advanced([isolations]int64{11, 11, 11}, &tl)
	if !fired(committed) {
		t.Fatal("the last stable offset wakes read_committed")
	}
	dirty.Close()
	committed.Close()
	if n := ws.n.Load(); n != 0 {
		t.Fatalf("%d watches left", n)
	}
}

func TestWaiterCountsBytesAcrossPartitions(t *testing.T) {
	var a, b watchers
	var ta, tb tail
	w := newWaiter(100)
	watchBare(w, &a, &ta, 0, ReadUncommitted, 0)
	watchBare(w, &b, &tb, 5, ReadUncommitted, 5)
	ta.add(1, 60)
	a.advanced([isolations]int64{1, 1, 1}, &ta)
	if fired(w) {
		t.Fatal("60 of 100 bytes")
	}
	tb.add(6, 39)
	b.advanced([isolations]int64{6, 6, 6}, &tb)
	if fired(w) {
		t.Fatal("99 of 100 bytes")
	}
	tb.add(7, 1)
	b.advanced([isolations]int64{7, 7, 7}, &tb)
	if !fired(w) {
		t.Fatal("100 of 100 bytes")
	}
	w.Close()
}

func TestWakeAllTakesThoseBelowTheNewLogStart(t *testing.T) {
	var ws watchers
	var tl tail
	low, high := newWaiter(1), newWaiter(50)
	watchBare(low, &ws, &tl, 3, ReadUncommitted, 3)
	watchBare(high, &ws, &tl, 9, ReadUncommitted, 3)
	ws.wakeAll(func(offset int64) bool { return offset < 5 })
	if !fired(low) || fired(high) {
		t.Fatal("only the reader below 5 has lost its place")
	}
	ws.wakeAll(nil)
	if !fired(high) {
		t.Fatal("a change of leadership concerns everyone")
	}
	low.Close()
	high.Close()
}

// TestWaitersAgreeWithBruteForce appends and advances at random and checks that every waiter has fired exactly when the bytes
// between its offset and its bound reach its minimum.
func TestWaitersAgreeWithBruteForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var ws watchers
		var tl tail
		var sizes []int64
		type poll struct {
			w         *Waiter
			offset    int64
			isolation int8
			done      bool
		}
		var polls []*poll
		bounds := [isolations]int64{}
		for range 120 {
			switch rapid.IntRange(0, 5).Draw(t, "op") {
			case 0, 1, 2:
				size := rapid.Int64Range(1, 50).Draw(t, "size")
				sizes = append(sizes, size)
				tl.add(int64(len(sizes)), size)
				bounds[2] = int64(len(sizes))
			case 3:
				bounds[0] = rapid.Int64Range(bounds[0], bounds[2]).Draw(t, "hw")
				bounds[1] = rapid.Int64Range(bounds[1], bounds[0]).Draw(t, "lso")
				tl.seen(bounds[1])
			case 4:
				iso := int8(rapid.IntRange(0, 1).Draw(t, "isolation"))
				p := &poll{w: newWaiter(rapid.IntRange(1, 120).Draw(t, "min")), isolation: iso,
					offset: rapid.Int64Range(bounds[iso], bounds[2]).Draw(t, "offset")}
				watchBare(p.w, &ws, &tl, p.offset, iso, bounds[iso])
				polls = append(polls, p)
			case 5:
				if len(polls) > 0 {
					i := rapid.IntRange(0, len(polls)-1).Draw(t, "closed")
					polls[i].w.Close()
					polls = append(polls[:i], polls[i+1:]...)
				}
			}
			ws.advanced(bounds, &tl)
			for _, p := range polls {
				var have int64
				for o := p.offset; o < bounds[p.isolation]; o++ {
					have += sizes[o]
				}
				if got, want := fired(p.w), have >= p.w.min && !p.done; got != want {
					t.Fatalf("offset %d, min %d, have %d: fired %v, want %v", p.offset, p.w.min, have, got, want)
				} else if got {
					p.done = true
				}
			}
		}
		for _, p := range polls {
			p.w.Close()
		}
		if n := ws.n.Load(); n != 0 {
			t.Fatalf("%d watches left", n)
		}
	})
}

func TestTailThinsButNeverCountsEarly(t *testing.T) {
	var tl tail
	for i := range int64(3 * tailPointsMax) {
		tl.add(i+1, 10)
		if n := len(tl.points); n > tailPointsMax {
			t.Fatalf("%d points", n)
		}
	}
	for i := range int64(3 * tailPointsMax) {
		if got := tl.at(i); got > i*10 {
			t.Fatalf("at %d counts %d, more than the %d there", i, got, i*10)
		}
	}
	if got, want := tl.at(3*tailPointsMax), int64(30*tailPointsMax); got != want {
		t.Fatalf("at the end %d, want %d", got, want)
	}
}

func TestTailTakesAppendsReportedOutOfOrder(t *testing.T) {
	var tl tail
	tl.add(10, 100)
	tl.add(30, 7)
	tl.add(20, 50)
	for offset, want := range map[int64]int64{5: 0, 10: 100, 19: 100, 20: 150, 30: 157} {
		if got := tl.at(offset); got != want {
			t.Errorf("at %d: %d, want %d", offset, got, want)
		}
	}
}

// BenchmarkAdvance measures what an append costs the long polls: idle ones whose minimum is not reached must stay asleep.
func BenchmarkAdvance(b *testing.B) {
	for _, n := range []int{0, 1, 100, 1000} {
		b.Run(fmt.Sprintf("asleep/first-byte/waiters=%d", n), func(b *testing.B) { benchAdvance(b, n, 1, 1<<40) })
		if n > 0 {
			b.Run(fmt.Sprintf("asleep/counting/waiters=%d", n), func(b *testing.B) { benchAdvance(b, n, 1<<40, 0) })
			b.Run(fmt.Sprintf("woken/waiters=%d", n), func(b *testing.B) { benchWake(b, n) })
		}
	}
}

func benchAdvance(b *testing.B, n, minBytes int, offset int64) {
	var ws watchers
	var tl tail
	for range n {
		w := newWaiter(minBytes)
		watchBare(w, &ws, &tl, offset, ReadUncommitted, offset)
	}
	b.ReportAllocs()
	end := int64(0)
	for b.Loop() {
		end++
		tl.add(end, 1)
		ws.advanced([isolations]int64{end, end, end}, &tl)
		tl.seen(end)
	}
}

// benchWake measures a whole cycle of n polls at the tail: each registers, one append wakes all, each takes its signal.
func benchWake(b *testing.B, n int) {
	var ws watchers
	var tl tail
	b.ReportAllocs()
	end := int64(0)
	polls := make([]*Waiter, n)
	for b.Loop() {
		for i := range polls {
			polls[i] = newWaiter(1)
			watchBare(polls[i], &ws, &tl, end, ReadUncommitted, end)
		}
		end++
		tl.add(end, 1)
		ws.advanced([isolations]int64{end, end, end}, &tl)
		for _, w := range polls {
			<-w.C()
			w.Close()
		}
		tl.seen(end)
	}
}
