package tier

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/tier/objstore"
)

// rig is a manager over a memory store with faults, in a synctest bubble: hours
// pass in milliseconds.
type rig struct {
	t       *testing.T
	mem     *objstore.Mem
	counted *objstore.Counted
	faulty  *objstore.Faulty
	store   objstore.Store // what the archive sees
	cfg     ManagerConfig
	deps    ManagerDeps
	db      string // the archive's local copy, empty for none
	archive *Archive
	m       *Manager
}

// inRig runs fn in a bubble with a rig whose configuration set may change.
func inRig(t *testing.T, set func(*rig), fn func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, mem: objstore.NewMem(0), cfg: DefaultManagerConfig()}
		r.cfg.Seed = 1
		r.faulty = objstore.NewFaulty(r.mem, 1)
		r.counted = objstore.NewCounted(r.faulty, nil)
		r.store = r.counted
		if set != nil {
			set(r)
		}
		r.start()
		defer func() { r.stop() }()
		fn(r)
	})
}

func (r *rig) start() {
	cfg := DefaultConfig()
	var err error
	if r.archive, err = OpenArchive(cfg, Deps{Store: r.store, DB: r.db}); err != nil {
		r.t.Fatal(err)
	}
	if r.m, err = NewManager(r.cfg, r.archive, r.deps); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	if err := r.m.Close(ctx); err != nil {
		r.t.Error(err)
	}
	if err := r.archive.Close(ctx); err != nil {
		r.t.Error(err)
	}
}

// restart is a new process: nothing is remembered but the bucket, the journal and db.
func (r *rig) restart() {
	r.stop()
	r.start()
}

func (r *rig) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func rigPartition(i int) topic.Partition {
	return topic.Partition{Topic: fmt.Sprintf("topic-%d", i), ID: topic.ID{9, byte(i >> 8), byte(i)}, Index: int32(i % 3)}
}

// rigLog is a local log for the manager.
type rigLog struct {
	p     topic.Partition
	epoch int32

	mu  *sync.Mutex // the log's, which several leaderships have; guards the following
	l   *simLog
	cfg TopicConfig

	rolls    int
	unsynced bool // sealed segments are not shown yet
	lead     *Leadership

	unleased   atomic.Bool
	hidden     atomic.Bool // damage hides leader epochs
	startErr   error       // what AdvanceLogStart answers
	startCalls int
}

func defaultTopic() TopicConfig {
	return TopicConfig{Enabled: true, RetentionMillis: -1, RetentionBytes: -1, LocalRetentionMillis: -1,
		LocalRetentionBytes: -1, CopyLagMillis: 0, CopyLagBytes: -1, MaxLagMillis: -1}
}

func (r *rig) newLog(i int, cfg TopicConfig) *rigLog {
	return &rigLog{p: rigPartition(i), epoch: 1, mu: new(sync.Mutex), l: newSimLog(0), cfg: cfg}
}

// lead fills the log with sealed segments and hands it over.
func (r *rig) leadWith(log *rigLog, segments int) *rigLog {
	log.fill(segments, 3)
	log.lead = r.m.Lead(log)
	return log
}

// fill adds sealed, committed segments of n batches each, stamped now.
func (g *rigLog) fill(segments, n int) {
	for range segments {
		for range n {
			g.append(time.Now().UnixMilli())
		}
		g.mu.Lock()
		g.l.roll()
		g.mu.Unlock()
	}
	g.commit()
}

func (g *rigLog) append(ts int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.l.append(makeBatch(g.l.end(), g.epoch, ts, 2, strings.Repeat("v", 100)), time.Now().UnixMilli())
}

// appendMarker adds the end of a transaction.
func (g *rigLog) appendMarker() {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now().UnixMilli()
	b := batch.EndTxn(batch.Marker{Type: batch.Commit}, 7, 0, now)
	b.SetBaseOffset(g.l.end())
	b.SetLeaderEpoch(g.epoch)
	g.l.append(simBatch{base: g.l.end(), end: g.l.end() + 1, epoch: g.epoch, ts: -1, bytes: b}, now)
}

// seal rolls and commits.
func (g *rigLog) seal() {
	g.mu.Lock()
	g.l.roll()
	g.mu.Unlock()
	g.commit()
}

// commit moves every offset to the log's end and tells the manager.
func (g *rigLog) commit() {
	g.mu.Lock()
	g.l.hw, g.l.lso, g.l.durable = g.l.end(), g.l.end(), g.l.end()
	end := g.l.end()
	lead := g.lead
	g.mu.Unlock()
	if lead != nil {
		lead.Rolled()
		lead.Advanced(end)
	}
}

func (g *rigLog) set(change func(*TopicConfig)) {
	g.mu.Lock()
	change(&g.cfg)
	g.mu.Unlock()
	g.lead.ConfigChanged()
}

func (g *rigLog) Partition() topic.Partition { return g.p }
func (g *rigLog) LeaderEpoch() int32         { return g.epoch }

func (g *rigLog) Config() TopicConfig {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cfg
}

func (g *rigLog) Offsets() LogOffsets {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.l.offsets()
}

func (g *rigLog) Sealed(from, limit int64) []Segment {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []Segment
	if g.unsynced {
		return nil
	}
	for _, s := range g.l.sealedFrom(from, limit) {
		out = append(out, s)
	}
	return out
}

func (g *rigLog) EpochAt(offset int64) (epoch int32, below bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.hidden.Load() {
		return -1, false
	}
	return g.l.epochAt(offset)
}

func (g *rigLog) Leased() bool { return !g.unleased.Load() }

func (g *rigLog) Roll() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rolls++
	g.l.roll()
	return nil
}

func (g *rigLog) SetRemoteEnd(end int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if end < 0 || end > g.l.remoteEnd { // as the log does
		g.l.remoteEnd = end
	}
}

func (g *rigLog) AdvanceLogStart(offset int64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.startCalls++
	if g.startErr != nil {
		return g.startErr
	}
	if offset > g.l.hw {
		return fmt.Errorf("log start %d above the high watermark %d", offset, g.l.hw)
	}
	g.l.advanceStart(offset)
	return nil
}

var _ Log = (*rigLog)(nil)

func (g *rigLog) remoteEnd() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.l.remoteEnd
}

func (g *rigLog) end() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.l.end()
}

// state is the bucket's manifest of a partition, read without faults.
func (r *rig) state(p topic.Partition) State {
	r.t.Helper()
	cfg := DefaultConfig()
	a, err := OpenArchive(cfg, Deps{Store: r.mem})
	if err != nil {
		r.t.Fatal(err)
	}
	defer a.Close(context.Background())
	st, err := a.Partition(p).Refresh(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	return st
}

// objects counts the keys under a partition's prefix by kind.
func (r *rig) objects(p topic.Partition) (segments, others int) {
	cfg := DefaultConfig()
	err := r.mem.List(context.Background(), cfg.PartitionPrefix(p.ID, p.Index), "", func(o objstore.Object) bool {
		if info, ok := cfg.ParseKey(o.Key); ok && info.Kind == KeySegment {
			segments++
		} else {
			others++
		}
		return true
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return segments, others
}

func (r *rig) status(g *rigLog) PartitionStatus {
	r.t.Helper()
	s, ok := r.m.PartitionStatus(g.p)
	if !ok {
		r.t.Fatalf("%s is not led", g.p)
	}
	return s
}

func (r *rig) wantEnd(g *rigLog, end int64) {
	r.t.Helper()
	if got := r.state(g.p).End; got != end {
		r.t.Errorf("archive ends at %d, want %d; status %+v", got, end, r.status(g))
	}
	if got := g.remoteEnd(); got != end {
		r.t.Errorf("log was told a remote end of %d, want %d", got, end)
	}
}

// segments are the sealed segments as they are now.
func (g *rigLog) segments() []*simSegment {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.l.sealed)
}

func (g *rigLog) rollCount() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.rolls
}
