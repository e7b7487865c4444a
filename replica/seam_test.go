package replica

import (
	"context"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/meta/topic"
)

// TestSeamBetweenTheTiersCannotBeSeen runs random appends (timestamps in disorder and in ties), rolls, offloads, local
// retention, DeleteRecords, clean restarts and power cuts, and after each step compares a full replay and ListOffsets for
// random targets with a list of the records.
func TestSeamBetweenTheTiersCannotBeSeen(t *testing.T) {
	cold, offloads := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		s := &seam{T: t, id: topic.NewID(), epoch: 1}
		s.node = newNode(t)
		s.open()
		defer func() {
			s.stop()
			cold += s.cold
			offloads += s.offloads
		}()
		for range rapid.IntRange(5, 25).Draw(t, "steps") {
			s.step()
			s.check()
		}
	})
	t.Logf("%d reads from the bucket, %d segments offloaded", cold, offloads)
	if cold == 0 {
		t.Fatal("no read ever went to the bucket: this showed nothing")
	}
}

type seam struct {
	*rapid.T
	*node
	id       topic.ID
	epoch    int32
	p        *Partition
	records  []record // in offset order from the log start on
	start    int64
	serial   int
	offloads int
}

func (s *seam) open() {
	s.launch()
	s.p = s.want("events", s.id, s.epoch, map[string]string{
		"remote.storage.enable": "true", "retention.ms": "-1", "retention.bytes": "-1", "internal.segment.bytes": "4096",
		"local.retention.bytes": "6000", "index.interval.bytes": "200",
	})
	if n := len(s.records); n > 0 {
		s.wait("the watermark to come back", func() bool { return s.p.log.HighWatermark() > s.records[n-1].offset })
	}
}

func (s *seam) launch() { s.node.start() }

func (s *seam) step() {
	switch rapid.SampledFrom([]string{"append", "append", "append", "append", "offload", "offload", "delete", "roll", "restart", "crash"}).Draw(s.T, "step") {
	case "append":
		for range rapid.IntRange(1, 8).Draw(s.T, "batches") {
			s.append()
		}
	case "roll":
		s.must(s.p.log.Roll(now()))
	case "offload":
		s.must(s.p.log.Roll(now()))
		s.offloaded()
		if state, ok := s.p.remote.Cached(); ok {
			s.offloads += int(state.Segments)
		}
		if rapid.Bool().Draw(s.T, "and local retention") {
			_, err := s.p.log.Retain(now())
			s.must(err)
		}
	case "delete":
		end := s.p.log.HighWatermark()
		to := rapid.Int64Range(s.start, end).Draw(s.T, "to")
		low, err := s.p.DeleteRecords(context.Background(), to)
		s.must(err)
		if low != to {
			s.Fatalf("DeleteRecords(%d) gave %d", to, low)
		}
		s.start = to
		s.records = slices.DeleteFunc(s.records, func(r record) bool { return r.offset < to })
	case "restart":
		s.stop()
		s.epoch += 2
		s.open()
	case "crash":
		s.crash(rapid.Uint64().Draw(s.T, "seed"))
		s.epoch += 2
		s.open()
	}
}

func (s *seam) append() {
	codec := rapid.SampledFrom([]batch.Codec{batch.None, batch.Gzip, batch.Snappy, batch.LZ4, batch.Zstd}).Draw(s.T, "codec")
	var list []record
	for range rapid.IntRange(1, 12).Draw(s.T, "records") {
		s.serial++
		ts := int64(1_700_000_000_000) + rapid.Int64Range(0, 40).Draw(s.T, "ts")*10
		list = append(list, record{ts: ts, value: name(s.serial) + strings.Repeat("x", rapid.IntRange(0, 150).Draw(s.T, "pad"))})
	}
	a := s.produce(s.p, codec, list...)
	for i := range list {
		list[i].offset = a.BaseOffset + int64(i)
	}
	s.records = append(s.records, list...)
}

// offloaded waits until every sealed segment is in the bucket.
func (s *seam) offloaded() {
	s.wait("the sealed segments to be offloaded", func() bool {
		segments, err := s.p.log.Segments()
		s.must(err)
		sealed := int64(0)
		for _, seg := range segments {
			if seg.Sealed {
				sealed = seg.EndOffset
			}
		}
		state, ok := s.p.remote.Cached()
		return sealed == 0 || sealed <= s.start || ok && state.End >= sealed
	})
}

func (s *seam) check() {
	s.Helper()
	got := s.readAll(s.p, s.start, rapid.SampledFrom([]int{1, 300, 5000, 1 << 20}).Draw(s.T, "max bytes"))
	if !slices.Equal(got, s.records) {
		at := 0
		for at < len(got) && at < len(s.records) && got[at] == s.records[at] {
			at++
		}
		tail := func(l []record) []record { return l[at:min(at+2, len(l))] }
		s.Fatalf("from record %d on %+v, want %+v; replay of %d records differs from the %d appended: %+v", at, tail(got), tail(s.records), len(got), len(s.records), s.p.Describe())
	}
	for _, ts := range []int64{TimeMax, 0, 1_800_000_000_000} {
		s.lookup(ts)
	}
	for range 6 {
		s.lookup(int64(1_700_000_000_000) + rapid.Int64Range(-5, 410).Draw(s.T, "target"))
	}
	s.special(TimeLatest, s.p.log.HighWatermark())
	s.special(TimeEarliest, s.start)
}

func (s *seam) special(ts, want int64) {
	s.Helper()
	got, err := s.p.ListOffset(context.Background(), ts, ReadUncommitted, NoReplica, NoEpoch)
	s.must(err)
	if got.Offset != want {
		s.Fatalf("ListOffset(%d) gave %d, want %d: %+v", ts, got.Offset, want, s.p.Describe())
	}
}

func (s *seam) lookup(ts int64) {
	s.Helper()
	want := notFound
	for _, r := range s.records {
		if ts == TimeMax && (want.Offset == NoOffset || r.ts > want.Timestamp) || ts >= 0 && r.ts >= ts && want.Offset == NoOffset {
			want = TimeOffset{Offset: r.offset, Timestamp: r.ts}
		}
	}
	got, err := s.p.ListOffset(context.Background(), ts, ReadUncommitted, NoReplica, NoEpoch)
	s.must(err)
	if got.Offset != want.Offset || got.Timestamp != want.Timestamp {
		s.Fatalf("ListOffset(%d) gave %+v, want %+v: %+v", ts, got, want, s.p.Describe())
	}
}
