package replica

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/meta/topic"
)

func TestScheduleGivesTheEarliestFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSchedule()
		partitions := make([]*Partition, 8)
		for i := range partitions {
			partitions[i] = &Partition{}
		}
		want := map[*Partition]int64{}
		for range 100 {
			p := rapid.SampledFrom(partitions).Draw(t, "p")
			at := rapid.Int64Range(0, 50).Draw(t, "at")
			switch rapid.IntRange(0, 3).Draw(t, "op") {
			case 0:
				s.set(p, at)
				want[p] = at
			case 1:
				s.sooner(p, at)
				if old, ok := want[p]; !ok || at < old {
					want[p] = at
				}
			case 2:
				s.set(p, never)
				delete(want, p)
			case 3:
				earliest := never
				for _, at := range want {
					earliest = min(earliest, at)
				}
				if s.next() != earliest {
					t.Fatalf("next %d, want %d", s.next(), earliest)
				}
				got := s.take(at)
				if (got != nil) != (earliest <= at) || got != nil && want[got] != earliest {
					t.Fatalf("took %v at %d, earliest is %d", got, at, earliest)
				}
				delete(want, got)
			}
		}
	})
}

func TestIdlePartitionExpiresOnTimeAndThenCostsNothing(t *testing.T) {
	n := newNode(t)
	n.interval = 20 * time.Millisecond
	n.start()
	defer n.stop()
	p := n.want("events", topic.NewID(), 1, map[string]string{"retention.ms": "300"})
	began := now()
	n.produce(p, batch.None, record{ts: began, value: "a"})
	n.wait("the record to expire", func() bool { return p.log.Offsets().LogStart == 1 })
	if took := now() - began; took < 300 {
		t.Fatalf("expired after %d ms of 300", took)
	}
	n.wait("the partition to leave the schedule", func() bool {
		n.m.retention.mu.Lock()
		defer n.m.retention.mu.Unlock()
		return n.m.retention.schedule.next() == never
	})
	n.produce(p, batch.None, record{ts: now(), value: "b"})
	n.wait("an append to bring it back", func() bool { return p.log.Offsets().LogStart == 2 })
}

func TestNothingIsCompactedWhileTheCleanerIsOff(t *testing.T) {
	n := newNode(t)
	n.interval = 20 * time.Millisecond
	n.broker = map[string]string{"log.cleaner.enable": "false"}
	n.start()
	defer n.stop()
	p := n.want("state", topic.NewID(), 1, map[string]string{"cleanup.policy": "compact,delete", "retention.bytes": "1", "min.cleanable.dirty.ratio": "0.01"})
	for i := range 5 {
		n.produce(p, batch.None, record{ts: now(), value: name(i)})
	}
	n.must(p.log.Roll(now()))
	n.produce(p, batch.None, record{ts: now(), value: "in the active segment"})
	n.wait("retention, which is what has a log compacted", func() bool { return p.log.Offsets().LogStart == 5 })
	if p.settings.Load().compacts {
		t.Error("the partition is one that is compacted")
	}
	n.m.compaction.mu.Lock()
	defer n.m.compaction.mu.Unlock()
	if at := n.m.compaction.schedule.next(); at != never {
		t.Errorf("a compaction is due at %d", at)
	}
}

func TestCompactionRunsByItself(t *testing.T) {
	n := newNode(t)
	n.interval = 20 * time.Millisecond
	n.start()
	defer n.stop()
	p := n.want("state", topic.NewID(), 1, map[string]string{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"})
	for i := range 5 {
		n.produce(p, batch.None, record{ts: int64(i), value: name(i)}) // all under one key
	}
	n.must(p.log.Roll(now()))
	n.produce(p, batch.None, record{ts: 9, value: "in the active segment"})
	n.wait("the sealed segment to be compacted", func() bool {
		got := n.readAll(p, 0, 1<<20)
		return len(got) == 2 && got[0] == record{4, 4, name(4)}
	})
}
