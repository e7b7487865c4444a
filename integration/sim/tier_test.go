package sim

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"time"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/lineage"
	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/tier"
)

const (
	graceMillis     = 1_500
	uploadMillisMax = 1_000
	callMillis      = 800
)

// tiering is the tier manager of one process: the real one, stepped from here.
type tiering struct {
	b       *broker
	step    *tier.Stepped
	born    int64
	timer   int64
	buried  map[partitionKey]bool
	closed  bool
	running bool
}

// newTiering starts a process's manager. The archive's cache is on disk and may
// outlive a process.
func newTiering(b *broker) *tiering {
	w := b.w
	if w.bucket == nil {
		return nil
	}
	if b.archive == nil {
		b.archive = openArchive(w, w.bucket)
	} else if w.one(2) {
		for _, k := range w.keyList {
			if err := b.archive.Forget(w.partition(k)); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	t := &tiering{b: b, born: w.now, buried: map[partitionKey]bool{}}
	cfg := tier.DefaultManagerConfig()
	cfg.Uploads, cfg.UploadsPerPartition, cfg.Deletes, cfg.Calls, cfg.DeleteBatch = 3, 2, 2, 3, 5
	cfg.DeleteGrace = graceMillis * time.Millisecond
	cfg.UploadTimeout, cfg.UploadTimeoutMax = uploadMillisMax*time.Millisecond, uploadMillisMax*time.Millisecond
	cfg.CallTimeout, cfg.CollectTimeout = callMillis*time.Millisecond, callMillis*time.Millisecond
	cfg.StuckAfter, cfg.RecheckAfter = 10*time.Second, 10*time.Second
	cfg.Seed = w.rng.Uint64() | 1
	step, err := tier.NewStepped(cfg, b.archive, tier.ManagerDeps{Removed: t.removed}, func() (int64, int64) {
		return b.wall(), w.now - t.born + 1
	})
	if err != nil {
		w.t.Fatal(err)
	}
	t.step = step
	for _, k := range w.keyList {
		if b.graves[k] {
			t.remove(w.partition(k))
		}
	}
	return t
}

func (t *tiering) close() {
	t.closed = true
	if err := t.step.Close(context.Background()); err != nil {
		t.b.w.t.Fatal(err)
	}
}

// run lets the manager decide, starts the calls it wants, and comes back when it
// has something to do.
func (t *tiering) run() {
	if t.closed || t.running {
		return
	}
	t.running = true
	for _, c := range t.step.Run() {
		t.call(c)
	}
	t.running = false
	due, ok := t.step.Next()
	if at := due - 1 + t.born; ok && at != t.timer {
		t.timer = at
		t.b.w.soon(t.b, max(at-t.b.w.now, 1), func() {
			if t.timer == at {
				t.timer = 0
				t.run()
			}
		})
	}
}

// call carries out a call after a while; its answer comes after another. A
// request on its way when its process ends may or may not reach the store.
func (t *tiering) call(c tier.Call) {
	w := t.b.w
	if c.TimeoutMillis == 0 { // to the local log
		w.soon(t.b, w.rng.Int64N(5), func() {
			c.Do()()
			t.run()
		})
		return
	}
	there, back := w.bucket.latency(), w.bucket.latency()
	w.after(min(there, c.TimeoutMillis/2), func() {
		if t.closed && w.one(2) {
			return
		}
		deliver := c.Do()
		if t.closed {
			return
		}
		w.soon(t.b, min(back, c.TimeoutMillis/2), func() {
			deliver()
			t.run()
		})
	})
}

// lead hands a led partition over.
func (t *tiering) lead(r *replica) *tier.Leadership {
	l := t.step.Lead(&tierLog{r: r, t: t, epoch: r.epoch})
	t.b.w.soon(t.b, 1, t.run)
	return l
}

func (t *tiering) resign(r *replica) {
	t.step.Resign(r.name)
	t.b.w.soon(t.b, 1, t.run)
}

// bury begins the removal of a deleted topic's partition.
func (t *tiering) bury(p topic.Partition) {
	k := partitionKey{p.ID, p.Index}
	if t.buried[k] {
		return
	}
	t.remove(p)
	t.b.w.soon(t.b, 1, t.run)
}

// remove writes the removal down, which goes on after a restart whatever the metadata say then.
func (t *tiering) remove(p topic.Partition) {
	k := partitionKey{p.ID, p.Index}
	t.buried[k], t.b.graves[k] = true, true
	if err := t.step.TopicDeleted(p); err != nil {
		t.b.w.t.Fatal(err)
	}
}

// removed says that nothing of a partition is left in the bucket.
func (t *tiering) removed(p topic.Partition) {
	k := partitionKey{p.ID, p.Index}
	t.b.cleared[k] = true
	delete(t.b.graves, k)
	t.b.w.soon(t.b, 1, func() {
		if d, ok := t.b.image.Deleted(p.ID); ok {
			t.b.confirmGone(d)
		}
	})
}

// archiveEnd reads afresh where the bucket ends, as a replica does that begins
// there. Of one that has nothing left only the start is known, at which it was cut off.
func (t *tiering) archiveEnd(r *replica, fn func(start, end int64, chain lineage.Chain, err error)) {
	w := t.b.w
	w.soon(t.b, w.bucket.latency(), func() {
		remote := t.b.archive.Partition(r.name)
		st, err := remote.Refresh(context.Background())
		var chain lineage.Chain
		if err == nil && st.End >= 0 {
			chain, err = remote.Lineage(context.Background())
		}
		start, end := st.Start, st.End
		if st.Retired || st.Dropped {
			start = -1
		}
		if start < 0 || st.Segments == 0 {
			end = -1
		}
		w.soon(t.b, w.bucket.latency(), func() { fn(start, end, chain, err) })
	})
}

// tierLog is a led partition as the manager sees it, in one leader epoch.
type tierLog struct {
	r     *replica
	t     *tiering
	epoch int32
}

var _ tier.Log = (*tierLog)(nil)

// current says that the leadership still stands.
func (l *tierLog) current() bool {
	return !l.t.closed && l.r.leads && l.r.epoch == l.epoch && !l.r.halted
}

func (l *tierLog) Partition() topic.Partition { return l.r.name }
func (l *tierLog) LeaderEpoch() int32         { return l.epoch }

func (l *tierLog) Config() tier.TopicConfig {
	return tier.TopicConfig{
		Enabled: true, RetentionMillis: -1, RetentionBytes: l.r.retention, LocalRetentionMillis: -1, LocalRetentionBytes: 0,
		CopyLagBytes: -1, MaxLagMillis: -1,
	}
}

func (l *tierLog) Offsets() tier.LogOffsets {
	g := l.r.log
	base := g.rolls[len(g.rolls)-1]
	o := tier.LogOffsets{
		LogStart: g.logStart, LocalStart: g.localStart(), Durable: g.durable, HighWatermark: g.hw, LastStable: g.hw, End: g.end(),
		ActiveBase: base, ActiveSince: -1, ActiveMaxTimestamp: -1,
	}
	if n := g.end() - base; n > 0 {
		first, last := g.at(base), g.at(g.end()-1)
		o.ActiveBytes, o.ActiveSince, o.ActiveMaxTimestamp = n*batchBytes, first.at, last.at
	}
	return o
}

func (l *tierLog) Sealed(from, limit int64) []tier.Segment {
	g := l.r.log
	var out []tier.Segment
	for i := 0; i+1 < len(g.rolls); i++ {
		base, end := g.rolls[i], g.rolls[i+1]
		if end > from && end <= limit {
			out = append(out, &segment{base: base, records: append([]record(nil), g.from(base, int(end-base))...), chain: g.chain.Slice(base, end)})
		}
	}
	return out
}

func (l *tierLog) EpochAt(offset int64) (epoch int32, below bool) {
	chain := l.r.log.chain
	if epoch = chain.EpochAt(offset); epoch >= 0 {
		return epoch, false
	}
	first, _ := chain.Earliest()
	return first.Epoch, true
}

func (l *tierLog) Leased() bool { return true }

func (l *tierLog) Roll() error {
	if !l.current() {
		return context.Canceled
	}
	l.r.log.roll()
	return nil
}

func (l *tierLog) SetRemoteEnd(end int64) {
	if !l.current() {
		return
	}
	if st := l.t.b.w.bucket.seen(l.r.key).state; end > st.End {
		l.t.b.w.fail("bucket", "%s hears of a remote end of %d, the bucket ends at %d", l.t.b.name, end, st.End)
	}
	l.r.log.remoteEnd = end
}

func (l *tierLog) AdvanceLogStart(offset int64) error {
	if !l.current() {
		return context.Canceled
	}
	w, t := l.t.b.w, l.t.b.w.oracle.truths[l.r.key]
	if offset > t.start && l.r.retention < 0 || offset > int64(len(t.ghost)) {
		w.fail("bucket", "%s moves the start of %s to %d; asked for was %d, retention %d", l.t.b.name, t.name, offset, t.start, l.r.retention)
	}
	t.start = max(t.start, offset)
	l.r.log.raiseStart(offset)
	return nil
}

// segment is a sealed segment: one batch for each record.
type segment struct {
	base    int64
	records []record
	chain   lineage.Chain
	bytes   []byte
}

var _ tier.Segment = (*segment)(nil)

func (s *segment) BaseOffset() int64 { return s.base }
func (s *segment) EndOffset() int64  { return s.base + int64(len(s.records)) }
func (s *segment) SizeBytes() int64  { return int64(len(s.records)) * batchBytes }
func (s *segment) Modified() int64   { return s.records[0].at }

func (s *segment) MaxTimestamp() int64 {
	ts := int64(-1)
	for _, r := range s.records {
		ts = max(ts, r.at)
	}
	return ts
}

func (s *segment) Open() (io.ReadCloser, error) {
	if s.bytes == nil {
		for i, r := range s.records {
			s.bytes = append(s.bytes, encode(s.base+int64(i), r)...)
		}
	}
	return reader{bytes.NewReader(s.bytes)}, nil
}

func (s *segment) AbortedTxns() ([]batch.AbortedTxn, error) { return nil, nil }
func (s *segment) Suspect() error                           { return nil }
func (s *segment) ProducerSnapshot() ([]byte, error)        { return []byte("producers"), nil }
func (s *segment) ProducersAt(int64) ([]byte, error)        { return []byte("producers"), nil }
func (s *segment) Lineage() lineage.Chain                   { return s.chain }

type reader struct{ *bytes.Reader }

func (reader) Close() error { return nil }

// encode makes a batch of one record, which is always of the same size.
func encode(offset int64, r record) []byte {
	b := batch.NewBuilder(batch.Options{BaseOffset: offset, LeaderEpoch: r.epoch})
	if err := b.Append(r.at, nil, binary.BigEndian.AppendUint64(nil, uint64(r.value)), nil); err != nil {
		panic(err)
	}
	return bytes.Clone(b.Bytes())
}

// batchBytes is the size of encode's batches.
var batchBytes = int64(len(encode(0, record{at: wallAtStart})))

// valuesOf decodes such batches.
func valuesOf(b []byte) ([]int64, error) {
	var values []int64
	for int64(len(b)) >= batchBytes {
		one := b[:batchBytes]
		// The value is the last thing but the count of headers in the record.
		values = append(values, int64(binary.BigEndian.Uint64(one[batchBytes-9:batchBytes-1])))
		b = b[batchBytes:]
	}
	if len(b) > 0 {
		return values, io.ErrUnexpectedEOF
	}
	return values, nil
}
