package objstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/tier/objstore"
	"github.com/varvelog/varve/tier/objstore/objstoretest"
)

func TestWrappersAcceptance(t *testing.T) {
	t.Run("Faulty", func(t *testing.T) {
		objstoretest.AcceptanceTest(t, func(*testing.T) objstore.Store { return objstore.NewFaulty(objstore.NewMem(0), 1) })
	})
	t.Run("Counted", func(t *testing.T) {
		objstoretest.AcceptanceTest(t, func(*testing.T) objstore.Store { return objstore.NewCounted(objstore.NewMem(0), nil) })
	})
	t.Run("Limited", func(t *testing.T) {
		objstoretest.AcceptanceTest(t, func(*testing.T) objstore.Store { return objstore.NewLimited(objstore.NewMem(0), 4<<30) })
	})
}

func TestFaultsFailCallsAsDescribed(t *testing.T) {
	create := objstore.PutOptions{IfNoneMatch: true}
	for _, c := range []struct {
		fault       objstore.Fault
		plain, cond error
		applied     bool
	}{
		{objstore.FaultBefore, objstore.ErrUnavailable, objstore.ErrUnavailable, false},
		{objstore.FaultLostRequest, objstore.ErrUnavailable, objstore.ErrUnknownOutcome, false},
		{objstore.FaultLostAnswer, objstore.ErrUnavailable, objstore.ErrUnknownOutcome, true},
		{objstore.FaultTruncate, objstore.ErrUnavailable, objstore.ErrUnknownOutcome, false},
		{objstore.FaultSlowDown, objstore.ErrUnavailable, objstore.ErrUnknownOutcome, false},
		{objstore.FaultPrecondition, objstore.ErrPrecondition, objstore.ErrPrecondition, false},
		{objstore.FaultNotFound, objstore.ErrNotFound, objstore.ErrNotFound, false},
		{objstore.FaultDenied, objstore.ErrDenied, objstore.ErrDenied, false},
	} {
		t.Run(c.fault.String(), func(t *testing.T) {
			mem := objstore.NewMem(0)
			f := objstore.NewFaulty(mem, 1, objstore.Rule{Op: objstore.OpPut, Fault: c.fault})
			for key, o := range map[string]objstore.PutOptions{"plain": {}, "cond": create} {
				_, err := f.Put(t.Context(), key, objstore.Bytes([]byte("x")), o)
				if o.IfNoneMatch {
					wantKind(t, err, c.cond)
				} else {
					wantKind(t, err, c.plain)
				}
				if _, err := mem.Head(t.Context(), key); (err == nil) != c.applied {
					t.Fatalf("%s: the store says %v, applied should be %v", key, err, c.applied)
				}
			}
			if f.Hits() != 2 {
				t.Fatalf("%d hits", f.Hits())
			}
		})
	}
}

func TestFaultsHarmBodies(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789"), 1000)
	mem := objstore.NewMem(0)
	put(t, mem, "k", string(content))
	f := objstore.NewFaulty(mem, 1, objstore.Rule{Op: objstore.OpGet, Fault: objstore.FaultTruncate})
	_, _, err := objstore.ReadAll(t.Context(), f, "k", 1<<20)
	wantKind(t, err, objstore.ErrUnavailable)
	wantKind(t, err, io.ErrUnexpectedEOF)

	f.Set(objstore.Rule{Op: objstore.OpGet, Fault: objstore.FaultCorrupt})
	got, _, err := objstore.ReadAll(t.Context(), f, "k", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	different := 0
	for i := range got {
		if got[i] != content[i] {
			different++
		}
	}
	if different != 1 {
		t.Fatalf("%d bytes differ, want 1", different)
	}

	synctest.Test(t, func(t *testing.T) {
		f := objstore.NewFaulty(mem, 1, objstore.Rule{Fault: objstore.FaultStall})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		_, _, err := objstore.ReadAll(ctx, f, "k", 1<<20)
		wantKind(t, err, objstore.ErrUnavailable)
		wantKind(t, err, context.DeadlineExceeded)
		if took := time.Since(start); took != time.Minute {
			t.Fatalf("stalled for %v", took)
		}
		_, err = f.Put(ctx, "k", objstore.Bytes(nil), objstore.PutOptions{IfMatch: `"x"`})
		wantKind(t, err, objstore.ErrUnknownOutcome)
	})
}

func TestFaultRulesChooseCalls(t *testing.T) {
	hits := func(rules ...objstore.Rule) []int {
		f := objstore.NewFaulty(objstore.NewMem(0), 42, rules...)
		var hit []int
		for i := range 20 {
			if _, err := f.Put(t.Context(), fmt.Sprintf("a/%d/seg", i), objstore.Bytes(nil), objstore.PutOptions{}); err != nil {
				hit = append(hit, i)
			}
			if _, err := f.Head(t.Context(), "z"); !errors.Is(err, objstore.ErrNotFound) {
				t.Fatalf("head: %v", err)
			}
		}
		return hit
	}
	put := func(r objstore.Rule) objstore.Rule { r.Op, r.Fault = objstore.OpPut, objstore.FaultBefore; return r }
	for _, c := range []struct {
		rule objstore.Rule
		want []int
	}{
		{put(objstore.Rule{Nth: 3}), []int{2}},
		{put(objstore.Rule{Times: 2}), []int{0, 1}},
		{put(objstore.Rule{Key: "a/1*/seg"}), []int{1, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19}},
		{put(objstore.Rule{Key: "*/1?/s*g", Nth: 2}), []int{11}},
		{put(objstore.Rule{Key: "b/*"}), nil},
		{put(objstore.Rule{Only: func(_ objstore.Op, key string) bool { return key == "a/7/seg" }}), []int{7}},
	} {
		if got := hits(c.rule); !slices.Equal(got, c.want) {
			t.Errorf("%+v hits %v, want %v", c.rule, got, c.want)
		}
	}
	some := hits(put(objstore.Rule{Probability: 0.5}))
	if len(some) < 3 || len(some) > 17 {
		t.Errorf("half of 20 calls: %v", some)
	}
	if again := hits(put(objstore.Rule{Probability: 0.5})); !slices.Equal(some, again) {
		t.Errorf("the same seed gives %v and then %v", some, again)
	}
}

func TestCountedCountsRequestsAndBytes(t *testing.T) {
	var seen []string
	c := objstore.NewCounted(objstore.NewMem(0), func(op objstore.Op, _ time.Duration, err error) {
		seen = append(seen, fmt.Sprintf("%s %t", op, err == nil))
	})
	put(t, c, "a", "12345")
	put(t, c, "b", "123")
	wantContent(t, c, "a", "12345")
	body, _, err := c.Get(t.Context(), "a", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(body, make([]byte, 2)); err != nil {
		t.Fatal(err)
	}
	_ = body.Close()
	_, err = c.Head(t.Context(), "absent")
	wantKind(t, err, objstore.ErrNotFound)
	if err := c.List(t.Context(), "", "", func(objstore.Object) bool { return true }); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), slices.Repeat([]string{"a"}, 1001)...); err != nil {
		t.Fatal(err)
	}
	wantKind(t, c.Delete(t.Context(), ""), objstore.ErrInvalidKey)
	want := objstore.Stats{
		Put:    objstore.OpStats{Requests: 2, Bytes: 8},
		Get:    objstore.OpStats{Requests: 2, Bytes: 7},
		Head:   objstore.OpStats{Requests: 1},
		List:   objstore.OpStats{Requests: 1},
		Delete: objstore.OpStats{Requests: 3, Failures: 1},
	}
	if got := c.Stats(); got != want || got.Requests() != 9 || got.Of(objstore.OpGet) != want.Get {
		t.Fatalf("counted %+v, want %+v", got, want)
	}
	if order := []string{"put true", "put true", "get true", "get true", "head false", "list true", "delete true", "delete false"}; !slices.Equal(seen, order) {
		t.Fatalf("observed %q", seen)
	}
}

func TestLimitedHoldsItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate = 1 << 20
		l := objstore.NewLimited(objstore.NewMem(0), rate)
		start := time.Now()
		done := make(chan error)
		for i := range 4 { // together they share the rate
			go func() {
				_, err := l.Put(t.Context(), fmt.Sprint("k", i), objstore.Bytes(make([]byte, 5*rate)), objstore.PutOptions{})
				done <- err
			}()
		}
		for range 4 {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(start); took < 19*time.Second || took > 21*time.Second {
			t.Fatalf("20 MiB at 1 MiB/s took %v", took)
		}
		l.SetRate(0)
		start = time.Now()
		put(t, l, "fast", string(make([]byte, 5*rate)))
		if took := time.Since(start); took != 0 {
			t.Fatalf("without a limit a put took %v", took)
		}
		l.SetRate(1000)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := l.Put(ctx, "slow", objstore.Bytes(make([]byte, rate)), objstore.PutOptions{})
		wantKind(t, err, objstore.ErrUnavailable)
		wantKind(t, err, context.DeadlineExceeded)
		if took := time.Since(start); took != 2*time.Second {
			t.Fatalf("a limited put ended %v after its start, its deadline was 2 s", took)
		}
	})
}

func TestMemRefusesWhatDoesNotFit(t *testing.T) {
	m := objstore.NewMem(100)
	put(t, m, "a", string(make([]byte, 60)))
	_, err := m.Put(t.Context(), "b", objstore.Bytes(make([]byte, 50)), objstore.PutOptions{})
	wantKind(t, err, objstore.ErrUnavailable)
	_, err = m.Put(t.Context(), "b", objstore.Bytes(make([]byte, 101)), objstore.PutOptions{})
	wantKind(t, err, objstore.ErrTooLarge)
	put(t, m, "a", string(make([]byte, 100)))
	if err := m.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	put(t, m, "b", string(make([]byte, 100)))
}

func TestProbeFindsStoresWithoutConditions(t *testing.T) {
	for name, s := range map[string]objstore.Store{
		"ignores all":           careless{objstore.NewMem(0), true, true},
		"ignores If-None-Match": careless{objstore.NewMem(0), true, false},
		"ignores If-Match":      careless{objstore.NewMem(0), false, true},
		"refuses all":           objstore.NewFaulty(objstore.NewMem(0), 1, objstore.Rule{Op: objstore.OpPut, Fault: objstore.FaultPrecondition}),
	} {
		t.Run(name, func(t *testing.T) {
			wantKind(t, objstore.CheckConditional(t.Context(), s), objstore.ErrCapability)
		})
	}
	down := objstore.NewFaulty(objstore.NewMem(0), 1, objstore.Rule{Fault: objstore.FaultBefore})
	err := objstore.CheckConditional(t.Context(), down)
	wantKind(t, err, objstore.ErrUnavailable)
	if errors.Is(err, objstore.ErrCapability) {
		t.Fatalf("a store that is down is called incapable: %v", err)
	}
}

// careless drops conditions, as some S3 servers do.
type careless struct {
	objstore.Store
	noneMatch, match bool
}

func (c careless) Put(ctx context.Context, key string, body objstore.Body, o objstore.PutOptions) (objstore.Object, error) {
	if c.noneMatch {
		o.IfNoneMatch = false
	}
	if c.match {
		o.IfMatch = ""
	}
	return c.Store.Put(ctx, key, body, o)
}

// busyFolder refuses the first keys, as a server over a folder does while
// another node's probe removes the folder.
type busyFolder struct {
	objstore.Store
	refusals int
}

func (b *busyFolder) Put(ctx context.Context, key string, body objstore.Body, o objstore.PutOptions) (objstore.Object, error) {
	if b.refusals > 0 {
		b.refusals--
		return objstore.Object{}, &objstore.Error{Op: objstore.OpPut, Key: key, Kind: objstore.ErrInvalidKey}
	}
	return b.Store.Put(ctx, key, body, o)
}

func TestProbesOfSeveralNodesDoNotRefuseTheStore(t *testing.T) {
	if err := objstore.CheckConditional(t.Context(), &busyFolder{objstore.NewMem(0), 3}); err != nil {
		t.Errorf("a store that was busy for a moment gives %v", err)
	}
	wantKind(t, objstore.CheckConditional(t.Context(), &busyFolder{objstore.NewMem(0), 1000}), objstore.ErrInvalidKey)
}
