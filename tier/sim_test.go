package tier

import (
	"container/heap"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/tier/objstore"
)

// The simulator drives the core, and the real Remote over a faulty store, through
// crashes, outages, slow calls, lost answers, stale leaders and clock jumps, on
// one goroutine and from one seed. Two brokers hold the partition; both may
// believe they lead it.

const simEpoch = 1_700_000_000_000 // wall time of the simulation's start

var simPartition = topic.Partition{Topic: "sim", ID: topic.ID{1, 2, 3}, Index: 0}

type simEvent struct {
	at  int64
	seq int
	fn  func()
}

type simQueue []*simEvent

func (q simQueue) Len() int { return len(q) }
func (q simQueue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q simQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *simQueue) Push(x any)   { *q = append(*q, x.(*simEvent)) }
func (q *simQueue) Pop() any {
	x := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return x
}

// simBroker is one broker: a core, an archive of its own, a local log.
type simBroker struct {
	s       *sim
	name    string
	core    *core
	archive *Archive
	remote  *Remote
	log     *simLog

	life      int // rises with every crash; answers to an earlier life are lost
	born      int64
	skew      int64
	epoch     int32 // the epoch it believes to lead in; −1 = follower
	gen       uint64
	granted   map[uint64]int32 // the epoch each leadership was given
	cancelled map[uint64]bool
	own       map[uint64]string
	settled   map[uint64]bool
	watched   int64
	tick      int64
	cfg       TopicConfig
	stuck     bool
}

type sim struct {
	seed   uint64
	rng    *rand.Rand
	now    int64
	seq    int
	queue  simQueue
	ccfg   coreConfig
	store  *simStore
	truth  *Archive // looks at the bucket without faults
	mem    *objstore.Mem
	dir    string
	slow   bool
	values int

	brokers   []*simBroker
	leader    *simBroker // the one the controller named last
	epoch     int32
	committed []simBatch // below the true high watermark, all of it, ever
	deleted   int64      // DeleteRecords
	configs   []simConfigAt
	maxWall   int64

	damage     simDamage
	last       State // the bucket's manifest as last checked
	marks      map[MarkID]int64
	checked    map[SegmentID]bool
	violations []string
	uploads    int
}

type simConfigAt struct {
	at  int64
	cfg TopicConfig
}

func newSim(t *testing.T, seed uint64, broken mutant) *sim {
	s := &sim{
		seed: seed, rng: rand.New(rand.NewPCG(seed, 7)), mem: objstore.NewMem(0), dir: t.TempDir(),
		damage: newSimDamage(), marks: map[MarkID]int64{}, checked: map[SegmentID]bool{}, last: State{Start: -1, End: -1},
	}
	s.store = &simStore{
		mem: s.mem, rng: s.rng, now: func() int64 { return s.now }, modified: map[string]int64{},
		onPut: s.putDone, onDelete: s.checkDelete,
	}
	s.ccfg = coreConfig{
		uploads: 3, uploadsPerPartition: 2 + s.rng.IntN(3), deletes: 2, calls: 3, deleteBatch: 5,
		graceMillis: 60_000, uploadMillis: 20_000, uploadMinRate: 1 << 20, uploadMillisMax: 60_000,
		callMillis: 10_000, collectMillis: 20_000, stuckMillis: 90_000, recheckMillis: 600_000, searchMillis: 300_000,
		seed: seed, broken: broken,
	}
	if broken == mutantNone && seed%3 > 0 || broken == mutantMendSound { // somebody damages the bucket
		s.ccfg.surveyMillis, s.ccfg.readMillis, s.ccfg.scrubRate, s.ccfg.scrubPerDay = 60_000, 240_000, 1<<20, 86_400
	}
	s.truth = s.openArchive(s.mem)
	cfg := TopicConfig{Enabled: true, RetentionMillis: -1, RetentionBytes: -1, LocalRetentionMillis: -1,
		LocalRetentionBytes: 0, CopyLagMillis: 0, CopyLagBytes: -1, MaxLagMillis: -1}
	s.setConfig(cfg)
	for i := range 2 {
		b := &simBroker{s: s, name: fmt.Sprint("broker", i), log: newSimLog(0), epoch: -1, cfg: cfg}
		s.brokers = append(s.brokers, b)
		b.boot()
	}
	s.elect(s.brokers[0], true)
	return s
}

func (s *sim) openArchive(store objstore.Store) *Archive {
	cfg := DefaultConfig()
	cfg.CommitTimeout = 400 * time.Millisecond
	cfg.GetTimeout = time.Second
	a, err := OpenArchive(cfg, Deps{Store: store})
	if err != nil {
		panic(err)
	}
	return a
}

func (s *sim) close() {
	for _, b := range s.brokers {
		b.archive.Close(context.Background())
	}
	s.truth.Close(context.Background())
}

func (s *sim) fail(format string, args ...any) {
	if len(s.violations) < 20 {
		s.violations = append(s.violations, fmt.Sprintf("t=%d: ", s.now)+fmt.Sprintf(format, args...))
	}
}

func (s *sim) after(delay int64, fn func()) {
	s.seq++
	heap.Push(&s.queue, &simEvent{s.now + delay, s.seq, fn})
}

// latency is how long a call takes until its effect, or its answer.
func (s *sim) latency() int64 {
	switch {
	case s.slow && s.rng.IntN(3) == 0:
		return s.rng.Int64N(90_000)
	case s.rng.IntN(20) == 0:
		return s.rng.Int64N(8_000)
	}
	return s.rng.Int64N(200)
}

func (s *sim) setConfig(cfg TopicConfig) {
	s.configs = append(s.configs, simConfigAt{s.now, cfg})
}

func (s *sim) trueHW() int64 {
	if len(s.committed) == 0 {
		return 0
	}
	return s.committed[len(s.committed)-1].end
}

// run plays the given number of random actions, then heals everything and waits
// until all must have settled.
func (s *sim) run(actions int) {
	for range actions {
		s.advance(s.rng.Int64N(1500))
		s.act()
		if len(s.violations) > 0 {
			return
		}
	}
	s.heal()
	for range 40 {
		s.advance(30_000)
		s.retainLocally()
	}
	s.settled()
}

func (s *sim) advance(d int64) {
	until := s.now + d
	for len(s.queue) > 0 && s.queue[0].at <= until && len(s.violations) == 0 {
		e := heap.Pop(&s.queue).(*simEvent)
		s.now = e.at
		e.fn()
	}
	s.now = until
}

func (s *sim) act() {
	l := s.leader
	switch n := s.rng.IntN(100); {
	case n < 34:
		for range 1 + s.rng.IntN(4) {
			s.produce(l)
		}
	case n < 54:
		s.replicate()
	case n < 66:
		l.log.roll()
		l.wake()
	case n < 70:
		s.retainLocally()
	case n < 73:
		s.deleteRecords()
	case n < 77:
		s.store.before, s.store.after = s.rng.Float64()*0.3, s.rng.Float64()*0.3
		if s.rng.IntN(2) == 0 {
			s.store.before, s.store.after = 0, 0
		}
	case n < 79:
		s.store.down = s.rng.IntN(3) == 0
	case n < 82:
		s.slow = s.rng.IntN(3) == 0
	case n < 86:
		s.reconfigure()
	case n < 89:
		b := s.brokers[s.rng.IntN(2)]
		b.crash()
	case n < 92:
		s.elect(s.brokers[s.rng.IntN(2)], s.rng.IntN(2) == 0)
	case n < 94:
		b := s.brokers[s.rng.IntN(2)]
		b.skew = (s.rng.Int64N(3) - 1) * s.rng.Int64N(86_400_000)
	case n < 96 && s.ccfg.surveyMillis > 0:
		s.spoil()
	case n < 97: // a zombie goes on writing what will never be committed
		for _, b := range s.brokers {
			if b != l && b.epoch >= 0 {
				s.produce(b)
				b.log.roll()
				b.wake()
			}
		}
	default:
		l.log.lso = l.log.hw // an open transaction, held until replicate moves it on
	}
	s.checkReadable()
}

func (s *sim) produce(b *simBroker) {
	s.values++
	ts := b.wall() - s.rng.Int64N(60_000)
	if s.rng.IntN(50) == 0 {
		ts += s.rng.Int64N(3_600_000) // a client with a clock ahead
	}
	e := max(b.epoch, 0)
	b.log.append(makeBatch(b.log.end(), e, ts, 1+s.rng.IntN(3), fmt.Sprintf("%s-%d", b.name, s.values)), b.wall())
	b.log.durable = b.log.end() - s.rng.Int64N(2)*(b.log.end()-b.log.durable)
	b.wake()
}

// replicate moves the leader's high watermark, and the follower up to it.
func (s *sim) replicate() {
	l := s.leader
	l.log.durable = l.log.end()
	for _, seg := range append(slices.Clone(l.log.sealed), l.log.active) {
		for _, b := range seg.batches {
			if b.base >= s.trueHW() && b.base == s.trueHW() && s.rng.IntN(8) > 0 {
				s.committed = append(s.committed, b)
			}
		}
	}
	l.log.hw = s.trueHW()
	if s.rng.IntN(10) > 0 {
		l.log.lso = l.log.hw
	}
	for _, b := range s.brokers {
		if b != l && b.epoch < 0 {
			s.catchUp(b)
		}
	}
	l.advanced()
}

// catchUp makes a follower's log equal to what is committed, with boundaries of
// its own; it begins at the leader's local start when it is behind that.
func (s *sim) catchUp(b *simBroker) {
	l := s.leader
	if b.log.end() < l.log.localStart() {
		at := l.log.localStart()
		if i, ok := slices.BinarySearchFunc(s.committed, at, func(x simBatch, o int64) int { return int(x.base - o) }); !ok {
			if i == 0 {
				return
			}
			at = s.committed[i-1].base
		}
		b.log = newSimLog(at)
		b.log.logStart = l.log.logStart
		for _, x := range s.committed { // as it is in the bucket
			if x.base < at && x.epoch > b.log.chain.Latest() {
				b.log.chain = b.log.chain.Assign(x.epoch, x.base)
			}
		}
	}
	for _, x := range s.committed {
		if x.base == b.log.end() {
			b.log.append(x, b.wall())
			if s.rng.IntN(6) == 0 {
				b.log.roll()
			}
		}
	}
	b.log.advanceStart(min(l.log.logStart, b.log.end()))
	b.log.hw = s.trueHW()
	b.log.lso, b.log.durable = b.log.hw, b.log.end()
	b.log.remoteEnd = l.log.remoteEnd
}

// retainLocally drops local copies that the archive holds, as local retention
// would at its most eager.
func (s *sim) retainLocally() {
	for _, b := range s.brokers {
		if b.log.remoteEnd > 0 && s.rng.IntN(2) == 0 {
			n := s.rng.IntN(len(b.log.sealed) + 1)
			for range n {
				if b.log.sealed[0].end <= min(b.log.remoteEnd, b.log.hw) {
					b.log.dropBelow(b.log.sealed[0].end)
				}
			}
		}
	}
}

func (s *sim) deleteRecords() {
	l := s.leader
	if l.log.hw > l.log.logStart {
		off := l.log.logStart + s.rng.Int64N(l.log.hw-l.log.logStart)/4
		if s.rng.IntN(4) == 0 {
			off = l.log.hw // whatever is in line for upload becomes pointless
		}
		if s.rng.IntN(3) == 0 {
			l.log.roll()
		}
		s.deleted = max(s.deleted, off)
		l.log.advanceStart(off)
		l.wake()
	}
}

func (s *sim) reconfigure() {
	cfg := s.configs[len(s.configs)-1].cfg
	switch s.rng.IntN(8) {
	case 6, 7: // tiering is switched off for a while, and its data deleted
		cfg.Enabled = !cfg.Enabled || s.rng.IntN(4) > 0
		cfg.DeleteOnDisable = !cfg.Enabled
	case 0:
		cfg.RetentionMillis = -1
	case 1:
		cfg.RetentionMillis = 120_000 + s.rng.Int64N(1_200_000)
	case 2:
		cfg.RetentionBytes = -1
	case 3:
		cfg.RetentionBytes = 2_000 + s.rng.Int64N(40_000)
	case 4:
		cfg.CopyDisabled = s.rng.IntN(3) == 0
	case 5:
		cfg.CopyLagMillis = s.rng.Int64N(2) * 30_000
		cfg.CopyLagBytes = s.rng.Int64N(3_000) - 1
		cfg.MaxLagMillis = s.rng.Int64N(2)*60_000 - 1
	}
	s.setConfig(cfg)
	for _, b := range s.brokers {
		b.cfg = cfg
		if !cfg.Enabled {
			// Every replica sees the setting, and begins with its local part (KIP-950).
			b.log.remoteEnd = -1
			b.log.logStart = b.log.localStart()
		}
		if b.epoch >= 0 {
			b.step(evConfig{simPartition, cfg})
		}
	}
}

// elect makes b the leader. An untold old leader goes on as a zombie.
func (s *sim) elect(b *simBroker, tell bool) {
	s.epoch++
	for _, o := range s.brokers {
		if o != b && o.epoch >= 0 && tell {
			o.follow()
		}
	}
	if b.epoch >= 0 || s.leader != nil && b != s.leader {
		b.follow()
	}
	s.leader = b
	b.epoch = s.epoch
	b.lead()
}

// follow ends a leadership: the tail above the high watermark goes.
func (b *simBroker) follow() {
	if b.epoch >= 0 {
		b.epoch = -1
		b.step(evResign{simPartition})
	}
	safe := min(b.log.end(), b.s.trueHW())
	// A zombie's tail differs from what was committed since.
	for _, seg := range append(slices.Clone(b.log.sealed), b.log.active) {
		for _, x := range seg.batches {
			if x.base < safe && !b.s.isCommitted(x) {
				safe = min(safe, x.base)
			}
		}
	}
	if safe < b.log.localStart() {
		b.log = newSimLog(0) // nothing of it is left; it starts where the leader does
	} else {
		b.log.truncate(safe)
	}
	if b.s.leader != nil && b.s.leader != b {
		b.s.catchUp(b)
	}
	b.log.hw = min(b.s.trueHW(), b.log.end())
	b.log.lso = b.log.hw
}

func (s *sim) isCommitted(x simBatch) bool {
	i, ok := slices.BinarySearchFunc(s.committed, x.base, func(y simBatch, o int64) int { return int(y.base - o) })
	return ok && s.committed[i].epoch == x.epoch && string(s.committed[i].bytes) == string(x.bytes)
}

func (b *simBroker) wall() int64 {
	w := simEpoch + b.s.now + b.skew
	b.s.maxWall = max(b.s.maxWall, w)
	return w
}

func (b *simBroker) instant() instant { return instant{b.wall(), b.s.now - b.born + 1} }

// boot starts a process: a new core, and an archive whose cache may be lost.
func (b *simBroker) boot() {
	if b.archive == nil || b.s.rng.IntN(2) == 0 {
		if b.archive != nil {
			b.archive.Close(context.Background())
		}
		b.archive = b.s.openArchive(b.s.store)
		b.remote = b.archive.Partition(simPartition)
	}
	b.life++
	b.born = b.s.now
	cfg := b.s.ccfg
	cfg.seed = b.s.rng.Uint64()
	b.core = newCore(cfg)
	b.granted = map[uint64]int32{}
	b.cancelled, b.own, b.settled = map[uint64]bool{}, map[uint64]string{}, map[uint64]bool{}
	b.watched, b.tick = math.MaxInt64, math.MaxInt64
}

// crash loses the process and everything volatile. The controller names a leader
// under a new epoch.
func (b *simBroker) crash() {
	led := b.epoch >= 0
	b.epoch = -1
	b.boot()
	if led && b == b.s.leader {
		b.s.elect(b.s.brokers[b.s.rng.IntN(2)], true)
	}
	if b != b.s.leader {
		b.follow()
	}
}

func (b *simBroker) lead() {
	b.gen++
	b.watched = math.MaxInt64
	b.own, b.settled = map[uint64]string{}, map[uint64]bool{} // they belong to a leadership
	b.granted[b.gen] = b.epoch
	b.step(evLead{p: simPartition, gen: b.gen, epoch: b.epoch, cfg: b.cfg})
}

func (b *simBroker) wake() {
	if b.epoch >= 0 {
		b.step(evWake{simPartition})
	}
}

// advanced is Leadership.Advanced.
func (b *simBroker) advanced() {
	if b.epoch >= 0 && b.log.offsets().stable() >= b.watched {
		b.watched = math.MaxInt64
		b.step(evWake{simPartition})
	}
}

func (b *simBroker) step(ev event) {
	for _, fx := range slices.Clone(b.core.step(ev, b.instant())) {
		b.carryOut(fx)
	}
	if due, ok := b.core.next(); ok {
		at := max(due-1+b.born, b.s.now)
		if at != b.tick {
			b.tick = at
			life := b.life
			b.s.after(at-b.s.now, func() {
				if b.life == life && b.tick == at {
					b.tick = math.MaxInt64
					b.step(evTick{})
				}
			})
		}
	}
}

// answer delivers a reply after a while, unless the process died.
func (b *simBroker) answer(delay int64, make func() event) {
	life := b.life
	b.s.after(delay, func() {
		if b.life == life {
			b.step(make())
		}
	})
}

func (b *simBroker) carryOut(fx effect) {
	if _, ok := fx.(fxBury); ok {
		return
	}
	r := refOf(fx)
	a := answer{p: r.p, gen: r.gen}
	switch e := fx.(type) {
	case fxLook:
		b.answer(b.s.rng.Int64N(5), func() event { return evLooked{a, b.log.view(e.above, e.judge)} })
	case fxRoll:
		b.answer(b.s.rng.Int64N(20), func() event {
			if b.gen == e.gen && b.epoch >= 0 {
				b.log.roll()
			}
			return evRolled{a}
		})
	case fxAdvanceStart:
		b.answer(b.s.rng.Int64N(20), func() event {
			if b.gen == e.gen && b.epoch >= 0 {
				b.s.checkStart(b, b.log.logStart, e.offset, "log start")
				b.log.advanceStart(e.offset)
			}
			return evStarted{a}
		})
	case fxSetRemoteEnd:
		b.s.checkRemoteEnd(b, e.end)
		if e.end < 0 || e.end > b.log.remoteEnd { // as the log does
			b.log.remoteEnd = e.end
		}
	case fxWatch:
		b.watched = e.stable
		if b.log.offsets().stable() >= e.stable {
			b.answer(0, func() event { return evWake{simPartition} })
			b.watched = math.MaxInt64
		}
	case fxCancel:
		b.cancelled[e.gen] = true
	case fxRelease:
		for _, id := range e.ids {
			b.settled[id] = true
			delete(b.own, id)
		}
	case fxReport:
		b.stuck = e.stuck
	case fxTell:
		b.s.told(e)
	default:
		b.call(fx, a)
	}
}

// call runs an archive call after a latency; its answer comes after another. A
// call of a cancelled or dead leadership may or may not reach the store.
func (b *simBroker) call(fx effect, a answer) {
	s := b.s
	life, delay := b.life, s.latency()
	timeout := timeoutOf(fx)
	late := delay > timeout
	if late {
		if _, ok := fx.(fxUpload); !ok || s.rng.IntN(2) == 0 {
			b.answer(timeout, func() event { return failed(fx, a, context.DeadlineExceeded) })
			return
		}
		b.answer(timeout, func() event { return failed(fx, a, context.DeadlineExceeded) })
		delay = timeout + s.rng.Int64N(s.ccfg.callMillis)
	}
	s.after(delay, func() {
		dead := b.life != life || b.cancelled[a.gen]
		if dead && s.rng.IntN(2) == 0 {
			if b.life == life && !late {
				b.step(failed(fx, a, context.Canceled))
			}
			return
		}
		ev := b.perform(fx, a)
		if late {
			return
		}
		if rest := s.latency(); delay+rest > timeout {
			b.answer(max(timeout-delay, 0), func() event { return failed(fx, a, context.DeadlineExceeded) })
		} else {
			b.answer(rest, func() event { return ev })
		}
	})
}

// perform makes the call on the real Remote.
func (b *simBroker) perform(fx effect, a answer) event {
	ctx := context.Background()
	r := b.remote
	switch e := fx.(type) {
	case fxLoad:
		st, err := r.State(ctx)
		return evLoaded{answer: a.with(err), state: st}
	case fxClaim:
		err := r.Claim(ctx, e.epoch)
		var st State
		if err == nil && e.fresh {
			st, err = r.Refresh(ctx)
		} else if err == nil {
			st, err = r.State(ctx)
		}
		return evClaimed{a.with(err), st}
	case fxUpload:
		return b.upload(ctx, e, a)
	case fxCommit:
		err := r.Commit(ctx, e.edit)
		if given, ok := b.granted[e.gen]; ok && err == nil && given != e.edit.LeaderEpoch {
			b.s.fail("%s committed under epoch %d, it was given %d", b.name, e.edit.LeaderEpoch, given)
		}
		st, serr := r.State(ctx)
		if err == nil {
			err = serr
		}
		return evCommitted{a.with(err), st}
	case fxOldest:
		st, err := r.State(ctx)
		ev := evOldest{answer: a, state: st, complete: true}
		if err == nil {
			err = r.Segments(ctx, st.Start, func(s RemoteSegment) bool {
				if len(ev.segments) == e.n {
					ev.complete = false
					return false
				}
				ev.segments = append(ev.segments, s)
				return true
			})
		}
		ev.err = err
		return ev
	case fxMarked:
		st, err := r.State(ctx)
		list, merr := r.Marked(ctx)
		if err == nil {
			err = merr
		}
		return evMarked{a.with(err), st, list}
	case fxDelete:
		return evDeleted{answer: a.with(b.s.store.Delete(ctx, e.keys...)), ids: e.ids, key: e.keys[0]}
	case fxCollect:
		run := collection{
			archive: b.archive, remote: r, epoch: e.epoch, search: e.search, orphans: e.orphans, lifetimeMillis: e.lifetimeMillis,
			own:  b.ownKeys,
			wall: b.wall, removed: func([]string) {}, broken: b.s.ccfg.broken,
		}
		if e.survey {
			run.survey = &survey{}
		}
		left, err := run.run(ctx)
		return collected(e, a.with(err), left, run.survey)
	case fxScrub:
		got, err := r.scrub(ctx, e.place, b.wall())
		return evScrubbed{a.with(err), got}
	case fxExamine:
		var meter readMeter
		found, err := r.examine(ctx, e.object, e.before, &meter)
		return evExamined{a.with(err), e.object, found, meter.tally()}
	case fxMend:
		return b.mend(ctx, e, a)
	}
	panic(fmt.Sprintf("%T is not performed", fx))
}

func (b *simBroker) ownKeys() map[string]bool {
	keys := map[string]bool{}
	if b.s.ccfg.broken != mutantCollectYoung {
		for _, k := range b.own {
			keys[k] = true
		}
	}
	return keys
}

func (b *simBroker) upload(ctx context.Context, e fxUpload, a answer) event {
	ev := evUploaded{answer: a, id: e.id, bytes: e.bytes}
	var seg *simSegment
	for _, x := range b.log.sealedFrom(e.from, e.end) {
		if x.end == e.end {
			seg = x
		}
	}
	if seg == nil {
		ev.err = errSegmentGone
		return ev
	}
	obj, err := b.remote.build(ctx, seg, BuildOptions{LeaderEpoch: e.epoch, From: e.from, Now: b.wall()}, b.s.rng.Uint64())
	if err != nil {
		ev.err = err
		return ev
	}
	defer obj.Close()
	ev.key = obj.Key()
	if !b.settled[e.id] && e.gen == b.gen {
		b.own[e.id] = obj.Key()
	}
	b.s.uploads++
	ev.err = obj.Put(ctx, nil)
	ev.add = obj.Add()
	return ev
}

// heal ends all faults, and every broker but the leader follows.
func (s *sim) heal() {
	s.store.before, s.store.after, s.store.down, s.slow = 0, 0, false, false
	cfg := s.configs[len(s.configs)-1].cfg
	cfg.Enabled, cfg.DeleteOnDisable = true, false
	cfg.CopyDisabled, cfg.CopyLagMillis, cfg.CopyLagBytes, cfg.RetentionMillis = false, 0, -1, -1
	s.setConfig(cfg)
	for _, b := range s.brokers {
		b.cfg, b.skew = cfg, 0
	}
	if s.ccfg.broken == mutantIgnoreEpoch {
		s.leader.step(evConfig{simPartition, cfg}) // the zombie stays
	} else {
		s.elect(s.leader, true)
	}
	if s.rng.IntN(2) == 0 { // else it may never have anything to commit again
		s.produce(s.leader)
	}
	s.leader.log.durable = s.leader.log.end()
	for s.trueHW() < s.leader.log.end() {
		s.replicate()
	}
	s.leader.log.lso = s.leader.log.hw
	s.leader.log.roll()
	s.leader.wake()
	s.leader.advanced()
}
