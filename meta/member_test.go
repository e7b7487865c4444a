package meta

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fakeQuorum answers a Member. Its fields are changed under its lock.
type fakeQuorum struct {
	mu       sync.Mutex // guards the following
	img      *Image
	refuse   error // of the registration
	silent   bool  // heartbeats are not answered
	epoch    int64
	beats    []Heartbeat
	reply    HeartbeatReply
	registed int
	there    int64 // the registration there is, which this image does not have yet; 0 does not matter
}

func (q *fakeQuorum) set(fn func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	fn()
}

func (q *fakeQuorum) RegisterBroker(_ context.Context, r Registration) (Broker, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.registed++
	if q.refuse != nil {
		return Broker{}, q.refuse
	}
	if q.there != 0 && r.Replaces != q.there {
		return Broker{}, &StaleRegistration{Epoch: q.there}
	}
	return r.broker(q.epoch), nil
}

func (q *fakeQuorum) Heartbeat(ctx context.Context, h Heartbeat) (HeartbeatReply, error) {
	q.mu.Lock()
	silent, reply, epoch := q.silent, q.reply, q.epoch
	q.beats = append(q.beats, h)
	q.mu.Unlock()
	if silent {
		<-ctx.Done()
		return HeartbeatReply{}, ctx.Err()
	}
	if h.Epoch != epoch {
		return HeartbeatReply{}, ErrStaleBrokerEpoch
	}
	return reply, nil
}

func (q *fakeQuorum) Image() *Image {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.img
}

func (q *fakeQuorum) Subscribe(func(prev, next *Image)) func() { return func() {} }

func (q *fakeQuorum) newest() Heartbeat {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.beats[len(q.beats)-1]
}

var memberRules = MemberConfig{Registration: Registration{ID: 1, Host: "h", Port: 1}, Interval: 2 * time.Second, Timeout: 9 * time.Second, Patience: time.Minute}

func TestAMemberHasALeaseForASessionTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &fakeQuorum{img: newImage(), epoch: 7}
		m, err := Join(t.Context(), memberRules, MemberDeps{Quorum: q})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		time.Sleep(time.Minute)
		if !m.Lease() || m.Fenced() || q.newest().Epoch != 7 {
			t.Fatalf("lease %t, fenced %t, heartbeat %+v", m.Lease(), m.Fenced(), q.newest())
		}
		// The controller counts from when it hears a heartbeat, the member from
		// when it sends it: the member's lease ends first.
		q.set(func() { q.silent = true })
		time.Sleep(7*time.Second - time.Millisecond)
		if !m.Lease() {
			t.Fatal("the lease ended before the session could have")
		}
		time.Sleep(2*time.Second + 2*time.Millisecond)
		if m.Lease() {
			t.Fatal("a lease without a session")
		}
		q.set(func() { q.silent = false })
		time.Sleep(memberRules.Timeout)
		if !m.Lease() {
			t.Fatal("no lease although the controller answers again")
		}
	})
}

// TestAFencedMemberHasNoLease hears from the controller that it has given up on
// it, as after a cut: what it leads as far as its image goes may have another
// leader.
func TestAFencedMemberHasNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &fakeQuorum{img: newImage(), epoch: 7}
		m, err := Join(t.Context(), memberRules, MemberDeps{Quorum: q})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		time.Sleep(time.Minute)
		q.set(func() { q.reply.Fenced = true })
		time.Sleep(memberRules.Interval + time.Millisecond)
		if m.Lease() || !m.Fenced() {
			t.Fatalf("lease %t, fenced %t", m.Lease(), m.Fenced())
		}
		time.Sleep(time.Minute)
		if m.Lease() {
			t.Fatal("a lease while fenced")
		}
		q.set(func() { q.reply.Fenced = false })
		time.Sleep(memberRules.Interval + time.Millisecond)
		if !m.Lease() || m.Fenced() {
			t.Fatalf("let go on: lease %t, fenced %t", m.Lease(), m.Fenced())
		}
	})
}

func TestAMemberRegistersAgainUnderItsIncarnation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &fakeQuorum{img: newImage(), epoch: 7}
		var told []int64
		m, err := Join(t.Context(), memberRules, MemberDeps{Quorum: q, Registered: func(b Broker) { told = append(told, b.Epoch) }})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		incarnation := m.Self().Incarnation
		q.set(func() { q.epoch = 9 })
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if len(told) != 2 || told[1] != 9 || m.Self().Epoch != 9 || m.Self().Incarnation != incarnation || incarnation.IsZero() {
			t.Fatalf("told %v, is %+v", told, m.Self())
		}
	})
}

// TestAMemberThatRegistersAgainHasNoLeaseUntilItIsLetGoOn has an image of before
// its new registration, in which it leads what others may lead by now.
func TestAMemberThatRegistersAgainHasNoLeaseUntilItIsLetGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &fakeQuorum{img: newImage(), epoch: 7}
		m, err := Join(t.Context(), memberRules, MemberDeps{Quorum: q})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		if !m.Lease() {
			t.Error("no lease at the first registration")
		}
		synctest.Wait()
		q.set(func() { q.epoch, q.reply.Fenced = 9, true })
		for range 60 {
			<-time.After(100 * time.Millisecond)
			if m.Self().Epoch == 9 && m.Lease() {
				t.Fatal("a lease on the new registration alone")
			}
		}
		if m.Self().Epoch != 9 {
			t.Fatal("not registered again")
		}
		q.set(func() { q.reply.Fenced = false })
		<-time.After(memberRules.Interval + time.Millisecond)
		if !m.Lease() {
			t.Error("let go on, and no lease")
		}
	})
}

func TestAMemberTriesUntilItIsRegistered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &fakeQuorum{img: newImage(), epoch: 7, refuse: ErrDuplicateBroker}
		go func() {
			time.Sleep(10 * time.Second)
			q.set(func() { q.refuse = nil })
		}()
		m, err := Join(t.Context(), memberRules, MemberDeps{Quorum: q})
		if err != nil {
			t.Fatal(err)
		}
		m.Close()
		q.set(func() { q.refuse = ErrNotController })
		began := time.Now()
		if _, err := Join(t.Context(), memberRules, MemberDeps{Quorum: q}); !errors.Is(err, ErrNotController) || time.Since(began) != memberRules.Patience {
			t.Errorf("gave up after %v: %v", time.Since(began), err)
		}
		q.set(func() { q.refuse = ErrInconsistentCluster })
		began = time.Now()
		if _, err := Join(t.Context(), memberRules, MemberDeps{Quorum: q}); !errors.Is(err, ErrInconsistentCluster) || time.Since(began) != 0 {
			t.Errorf("gave up after %v: %v", time.Since(began), err)
		}
	})
}

func TestAMemberNamesTheRegistrationItReplaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &fakeQuorum{img: newImage(), epoch: 7, there: 5}
		m, err := Join(t.Context(), memberRules, MemberDeps{Quorum: q})
		if err != nil || q.registed != 2 {
			t.Fatalf("registered in %d tries, %v; it is told at once what to replace", q.registed, err)
		}
		m.Close()
		// Somebody who goes on answering the same is not asked in a hurry.
		q.there, q.registed, q.refuse = 0, 0, &StaleRegistration{Epoch: -1}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := Join(ctx, memberRules, MemberDeps{Quorum: q}); !errors.Is(err, ErrStaleBrokerEpoch) || q.registed > 10 {
			t.Fatalf("%d tries, %v", q.registed, err)
		}
	})
}

func TestAMemberStaysFencedUntilItIsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &fakeQuorum{img: newImage(), epoch: 7}
		ready := false
		m, err := Join(t.Context(), memberRules, MemberDeps{Quorum: q, Ready: func() bool { return ready }})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		synctest.Wait()
		if !q.newest().WantFence {
			t.Error("wants to serve before it is ready")
		}
		ready = true
		m.Poke()
		synctest.Wait()
		if q.newest().WantFence {
			t.Error("wants to be fenced although it is ready")
		}
	})
}

func TestAMemberLeavesWhenTheControllerLetsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &fakeQuorum{img: newImage(), epoch: 7}
		m, err := Join(t.Context(), memberRules, MemberDeps{Quorum: q})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := m.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) || !q.newest().WantShutdown {
			t.Fatalf("%v after heartbeat %+v", err, q.newest())
		}
		go func() {
			time.Sleep(3 * time.Second)
			q.set(func() { q.reply = HeartbeatReply{ShouldShutdown: true} })
		}()
		if err := m.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestAMemberOfAQuorumOfOne(t *testing.T) {
	n := openNode(t, Config{}, Deps{})
	cfg := memberRules
	m, err := Join(t.Context(), cfg, MemberDeps{Quorum: n})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	waitFor(t, func() bool { return !m.Fenced() })
	if b := n.Image().Brokers[1]; !b.Active() || !m.Lease() || b.Epoch != m.Self().Epoch {
		t.Fatalf("broker %+v, lease %t", b, m.Lease())
	}
	createTopic(t, n, "a", 3)
	if err := m.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p := n.Image().Topic("a").Partitions[0]; p.Leader != NoLeader {
		t.Errorf("broker %d leads after it was let go", p.Leader)
	}
}
