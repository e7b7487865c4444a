package replica

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/varvelog/varve/hot"
	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/vfs"
	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/replica/isr"
)

func startNode(t *testing.T) *node {
	t.Helper()
	n := newNode(t).start()
	t.Cleanup(n.stop)
	return n
}

func TestAppendIsReadBackAtTheHighWatermark(t *testing.T) {
	for _, durability := range []hot.Durability{hot.Fsync, hot.Replicated} {
		t.Run(durability.String(), func(t *testing.T) {
			n := newNode(t)
			n.durable = durability
			n.start()
			defer n.stop()
			p := n.want("events", topic.NewID(), 3, nil)
			a := n.produce(p, batch.Zstd, record{ts: 10, value: "a"}, record{ts: 11, value: "b"})
			if a.BaseOffset != 0 || a.LastOffset != 1 || a.LeaderEpoch != 3 || a.LogAppendTime != NoTimestamp {
				t.Fatalf("%+v", a)
			}
			n.produce(p, batch.None, record{ts: 12, value: "c"})
			got := n.readAll(p, 0, 1<<20)
			want := []record{{0, 10, "a"}, {1, 11, "b"}, {2, 12, "c"}}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("read %v, want %v", got, want)
			}
		})
	}
}

func TestReadChecksOffsetsAndEpochsAsKafkaDoes(t *testing.T) {
	n := startNode(t)
	p := n.want("events", topic.NewID(), 3, nil)
	n.produce(p, batch.None, record{ts: 10, value: "a"})
	read := func(change func(*ReadRequest)) (ReadResult, error) {
		r := ReadRequest{MaxBytes: 1 << 20, MinOne: true, CurrentEpoch: NoEpoch, LastFetchedEpoch: NoEpoch, ReplicaID: NoReplica}
		change(&r)
		res, err := p.Read(r)
		if res.Records != nil {
			res.Records.Release()
		}
		return res, err
	}
	for _, c := range []struct {
		what   string
		change func(*ReadRequest)
		err    error
	}{
		{"below the start", func(r *ReadRequest) { r.Offset = -1 }, ErrOffsetOutOfRange},
		{"at the end", func(r *ReadRequest) { r.Offset = 1 }, nil},
		{"beyond the end", func(r *ReadRequest) { r.Offset = 2 }, ErrOffsetOutOfRange},
		{"older leader epoch", func(r *ReadRequest) { r.CurrentEpoch = 2 }, ErrFencedLeaderEpoch},
		{"this leader epoch", func(r *ReadRequest) { r.CurrentEpoch = 3 }, nil},
		{"newer leader epoch", func(r *ReadRequest) { r.CurrentEpoch = 4 }, ErrUnknownLeaderEpoch},
		{"unknown last fetched epoch", func(r *ReadRequest) { r.LastFetchedEpoch = 4 }, ErrOffsetOutOfRange},
	} {
		if _, err := read(c.change); !errors.Is(err, c.err) {
			t.Errorf("%s: %v, want %v", c.what, err, c.err)
		}
	}
	if res, err := read(func(r *ReadRequest) { r.LastFetchedEpoch, r.Offset = 2, 1 }); err != nil || res.Diverging == nil ||
		*res.Diverging != (Diverging{Epoch: 2, EndOffset: 0}) || res.Records != nil {
		t.Errorf("a reader of a lost epoch must be told where it ended: %+v, %v", res, err)
	}
	if res, err := read(func(r *ReadRequest) { r.Isolation = ReadCommitted }); err != nil || res.Aborted == nil || len(res.Aborted) != 0 {
		t.Errorf("read_committed answers carry a list of aborted transactions, here an empty one: %+v, %v", res, err)
	}
	if res, err := read(func(r *ReadRequest) {}); err != nil || res.Aborted != nil {
		t.Errorf("read_uncommitted answers carry none: %+v, %v", res, err)
	}
}

func TestAppendRefusals(t *testing.T) {
	n := startNode(t)
	p := n.want("events", topic.NewID(), 3, nil)
	if _, err := p.Append(build(t, batch.None, record{ts: 1, value: "a"}), AppendRequest{Acks: 2}); !errors.Is(err, ErrInvalidAcks) {
		t.Errorf("acks=2: %v", err)
	}
	broken := build(t, batch.None, record{ts: 1, value: "a"})
	broken[len(broken)-1] ^= 1
	if _, err := p.Append(broken, AppendRequest{Acks: -1, Version: 12, Now: now()}); !errors.Is(err, batch.ErrCorrupt) {
		t.Errorf("wrong checksum: %v", err)
	}
	if end := p.log.Offsets().End; end != 0 {
		t.Errorf("a refused batch moved the end to %d", end)
	}
}

func TestAcknowledgementsFailWhenTheLeadershipEnds(t *testing.T) {
	n := startNode(t)
	id := topic.NewID()
	p := n.want("events", id, 3, nil)
	n.produce(p, batch.None, record{ts: 1, value: "a"})
	var got atomic.Pointer[error]
	p.OnCommitted(3, 100, func(err error) { got.Store(&err) })
	cancelled := false
	p.OnCommitted(3, 100, func(error) { cancelled = true })()
	n.want("events", id, 4, nil)
	if err := got.Load(); err == nil || !errors.Is(*err, ErrNotLeader) {
		t.Fatalf("waiting acknowledgement got %v, want ErrNotLeader", err)
	}
	if cancelled {
		t.Fatal("a cancelled acknowledgement ran")
	}
	var late error
	p.OnCommitted(3, 0, func(err error) { late = err })
	if !errors.Is(late, ErrNotLeader) {
		t.Fatalf("an acknowledgement of an older epoch got %v", late)
	}
	p.OnCommitted(4, 0, func(err error) { late = err })
	if late != nil {
		t.Fatalf("a committed offset got %v", late)
	}
}

func TestLongPollsWakeOnDataAndOnLeadership(t *testing.T) {
	n := startNode(t)
	id := topic.NewID()
	p := n.want("events", id, 3, nil)
	n.produce(p, batch.None, record{ts: 1, value: "a"})
	woken := func(w *Waiter) bool {
		select {
		case <-w.C():
			return true
		case <-time.After(patience):
			return false
		}
	}

	at := n.m.NewWaiter(1)
	at.Watch(p, 0, ReadUncommitted)
	if !woken(at) {
		t.Fatal("data that is there already wakes at once")
	}
	at.Close()

	tail, large := n.m.NewWaiter(1), n.m.NewWaiter(1<<20)
	tail.Watch(p, 1, ReadUncommitted)
	large.Watch(p, 1, ReadUncommitted)
	if fired(tail) || fired(large) {
		t.Fatal("nothing to read yet")
	}
	n.produce(p, batch.None, record{ts: 2, value: "b"})
	if !woken(tail) {
		t.Fatal("a committed append wakes who waits for it")
	}
	if fired(large) {
		t.Fatal("one small batch is no mebibyte")
	}
	n.want("events", id, 4, nil)
	if !woken(large) {
		t.Fatal("a change of leadership concerns everyone")
	}
	tail.Close()
	large.Close()

	beyond := n.m.NewWaiter(1)
	beyond.Watch(p, 17, ReadUncommitted)
	if !woken(beyond) {
		t.Fatal("a reader beyond the end has an error to hear")
	}
	beyond.Close()
	if n := p.watchers.n.Load(); n != 0 {
		t.Fatalf("%d watches left", n)
	}
}

// TestLongPollsCountWhatIsThereInWholeBatches: what is wanted need not end where a batch does.
func TestLongPollsCountWhatIsThereInWholeBatches(t *testing.T) {
	n := startNode(t)
	p := n.want("events", topic.NewID(), 3, nil)
	for ts := range int64(3) {
		n.produce(p, batch.None, record{ts: ts, value: "a"})
	}
	res, err := p.Read(ReadRequest{MaxBytes: 1 << 20, CurrentEpoch: NoEpoch, LastFetchedEpoch: NoEpoch, ReplicaID: NoReplica})
	if err != nil {
		t.Fatal(err)
	}
	all := res.Records.Len()
	res.Records.Release()
	for want := 2; want <= all+1; want++ {
		w := n.m.NewWaiter(want)
		w.Watch(p, 0, ReadUncommitted)
		if got := fired(w); got != (want <= all) {
			t.Errorf("%d bytes of %d: woken %v", want, all, got)
		}
		w.Close()
	}
}

func TestFirstDiskErrorTakesThePartitionOfflineAndAcknowledgesNothing(t *testing.T) {
	for _, op := range []vfs.Op{vfs.OpSync, vfs.OpWrite} {
		t.Run(string(op), func(t *testing.T) {
			n := newNode(t)
			faults := vfs.NewFaults(n.disk)
			n.fs = faults
			n.start()
			defer n.stopAfterFault()
			p := n.want("events", topic.NewID(), 3, nil)
			n.produce(p, batch.None, record{ts: now(), value: "a"})
			w := n.m.NewWaiter(1)
			defer w.Close()
			w.Watch(p, 1, ReadUncommitted)

			faults.Inject(vfs.Rule{Ops: []vfs.Op{op}, Path: "*.log", Count: -1, Err: syscall.EIO})
			verdict := make(chan error, 1)
			a, err := p.Append(build(t, batch.None, record{ts: now(), value: "b"}), AppendRequest{Acks: -1, Version: 12, Now: now()})
			if err != nil {
				verdict <- err
			} else {
				p.OnCommitted(a.LeaderEpoch, a.LastOffset, func(err error) { verdict <- err })
			}
			if err := <-verdict; !errors.Is(err, ErrOffline) {
				t.Fatalf("the append got %v, want ErrOffline", err)
			}
			<-w.C()
			if n.m.Ready("events", 0) {
				t.Error("an offline partition is not ready")
			}
			if _, err := p.Append(build(t, batch.None, record{ts: now(), value: "c"}), AppendRequest{Acks: 1, Version: 12, Now: now()}); !errors.Is(err, ErrOffline) {
				t.Errorf("a later append got %v", err)
			}
			if _, err := n.fetch(p, 0, 100, ReadUncommitted); !errors.Is(err, ErrOffline) {
				t.Errorf("a later read got %v", err)
			}
			n.m.mu.Lock()
			s := n.m.slots[keyOf(p.id)]
			n.m.setLocked(p.id, s.want)
			n.m.mu.Unlock()
			n.wait("the worker to have looked", func() bool {
				n.m.mu.Lock()
				defer n.m.mu.Unlock()
				return !s.queued && !s.taken && !s.pending
			})
			if n.m.Ready("events", 0) {
				t.Error("a newer image brought an offline partition back")
			}
		})
	}
}

// leads gives the partition another state: this broker leads, and the test plays the other replica.
func (n *node) leads(p *Partition, epoch, partitionEpoch int32, minISR int, isrSet ...int32) {
	n.t.Helper()
	n.must(p.lead(isr.Leadership{
		Leader: 1, Epoch: epoch, PartitionEpoch: partitionEpoch, Replicas: []int32{1, 2}, ISR: isrSet, MinISR: minISR, Unclean: NoEpoch,
	}))
}

// fetchedBy2 is a fetch of the other replica, that has all below an offset.
func fetchedBy2(p *Partition, epoch int32, end int64) {
	p.mu.Lock()
	_, moved := p.isr.Fetched(isr.Fetch{ID: 2, BrokerEpoch: 1, LeaderEpoch: epoch, End: end, LeaderEnd: end})
	p.settle(moved)
}

// appendOne appends one record and waits until it is durable here.
func (n *node) appendOne(p *Partition, acks int16) Appended {
	n.t.Helper()
	a, err := p.Append(build(n.t, batch.None, record{ts: now(), value: "x"}), AppendRequest{Acks: acks, Version: 12, Now: now()})
	n.must(err)
	n.wait("the record to be durable", func() bool { return p.log.Offsets().Durable > a.LastOffset })
	return a
}

// Below min.insync.replicas nothing is appended, and what was is neither acknowledged nor refused as if it were not there: whether
// it stays is not known.
func TestAppendsAndAnswersWantTheMinimumInSync(t *testing.T) {
	n := startNode(t)
	p := n.want("events", topic.NewID(), 3, nil)
	n.leads(p, 4, 4, 2, 1)
	if _, err := p.Append(build(t, batch.None, record{ts: 1, value: "a"}), AppendRequest{Acks: -1, Version: 12, Now: now()}); !errors.Is(err, ErrISRTooSmall) {
		t.Fatalf("one in sync of two: %v", err)
	}
	if end := p.log.Offsets().End; end != 0 {
		t.Fatalf("what was refused is in the log, which ends at %d", end)
	}
	n.appendOne(p, 1) // the leader's word only

	n.leads(p, 5, 5, 2, 1, 2)
	a := n.appendOne(p, -1)
	answers := 0
	var first, late error
	p.OnCommitted(5, a.LastOffset, func(err error) { answers, first = answers+1, err })
	if answers > 0 {
		t.Fatalf("answered %v before the other replica had it", first)
	}
	fetchedBy2(p, 5, a.LastOffset+1)
	if answers != 1 || first != nil || p.log.HighWatermark() != a.LastOffset+1 {
		t.Fatalf("%d answers, %v, watermark %d", answers, first, p.log.HighWatermark())
	}
	n.leads(p, 5, 6, 2, 1) // the other one has left
	p.OnCommitted(5, a.LastOffset, func(err error) { late = err })
	if !errors.Is(late, ErrISRTooSmallAfterAppend) {
		t.Fatalf("answer with one in sync of two: %v", late)
	}
	b := n.appendOne(p, 1)
	p.OnCommitted(5, b.LastOffset, func(err error) { answers++ })
	if fetchedBy2(p, 5, b.LastOffset+1); answers != 1 {
		t.Fatal("answered below the minimum")
	}
}

// A leader's epoch is in its log before its first record, so that followers can tell where it began though it writes nothing; and
// what it has counts at once, without waiting for something to happen.
func TestNewLeaderBeginsWithItsEpoch(t *testing.T) {
	n := startNode(t)
	p := n.want("events", topic.NewID(), 3, nil)
	n.leads(p, 4, 4, 1, 1, 2)
	n.appendOne(p, 1)
	n.appendOne(p, 1)
	n.leads(p, 7, 7, 1, 1)
	if start, ok := p.log.Lineage().StartOf(7); !ok || start != 2 {
		t.Fatalf("the epoch begins at %d, %t: %v", start, ok, p.log.Lineage())
	}
	if hw := p.log.HighWatermark(); hw != 2 {
		t.Fatalf("watermark %d, alone in sync with 2 durable records", hw)
	}
	if epoch, end, err := p.EndOffsetForEpoch(7, 4); err != nil || epoch != 4 || end != 2 {
		t.Fatalf("epoch 4 is told to end with epoch %d at %d, %v", epoch, end, err)
	}
}

// A new leader's watermark may be behind what the last one told: it does not say what is latest before it has reached the start
// of its epoch (KIP-207).
func TestLatestIsNotKnownBelowTheEpochsStart(t *testing.T) {
	n := startNode(t)
	p := n.want("events", topic.NewID(), 3, nil)
	n.leads(p, 4, 4, 1, 1, 2)
	n.appendOne(p, 1)
	n.leads(p, 5, 5, 1, 1, 2)
	latest := func(ts int64) (TimeOffset, error) {
		return p.ListOffset(t.Context(), ts, ReadUncommitted, NoReplica, NoEpoch)
	}
	for _, ts := range []int64{TimeLatest, now() + 1_000_000} {
		if got, err := latest(ts); !errors.Is(err, ErrOffsetNotAvailable) {
			t.Fatalf("%d: %+v, %v with watermark %d in an epoch from 1 on", ts, got, err, p.log.HighWatermark())
		}
	}
	if got, err := latest(TimeEarliest); err != nil || got.Offset != 0 {
		t.Fatalf("earliest is %+v, %v", got, err)
	}
	fetchedBy2(p, 5, 1)
	if got, err := latest(TimeLatest); err != nil || got.Offset != 1 {
		t.Fatalf("latest is %+v, %v", got, err)
	}
}
