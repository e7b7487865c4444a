package coordinator

import (
	"errors"
	"fmt"
)

// simTxn is one transaction as its producer lives it.
type simTxn struct {
	n       int
	who     Producer
	written map[int]bool // partitions of t in which a record of it was acknowledged
	asked   bool         // for its commit, ever
	doomed  bool         // nobody ever asked, and nobody will
	told    string       // "commit" or "abort", once the coordinator has said so
	outcome string       // by the first marker
	closed  map[int]string
	since   int // takeovers of the transactional id when its end was first asked for
}

// mustAbort says whether it can have committed nowhere.
func (x *simTxn) mustAbort() bool { return x.doomed || x.told == "abort" || x.outcome == "abort" }

// simProducer is a client with a transactional id, which others have as well.
type simProducer struct {
	id       string
	version  int8
	who      Producer
	ready    bool
	takeover int // when it took the id over
	txn      *simTxn
	ending   bool // its end was asked for, and is asked for again until there is an answer
	commit   bool
	added    map[int]bool // partitions that the coordinator has confirmed
	tries    int
}

// simData is a partition that transactions write to, as hot and broker keep it: who has which epoch, and whose transaction is
// open.
type simData struct {
	producers map[int64]*simProducing
}

type simProducing struct {
	epoch       int16
	coordinator int32
	open        *simTxn
	markers     int
}

// simMarker is one marker on its way.
type simMarker struct {
	end   ending
	epoch int32 // of the coordinator
	at    partition
	left  *int
}

// simAppend is a record on its way into a partition, after its transaction was verified.
type simAppend struct {
	p       *simProducer
	txn     *simTxn
	who     Producer
	at      int
	markers int // seen when it was verified
}

// simTransactions are the producers, the partitions and the markers under way.
type simTransactions struct {
	w         *simWorld
	producers []*simProducer
	data      [4]*simData
	markers   []*simMarker
	appends   []*simAppend
	takeovers map[string]int
	running   map[jobKey]struct{}
	nextID    int64
	count     int
	all       []*simTxn
	commits   int
}

func (t *simTransactions) init(w *simWorld) {
	t.w, t.takeovers, t.nextID, t.running = w, map[string]int{}, 100, map[jobKey]struct{}{}
	for i := range t.data {
		t.data[i] = &simData{producers: map[int64]*simProducing{}}
	}
	for i := range 4 {
		p := &simProducer{id: fmt.Sprint("x", i%2), version: []int8{1, txnV2}[i%2]}
		t.producers = append(t.producers, p)
	}
}

func (t *simTransactions) step() {
	rng := t.w.rng
	switch n := rng.IntN(10); {
	case n < 3 && len(t.markers) > 0:
		t.deliver()
	case n < 5 && len(t.appends) > 0:
		i := rng.IntN(len(t.appends))
		a := t.appends[i]
		t.appends = append(t.appends[:i], t.appends[i+1:]...)
		t.land(a)
	default:
		t.act(t.producers[rng.IntN(len(t.producers))])
	}
}

func (t *simTransactions) act(p *simProducer) {
	rng := t.w.rng
	switch {
	case !p.ready:
		if !t.w.quiet && rng.IntN(8) == 0 {
			t.open(p)
		}
	case p.ending:
		t.end(p)
	case t.w.quiet:
		if p.txn != nil {
			p.ending, p.commit = true, true
			t.end(p)
		}
	case t.w.one(120): // gone without a word; whoever comes takes the id over
		t.leave(p)
	case rng.IntN(10) < 5:
		t.produce(p)
	case rng.IntN(10) < 4:
		t.commitOffset(p)
	case p.txn != nil:
		p.ending, p.commit = true, rng.IntN(3) > 0
		t.end(p)
	}
}

// leave ends a client. What it never asked to commit never commits.
func (t *simTransactions) leave(p *simProducer) {
	if p.txn != nil && !p.txn.asked {
		p.txn.doomed = true
	}
	p.ready, p.txn, p.ending, p.tries = false, nil, false, 0
}

func (t *simTransactions) open(p *simProducer) {
	q := &InitProducerRequest{TransactionalID: p.id, TimeoutMillis: 10_000, Current: Producer{ID: noProducer, Epoch: noEpoch}, newID: t.nextID}
	t.nextID++
	t.w.request(simTxns, q, func(result any, err error) {
		if err != nil {
			return
		}
		t.takeovers[p.id]++
		p.ready, p.who, p.takeover = true, result.(Producer), t.takeovers[p.id]
		p.added = map[int]bool{}
		t.w.tell("%s is now %v", p.id, p.who)
	})
}

// begin is the present transaction, or a new one.
func (t *simTransactions) begin(p *simProducer) *simTxn {
	if p.txn == nil {
		t.count++
		p.txn = &simTxn{n: t.count, who: p.who, written: map[int]bool{}, closed: map[int]string{}}
		p.added = map[int]bool{}
		t.all = append(t.all, p.txn)
	}
	return p.txn
}

// add puts partitions into the transaction: by the client in the old protocol, by the broker that is written to in the new one.
func (t *simTransactions) add(p *simProducer, at TxnPartition, then func()) {
	q := &AddPartitionsRequest{TransactionalID: p.id, Producer: p.who, Version: p.version, Partitions: []TxnPartition{at}}
	who, txn := p.who, p.txn
	t.w.request(simTxns, q, func(result any, err error) {
		if err == nil {
			err = result.(*AddPartitionsResult).Errs[0]
		}
		switch {
		case p.txn != txn || p.who != who:
		case fencing(err):
			t.leave(p)
		case err == nil:
			then()
		}
	})
}

func fencing(err error) bool {
	return errors.Is(err, ErrProducerFenced) || errors.Is(err, ErrInvalidProducerIDMapping) || errors.Is(err, ErrInvalidTxnState)
}

func (t *simTransactions) produce(p *simProducer) {
	at := t.w.rng.IntN(len(t.data))
	txn := t.begin(p)
	d := t.data[at].of(p.who)
	if d.epoch > p.who.Epoch {
		t.leave(p)
		return
	}
	t.add(p, TxnPartition{"t", int32(at)}, func() {
		// The append comes later, when the marker of the end may be there.
		t.appends = append(t.appends, &simAppend{p: p, txn: txn, who: p.who, at: at, markers: d.markers})
	})
}

func (d *simData) of(who Producer) *simProducing {
	s := d.producers[who.ID]
	if s == nil {
		s = &simProducing{epoch: noEpoch}
		d.producers[who.ID] = s
	}
	return s
}

// land appends a record, unless the producer was fenced or its transaction ended since it was verified.
func (t *simTransactions) land(a *simAppend) {
	d := t.data[a.at].of(a.who)
	if d.epoch > a.who.Epoch || d.markers != a.markers {
		return
	}
	if d.open != nil && d.open != a.txn {
		t.w.fail("a record of transaction %d joins transaction %d in t/%d", a.txn.n, d.open.n, a.at)
	}
	d.open, d.epoch = a.txn, a.who.Epoch
	t.w.tell("transaction %d of %v writes to t/%d", a.txn.n, a.who, a.at)
	if a.p.txn == a.txn && !a.p.ending {
		a.txn.written[a.at] = true // before the end was asked for, as a client that flushes has it
	}
}

// commitOffset commits an offset of a group in the transaction.
func (t *simTransactions) commitOffset(p *simProducer) {
	txn := t.begin(p)
	t.add(p, TxnPartition{"__consumer_offsets", 0}, func() {
		t.commits++
		value := int64(1_000_000 + t.commits)
		t.w.offsets[value] = txn
		who := p.who
		q := &CommitRequest{Group: "transform", Generation: NoGeneration, RetentionMillis: -1, Producer: &who, Partitions: []CommitPartition{{
			Topic: "t", ID: testTopicID("t"), Partition: int32(t.w.rng.IntN(4)), Offset: value, LeaderEpoch: NoEpoch}}}
		if d := t.w.members.producing(who); d.epoch > who.Epoch {
			return // the log of the offsets topic refuses it
		}
		t.w.tell("transaction %d commits offset %d", txn.n, value)
		t.w.request(simGroups, q, func(any, error) {})
	})
}

func (t *simTransactions) end(p *simProducer) {
	txn := p.txn
	if txn == nil {
		p.ending = false
		return
	}
	if p.tries++; p.tries == 1 {
		txn.asked, txn.since = txn.asked || p.commit, t.takeovers[p.id]
	}
	q := &EndTxnRequest{TransactionalID: p.id, Producer: p.who, Commit: p.commit, Version: p.version, newID: t.nextID}
	t.nextID++
	who, takeover := p.who, p.takeover
	t.w.request(simTxns, q, func(result any, err error) {
		switch {
		case p.txn != txn || p.who != who:
		case err == nil:
			told := map[bool]string{true: "commit", false: "abort"}[q.Commit]
			t.w.tell("transaction %d of %v ends: %s", txn.n, who, told)
			if q.Commit && txn.since > takeover {
				t.w.fail("transaction %d commits as %v, which had been fenced before", txn.n, who)
			}
			if txn.told = told; txn.outcome != "" && txn.outcome != told {
				t.w.fail("transaction %d was told %s and has ended with %s", txn.n, told, txn.outcome)
			}
			p.txn, p.ending, p.tries, p.who = nil, false, 0, result.(Producer)
		case fencing(err):
			t.leave(p)
		}
	})
}

// carryOut takes what a coordinator has decided, as endings.begin does: what is under way is not begun again.
func (t *simTransactions) carryOut(epoch int32, ends []ending) {
	for _, e := range ends {
		k := jobKey{epoch: epoch, id: e.id, producer: e.producer, decided: e.decided}
		if _, on := t.running[k]; on {
			continue
		}
		t.running[k] = struct{}{}
		left := len(e.partitions)
		for _, at := range e.partitions {
			t.markers = append(t.markers, &simMarker{e, epoch, at, &left})
		}
		if left == 0 {
			t.markers = append(t.markers, &simMarker{end: e, epoch: epoch})
		}
	}
}

// deliver brings one marker to its partition.
func (t *simTransactions) deliver() {
	i := t.w.rng.IntN(len(t.markers))
	m := t.markers[i]
	keep := m.left != nil && t.w.one(8) // the answer is lost: it is written again
	if !keep {
		t.markers = append(t.markers[:i], t.markers[i+1:]...)
	}
	if l := t.w.logs[simTxns]; m.epoch != l.epoch && t.w.rng.IntN(4) > 0 {
		return // whoever leads now carries it out; what was on its way may arrive
	}
	switch {
	case m.at.topic == "":
		t.note(m)
	case m.at.topic == "t":
		if t.mark(m) && !keep {
			t.finished(m)
		}
	default:
		t.markOffsets(m, keep)
	}
}

// mark writes a marker to a partition of t.
func (t *simTransactions) mark(m *simMarker) bool {
	d := t.data[m.at.index].of(m.end.producer)
	if m.end.producer.Epoch < d.epoch || m.epoch < d.coordinator {
		return false // fenced
	}
	outcome := map[bool]string{true: "commit", false: "abort"}[m.end.commit]
	if x := d.open; x != nil {
		t.close(x, int(m.at.index), outcome)
	}
	d.open, d.epoch, d.coordinator = nil, m.end.producer.Epoch, m.epoch
	d.markers++
	return true
}

func (t *simTransactions) close(x *simTxn, at int, outcome string) {
	t.w.tell("transaction %d has %s in t/%d", x.n, outcome, at)
	switch {
	case outcome == "commit" && (x.doomed || !x.asked):
		t.w.fail("transaction %d commits and nobody has asked for it", x.n)
	case x.told != "" && x.told != outcome:
		t.w.fail("transaction %d was told %s and has %s in t/%d", x.n, x.told, outcome, at)
	case x.outcome != "" && x.outcome != outcome:
		t.w.fail("transaction %d has ended with %s, and has %s in t/%d", x.n, x.outcome, outcome, at)
	}
	x.outcome, x.closed[at] = outcome, outcome
}

func (t *simTransactions) markOffsets(m *simMarker, keep bool) {
	d := t.w.members.producing(m.end.producer)
	if m.end.producer.Epoch < d.epoch || m.epoch < d.coordinator {
		return
	}
	q := &EndMarker{Producer: m.end.producer, Commit: m.end.commit, CoordinatorEpoch: m.epoch}
	t.w.request(simGroups, q, func(_ any, err error) {
		if err != nil {
			t.markers = append(t.markers, m) // as often as it takes
			return
		}
		d.epoch, d.coordinator = m.end.producer.Epoch, m.epoch
		if !keep {
			t.finished(m)
		}
	})
}

// finished notes that a partition has its marker. After the last the coordinator is told.
func (t *simTransactions) finished(m *simMarker) {
	if *m.left--; *m.left == 0 {
		t.markers = append(t.markers, &simMarker{end: m.end, epoch: m.epoch})
	}
}

// note tells the coordinator that the transaction has ended everywhere, as often as it takes while it leads.
func (t *simTransactions) note(m *simMarker) {
	k := jobKey{epoch: m.epoch, id: m.end.id, producer: m.end.producer, decided: m.end.decided}
	l := t.w.logs[simTxns]
	s := t.w.shards[l.leader][simTxns]
	if m.epoch != l.epoch {
		delete(t.running, k)
		return // whoever has read the decision back carries it out again
	}
	if s.core == nil && !t.w.load(s) || s.epoch != m.epoch {
		t.markers = append(t.markers, m)
		return
	}
	t.w.turn(s, txnEnded{id: m.end.id, producer: m.end.producer}, func(_ any, err error) {
		if err != nil {
			t.markers = append(t.markers, m)
			return
		}
		delete(t.running, k)
	})
}

// settled says what is still open, once everything has had its time.
func (t *simTransactions) settled() string {
	for at, d := range t.data {
		for _, s := range d.producers {
			if s.open != nil {
				return fmt.Sprintf("transaction %d is open in t/%d for ever", s.open.n, at)
			}
		}
	}
	for _, x := range t.all {
		for at := range x.written {
			if x.told != "" && x.closed[at] != x.told {
				return fmt.Sprintf("transaction %d was told %s, and what it wrote to t/%d has ended with %q", x.n, x.told, at, x.closed[at])
			}
		}
	}
	return ""
}
