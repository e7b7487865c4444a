package replica

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/varvelog/varve/hot"
	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/vfs"
)

func TestFollowersCopyAndCommit(t *testing.T) {
	for _, durability := range []hot.Durability{hot.Fsync, hot.Replicated} {
		t.Run(durability.String(), func(t *testing.T) {
			c := startCluster(t, 3, durability, nil)
			c.topic("events", []int32{1, 2, 3}, "min.insync.replicas", "2")
			for i := range 50 {
				if _, err := c.acked("events", name(i)); err != nil {
					t.Fatal(err)
				}
			}
			c.inSync("events", 3)
			c.same("events")
		})
	}
}

// A fetch under a registration that nobody has heard of does not count, and does not shut out the follower's own fetches.
func TestAFetchUnderAnUnknownRegistrationDoesNotCount(t *testing.T) {
	c := startCluster(t, 3, hot.Fsync, nil)
	c.topic("events", []int32{1, 2, 3}, "min.insync.replicas", "3")
	if _, err := c.acked("events", "a"); err != nil {
		t.Fatal(err)
	}
	_, p := c.leader("events")
	epoch, err := p.Epoch()
	if err != nil {
		t.Fatal(err)
	}
	for id := int32(2); id <= 3; id++ {
		_, err := p.Read(ReadRequest{
			Offset: 1, MaxBytes: 1 << 20, CurrentEpoch: epoch, LastFetchedEpoch: NoEpoch, ReplicaID: id, ReplicaEpoch: 1 << 60, AnyReplica: true,
		})
		if !errors.Is(err, ErrNotLeader) {
			t.Errorf("replica %d: %v, want %v", id, err, ErrNotLeader)
		}
	}
	if _, err := c.acked("events", "b"); err != nil {
		t.Fatalf("the followers' own fetches do not count any more: %v", err)
	}
}

// Every replica can say which producers it knows and which of their transactions are open.
func TestFollowersKnowTheProducersOfTheirLog(t *testing.T) {
	c := startCluster(t, 3, hot.Fsync, nil)
	c.topic("events", []int32{1, 2, 3}, "min.insync.replicas", "2")
	_, p := c.leader("events")
	b := batch.NewBuilder(batch.Options{Transactional: true, Producer: &batch.Producer{ID: 7, Epoch: 2}})
	if err := b.Append(now(), nil, []byte("open"), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Append(slices.Clone([]byte(b.Bytes())), AppendRequest{Acks: 1, Version: 12, Now: now(), TxnVerified: true}); err != nil {
		t.Fatal(err)
	}
	for id := int32(1); id <= 3; id++ {
		c.wait(fmt.Sprintf("replica %d to know the producer", id), func() bool {
			list, err := c.held(id, "events").Producers()
			if err != nil {
				t.Fatalf("replica %d: %v", id, err)
			}
			return len(list) == 1 && list[0].ProducerID == 7 && list[0].Epoch == 2 && list[0].TxnStart == 0
		})
	}
}

// TestAcknowledgedRecordsSurviveFailovers kills brokers, with and without power loss, cuts connections and heals them, at
// random, while records are produced. What was acknowledged must be on every replica in the end, at its offset.
func TestAcknowledgedRecordsSurviveFailovers(t *testing.T) {
	for seed := range seeds(4, 40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 7))
			durability := hot.Durability(rng.IntN(2))
			c := startCluster(t, 3, durability, lagging)
			c.topic("events", []int32{1, 2, 3}, "min.insync.replicas", "2")
			acked := make(map[int64]string)
			for i := range 60 {
				c.disturb(rng, durability)
				value := name(i)
				offset, err := c.ackedWithin(5*time.Second, "events", value)
				switch {
				case err == nil:
					if old, taken := acked[offset]; taken {
						t.Fatalf("offset %d was given to %q and to %q", offset, old, value)
					}
					acked[offset] = value
				case errors.Is(err, errPending):
					c.heal()
				case errors.Is(err, ErrISRTooSmall):
					if rng.IntN(4) == 0 {
						c.heal()
						c.inSync("events", 3)
					}
				case errors.Is(err, ErrISRTooSmallAfterAppend), errors.Is(err, ErrNotLeader):
				default:
					t.Fatal(err)
				}
			}
			c.heal()
			c.inSync("events", 3)
			c.holds("events", acked)
			c.same("events")
			if len(acked) < 20 {
				t.Fatalf("only %d acknowledged", len(acked))
			}
		})
	}
}

// disturb does one thing to a cluster of three, of which one broker at most is down.
func (c *cluster) disturb(rng *rand.Rand, d hot.Durability) {
	var down *member
	for _, m := range c.nodes {
		if !m.up {
			down = m
		}
	}
	switch victim := c.nodes[rng.IntN(3)]; {
	case rng.IntN(6) == 0 && down == nil && len(c.state("events").ISR) == 3:
		victim.kill(rng.IntN(2) == 0, rng.Uint64())
	case rng.IntN(5) == 0 && down != nil:
		down.boot(d == hot.Replicated)
	case rng.IntN(8) == 0:
		c.part(victim.id, int32(1+rng.IntN(3)), true)
	case rng.IntN(3) == 0:
		for from := range int32(3) {
			for to := range int32(3) {
				c.part(from+1, to+1, false)
			}
		}
	}
}

// heal mends every connection and starts every broker.
func (c *cluster) heal() {
	for from := range int32(3) {
		for to := range int32(3) {
			c.part(from+1, to+1, false)
		}
	}
	for _, m := range c.nodes {
		if !m.up {
			m.boot(m.durable == hot.Replicated)
		}
	}
}

// seeds is how many runs of a seeded test there are: VARVE_SEED names one, VARVE_LONG=1 asks for more.
func seeds(short, long uint64) func(func(uint64) bool) {
	return func(yield func(uint64) bool) {
		if one, err := strconv.ParseUint(os.Getenv("VARVE_SEED"), 10, 64); err == nil {
			yield(one)
			return
		}
		n := short
		if os.Getenv("VARVE_LONG") != "" {
			n = long
		}
		for seed := range n {
			if !yield(seed) {
				return
			}
		}
	}
}

// TestFetcherGoesOnWhenAPartitionLeavesBeforeItsRecordsAreDurable: a follower appends, the sync takes long, and the leader
// dies meanwhile, so that the partition follows nobody when the sync is done. What is followed from that broker later must
// not wait for it.
func TestFetcherGoesOnWhenAPartitionLeavesBeforeItsRecordsAreDurable(t *testing.T) {
	c := startCluster(t, 3, hot.Fsync, nil)
	second, third := c.nodes[1], c.nodes[2]
	second.kill(false, 0)
	disk := vfs.NewFaults(second.disk)
	second.fs = disk
	second.boot(false)
	c.topic("first", []int32{3, 2}, "min.insync.replicas", "1")
	c.inSync("first", 2)

	reached, gate := make(chan struct{}), make(chan struct{})
	var once sync.Once
	slow := disk.Inject(vfs.Rule{Ops: []vfs.Op{vfs.OpSync, vfs.OpSyncFS}, Count: -1, Do: func() {
		once.Do(func() { close(reached) })
		<-gate
	}})
	go func() { _, _ = c.acked("first", "waits for a sync") }() // ends with the leader
	<-reached
	p := c.held(2, "first")
	c.wait("the record to be appended", func() bool { return p.log.Offsets().End == 1 })
	third.kill(false, 0)
	c.wait("the partition to be left", func() bool { return p.following.Load() == nil })
	slow.Remove()
	close(gate)

	third.boot(false)
	c.topic("second", []int32{3, 2}, "min.insync.replicas", "2")
	c.inSync("second", 2)
	if _, err := c.acked("second", "is copied"); err != nil {
		t.Fatal(err)
	}
}
