package coordinator

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/hot/batch"
)

// The simulation drives the machines of groups, transactions and share groups' state as brokers do, on one goroutine and from one seed: over a
// replicated log that fails over, refuses, loses answers and leaves appends in doubt; with coordinators that are deposed and do
// not know it, brokers that crash between append and answer or pause, clocks that jump, and markers that are lost, late and
// written twice. Clients do what clients do, wrongly and repeatedly. What must hold is asserted at every step:
//
//   - state is what a replay of the log gives, and its offsets are what a reading of the log by Kafka's rules gives;
//   - a transaction ends one way in all its partitions, once, as the producer was told, and commits only if asked to;
//   - nobody who has been fenced commits, be it a producer, a member or the producer of a member's offsets;
//   - no offset of a transaction counts before it is committed, or ever if it is not; no acknowledged commit is lost;
//   - what a share group's leader was told is kept is kept, and no leader that has been replaced keeps anything;
//   - no partition has two owners, in the machine or among clients that have reason to think themselves members;
//   - a request is answered once, and left alone, everything is.
//
// integration/sim/mutants_test.go lists one-line breaks of these rules, each of which turns it red.
//
//	go test ./coordinator -run Simulated -sim.steps=5000000 -timeout=0   # a soak
//	go test ./coordinator -run Simulated -sim.seed=77 -v                 # one seed again, with its story

const (
	simBrokers = 3
	simGroups  = 0 // kinds of internal topics
	simTxns    = 1
	simStates  = 2 // of share groups
	simKinds   = 3
)

var errSimLost = errors.New("the answer is lost")

// simLog is a partition of an internal topic: what is committed, and what its leader has appended whose fate is open.
type simLog struct {
	epoch     int32
	leader    int
	committed []batch.Batch
	tail      []batch.Batch
	next      int64   // offset
	shadow    machine // replays what is committed
}

// simShard is one broker's machine of one internal topic.
type simShard struct {
	broker, kind int
	epoch        int32
	core         machine
	build        *shard
	open         map[uint64]*simCall
}

type simCall struct {
	done func(result any, err error)
}

type simWorld struct {
	seed   uint64
	rng    *rand.Rand
	cfg    Config
	now    int64
	skew   [simBrokers]int64
	paused [simBrokers]int64 // until
	logs   [simKinds]*simLog
	shards [simBrokers][simKinds]*simShard
	view   *topicsView
	ticket uint64
	quiet  bool // no more faults: everything has to come to its end

	modern  *simModern // nil: the first half
	txns    simTransactions
	members simMembers
	shares  simShares
	offsets map[int64]*simTxn // value of every commit → its transaction; nil: a plain one

	steps, failovers, answers, loads, cuts int
	story                                  []string
	told                                   bool
	failed                                 string
}

func newSimWorld(t *testing.T, seed uint64, told, modern bool) *simWorld {
	w := &simWorld{seed: seed, rng: rand.New(rand.NewPCG(seed, 5)), now: 1_000_000, told: told, offsets: map[int64]*simTxn{}}
	w.cfg = testConfig()
	w.cfg.ConsumerAssignmentMillis = 0
	for b := range simBrokers {
		w.skew[b] = 1_700_000_000_000
		for kind := range simKinds {
			w.shards[b][kind] = &simShard{broker: b, kind: kind, epoch: -1, build: &shard{c: &service{cfg: &w.cfg}}, open: map[uint64]*simCall{}}
		}
	}
	w.view = w.view.next(testTopics(t, 1, "t:4", "u:2"))
	for kind := range w.logs {
		w.logs[kind] = &simLog{leader: w.rng.IntN(simBrokers), shadow: w.machine(kind)}
		w.logs[kind].shadow.setTopics(w.view)
	}
	w.txns.init(w)
	w.members.init(w)
	w.shares.init(w)
	if modern {
		w.modern = newSimModern(w)
	}
	return w
}

func (w *simWorld) machine(kind int) machine {
	switch kind {
	case simGroups:
		return newCore(&w.cfg, w.now)
	case simStates:
		return newShareCore(&w.cfg, w.now)
	}
	return newTxnCore(&w.cfg, w.now)
}

func (w *simWorld) tell(format string, args ...any) {
	if w.told {
		w.story = append(w.story, fmt.Sprintf("%9d  ", w.now)+fmt.Sprintf(format, args...))
	}
}

// fail notes a broken rule. The first is the one that counts.
func (w *simWorld) fail(format string, args ...any) {
	if w.failed == "" {
		w.failed = fmt.Sprintf(format, args...)
		w.tell("BROKEN: %s", w.failed)
	}
}

// Fatalf makes the world a failer, for checks shared with other tests.
func (w *simWorld) Fatalf(format string, args ...any) { w.fail(format, args...) }
func (w *simWorld) Helper()                           {}

func (w *simWorld) one(n int) bool { return !w.quiet && w.rng.IntN(n) == 0 }

// append is Log.Append.
func (w *simWorld) append(s *simShard, b batch.Batch) (batch.Batch, error) {
	l := w.logs[s.kind]
	if s.broker != l.leader || s.epoch != l.epoch {
		return nil, ErrNotCoordinator
	}
	b = bytes.Clone(b)
	switch {
	case w.one(40):
		w.tell("broker %d: an append to log %d is refused", s.broker, s.kind)
		return nil, errSimLost
	case w.one(30):
		l.tail = append(l.tail, b)
		w.tell("broker %d: an append to log %d is in doubt", s.broker, s.kind)
		return nil, errSimLost
	}
	w.commit(l)
	w.put(l, b)
	if w.one(50) {
		w.tell("broker %d: an append to log %d is committed, and nobody hears of it", s.broker, s.kind)
		return nil, errSimLost
	}
	return b, nil
}

func (w *simWorld) put(l *simLog, b batch.Batch) {
	b.SetBaseOffset(l.next)
	l.next = b.NextOffset()
	l.committed = append(l.committed, b)
	if _, err := replayBatch(l.shadow, b, func(_ int64, err error) { w.fail("a record cannot be read back: %v", err) }); err != nil {
		w.fail("a batch cannot be read back: %v", err)
	}
}

// commit commits what the leader has appended.
func (w *simWorld) commit(l *simLog) {
	for _, b := range l.tail {
		w.put(l, b)
	}
	l.tail = nil
}

// failover makes another broker the leader of a log. Of what was in doubt it has the first few. The old one hears of it or not.
func (w *simWorld) failover(kind int, to int) {
	l := w.logs[kind]
	l.tail = l.tail[:w.rng.IntN(len(l.tail)+1)]
	w.commit(l)
	old := w.shards[l.leader][kind]
	l.epoch++
	l.leader = to
	w.failovers++
	w.tell("broker %d leads log %d in epoch %d", to, kind, l.epoch)
	if w.rng.IntN(2) == 0 {
		w.drop(old)
	}
}

// drop forgets a shard's state; those who wait are not told, or told that it is no coordinator.
func (w *simWorld) drop(s *simShard) {
	s.core, s.epoch = nil, -1
	for _, ticket := range sortedTickets(s.open) {
		call := s.open[ticket]
		delete(s.open, ticket)
		call.done(nil, errSimLost)
	}
}

func sortedTickets(m map[uint64]*simCall) []uint64 {
	var all []uint64
	for t := range m {
		all = append(all, t)
	}
	slices.Sort(all)
	return all
}

// crash ends a broker's process with all its state.
func (w *simWorld) crash(b int) {
	w.tell("broker %d crashes", b)
	for kind := range simKinds {
		w.drop(w.shards[b][kind])
		if w.logs[kind].leader == b {
			w.failover(kind, (b+1+w.rng.IntN(simBrokers-1))%simBrokers)
		}
	}
}

// load is shard.load.
func (w *simWorld) load(s *simShard) bool {
	l := w.logs[s.kind]
	if l.leader != s.broker || w.one(30) {
		return false
	}
	w.commit(l)
	core := w.machine(s.kind)
	for _, b := range l.committed {
		_, _ = replayBatch(core, b, func(int64, error) {})
	}
	core.setSkew(w.skew[s.broker])
	core.setTopics(w.view)
	core.loaded(w.now)
	s.core, s.epoch = core, l.epoch
	w.loads++
	w.tell("broker %d has loaded log %d", s.broker, s.kind)
	return true
}

// request sends a body to a coordinator: mostly the one there is, sometimes one that has been deposed.
func (w *simWorld) request(kind int, body any, done func(result any, err error)) {
	b := w.logs[kind].leader
	if w.one(6) {
		b = w.rng.IntN(simBrokers)
	}
	s := w.shards[b][kind]
	if w.paused[b] > w.now {
		done(nil, errSimLost)
		return
	}
	if s.core == nil && !w.load(s) {
		done(nil, ErrNotCoordinator)
		return
	}
	w.turn(s, body, done)
}

// turn is shard.turn for one request, or none.
func (w *simWorld) turn(s *simShard, body any, done func(result any, err error)) {
	s.core.setSkew(w.skew[s.broker])
	s.core.setTopics(w.view)
	s.core.tick(w.now)
	out := s.core.take()
	if body != nil {
		w.ticket++
		s.open[w.ticket] = &simCall{done}
		s.core.step(event{ticket: w.ticket, newID: fmt.Sprint("id-", w.ticket), body: body}, w.now)
		out.add(s.core.take())
	}
	epoch := s.epoch
	for records := out.records; len(records) > 0; {
		b, n, err := s.build.build(records, w.now+w.skew[s.broker])
		if err != nil {
			w.fail("a batch cannot be built: %v", err)
			return
		}
		if b, err = w.append(s, b); err != nil {
			w.drop(s)
			return
		}
		if cuts, ok := s.core.(cutter); ok {
			for i := range n {
				cuts.placed(records[i].key, b.BaseOffset()+int64(i))
			}
		}
		records = records[n:]
	}
	if l := w.logs[s.kind]; s.broker != l.leader || s.epoch != l.epoch {
		w.drop(s) // nobody else leads before its lease has ended, and without one it answers nobody
		return
	}
	if w.one(60) { // after the append, before anybody is answered
		w.crash(s.broker)
		return
	}
	if out.cut {
		w.cut(w.logs[s.kind], s.core.(cutter).redundant())
	}
	w.txns.carryOut(epoch, out.ends)
	for _, begin := range out.begins {
		w.modern.begin(s, begin)
	}
	for _, r := range out.replies {
		call := s.open[r.ticket]
		if call == nil {
			w.fail("ticket %d is answered twice, or was never given", r.ticket)
			continue
		}
		delete(s.open, r.ticket)
		w.answers++
		if w.one(25) {
			call.done(nil, errSimLost)
			continue
		}
		call.done(r.result, r.err)
	}
}

// cut removes what is said to be needed no more.
func (w *simWorld) cut(l *simLog, below int64) {
	for len(l.committed) > 0 && l.committed[0].NextOffset() <= below {
		l.committed = l.committed[1:]
		w.cuts++
	}
}

// step is one thing that happens.
func (w *simWorld) step() {
	w.steps++
	switch n := w.rng.IntN(100); {
	case n < 84 && w.modern != nil:
		w.modern.step()
	case n < 40:
		w.txns.step()
	case n < 72:
		w.members.step()
	case n < 84:
		w.shares.step()
	case n < 92:
		w.now += w.rng.Int64N(1500)
		w.tick()
	case w.quiet:
	case n < 94:
		w.failover(w.rng.IntN(simKinds), w.rng.IntN(simBrokers))
	case n < 95:
		w.crash(w.rng.IntN(simBrokers))
	case n < 97:
		b := w.rng.IntN(simBrokers)
		w.skew[b] += w.rng.Int64N(2*86_400_000) - 86_400_000
		w.tell("the clock of broker %d jumps", b)
	case n < 98:
		b := w.rng.IntN(simBrokers)
		w.paused[b] = w.now + w.rng.Int64N(20_000)
		w.tell("broker %d is paused", b)
	default:
		w.now += w.rng.Int64N(12_000)
	}
	w.check()
}

// tick has every shard look at the time, and those that have come to lead read their state.
func (w *simWorld) tick() {
	for b := range simBrokers {
		for kind, l := range w.logs {
			s := w.shards[b][kind]
			if w.paused[b] > w.now {
				continue
			}
			if l.leader == b && s.epoch != l.epoch {
				w.drop(s)
				w.load(s)
			}
			if s.core != nil {
				w.turn(s, nil, nil)
			}
		}
	}
}

// check is what must hold after every step.
func (w *simWorld) check() {
	for kind, l := range w.logs {
		s := w.shards[l.leader][kind]
		if s.core == nil || s.epoch != l.epoch {
			continue
		}
		if is, replayed := fingerprint(s.core, s.core), fingerprint(l.shadow, s.core); is != replayed {
			w.fail("the state is not what the log gives\n--- is\n%s--- replayed\n%s", is, replayed)
		}
		if kind == simStates {
			w.shares.checkState(s.core.(*shareCore))
		}
		if kind == simGroups {
			w.checkOffsets(s.core.(*core), l)
			for _, g := range s.core.(*core).groups {
				if g.consumer != nil {
					checkConsumerGroup(w, g.consumer)
				}
			}
		}
	}
	w.members.check()
	if w.modern != nil {
		w.modern.check()
	}
}

// fingerprint is what of a machine's state has to be in its log; of classic groups only those that are stable in live.
func fingerprint(m, live machine) string {
	var out strings.Builder
	if x, ok := m.(*txnCore); ok {
		for _, id := range slices.Sorted(keysOf(x.txns)) {
			fmt.Fprintf(&out, "%s %x\n", id, txnRecord(x.txns[id]).value)
		}
		return out.String()
	}
	if x, ok := m.(*shareCore); ok {
		for _, k := range x.keys() {
			p := x.parts[k]
			fmt.Fprintf(&out, "%v state epoch %d leader epoch %d start %d done %d %v\n", k, p.stateEpoch, p.leaderEpoch, p.start, p.done, p.batches)
		}
		return out.String()
	}
	c := m.(*core)
	for _, id := range c.groupIDs() {
		g := c.groups[id]
		for _, t := range slices.Sorted(keysOf(g.offsets)) {
			for _, p := range slices.Sorted(keysOf(g.offsets[t])) {
				fmt.Fprintf(&out, "%s %s/%d at %d\n", id, t, p, g.offsets[t][p].offset)
			}
		}
		for _, producer := range slices.Sorted(keysOf(g.txns)) {
			for _, p := range []int32{0, 1, 2, 3} {
				if o, ok := g.txns[producer][partition{"t", p}]; ok {
					fmt.Fprintf(&out, "%s t/%d at %d if producer %d commits\n", id, p, o.offset, producer)
				}
			}
		}
		switch {
		case g.consumer != nil:
			fingerprintConsumer(&out, id, g.consumer)
		case g.streams != nil:
			fingerprintStreams(&out, id, g.streams)
		case g.share != nil:
			fingerprintShare(&out, id, g.share)
		case g.state == Stable && live.(*core).groups[id] != nil && live.(*core).groups[id].state == Stable:
			fmt.Fprintf(&out, "%s generation %d leader %s\n", id, g.generation, g.leader)
			for _, mid := range slices.Sorted(keysOf(g.members)) {
				fmt.Fprintf(&out, "  %s has %s\n", mid, g.members[mid].assignment)
			}
		}
	}
	return out.String()
}

func fingerprintConsumer(out *strings.Builder, id string, g *consumerGroup) {
	fmt.Fprintf(out, "%s epoch %d target %d\n", id, g.epoch, g.targetEpoch)
	for _, mid := range slices.Sorted(keysOf(g.members)) {
		m := g.members[mid]
		fmt.Fprintf(out, "  %s epoch %d previous %d state %d reads %v has %v gives up %v is to have %v\n", mid, m.epoch, m.previous, m.state, m.names,
			m.assigned, m.revoking, g.target[mid].sorted())
	}
}

func keysOf[K comparable, V any](m map[K]V) func(func(K) bool) {
	return func(yield func(K) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// reading is the offsets of a log by Kafka's rules, told once more: the newest record of those that count, plain ones at once,
// those of a transaction when its marker is there.
type reading struct {
	batches int
	seq     int
	offsets map[[2]string]readOffset
	pending map[int64]map[[2]string]readOffset
}

type readOffset struct {
	value int64
	seq   int
}

func (r *reading) take(batches []batch.Batch) error {
	for ; r.batches < len(batches); r.batches++ {
		b := batches[r.batches]
		if b.Control() {
			m, _, err := b.EndTxnMarker()
			if err != nil {
				return err
			}
			for at, o := range r.pending[b.ProducerID()] {
				if m.Type == batch.Commit && r.offsets[at].seq < o.seq {
					r.offsets[at] = o
				}
			}
			delete(r.pending, b.ProducerID())
			continue
		}
		for rec, err := range b.Records(batch.Limits{}) {
			if err != nil {
				return err
			}
			var k kmsg.OffsetCommitKey
			var v kmsg.OffsetCommitValue
			if rec.Key[1] != 1 || k.ReadFrom(rec.Key) != nil {
				continue
			}
			at := [2]string{k.Group, fmt.Sprint(k.Topic, "/", k.Partition)}
			if rec.Value == nil {
				delete(r.offsets, at)
				continue
			}
			if err := v.ReadFrom(rec.Value); err != nil {
				return err
			}
			r.seq++
			o := readOffset{v.Offset, r.seq}
			if !b.Transactional() {
				r.offsets[at] = o
				continue
			}
			if r.pending[b.ProducerID()] == nil {
				r.pending[b.ProducerID()] = map[[2]string]readOffset{}
			}
			r.pending[b.ProducerID()][at] = o
		}
	}
	return nil
}

// checkOffsets holds what a groups' machine has for committed to the log and to the transactions' outcomes.
func (w *simWorld) checkOffsets(c *core, l *simLog) {
	r := &w.members.read
	if err := r.take(l.committed); err != nil {
		w.fail("the log cannot be read: %v", err)
	}
	n := 0
	for id, g := range c.groups {
		for t, of := range g.offsets {
			for p, o := range of {
				n++
				if want, ok := r.offsets[[2]string{id, fmt.Sprint(t, "/", p)}]; !ok || want.value != o.offset {
					w.fail("group %s has %s/%d at %d; the log says %d", id, t, p, o.offset, want.value)
				}
				if x := w.offsets[o.offset]; x != nil && x.mustAbort() {
					w.fail("group %s shows offset %d of transaction %d, which is aborted", id, o.offset, x.n)
				}
			}
		}
	}
	if n != len(r.offsets) {
		w.fail("the machine has %d offsets, the log %d", n, len(r.offsets))
	}
}
