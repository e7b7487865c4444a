package tier

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/lineage"
	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/tier/objstore"
)

func TestMain(m *testing.M) {
	poison = true
	goleak.VerifyTestMain(m)
}

// memReader is what a segment in memory is read with.
type memReader struct{ *bytes.Reader }

func (memReader) Close() error { return nil }

// memSegment is a segment in memory.
type memSegment struct {
	base, end int64
	data      []byte
	maxTime   int64
	aborted   []batch.AbortedTxn
	producers []byte
	chain     lineage.Chain
}

var _ Segment = (*memSegment)(nil)

func (s *memSegment) BaseOffset() int64                        { return s.base }
func (s *memSegment) EndOffset() int64                         { return s.end }
func (s *memSegment) SizeBytes() int64                         { return int64(len(s.data)) }
func (s *memSegment) MaxTimestamp() int64                      { return s.maxTime }
func (s *memSegment) AbortedTxns() ([]batch.AbortedTxn, error) { return s.aborted, nil }
func (s *memSegment) Modified() int64                          { return 0 }
func (s *memSegment) Suspect() error                           { return nil }
func (s *memSegment) ProducerSnapshot() ([]byte, error)        { return s.producers, nil }
func (s *memSegment) ProducersAt(at int64) ([]byte, error) {
	return fmt.Appendf(nil, "producers at %d", at), nil
}
func (s *memSegment) Lineage() lineage.Chain { return s.chain }
func (s *memSegment) Open() (io.ReadCloser, error) {
	return memReader{bytes.NewReader(s.data)}, nil
}

// world is a log written record by record, with everything that was put into it
// remembered: the brute-force answers tests compare with.
type world struct {
	rng      *rand.Rand
	segments []*memSegment
	records  []TimeOffset // data records
	batches  []batch.Batch
	next     int64
	epoch    int32
	time     func(offset int64) int64
	codec    batch.Codec
	value    int // bytes of a record's value
	noise    bool
}

func newWorld(seed uint64) *world {
	return &world{rng: rand.New(rand.NewPCG(seed, 1)), time: func(o int64) int64 { return 1_000_000 + o }, value: 100}
}

// segment appends a segment of n batches of up to records records each.
func (w *world) segment(n, records int) *memSegment {
	s := &memSegment{base: w.next, maxTime: NoTimestamp, producers: fmt.Appendf(nil, "producers at %d", w.next)}
	for range n {
		if s.chain.Latest() != w.epoch {
			s.chain = append(s.chain, lineage.Entry{Epoch: w.epoch, Start: w.next})
		}
		s.data = append(s.data, w.batch(1+w.rng.IntN(records))...)
	}
	s.end = w.next
	w.segments = append(w.segments, s)
	return s
}

// control appends a marker to the newest segment, aborting [first, last].
func (w *world) abort(s *memSegment, producer, first int64) {
	marker := batch.EndTxn(batch.Marker{Type: batch.Abort}, producer, 0, 1<<50) // a marker's time is no data's
	marker.SetBaseOffset(w.next)
	marker.SetLeaderEpoch(w.epoch)
	s.data = append(s.data, marker...)
	w.batches = append(w.batches, marker)
	s.aborted = append(s.aborted, batch.AbortedTxn{ProducerID: producer, FirstOffset: first, LastOffset: w.next, LastStable: w.next + 1})
	w.next++
	s.end = w.next
}

func (w *world) batch(n int) batch.Batch {
	b := batch.NewBuilder(batch.Options{BaseOffset: w.next, LeaderEpoch: w.epoch, Codec: w.codec})
	for range n {
		ts := w.time(w.next)
		value := bytes.Repeat([]byte{byte('a' + w.next%26)}, w.value)
		if w.noise {
			for i := range value {
				value[i] = byte(w.rng.Uint32())
			}
		}
		if err := b.Append(ts, fmt.Appendf(nil, "key-%d", w.next), value, nil); err != nil {
			panic(err)
		}
		w.records = append(w.records, TimeOffset{Offset: w.next, Timestamp: ts, Epoch: w.epoch})
		w.next++
	}
	out := batch.Batch(bytes.Clone(b.Bytes()))
	w.batches = append(w.batches, out)
	return out
}

// raw is all bytes of the batches that end above from.
func (w *world) raw(from int64) []byte {
	var out []byte
	for _, b := range w.batches {
		if b.NextOffset() > from {
			out = append(out, b...)
		}
	}
	return out
}

var testPartition = topic.Partition{Topic: "events", ID: topic.ID{0x10, 0x20, 0x30, 15: 1}, Index: 3}

func testConfig(t testing.TB) Config {
	cfg := DefaultConfig()
	return cfg
}

func openTest(t testing.TB, cfg Config, store objstore.Store, db string) *Archive {
	t.Helper()
	a, err := OpenArchive(cfg, Deps{Store: store, DB: db})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeTest(t, a) })
	return a
}

func closeTest(t testing.TB, a *Archive) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := a.Close(ctx); err != nil {
		t.Fatalf("close: %v", err)
	}
}

// offload builds, puts and commits segments.
func offload(t testing.TB, r *Remote, epoch int32, segments ...*memSegment) {
	t.Helper()
	ctx := context.Background()
	for _, s := range segments {
		o, err := r.Build(ctx, s, BuildOptions{LeaderEpoch: epoch, Now: 1_700_000_000_000})
		if err != nil {
			t.Fatalf("build: %v", err)
		}
		if err := o.Put(ctx, nil); err != nil {
			t.Fatalf("put: %v", err)
		}
		if err := r.Commit(ctx, Edit{LeaderEpoch: epoch, Add: []AddSegment{o.Add()}}); err != nil {
			t.Fatalf("commit: %v", err)
		}
		if err := o.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// readAll reads from offset to the archive's end.
func readAll(t testing.TB, r *Remote, offset int64, maxBytes int) []byte {
	t.Helper()
	var out []byte
	for {
		c, err := r.Read(context.Background(), offset, maxBytes, 1<<62)
		if err != nil {
			if isErr(err, ErrNotTiered) {
				return out
			}
			t.Fatalf("read at %d: %v", offset, err)
		}
		if c.Len() == 0 || c.NextOffset() <= offset {
			t.Fatalf("read at %d: %d bytes, next %d", offset, c.Len(), c.NextOffset())
		}
		out = append(out, c.Bytes()...)
		offset = c.NextOffset()
		c.Release()
	}
}
