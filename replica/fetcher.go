package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/hot"
	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/meta/conf"
	"github.com/varvelog/varve/replica/isr"
)

// fetcher copies from one other broker all that this broker follows there, over one connection. One goroutine owns it, sends
// one fetch after the other and appends what comes; what may take long, truncation and rebuilding, runs beside it. A
// partition that fails or waits is left out of the fetches meanwhile, so that it holds up no other.
type fetcher struct {
	m      *Manager
	leader int32
	wake   chan struct{} // the inbox has something
	synced chan struct{} // a durable end moved

	mu        sync.Mutex // guards the following
	inbox     []fetcherNews
	interrupt context.CancelFunc // of the fetch that waits for long, nil when none does
	soon      *time.Timer        // will interrupt it
	holds     bool               // the throttle holds somebody back meanwhile

	// Owned by run.
	parts    map[replicaKey]*followed
	dirty    []*followed
	later    []*followed // those with a time to retry at
	busy     int
	quiet    int         // fetches in a row that brought nothing, however long they waited
	joined   int64       // steady millis when a partition joined last; 0: none did
	grown    []*followed // appended to in this round
	session  fetchSession
	peer     Peer
	failures int
}

// fetcherNews is what a fetcher is told from outside.
type fetcherNews struct {
	d    *followed
	kind newsKind
	err  error // of a task
}

type newsKind int8

const (
	newsFollow newsKind = iota
	newsLeave
	newsDone     // a task
	newsDamage   // of the log here, or its repair
	newsThrottle // holds back others than before
)

// interruptAfter is how long a waiting fetch is left alone when another partition wants to join it: then it is given up,
// with its connection and its session, for nothing else ends it early, and the next fetch names every partition. Several that
// come together cost one interruption. Thousands that are opened one after the other, as on the creation of a topic, cost no
// more: until none has joined for joinsLast no fetch waits for longer than joinWait, and whoever comes joins the next.
const (
	interruptAfter = 10 * time.Millisecond
	joinWait       = 25 // milliseconds
	joinsLast      = 500
)

// fetcher finds or starts the fetcher of a broker.
func (m *Manager) fetcher(leader int32) *fetcher {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.fetchers[leader]
	if f == nil {
		f = &fetcher{m: m, leader: leader, wake: make(chan struct{}, 1), synced: make(chan struct{}, 1), parts: make(map[replicaKey]*followed)}
		f.session.reset()
		m.fetchers[leader] = f
		if !m.closed {
			m.wg.Go(f.run)
		}
	}
	return f
}

func (f *fetcher) post(n fetcherNews) {
	f.mu.Lock()
	f.inbox = append(f.inbox, n)
	urgent := n.kind == newsFollow || n.kind == newsDamage || n.kind == newsThrottle && f.holds
	if urgent && f.interrupt != nil && f.soon == nil {
		f.soon = time.AfterFunc(interruptAfter, f.interrupt)
	}
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// run fetches until the manager closes.
func (f *fetcher) run() {
	defer f.disconnect()
	for f.m.running.Err() == nil {
		f.takeInbox()
		if !f.prepare() {
			f.rest()
			continue
		}
		switch err := f.round(); {
		case err == nil:
			f.failures = 0
		case f.m.running.Err() != nil:
		default:
			f.disconnect()
			if !errors.Is(err, errInterrupted) {
				f.lost(err)
			}
		}
	}
}

// errInterrupted is returned when a fetch was given up because others want to join.
var errInterrupted = errors.New("replica: fetch interrupted")

func (f *fetcher) disconnect() {
	if f.peer != nil {
		f.peer.Close()
		f.peer = nil
	}
	f.session.reset()
	f.quiet = 0
	f.dirty = f.dirty[:0]
	for _, d := range f.parts {
		d.dirty = false
		f.mark(d)
	}
}

// lost waits a little after the connection failed, longer each time.
func (f *fetcher) lost(err error) {
	f.failures++
	wait := min(f.m.brokerConf().ReplicaFetchBackoffMillis, firstBackoffMillis<<min(f.failures-1, 10))
	log := f.m.logger.Debug
	if f.failures == 3 {
		log = f.m.logger.Warn
	}
	log("fetching from the leader failed", "leader", f.leader, "partitions", len(f.parts), "err", err)
	timer := time.NewTimer(time.Duration(wait) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-f.m.running.Done():
	}
}

// firstBackoffMillis is the wait after a first failure. The usual one is a leader that has not heard of its election yet.
const firstBackoffMillis = 10

func (f *fetcher) takeInbox() {
	f.mu.Lock()
	news := f.inbox
	f.inbox = nil
	f.mu.Unlock()
	for _, n := range news {
		if n.kind == newsThrottle {
			f.letGo()
			continue
		}
		d, key := n.d, keyOf(n.d.p.id)
		switch n.kind {
		case newsFollow:
			if old := f.parts[key]; old != nil {
				f.drop(old)
			}
			f.parts[key], f.joined = d, f.m.steady()
			f.mark(d)
		case newsLeave:
			f.drop(d)
		case newsDone:
			f.taskDone(d, n.err)
		case newsDamage:
			if f.parts[key] == d {
				f.mark(d)
			}
		}
	}
	now, waiting := f.m.steady(), f.later[:0]
	for _, d := range f.later {
		switch {
		case f.parts[keyOf(d.p.id)] != d:
		case d.retryAt > now:
			waiting = append(waiting, d)
		default:
			d.retryAt, d.held = 0, false
			f.mark(d)
		}
	}
	clear(f.later[len(waiting):])
	f.later = waiting
}

// drop ends the following of one partition here.
func (f *fetcher) drop(d *followed) {
	key := keyOf(d.p.id)
	if f.parts[key] != d {
		return
	}
	delete(f.parts, key)
	f.session.forget(d)
	if d.busy {
		f.busy--
	}
}

func (f *fetcher) mark(d *followed) {
	if !d.dirty {
		d.dirty = true
		f.dirty = append(f.dirty, d)
	}
}

// fail has a partition wait before it is asked for again.
func (f *fetcher) fail(d *followed, why error) {
	d.tries++
	if why != nil && (d.tries == 1 || d.tries%64 == 0) {
		d.p.logger().Warn("following the leader failed, will be tried again", "leader", f.leader, "leader_epoch", d.core.Epoch, "tries", d.tries, "err", why)
	}
	f.delay(d, min(int64(f.m.brokerConf().ReplicaFetchBackoffMillis), firstBackoffMillis<<min(d.tries-1, 10)))
}

func (f *fetcher) delay(d *followed, millis int64) {
	if d.retryAt == 0 {
		f.later = append(f.later, d)
	}
	d.retryAt = f.m.steady() + max(millis, 1)
	f.mark(d)
}

// prepare makes the next request; false when there is nothing to fetch now.
func (f *fetcher) prepare() bool {
	if len(f.parts) == 0 {
		if f.peer != nil {
			f.disconnect()
		}
		return false
	}
	s, b := &f.session, f.m.brokerConf()
	r := s.begin(f.m.config.NodeID, f.m.brokerEpoch())
	dirty := f.dirty
	f.dirty = f.dirty[len(f.dirty):]
	for i, d := range dirty {
		dirty[i] = nil
		d.dirty = false
		if f.parts[keyOf(d.p.id)] != d {
			continue
		}
		if d.busy || d.halted || d.retryAt > 0 {
			s.forget(d)
			continue
		}
		if wait := f.heldBack(d); wait > 0 {
			s.forget(d)
			d.held = true
			f.delay(d, wait.Milliseconds())
			continue
		}
		v := d.p.view()
		at, ok := d.core.Position(v)
		if !ok { // what a restart found, or another epoch appended, is not synced yet
			s.forget(d)
			f.delay(d, firstBackoffMillis)
			continue
		}
		if !d.known || at != d.sent || d.told != d.p.damagedFrom() {
			d.sent = at
			s.ask(d, b.ReplicaFetchMaxBytes, v.LogStart)
		}
	}
	if len(f.dirty) == 0 {
		f.dirty = dirty[:0]
	}
	if len(s.at) == 0 {
		s.reset()
		return false
	}
	s.finish()
	r.MaxWaitMillis, r.MinBytes, r.MaxBytes = f.maxWait(b), b.ReplicaFetchMinBytes, b.ReplicaFetchResponseMaxBytes
	return true
}

// A leader that has nothing to say is asked ever more seldom, up to eight times the default of replica.fetch.wait.max.ms and
// never so that a follower could come to lag by it: new records end the wait at once, and thousands of idle partitions cost next
// to nothing. Whoever has set another time gets that.
const (
	quietDoublings    = 3
	quietLagShare     = 6
	waitDefaultMillis = 500
)

// maxWait is how long the leader may keep the next fetch: not beyond the next retry, and not long while a task runs or
// partitions join.
func (f *fetcher) maxWait(b *conf.Broker) int32 {
	wait := int64(b.ReplicaFetchWaitMaxMillis)
	if wait == waitDefaultMillis {
		wait = min(wait<<min(f.quiet, quietDoublings), max(b.ReplicaLagTimeMaxMillis/quietLagShare, wait))
	}
	if f.busy > 0 {
		wait = min(wait, 20)
	}
	now := f.m.steady()
	if f.joined > 0 && now-f.joined < joinsLast {
		wait = min(wait, joinWait)
	}
	for _, d := range f.later {
		wait = min(wait, max(d.retryAt-now, 0))
	}
	return int32(wait)
}

// rest waits for news or the next retry.
func (f *fetcher) rest() {
	var due <-chan time.Time
	if len(f.later) > 0 {
		next := f.later[0].retryAt
		for _, d := range f.later {
			next = min(next, d.retryAt)
		}
		timer := time.NewTimer(time.Duration(max(next-f.m.steady(), 0)) * time.Millisecond)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-f.wake:
	case <-due:
	case <-f.m.running.Done():
	}
}

// round is one fetch and what it brings.
func (f *fetcher) round() error {
	ctx, cancel := context.WithTimeoutCause(f.m.running, time.Duration(f.session.req.MaxWaitMillis)*time.Millisecond+answerLimit, errNoAnswer)
	defer cancel()
	interrupted, interrupt := context.WithCancelCause(ctx)
	defer interrupt(nil)
	f.mu.Lock()
	long := f.session.req.MaxWaitMillis > joinWait
	if long {
		f.interrupt = func() { interrupt(errInterrupted) }
	}
	f.holds = slices.ContainsFunc(f.later, func(d *followed) bool { return d.held })
	if long && slices.ContainsFunc(f.inbox, func(n fetcherNews) bool { return n.kind != newsThrottle || f.holds }) {
		f.soon = time.AfterFunc(interruptAfter, f.interrupt)
	}
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.interrupt = nil
		if f.soon != nil {
			f.soon.Stop()
			f.soon = nil
		}
	}()
	if f.peer == nil {
		p, err := f.dial(interrupted)
		if err != nil {
			return f.causeOf(interrupted, err)
		}
		f.peer = p
	}
	resp, err := f.peer.Fetch(interrupted, &f.session.req)
	if err != nil {
		return f.causeOf(interrupted, err)
	}
	if code := resp.ErrorCode; !f.session.answered(resp) {
		for _, d := range f.parts {
			f.mark(d)
		}
		f.m.logger.Debug("fetch session ended by the leader", "leader", f.leader, "code", code)
		return nil
	}
	switch {
	case len(resp.Topics) > 0:
		f.quiet = 0
	case f.session.req.MaxWaitMillis >= f.m.brokerConf().ReplicaFetchWaitMaxMillis:
		f.quiet++ // a short wait says nothing: a watermark may follow within the usual one
	}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			if d := f.session.at[replicaKey{t.TopicID, t.Partitions[j].Partition}]; d != nil {
				f.take(d, &t.Partitions[j])
			}
		}
	}
	if f.session.id == 0 {
		f.session.reset()
		for _, d := range f.parts {
			f.mark(d)
		}
	}
	f.settle()
	return nil
}

// answerLimit is how long beyond its wait a fetch may take. A leader that is gone without a word is noticed by this.
const answerLimit = 10 * time.Second

var errNoAnswer = errors.New("replica: the leader did not answer in time")

func (f *fetcher) causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && f.m.running.Err() == nil {
		return cause
	}
	return err
}

func (f *fetcher) dial(ctx context.Context) (Peer, error) {
	b, ok := f.m.deps.Meta.Image().Brokers[f.leader]
	if !ok {
		return nil, fmt.Errorf("replica: broker %d is not registered", f.leader)
	}
	p, err := f.m.deps.Peers.Dial(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("connect to broker %d: %w", f.leader, err)
	}
	return p, nil
}

// settle waits until everything appended in this round is durable: the next fetch says that it is. All partitions together
// wait for one group commit. Whoever is not followed any more is not waited for.
func (f *fetcher) settle() {
	for _, d := range f.grown {
		for d.p.following.Load() == d && !d.p.role.Load().final() && d.p.log.Offsets().Durable < d.appended {
			select {
			case <-f.synced:
			case <-f.m.running.Done():
				return
			}
		}
	}
	clear(f.grown)
	f.grown = f.grown[:0]
}

// moved is told that a durable end moved, by the syncer, or that it does not matter any more.
func (f *fetcher) moved() {
	select {
	case f.synced <- struct{}{}:
	default:
	}
}

// brokerConf is this broker's settings with the dynamic ones.
func (m *Manager) brokerConf() *conf.Broker {
	if b := m.broker.Load(); b != nil {
		return b
	}
	return m.config.Broker
}

// brokerEpoch is the epoch under which this broker is registered, or NoBrokerEpoch.
func (m *Manager) brokerEpoch() int64 {
	if m.deps.BrokerEpoch != nil {
		return m.deps.BrokerEpoch()
	}
	if b, ok := m.deps.Meta.Image().Brokers[m.config.NodeID]; ok {
		return b.Epoch
	}
	return NoBrokerEpoch
}

// take does what the core says to a partition's part of an answer.
func (f *fetcher) take(d *followed, r *kmsg.FetchResponseTopicPartition) {
	f.mark(d)
	reply, err := replyOf(r, d.core.Epoch)
	if err != nil {
		f.refuse(d, err)
		return
	}
	v := d.p.view()
	a := d.core.Answer(v, d.sent, reply)
	switch a.Kind {
	case isr.Append:
		f.copied(d, len(r.RecordBatches))
		grown, err := d.append(r.RecordBatches, a, reply.RemoteEnd)
		if grown {
			f.grown = append(f.grown, d)
		}
		switch {
		case errors.Is(err, errNotFollowed):
		case errors.Is(err, batch.ErrCorrupt), errors.Is(err, batch.ErrShort), errors.Is(err, hot.ErrNotContiguous):
			f.refuse(d, err)
		case err != nil:
			f.fail(d, d.p.fromLog(err))
		default:
			d.tries = 0
		}
	case isr.Truncate, isr.Reset, isr.Rebuild:
		f.start(d, a)
	case isr.Halt:
		d.halted = true
		d.p.logger().Error("partition is halted: its leader lacks records that are committed here, and no unclean election is recorded",
			"leader", f.leader, "leader_epoch", d.core.Epoch, "leader_end", a.To, "high_watermark", v.HighWatermark, "end", v.End)
	default:
		f.fail(d, refusal(r.ErrorCode))
	}
}

// refuse leaves the leader's records alone, because they are not what was written, and tells the leader with the next fetch.
func (f *fetcher) refuse(d *followed, why error) {
	d.refused = d.sent.Offset
	f.fail(d, fmt.Errorf("records from offset %d on are refused: %w", d.sent.Offset, why))
}

// refusal is what is logged of a leader's refusal. That it has another epoch, or does not lead yet, is everyday's.
func refusal(code int16) error {
	switch code {
	case 6, 74, 75, 3, 100: // NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID
		return nil
	}
	return fmt.Errorf("the leader answered code %d", code)
}

// start has a task change the log beside the fetching.
func (f *fetcher) start(d *followed, a isr.Action) {
	d.busy = true
	f.busy++
	lane := f.m.cuts
	if a.Kind == isr.Rebuild {
		lane = f.m.rebuilds
	}
	f.m.wg.Go(func() {
		select {
		case lane <- struct{}{}:
		case <-f.m.running.Done():
			return
		}
		defer func() { <-lane }()
		var err error
		if a.Kind == isr.Rebuild {
			err = d.rebuild(f.m.running, a.Cut)
			if errors.Is(err, errNothingRemote) && a.To > d.p.log.Offsets().End {
				err = d.cut(isr.Action{Kind: isr.Reset, To: a.To}) // what lies below the leader's start is nowhere any more
			}
		} else {
			err = d.cut(a)
		}
		f.post(fetcherNews{d: d, kind: newsDone, err: err})
	})
}

func (f *fetcher) taskDone(d *followed, err error) {
	if f.parts[keyOf(d.p.id)] != d {
		return
	}
	d.busy = false
	f.busy--
	f.mark(d)
	switch {
	case errors.Is(err, errNotFollowed):
	case err != nil:
		f.fail(d, d.p.fromLog(err))
	default:
		// The same again and again would be a leader that contradicts itself: it gets slower.
		if d.tries++; d.tries > 3 {
			f.fail(d, nil)
		}
	}
}
