package hot

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/lineage"
	"github.com/varvelog/varve/hot/vfs"
	"github.com/varvelog/varve/meta/topic"
)

var (
	crashSeed  = flag.Uint64("hot.seed", 0, "run one crash seed only")
	crashSeeds = flag.Int("hot.seeds", 0, "run that many crash seeds")
)

// hookFS calls hook before every operation that changes something.
type hookFS struct {
	vfs.FS
	hook func(op, name string)
}

type hookFile struct {
	vfs.File
	fs *hookFS
}

func (h *hookFS) Create(name string) (vfs.File, error) {
	h.hook("create", name)
	f, err := h.FS.Create(name)
	if err != nil {
		return nil, err
	}
	return &hookFile{f, h}, nil
}

func (h *hookFS) OpenAppend(name string) (vfs.File, error) {
	h.hook("open", name)
	f, err := h.FS.OpenAppend(name)
	if err != nil {
		return nil, err
	}
	return &hookFile{f, h}, nil
}
func (h *hookFS) Rename(a, b string) error { h.hook("rename", b); return h.FS.Rename(a, b) }
func (h *hookFS) Remove(n string) error    { h.hook("remove", n); return h.FS.Remove(n) }
func (h *hookFS) RemoveAll(n string) error { h.hook("removeall", n); return h.FS.RemoveAll(n) }
func (h *hookFS) SyncDir(n string) error   { h.hook("syncdir", n); return h.FS.SyncDir(n) }
func (h *hookFS) SyncFS(n string) error    { h.hook("syncfs", n); return h.FS.SyncFS(n) }
func (f *hookFile) Sync() error            { f.fs.hook("sync", f.Name()); return f.File.Sync() }
func (f *hookFile) Truncate(n int64) error {
	f.fs.hook("truncate", f.Name())
	return f.File.Truncate(n)
}
func (f *hookFile) Write(p []byte) (int, error) { f.fs.hook("write", f.Name()); return f.File.Write(p) }
func (f *hookFile) WriteAt(p []byte, at int64) (int, error) {
	f.fs.hook("write", f.Name())
	return f.File.WriteAt(p, at)
}

// crashLog is a partition of the workload and what must be true of it.
type crashLog struct {
	part topic.Partition
	log  *Log

	mu     sync.Mutex
	want   map[int64][]byte // by base offset, as acknowledged
	end    int64            // of want
	cutAt  int64            // a truncation under way: nothing at or beyond is promised; -1 none
	starts int64            // log start that was acknowledged

	starting  int64                 // log start being asked for
	remote    int64                 // highest remote end
	resetting bool                  // ResetTo is under way, or Delete
	resetAt   int64                 // highest offset of a ResetTo
	assigning bool                  // AssignEpoch is under way
	sent      map[int64][]sentBatch // last batches by producer, acknowledged
	events    []txnEvent
	chain     lineage.Chain
	inflight  batch.Batch // as sent

	epoch int32
	seq   map[int64]int32 // next sequence by producer
	txn   map[int64]bool
}

// crashRun is one seed: a workload on a file system that dies at an operation
// chosen by the seed.
type crashRun struct {
	t    testing.TB
	seed uint64
	rng  *rand.Rand
	mem  *vfs.Mem
	fs   *hookFS
	conf Config
	lc   LogConfig
	logs []*crashLog
	now  int64

	kill bool // the process dies, not the machine
	runs int  // of the kernel, that have ended

	mu       sync.Mutex
	left     int // operations until the crash
	clone    *vfs.Mem
	promises []promise
	where    string
}

func (r *crashRun) fatalf(format string, args ...any) {
	r.t.Helper()
	r.t.Fatalf("seed %d (crash before %s): %s", r.seed, r.where, fmt.Sprintf(format, args...))
}

func newCrashRun(t testing.TB, seed uint64) *crashRun {
	r := &crashRun{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 7)), mem: vfs.NewMem(seed), now: 1000}
	r.left = 1 + r.rng.IntN(400)
	r.fs = &hookFS{FS: r.mem, hook: r.hook}
	r.conf = DefaultConfig("data")
	r.conf.SyncFilesMax = r.rng.IntN(5)
	r.conf.CheckpointBytes = 2048 << r.rng.IntN(6)
	if r.rng.IntN(4) == 0 {
		r.conf.PreallocateBytes = 0
	}
	r.lc = DefaultLogConfig()
	r.lc.SegmentBytes = 1500 << r.rng.IntN(4)
	r.lc.IndexIntervalBytes = 100 << r.rng.IntN(4)
	if r.rng.IntN(3) > 0 {
		r.conf.SharedLogBytes = sharedBytesMin << r.rng.IntN(2)
		r.lc.SegmentBytes <<= r.rng.IntN(5)
		r.conf.CheckpointBytes <<= r.rng.IntN(5)
	}
	r.lc.FileDeleteDelay = 0
	r.lc.RetentionMillis = -1
	switch r.rng.IntN(4) {
	case 0:
		r.lc.Compact, r.lc.Delete, r.lc.MinCleanableDirtyRatio = true, false, 0
	case 1:
		r.lc.Tiered, r.lc.LocalRetentionMillis = true, 1
	case 2:
		r.lc.RetentionMillis = 100 << r.rng.IntN(6)
	}
	r.kill = r.rng.IntN(3) == 0
	if r.rng.IntN(6) == 0 {
		r.conf.Durability = Replicated
	}
	for i := range 2 {
		r.logs = append(r.logs, &crashLog{
			part: topic.Partition{Topic: "t", ID: topic.ID{byte(1 + i)}, Index: int32(i)},
			want: map[int64][]byte{}, cutAt: -1, seq: map[int64]int32{}, txn: map[int64]bool{}, sent: map[int64][]sentBatch{},
		})
	}
	return r
}

// hook takes the crash image when its time has come. Promises are read first:
// what is acknowledged before the power goes must survive.
func (r *crashRun) hook(op, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left--
	if r.left != 0 {
		return
	}
	r.where = op + " " + name
	for _, c := range r.logs {
		r.promises = append(r.promises, c.promise(r.kill, r.conf.Durability == Replicated))
	}
	if r.kill {
		r.clone = r.mem.Clone()
		return
	}
	r.clone = r.mem.Crash()
}

func (r *crashRun) crashed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.clone != nil
}

func (r *crashRun) open(fs vfs.FS) *Store {
	logger := slog.New(slog.DiscardHandler)
	if *crashSeed != 0 {
		logger = testLogger(r.t)
	}
	s, err := Open(r.conf, Deps{FS: fs, Logger: logger, Boot: fmt.Sprint("run ", r.runs)})
	if err != nil {
		r.fatalf("open: %v", err)
	}
	r.share(s)
	return s
}

func (r *crashRun) openLogs(s *Store) {
	for _, c := range r.logs {
		l, err := s.Log(c.part, r.lc)
		if err != nil {
			r.fatalf("open log: %v", err)
		}
		c.mu.Lock()
		c.log = l
		c.mu.Unlock()
	}
}

// work runs the workload until the crash point is passed or ops are done.
func (r *crashRun) work() {
	s := r.open(r.fs)
	r.openLogs(s)
	for i := 0; i < 300 && !r.crashed(); i++ {
		r.now += 10
		c := r.logs[r.rng.IntN(len(r.logs))]
		n := r.rng.IntN(100)
		r.trace("op %d on %s: %+v spare %d snapAt %d", n, c.part, c.log.Offsets(), c.log.spare, c.log.snapAt.Load())
		switch {
		case n < 25:
			r.appendPlain(c)
		case n < 47:
			r.appendIdempotent(c)
		case n < 62:
			r.appendTxn(c)
		case n < 69:
			l := c.log
			want := l.Offsets().End
			eventually(r.t, func() bool { return l.Offsets().Durable >= want || l.Err() != nil })
			if r.conf.SharedLogBytes > 0 {
				r.smallRounds(c)
			}
			l.SetHighWatermark(l.Offsets().Durable)
		case n < 76:
			r.check(c.log.Roll(r.now))
		case n < 81:
			r.check(s.checkpoint(s.opened(), false))
		case n < 84:
			r.assign(c)
		case n < 87:
			r.advance(c)
		case n < 89:
			r.truncate(c)
		case n < 93:
			hw := c.log.HighWatermark()
			c.mu.Lock()
			c.remote = max(c.remote, hw)
			c.mu.Unlock()
			c.log.SetRemoteEnd(hw)
			_, err := c.log.Retain(r.now)
			r.check(err)
		case n < 95:
			s.finishSealed()
			_, err := c.log.Compact(context.Background(), r.now)
			r.check(err)
		case n < 97:
			if r.rng.IntN(2) == 0 {
				r.check(s.checkpoint(s.opened(), false))
			}
			c.log.idle()
		case n < 98:
			r.reset(c)
		case n < 99:
			r.recreate(s, c)
		default:
			if err := s.Close(context.Background()); err != nil {
				r.fatalf("close: %v", err)
			}
			if r.crashed() {
				return
			}
			s = r.open(r.fs)
			if !s.Clean() {
				r.fatalf("a closed store is not clean")
			}
			r.openLogs(s)
		}
	}
	if !r.crashed() {
		r.mu.Lock()
		r.left = 1
		r.mu.Unlock()
		r.hook("end", "")
	}
	s.Abandon()
	crashShared.rounds.Add(s.stats.SharedRounds.Load())
	crashShared.renewed.Add(s.stats.SharedRenewed.Load())
}

func (r *crashRun) check(err error) {
	if err != nil {
		r.fatalf("%v", err)
	}
}

func (r *crashRun) appendBatch(c *crashLog, b batch.Batch, o AppendOptions) (Appended, error) {
	o.LeaderEpoch, o.Now = c.epoch, r.now
	sent := slices.Clone(b)
	c.mu.Lock()
	c.inflight = sent
	c.mu.Unlock()
	a, err := c.log.Append(b, o)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inflight = nil
	if err != nil || a.Duplicate {
		return a, err
	}
	c.want[a.BaseOffset] = slices.Clone(b)
	c.end = a.LastOffset + 1
	c.chain = c.chain.Assign(c.epoch, a.BaseOffset)
	id := sent.ProducerID()
	if id >= 0 && !sent.Control() {
		list := append(slices.Clone(c.sent[id]), sentBatch{sent, a.BaseOffset, a.LastOffset})
		c.sent[id] = list[max(0, len(list)-batchesKept):]
	}
	if sent.Transactional() {
		e := txnEvent{id: id, base: a.BaseOffset, last: a.LastOffset, marker: sent.Control()}
		if e.marker {
			m, _, _ := sent.EndTxnMarker()
			e.abort = m.Type == batch.Abort
		}
		c.events = append(c.events, e)
	}
	return a, err
}

func (r *crashRun) assign(c *crashLog) {
	c.epoch++
	if r.rng.IntN(2) == 0 {
		return // as a follower does, which is told with the records
	}
	c.mu.Lock()
	c.assigning = true
	c.mu.Unlock()
	r.check(c.log.AssignEpoch(c.epoch))
	c.mu.Lock()
	c.assigning = false
	c.chain = c.chain.Assign(c.epoch, c.end)
	c.mu.Unlock()
}

// reset replaces the log by an empty one further on, as a follower does whose
// leader's log begins there; producers come along.
func (r *crashRun) reset(c *crashLog) {
	if r.lc.Compact || r.rng.IntN(2) == 0 {
		return
	}
	_, err := c.log.Producers()
	r.check(err)
	off := c.log.Offsets().End + r.rng.Int64N(20)
	c.log.stateMu.Lock()
	snapshot := c.log.producers.encode(off)
	c.log.stateMu.Unlock()
	c.mu.Lock()
	c.resetting = true
	c.mu.Unlock()
	r.check(c.log.ResetTo(off, c.log.Lineage(), snapshot))
	c.mu.Lock()
	c.resetting, c.resetAt, c.end = false, off, off
	if !r.lc.Tiered {
		c.starts = off
	}
	c.chain = c.chain.TruncateEnd(off)
	clear(c.want)
	c.mu.Unlock()
}

func (r *crashRun) build(o batch.Options) batch.Batch {
	b := batch.NewBuilder(o)
	for range 1 + r.rng.IntN(4) {
		key := fmt.Appendf(nil, "key%d", r.rng.IntN(8))
		value := make([]byte, r.rng.IntN(200))
		for i := range value {
			value[i] = byte(r.rng.Uint32())
		}
		if err := b.Append(r.now, key, value, nil); err != nil {
			r.fatalf("%v", err)
		}
	}
	return slices.Clone(b.Bytes())
}

func (r *crashRun) appendPlain(c *crashLog) {
	_, err := r.appendBatch(c, r.build(batch.Options{}), AppendOptions{})
	r.check(err)
}

// appendIdempotent sends the next batch of a producer, or repeats one of its
// last.
func (r *crashRun) appendIdempotent(c *crashLog) {
	id := int64(1 + r.rng.IntN(3))
	if list := c.sent[id]; len(list) > 0 && r.rng.IntN(4) == 0 {
		i := len(list) - 1
		if !r.lc.Compact {
			i = r.rng.IntN(len(list))
		}
		a, err := r.appendBatch(c, slices.Clone(list[i].bytes), AppendOptions{})
		r.check(err)
		if !a.Duplicate || a.BaseOffset != list[i].base {
			r.fatalf("%s: repeat of producer %d got offset %d (duplicate %v), the original %d", c.part, id, a.BaseOffset, a.Duplicate, list[i].base)
		}
		return
	}
	b := r.build(batch.Options{Producer: &batch.Producer{ID: id, Sequence: c.seq[id]}})
	_, err := r.appendBatch(c, b, AppendOptions{})
	r.check(err)
	c.seq[id] = b.LastSequence() + 1
}

// appendTxn begins, continues or ends a transaction.
func (r *crashRun) appendTxn(c *crashLog) {
	id := int64(10 + r.rng.IntN(2))
	if c.txn[id] && r.rng.IntN(2) == 0 {
		m := batch.Marker{Type: batch.ControlType(r.rng.IntN(2))}
		_, err := r.appendBatch(c, batch.EndTxn(m, id, 0, r.now), AppendOptions{Origin: Coordinator})
		r.check(err)
		c.txn[id] = false
		return
	}
	b := r.build(batch.Options{Transactional: true, Producer: &batch.Producer{ID: id, Sequence: c.seq[id]}})
	_, err := r.appendBatch(c, b, AppendOptions{TxnVerified: true})
	r.check(err)
	c.seq[id] = b.LastSequence() + 1
	c.txn[id] = true
}

func (r *crashRun) advance(c *crashLog) {
	o := c.log.Offsets()
	hw := c.log.HighWatermark()
	if hw <= o.LogStart {
		return
	}
	to := o.LogStart + 1 + r.rng.Int64N(hw-o.LogStart)
	c.mu.Lock()
	c.starting = to
	c.mu.Unlock()
	r.check(c.log.AdvanceLogStart(to))
	c.mu.Lock()
	c.starts = to
	c.mu.Unlock()
}

// truncate cuts the log somewhere above its high watermark's batch start.
func (r *crashRun) truncate(c *crashLog) {
	o := c.log.Offsets()
	if c.log.Config().Compact || o.End <= o.LocalStart {
		return
	}
	to := o.LocalStart + r.rng.Int64N(o.End-o.LocalStart)
	for base, b := range c.want {
		if base < to && to < base+int64(batch.Batch(b).LastOffsetDelta())+1 {
			to = base
		}
	}
	if to < o.LocalStart {
		return
	}
	c.mu.Lock()
	c.cutAt = to
	c.mu.Unlock()
	r.check(c.log.TruncateTo(to))
	if end := c.log.Offsets().End; end != to {
		r.fatalf("truncated to %d, end is %d", to, end)
	}
	c.mu.Lock()
	for base := range c.want {
		if base >= to {
			delete(c.want, base)
		}
	}
	c.cutAt, c.end = -1, to
	c.starts = min(c.starts, to)
	c.events = slices.DeleteFunc(c.events, func(e txnEvent) bool { return e.last >= to })
	for id, list := range c.sent {
		c.sent[id] = slices.DeleteFunc(slices.Clone(list), func(s sentBatch) bool { return s.last >= to })
	}
	c.chain = c.chain.TruncateEnd(to)
	c.mu.Unlock()
	r.relearn(c)
}

// relearn takes producers' sequences from what is left of the log.
func (r *crashRun) relearn(c *crashLog) {
	clear(c.seq)
	clear(c.txn)
	ps, err := c.log.Producers()
	r.check(err)
	for _, p := range ps {
		c.seq[p.ProducerID] = p.LastSequence + 1
		c.txn[p.ProducerID] = p.TxnStart >= 0
	}
}

// verify opens the crash image and compares it with the promises.
func (r *crashRun) verify(fs vfs.FS, promises []promise) {
	s := r.open(fs)
	defer s.Abandon()
	crashShared.applied.Add(s.stats.SharedApplied.Load())
	sent := make([]map[int64][]sentBatch, len(promises))
	for i := range promises {
		p, c := &promises[i], r.logs[i]
		l, err := s.Log(c.part, r.lc)
		if err != nil {
			r.fatalf("open log: %v", err)
		}
		if err := l.Err(); err != nil {
			r.fatalf("log is offline: %v", err)
		}
		if p.cached && len(l.Damaged()) > 0 {
			// Power loss took what nobody had synced, below a watermark that
			// was: other replicas have it, and here it is not served.
			return
		}
		p.first = true
		r.verifyLog(c, l, p)
		p.first = false
		if !p.any {
			r.verifyChain(c, l, p)
			r.verifyTxns(c, l, p)
			sent[i] = r.retry(c, l, p)
		}
		r.goOn(l, c)
	}
	if err := s.Close(context.Background()); err != nil {
		r.fatalf("close: %v", err)
	}
	s = r.open(fs)
	defer s.Abandon()
	for i := range promises {
		l, err := s.Log(r.logs[i].part, r.lc)
		r.check(err)
		r.verifyLog(r.logs[i], l, &promises[i])
		r.retryAgain(r.logs[i], l, sent[i])
	}
}

func (r *crashRun) verifyLog(c *crashLog, l *Log, p *promise) {
	o := l.Offsets()
	if o.End < p.durable {
		r.fatalf("%s: end %d, %d was acknowledged", c.part, o.End, p.durable)
	}
	if had, _, lost := l.Lost(); lost && !p.any {
		r.fatalf("%s: end %d, and it takes itself for one that had %d", c.part, o.End, had)
	}
	if o.LogStart < min(p.start, p.durable) {
		r.fatalf("%s: log start %d, %d was acknowledged", c.part, o.LogStart, p.start)
	}
	if o.LogStart > p.startMax || o.LocalStart > max(p.localMax, p.startMax) {
		r.fatalf("%s: log starts at %d, local at %d; nobody asked for more than %d and %d", c.part, o.LogStart, o.LocalStart, p.startMax, p.localMax)
	}
	if !p.any && p.inflight == nil && p.first && o.End > max(p.end, p.startMax) {
		r.fatalf("%s: end %d, nothing was ever appended beyond %d", c.part, o.End, p.end)
	}
	seen := map[int64]batch.Batch{}
	next := o.LocalStart
	seqs := map[int64]int32{}
	compact, chain := l.Config().Compact, l.Lineage()
	for i, b := range readAll(r.t, l, 700) {
		if epoch := chain.EpochAt(b.BaseOffset()); epoch != b.LeaderEpoch() && b.BaseOffset() >= o.LogStart {
			r.fatalf("%s: batch at %d is of epoch %d, the chain %v says %d", c.part, b.BaseOffset(), b.LeaderEpoch(), chain, epoch)
		}
		if !compact && (b.BaseOffset() > next || i > 0 && b.BaseOffset() < next) {
			r.fatalf("%s: batch at %d, want %d", c.part, b.BaseOffset(), next)
		}
		next = b.NextOffset()
		seen[b.BaseOffset()] = b
		if id := b.ProducerID(); id >= 0 && !b.Control() {
			if want, ok := seqs[id]; ok && b.BaseSequence() != want && !compact {
				r.fatalf("%s: producer %d has sequence %d at offset %d, want %d", c.part, id, b.BaseSequence(), b.BaseOffset(), want)
			}
			seqs[id] = b.LastSequence() + 1
		}
	}
	if compact {
		return
	}
	for base, b := range p.want {
		last := batch.Batch(b).LastOffset()
		if last >= p.durable || base < o.LocalStart {
			continue
		}
		if got := seen[base]; string(got) != string(b) {
			r.fatalf("%s: batch of offset %d, acknowledged below %d, is missing or different (%d bytes)", c.part, base, p.durable, len(got))
		}
	}
}

// goOn checks that producers can continue: what the log knows of them equals
// what its batches say.
func (r *crashRun) goOn(l *Log, c *crashLog) {
	ps, err := l.Producers()
	r.check(err)
	last := map[int64]int32{}
	open := map[int64]int64{}
	for _, b := range readAll(r.t, l, 1<<20) {
		id := b.ProducerID()
		if id < 0 {
			continue
		}
		if b.Control() {
			delete(open, id)
			continue
		}
		last[id] = b.LastSequence()
		if _, ok := open[id]; b.Transactional() && !ok {
			open[id] = b.BaseOffset()
		}
	}
	got := map[int64]ProducerState{}
	for _, p := range ps {
		got[p.ProducerID] = p
	}
	for id, seq := range last {
		if got[id].LastSequence != seq {
			r.fatalf("%s: producer %d is known up to sequence %d, the log has %d", c.part, id, got[id].LastSequence, seq)
		}
		first, ok := open[id]
		if l.Offsets().LocalStart > 0 || l.Config().Compact {
			continue // its beginning may be gone
		}
		if !ok {
			first = -1
		}
		if got[id].TxnStart != first {
			r.fatalf("%s: producer %d has a transaction at %d, the log says %d", c.part, id, got[id].TxnStart, first)
		}
	}
	r.checkAborts(l, c)
	end := l.Offsets().End
	epoch := max(l.LatestEpoch(), 0)
	b := r.build(batch.Options{})
	a, err := l.Append(b, AppendOptions{LeaderEpoch: epoch, Now: r.now})
	if err != nil || a.BaseOffset != end {
		r.fatalf("%s: going on: offset %d, end was %d: %v", c.part, a.BaseOffset, end, err)
	}
	if chain := l.Lineage(); !chain.Valid() || chain.Latest() != epoch {
		r.fatalf("%s: lineage %v, epoch %d", c.part, chain, epoch)
	}
}

// checkAborts compares the transaction indexes with what the markers say.
func (r *crashRun) checkAborts(l *Log, c *crashLog) {
	if l.Offsets().LocalStart > 0 || l.Config().Compact {
		return
	}
	open := map[int64]int64{}
	var want []batch.AbortedTxn
	for _, b := range readAll(r.t, l, 1<<20) {
		first, ok := open[b.ProducerID()]
		switch {
		case b.Control():
			m, _, err := b.EndTxnMarker()
			r.check(err)
			if ok && m.Type == batch.Abort {
				want = append(want, batch.AbortedTxn{ProducerID: b.ProducerID(), FirstOffset: first, LastOffset: b.LastOffset()})
			}
			delete(open, b.ProducerID())
		case b.Transactional() && !ok:
			open[b.ProducerID()] = b.BaseOffset()
		}
	}
	got, err := l.AbortedTxns(0, 1<<60)
	r.check(err)
	for i := range got {
		got[i].LastStable = 0
	}
	if !slices.Equal(got, want) {
		r.fatalf("%s: aborted transactions %+v, the markers say %+v", c.part, got, want)
	}
}

// runSeed works, crashes, and checks; then once more with a second crash in
// the middle of the recovery from the first.
func runSeed(t testing.TB, seed uint64) {
	r := newCrashRun(t, seed)
	r.work()
	if r.clone == nil {
		r.fatalf("no crash image")
	}
	promises, image := r.promises, r.clone
	r.list(image)
	r.powerOn()
	second := image.Crash() // the same disk, for the second pass
	r.verify(image, promises)

	left := 1 + r.rng.IntN(30)
	var mu sync.Mutex
	var again *vfs.Mem
	fs := &hookFS{FS: second, hook: func(string, string) {
		mu.Lock()
		defer mu.Unlock()
		if left--; left == 0 {
			if again = second.Clone(); !r.kill {
				again = second.Crash()
			}
		}
	}}
	s := r.open(fs)
	for _, c := range r.logs {
		_, err := s.Log(c.part, r.lc)
		r.check(err)
	}
	s.Abandon()
	mu.Lock()
	image = again
	mu.Unlock()
	if image != nil {
		r.where += ", then again during recovery"
		r.powerOn()
		r.verify(image, promises)
	}
}

// powerOn begins another run of the kernel, if the last one has ended.
func (r *crashRun) powerOn() {
	if !r.kill {
		r.runs++
	}
}

// longRun says whether VARVE_LONG asks for the long forms of tests.
func longRun() bool { return os.Getenv("VARVE_LONG") != "" }

func TestAcknowledgedRecordsSurvivePowerLossAtAnyOperation(t *testing.T) {
	if *crashSeed != 0 {
		runSeed(t, *crashSeed)
		return
	}
	seeds := 1000
	switch {
	case longRun():
		seeds = 10_000
	case testing.Short():
		seeds = 100
	}
	if *crashSeeds != 0 {
		seeds = *crashSeeds
	}
	var wg sync.WaitGroup
	next := make(chan uint64)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for seed := range next {
				if !t.Failed() {
					t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { runSeed(t, seed) })
				}
			}
		})
	}
	for seed := range seeds {
		next <- uint64(seed + 1)
	}
	close(next)
	wg.Wait()
	rounds, renewed, applied := crashShared.rounds.Load(), crashShared.renewed.Load(), crashShared.applied.Load()
	t.Logf("shared log: %d rounds, begun anew %d times, %d bytes applied", rounds, renewed, applied)
	if seeds >= 1000 && (rounds == 0 || renewed == 0 || applied == 0) {
		t.Fatal("the shared log did nothing")
	}
}

// list prints the crash image.
func (r *crashRun) list(fs vfs.FS) {
	if *crashSeed == 0 {
		return
	}
	dirs, _ := fs.ReadDir("data")
	for _, d := range dirs {
		files, _ := fs.ReadDir("data/" + d.Name())
		for _, f := range files {
			info, _ := f.Info()
			r.t.Logf("image %s/%s %d bytes", d.Name(), f.Name(), info.Size())
		}
	}
	if j, _, err := openJournal(fs.(*vfs.Mem).Crash(), "data"); err == nil {
		for k, st := range j.live {
			r.t.Logf("journal %v %+v", k.index, st)
		}
	}
}

func (r *crashRun) trace(format string, args ...any) {
	if *crashSeed != 0 {
		r.t.Logf(format, args...)
	}
}
