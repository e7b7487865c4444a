package replica

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/varvelog/varve/hot"
	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/tier"
	"github.com/varvelog/varve/tier/objstore"
)

// lease is a session with the controller as its broker knows it: it lasts until a moment of the broker's own clock.
type lease struct{ now, until atomic.Int64 }

func newLease() *lease {
	l := &lease{}
	l.until.Store(10)
	return l
}

func (l *lease) holds() bool { return l.now.Load() < l.until.Load() }

// runOut lets the clock go on until the lease is over.
func (l *lease) runOut() { l.now.Store(l.until.Load()) }

func (l *lease) renew() { l.until.Store(l.now.Load() + 10) }

// putStore tells of each put to a bucket before it is made, and after it was.
type putStore struct {
	objstore.Store
	config tier.Config

	mu            sync.Mutex // guards the following
	puts          map[tier.KeyKind]int
	before, after func(kind tier.KeyKind, n int) // n of its kind
}

func newPutStore(inner objstore.Store) *putStore {
	return &putStore{Store: inner, config: tier.DefaultConfig(), puts: make(map[tier.KeyKind]int)}
}

// Put implements objstore.Store.
func (s *putStore) Put(ctx context.Context, key string, body objstore.Body, o objstore.PutOptions) (objstore.Object, error) {
	k, _ := s.config.ParseKey(key)
	s.mu.Lock()
	s.puts[k.Kind]++
	n, before, after := s.puts[k.Kind], s.before, s.after
	s.mu.Unlock()
	if before != nil {
		before(k.Kind, n)
	}
	obj, err := s.Store.Put(ctx, key, body, o)
	if after != nil {
		after(k.Kind, n)
	}
	return obj, err
}

// count is how many puts there were of one kind.
func (s *putStore) count(kind tier.KeyKind) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.puts[kind]
}

// noLease says whether a leader's offload has failed in an operation for want of a lease.
func noLease(m *tier.Manager, p *Partition, op string) bool {
	s, _ := m.PartitionStatus(p.id)
	return s.LastError != nil && s.LastError.Op == op && strings.Contains(s.LastError.Err.Error(), "the session with the controller has ended")
}

// TestLeaseThatRunsOutOnTheWayToTheBucket has a broker's lease run out by its own clock at each step of an upload: the next one is
// not begun, and nothing local is let go. Once it has a lease again all goes on, and nothing was uploaded twice.
func TestLeaseThatRunsOutOnTheWayToTheBucket(t *testing.T) {
	for _, c := range []struct {
		name            string
		at              tier.KeyKind // the lease runs out after the first put of this kind; 0: before all of them
		refused         string
		heads, segments int // puts that there are without a lease
	}{
		{"before the claim", 0, "claim", 0, 0},
		{"between claim and upload", tier.KeyHead, "upload", 1, 0},
		{"between upload and commit", tier.KeySegment, "commit", 1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, n := newLease(), newNode(t)
			store := newPutStore(n.bucket)
			store.after = func(kind tier.KeyKind, i int) {
				if kind == c.at && i == 1 {
					l.runOut()
				}
			}
			n.bucket, n.lease = store, l.holds
			n.start()
			defer n.stop()
			p := n.want("events", topic.NewID(), 3, tieredSettings)
			for range 4 {
				n.produce(p, batch.None, record{ts: now(), value: "a"})
			}
			if c.at == 0 {
				l.runOut()
			}
			n.must(p.log.Roll(now()))
			heads, segments := func() int { return store.count(tier.KeyHead) }, func() int { return store.count(tier.KeySegment) }
			n.wait("the next step to be refused", func() bool {
				return noLease(n.tier, p, c.refused) || heads() > c.heads || segments() > c.segments
			})
			if heads() != c.heads || segments() != c.segments {
				t.Fatalf("without a lease there were %d puts of the manifest and %d of segments, want %d and %d", heads(), segments(), c.heads, c.segments)
			}
			if s, err := p.remote.Refresh(t.Context()); err != nil || s.End > 0 || p.log.RemoteEnd() > 0 || p.log.Offsets().LocalStart != 0 {
				t.Fatalf("archive %+v, %v; the log was told %d and begins at %d", s, err, p.log.RemoteEnd(), p.log.Offsets().LocalStart)
			}
			if _, err := p.Append(build(t, batch.None, record{ts: now(), value: "b"}), AppendRequest{Acks: 1, Version: 12, Now: now()}); !errors.Is(err, ErrNotLeader) {
				t.Fatalf("an append without a lease: %v", err)
			}
			l.renew()
			n.wait("everything to be in the bucket only", func() bool {
				s, ok := p.remote.Cached()
				return ok && s.End == 4 && p.log.Offsets().LocalStart == 4
			})
			if segments() != 1 {
				t.Fatalf("%d puts of one segment", segments())
			}
			n.produce(p, batch.None, record{ts: now(), value: "b"})
			if got := n.readAll(p, 0, 1<<20); len(got) != 5 {
				t.Fatalf("read %v", got)
			}
		})
	}
}

// TestPausedLeaderFindsItsLeaseGone stops a broker in the middle of an upload. Another one is elected and goes on meanwhile; what was on
// its way arrives late, and is all that does.
func TestPausedLeaderFindsItsLeaseGone(t *testing.T) {
	c := startCluster(t, 2, hot.Fsync, nil)
	a, l := c.nodes[0], newLease()
	a.kill(false, 0)
	store := newPutStore(c.bucket)
	paused, goOn := make(chan struct{}), make(chan struct{})
	resume := sync.OnceFunc(func() { close(goOn) })
	defer resume()
	store.before = func(kind tier.KeyKind, n int) {
		if kind == tier.KeySegment && n == 1 {
			close(paused)
			<-goOn
		}
	}
	a.bucket, a.lease, a.callTimeout = store, l.holds, time.Minute
	a.boot(false)
	c.tieredTopic("events", []int32{1, 2}, true, "min.insync.replicas", "1")
	acked := make(map[int64]string)
	c.produceAll("events", 60, acked)
	c.inSync("events", 2)
	<-paused
	old := c.held(1, "events")
	was := old.log.HighWatermark()
	a.ears.stop()
	l.runOut()
	a.must(c.quorum.FenceBroker(context.Background(), 1, a.epoch.Load()))
	c.wait("the other to lead", func() bool { return c.state("events").Leader == 2 })
	c.produceAll("events", 60, acked)
	end := c.uploaded("events")
	heads, told := store.count(tier.KeyHead), old.log.RemoteEnd()
	resume()
	c.wait("the late upload to be over", func() bool {
		s, _ := a.tier.PartitionStatus(old.id)
		return noLease(a.tier, old, "commit") || noLease(a.tier, old, "upload") || s.Phase == "fenced"
	})
	if got := store.count(tier.KeyHead); got != heads {
		t.Fatalf("%d puts of the manifest, there were %d before the pause", got, heads)
	}
	if s, err := c.held(2, "events").remote.Refresh(t.Context()); err != nil || s.LeaderEpoch != c.state("events").LeaderEpoch || s.End != end {
		t.Fatalf("manifest %+v, %v; leader epoch %d, end %d", s, err, c.state("events").LeaderEpoch, end)
	}
	if s, _ := a.tier.PartitionStatus(old.id); s.Phase == "fenced" {
		t.Fatal("it asked the bucket, and not its own clock")
	}
	if old.log.RemoteEnd() != told || old.log.HighWatermark() != was {
		t.Fatalf("the log was told %d, and %d before; its watermark went from %d to %d", old.log.RemoteEnd(), told, was, old.log.HighWatermark())
	}
	c.wantRead(2, "events", acked)
	a.kill(false, 0)
	a.ears.hear()
	l.renew()
	a.boot(false)
	c.inSync("events", 2)
	c.holds("events", acked)
	c.same("events")
}

// TestUncleanLeaderWithoutALeaseTakesNothingFromTheBucket has its lease run out before it could ask the bucket: it may have been replaced,
// and a manifest that it claims would be another one's.
func TestUncleanLeaderWithoutALeaseTakesNothingFromTheBucket(t *testing.T) {
	c := startCluster(t, 2, hot.Fsync, lagging)
	b, l := c.nodes[1], newLease()
	b.kill(false, 0)
	store := newPutStore(c.bucket)
	b.bucket, b.lease = store, l.holds
	log := &heard{}
	b.logger = log.logger()
	b.boot(false)
	c.tieredTopic("events", []int32{1, 2}, true, "unclean.leader.election.enable", "true", "min.insync.replicas", "1")
	acked := make(map[int64]string)
	c.produceAll("events", 20, acked)
	c.inSync("events", 2)
	c.part(2, 1, true)
	c.wait("the follower that is cut off to leave the in-sync set", func() bool {
		_, err := c.acked("events", "x")
		b.must(err)
		return len(c.state("events").ISR) == 1
	})
	c.produceAll("events", 100, acked)
	c.uploaded("events")
	l.runOut()
	c.nodes[0].kill(false, 0)
	c.part(2, 1, false)
	c.wait("the other to be elected", func() bool { s := c.state("events"); return s.Leader == 2 && s.Recovering })
	c.wait("it to wait, or to claim", func() bool {
		return store.count(tier.KeyHead) > 0 || len(log.of("leader elected uncleanly waits for the bucket")) > 0
	})
	if n := store.count(tier.KeyHead); n > 0 || c.held(2, "events").role.Load().err == nil {
		t.Fatalf("%d puts of the manifest without a lease; it leads: %t", n, c.held(2, "events").role.Load().err == nil)
	}
	l.renew()
	c.leader("events")
	if store.count(tier.KeyHead) == 0 {
		t.Fatal("it leads without having claimed the manifest")
	}
}

// TestALeaderWaitsLessForALeaseThanForTheBucket: a broker has its lease a few milliseconds after it is let go on.
func TestALeaderWaitsLessForALeaseThanForTheBucket(t *testing.T) {
	if d := wholeRetry(errNoLease); d > 100*time.Millisecond {
		t.Errorf("a lease is looked for every %v", d)
	}
	if d := wholeRetry(fmt.Errorf("claim the manifest: %w", tier.ErrUnavailable)); d < time.Second {
		t.Errorf("a bucket that does not answer is asked every %v", d)
	}
}
