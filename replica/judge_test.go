package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/varvelog/varve/hot"
	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/vfs"
	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/replica/isr"
)

// TestLeaderDoesNotTakeWhatItCannotJudge starts the only replica again with damage in what its producers are known from.
func TestLeaderDoesNotTakeWhatItCannotJudge(t *testing.T) {
	c := startCluster(t, 1, hot.Fsync, nil)
	c.topic("events", []int32{1})
	acked := make(map[int64]string)
	c.produceAll("events", 20, acked)
	m, p := c.nodes[0], c.held(1, "events")
	slice, err := p.log.Read(5, 1, 6, true)
	m.must(err)
	sound, err := slice.Bytes()
	m.must(err)
	sound = slices.Clone(sound)
	slice.Release()
	m.rot(p, 5)
	m.kill(false, 0)
	m.boot(false)
	c.leader("events")
	p = c.held(1, "events")
	if d := p.log.Damaged(); !p.log.Incomplete() || len(d) != 1 || d[0].Start != 5 {
		t.Fatalf("damage is %+v", p.log.Damaged())
	}
	send := func(producer int64) error {
		o := batch.Options{}
		if producer >= 0 {
			o.Producer = &batch.Producer{ID: producer}
		}
		b := batch.NewBuilder(o)
		m.must(b.Append(now(), nil, []byte("value"), nil))
		_, err := p.Append(slices.Clone(b.Bytes()), AppendRequest{Acks: 1, Version: 12, Now: now()})
		return err
	}
	if err := send(-1); err != nil {
		t.Fatalf("there is nothing to judge: %v", err)
	}
	c.wait("nobody to have what is damaged", func() bool { return p.damage.verdict.Load().holds(p) })
	m.must(send(8))
	if epoch := p.leadership.Load().Epoch; p.damage.excused(epoch) == 0 || p.damage.excused(epoch+1) != 0 {
		t.Fatal("the verdict is not that of one leadership")
	}

	// With somebody else in sync it does not lead at all, until it is whole.
	l := *p.leadership.Load()
	l.Epoch++
	l.ISR = []int32{1, 2}
	m.must(p.lead(l))
	if _, err := p.Epoch(); !errors.Is(err, ErrNotLeader) || p.unfit.Load() == nil {
		t.Fatalf("it leads although it knows not all producers: %v", err)
	}
	l.ISR = []int32{1}
	m.must(p.lead(l))
	if _, err := p.Epoch(); err != nil {
		t.Fatalf("nobody else can lead: %v", err)
	}
	m.must(p.log.Repair(p.log.Damaged()[0], sound))
	p.lookAtDamage()
	c.wait("the log to be whole", func() bool { return !p.log.Incomplete() && p.damage.verdict.Load() == nil })
	m.must(send(9))
	if p.cannotJudge(isr.Leadership{ISR: []int32{1, 2}}) {
		t.Fatal("it knows all producers again")
	}
}

// judged appends a batch of a producer that nobody has heard of.
func judged(p *Partition, producer int64) error {
	b := batch.NewBuilder(batch.Options{Producer: &batch.Producer{ID: producer}})
	if err := b.Append(now(), nil, []byte("value"), nil); err != nil {
		return err
	}
	_, err := p.Append(slices.Clone(b.Bytes()), AppendRequest{Acks: 1, Version: 12, Now: now()})
	return err
}

// TestLeaderConcludesNothingFromWhoCannotBeAsked has the only other replica be away while the leader's copy is damaged, then come
// back with what is missing, or as damaged as the leader.
func TestLeaderConcludesNothingFromWhoCannotBeAsked(t *testing.T) {
	for _, sound := range []bool{true, false} {
		t.Run(fmt.Sprintf("sound=%t", sound), func(t *testing.T) {
			c := startCluster(t, 2, hot.Fsync, nil)
			c.topic("events", []int32{1, 2}, "min.insync.replicas", "1")
			acked := make(map[int64]string)
			c.produceAll("events", 20, acked)
			c.inSync("events", 2)
			a, b := c.nodes[0], c.nodes[1]
			other := c.held(2, "events")
			c.wait("the follower to know the watermark", func() bool { return other.log.HighWatermark() == 20 })
			if !sound {
				b.rot(other, 5)
			}
			b.kill(false, 0)
			c.wait("1 to be in sync alone", func() bool { return slices.Equal(c.state("events").ISR, []int32{1}) })
			p := c.held(1, "events")
			a.rot(p, 5)
			a.kill(false, 0)
			a.boot(false)
			c.leader("events")
			p = c.held(1, "events")
			// Several rounds, in none of which broker 2 could say anything.
			for range 4 {
				last := p.damage.asked.Load()
				c.wait("another round", func() bool { q := p.damage.asked.Load(); return q != nil && q != last && q.epoch != NoEpoch })
				if q := p.damage.asked.Load(); q.waits != "broker 2" {
					t.Fatalf("asked %+v", q)
				}
				if err := judged(p, 7); !errors.Is(err, ErrNotLeader) {
					t.Fatalf("it may be a repeat of what is damaged: %v", err)
				}
			}
			b.boot(false)
			if sound {
				c.wait("the damage to be mended", func() bool { return !p.log.Incomplete() && len(p.log.Damaged()) == 0 })
				if p.damage.verdict.Load() != nil {
					t.Fatal("somebody had what was damaged")
				}
			} else {
				c.wait("everybody to have said no", func() bool { return p.damage.verdict.Load().holds(p) })
				if !p.log.Incomplete() {
					t.Fatal("it was nowhere, and is here")
				}
			}
			c.wait("batches of producers to be taken", func() bool { return judged(p, 8) == nil })
		})
	}
}

// TestLeaderConcludesNothingFromADiskThatCannotBeRead has the last of the damage go while the disk does not read: what was derived without
// it is still there.
func TestLeaderConcludesNothingFromADiskThatCannotBeRead(t *testing.T) {
	n := newNode(t)
	faults := vfs.NewFaults(n.disk)
	n.fs = faults
	n.start()
	defer n.stop()
	id := topic.NewID()
	p := n.want("events", id, 3, nil)
	for range 10 {
		n.produce(p, batch.None, record{ts: now(), value: strings.Repeat("x", 40)})
	}
	n.wait("the watermark", func() bool { return p.log.HighWatermark() == 10 })
	n.hot.Abandon()
	n.stopDead()
	(&member{node: n}).rot(p, 5)
	n.start()
	p = n.want("events", id, 4, nil)
	n.leads(p, 5, 5, 1, 1) // with another replica, which cannot be asked
	asked := func(whom string) func() bool {
		return func() bool { q := p.damage.asked.Load(); return q != nil && q.epoch == 5 && q.waits == whom }
	}
	p.lookAtDamage()
	n.wait("the other replica to be waited for", asked("broker 2"))
	n.must(judgedNot(p))

	faults.Inject(vfs.Rule{Ops: []vfs.Op{vfs.OpRead}, Path: "*.log", Count: -1, Err: syscall.EIO})
	if _, err := p.DeleteRecords(t.Context(), 6); err != nil {
		t.Fatal(err)
	}
	last := p.damage.asked.Load()
	n.wait("another round", func() bool {
		p.hurryMending()
		return len(p.noteDamage()) == 0 && p.damage.asked.Load() != last && (asked(ownDisk)() || p.damage.verdict.Load().holds(p))
	})
	if p.damage.verdict.Load().holds(p) {
		t.Fatal("nobody was asked who could say")
	}
	n.must(judgedNot(p))
	faults.Clear()
	n.wait("the log to be whole", func() bool { return !p.log.Incomplete() })
	n.must(judged(p, 7))
}

// judgedNot is an error when a batch of an unknown producer is taken.
func judgedNot(p *Partition) error {
	if err := judged(p, 7); !errors.Is(err, ErrNotLeader) {
		return fmt.Errorf("it may be a repeat of what is not known: %w", err)
	}
	return nil
}

func TestMendersShareTheirRoom(t *testing.T) {
	n := startNode(t)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	large, err := n.m.mendRoom(ctx, mendBytesMax)
	n.must(err)
	if got := len(n.m.mendSpace); got != mendRoomMax {
		t.Fatalf("%d of %d taken", got, mendRoomMax)
	}
	short, stop := context.WithTimeout(ctx, time.Millisecond)
	defer stop()
	if _, err := n.m.mendRoom(short, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("there is no room left: %v", err)
	}
	large()
	var all []func()
	for range mendRoomMax / 2 {
		release, err := n.m.mendRoom(ctx, 1)
		n.must(err)
		all = append(all, release)
	}
	for _, release := range all {
		release()
	}
	if len(n.m.mendSpace) != 0 {
		t.Fatal("room was not given back")
	}
	// More than fits is not collected.
	b := batch.Batch(build(t, batch.None, record{ts: 1, value: "value"}))
	_, err = gather(hot.Damage{Start: 0, End: 10, Bytes: int64(len(b)) - 1}, func(int64) ([]byte, error) { return b, nil })
	if !errors.Is(err, hot.ErrNotContiguous) {
		t.Fatalf("collected more than there is room for: %v", err)
	}
}

// TestDamagedReplicaOfACompactedTopicIsReplacedWhole has copies that were compacted differently, so that nothing fits in place.
func TestDamagedReplicaOfACompactedTopicIsReplacedWhole(t *testing.T) {
	for _, damaged := range []int32{1, 2} {
		c := startCluster(t, 3, hot.Fsync, nil)
		c.topic("events", []int32{1, 2, 3}, "cleanup.policy", "compact", "internal.segment.bytes", "2000", "min.insync.replicas", "1", "min.cleanable.dirty.ratio", "0")
		acked := make(map[int64]string)
		c.produceAll("events", 40, acked) // all have one key
		c.inSync("events", 3)
		for _, id := range []int32{1, 2, 3} {
			if id == damaged {
				continue
			}
			p := c.held(id, "events")
			c.wait("a copy to be compacted", func() bool {
				_, err := p.log.Compact(context.Background(), now())
				c.nodes[0].must(err)
				s, err := p.log.Read(0, 1, 40, true)
				c.nodes[0].must(err)
				defer s.Release()
				return s.NextOffset() > 10
			})
		}
		m, p := c.nodes[damaged-1], c.held(damaged, "events")
		m.rot(p, 5)
		if bad, err := p.log.CheckAt(5); !bad || err != nil {
			t.Fatalf("%t, %v", bad, err)
		}
		c.wait("the damaged replica to be replaced", func() bool {
			s := c.state("events")
			if s.Leader == damaged && len(p.log.Damaged()) > 0 && p.role.Load().err == nil && !slices.Contains(s.ISR, damaged) {
				t.Fatal("it leads outside the in-sync set")
			}
			return len(p.log.Damaged()) == 0 && len(s.ISR) == 3
		})
		if c.state("events").UncleanEpoch != 0 {
			t.Fatal("nothing was lost, so no election was unclean")
		}
		last := p.log.Offsets().End - 1
		slice, err := p.log.Read(last, 1<<20, last+1, true)
		m.must(err)
		if next := m.records(ReadResult{Records: slice}, last, acked); next != last+1 {
			t.Fatalf("the last record is not there: %d", next)
		}
	}
}
