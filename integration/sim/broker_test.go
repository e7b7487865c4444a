package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/tier"
)

// partitionKey names a partition of one topic id.
type partitionKey struct {
	id    topic.ID
	index int32
}

// broker is one machine: a disk, and while it is up a process with a raft node.
type broker struct {
	w    *world
	id   int32
	name string

	// The disk.
	logs map[partitionKey]*diskLog
	// marker is the broker epoch under which everything acknowledged is known to
	// be on this disk, -1 without one. With replicated durability only a clean stop
	// writes it, with fsync each registration does.
	marker  int64
	copied  *diskCopy
	archive *tier.Archive         // its cache is on the disk
	graves  map[partitionKey]bool // the tier manager's journal: removals that are not done

	// The process.
	up          bool
	life        int
	paused      int64
	stopping    bool
	skew        int64 // of its wall clock
	incarnation topic.ID
	epoch       int64 // of its registration, -1 before
	previous    int64 // the epoch it was registered under when it stopped cleanly
	asks        int64 // when it asks again to be registered
	replaces    int64 // the registration that its own is to replace, -1 none
	replicas    map[partitionKey]*replica
	tier        *tiering
	cleared     map[partitionKey]bool        // what this process has removed from the bucket
	confirming  map[meta.ConfirmDeleted]bool // what this process is telling the controller

	// Its raft node. The entries it has applied are its image.
	applied    int
	image      *meta.Image
	controller *broker // whom it takes for the controller
	leads      int     // the term in which it takes itself for the controller, 0 = none
	barrier    int
	reached    int64
	busy       bool
	requests   []*request
	sessions   *meta.Sessions
}

const (
	heartbeatMillis = 100
	sessionMillis   = 900
	lagMillis       = 1500
)

// boot starts a process. Its raft node may have to apply again what it had
// applied before.
func (b *broker) boot() {
	w := b.w
	b.up, b.stopping, b.paused, b.leads, b.busy, b.requests, b.asks = true, false, 0, 0, false, nil, 0
	b.life++
	w.incarnations++
	b.incarnation = incarnation(w.incarnations)
	b.epoch = -1
	b.previous = b.marker
	if w.one(4) {
		b.copyDisk()
	}
	if !w.cfg.fsync {
		b.marker = -1 // removed before loading
	}
	b.replicas, b.cleared = map[partitionKey]*replica{}, map[partitionKey]bool{}
	b.confirming = map[meta.ConfirmDeleted]bool{}
	b.applied -= w.rng.IntN(min(b.applied, 12) + 1)
	b.image = w.quorum.images[b.applied]
	b.replaces = -1
	if have, ok := b.image.Brokers[b.id]; ok {
		b.replaces = have.Epoch
	}
	b.controller = nil
	b.tier = newTiering(b)
	w.tell("%s starts, applied %d, previous epoch %d", b.name, b.applied, b.previous)
	w.soon(b, w.rng.Int64N(20), b.pull)
	w.soon(b, 20+w.rng.Int64N(50), b.register)
	w.soon(b, 5, b.tick)
}

// incarnation is the random id of a process; here they are numbered.
func incarnation(n int) topic.ID { return topic.ID{0xb, byte(n >> 16), byte(n >> 8), byte(n)} }

func numberOf(id topic.ID) int { return int(id[1])<<16 | int(id[2])<<8 | int(id[3]) }

// down ends the process. What it knew is gone.
func (b *broker) down() {
	if b.tier != nil {
		b.tier.close()
	}
	b.up = false
	b.life++
	b.sessions = nil
	b.hungUp()
	b.leads, b.requests, b.busy = 0, nil, false
	b.replicas, b.tier = nil, nil
}

// kill ends the process at once. The kernel still has all that was written.
func (b *broker) kill() {
	b.w.tell("%s is killed", b.name)
	for _, l := range b.logs {
		l.hw = l.hwSaved
	}
	if !b.w.cfg.fsync {
		b.w.oracle.suspect(b) // nobody can tell a killed process from one that lost its page cache
	}
	b.down()
}

// powerLoss ends the machine at once.
func (b *broker) powerLoss() {
	w := b.w
	w.tell("%s loses power", b.name)
	for _, k := range w.keys() {
		if l := b.logs[k]; l != nil {
			extra := int64(0)
			if rest := l.end() - l.durable; rest > 0 && w.one(2) {
				extra = w.rng.Int64N(rest + 1)
			}
			l.power(extra)
		}
	}
	if !w.cfg.fsync {
		w.oracle.suspect(b)
	}
	b.down()
}

// wipe replaces the disk of a broker that is down. Its raft node is elsewhere.
func (b *broker) wipe() {
	b.w.tell("%s gets an empty disk", b.name)
	b.logs, b.marker = map[partitionKey]*diskLog{}, -1
	b.w.oracle.suspect(b)
}

// diskCopy is a disk as it was at one time.
type diskCopy struct {
	logs   map[partitionKey]*diskLog
	marker int64
}

func (b *broker) copyDisk() { b.copied = &diskCopy{cloneLogs(b.logs), b.marker} }

func cloneLogs(logs map[partitionKey]*diskLog) map[partitionKey]*diskLog {
	out := make(map[partitionKey]*diskLog, len(logs))
	for k, l := range logs {
		c := *l
		c.records, c.chain, c.rolls = slices.Clone(l.records), l.chain.Clone(), slices.Clone(l.rolls)
		out[k] = &c
	}
	return out
}

// restore puts an old copy in place of the disk of a broker that is down.
func (b *broker) restore() {
	b.w.tell("%s gets an old copy of its disk, of epoch %d", b.name, b.copied.marker)
	b.logs, b.marker = cloneLogs(b.copied.logs), b.copied.marker
	b.w.oracle.suspect(b)
}

// stop ends the process as it should be.
func (b *broker) stop() {
	b.w.tell("%s has stopped", b.name)
	for _, l := range b.logs {
		l.durable, l.hwSaved = l.end(), l.hw
	}
	b.marker = b.epoch
	b.down()
}

// tick is the process's own clock.
func (b *broker) tick() {
	w := b.w
	w.soon(b, heartbeatMillis/2+w.rng.Int64N(heartbeatMillis), b.tick)
	b.pull()
	b.heartbeat()
	b.tellSessions(meta.SessionTick{})
	b.eachReplica(func(r *replica) { r.tick() })
	if b.tier != nil {
		b.tier.run()
	}
}

func (b *broker) eachReplica(fn func(*replica)) {
	for _, k := range b.w.keys() {
		if r := b.replicas[k]; r != nil {
			fn(r)
		}
	}
}

// register tells the controller of this start, until it has an epoch.
func (b *broker) register() {
	if b.epoch >= 0 {
		return
	}
	if b.w.now < b.asks {
		return
	}
	b.asks = b.w.now + 150 + b.w.rng.Int64N(200)
	b.w.soon(b, b.asks-b.w.now, b.register)
	r := meta.Registration{
		ID: b.id, Host: b.name, Port: 9092, Incarnation: b.incarnation, Fenced: true,
		PreviousEpoch: b.previous, Replaces: b.replaces,
	}
	b.ask(b.name+" registers", func(at *broker, img *meta.Image) (any, []meta.Change, error) {
		for _, want := range at.watch(img, meta.SessionTick{}) {
			at.change(want)
		}
		changes, err := b.w.decisions.Register(img, r, at.sessions.Alive(img, r, at.w.clock()))
		return nil, changes, err
	}, func(_ any, err error) {
		var stale *meta.StaleRegistration
		if errors.As(err, &stale) && r.Incarnation == b.incarnation && stale.Epoch != b.replaces {
			b.replaces, b.asks = stale.Epoch, 0
			b.w.soon(b, 1, b.register)
		}
		b.pull()
	})
}

// registered looks for this process's own registration in the image.
func (b *broker) registered() {
	if have, ok := b.image.Brokers[b.id]; ok && have.Incarnation == b.incarnation && have.Epoch != b.epoch {
		b.epoch = have.Epoch
		if b.w.cfg.fsync {
			b.marker = b.epoch
		}
		b.w.tell("%s has the epoch %d", b.name, b.epoch)
	}
}

// heartbeat keeps the session, and says what the broker is up to.
func (b *broker) heartbeat() {
	if b.epoch < 0 {
		return
	}
	h := meta.Heartbeat{ID: b.id, Epoch: b.epoch, Index: b.image.Index, WantShutdown: b.stopping}
	var at *broker
	b.ask(b.name+" beats", func(to *broker, img *meta.Image) (any, []meta.Change, error) {
		at = to
		if have, ok := img.Brokers[h.ID]; !ok || have.Epoch != h.Epoch {
			return nil, nil, meta.ErrStaleBrokerEpoch
		}
		for _, want := range to.watch(img, meta.SessionHeartbeat{Heartbeat: h}) {
			if want.ID == h.ID {
				changes, err := to.w.decisions.ChangeBroker(img, want)
				return nil, changes, err
			}
			to.change(want)
		}
		return nil, nil, nil
	}, func(_ any, err error) {
		if errors.Is(err, meta.ErrStaleBrokerEpoch) && b.epoch == h.Epoch && int64(b.image.Index) >= h.Epoch {
			b.w.tell("%s has lost its registration", b.name) // to a late request of an earlier start
			b.previous, b.replaces, b.epoch = b.epoch, b.epoch, -1
			b.register()
			return
		}
		if err != nil || !h.WantShutdown || !b.stopping {
			return
		}
		if have := at.image.Brokers[h.ID]; have.Epoch == h.Epoch && have.ShuttingDown && have.Fenced {
			b.stop()
		}
	})
}

func (w *world) clock() time.Time { return time.UnixMilli(w.now) }

// watch tells the controller's sessions of an event, makes the probes they want,
// and returns the changes they want.
func (b *broker) watch(img *meta.Image, e meta.SessionEvent) []meta.ChangeBroker {
	w := b.w
	if b.sessions == nil {
		b.sessions = meta.NewSessions(meta.DefaultSessionConfig(b.id, sessionMillis*time.Millisecond), img, w.clock())
	}
	wishes := b.sessions.Step(img, e, w.clock())
	for _, target := range wishes.Probes {
		b.probe(target)
	}
	return wishes.Changes
}

// probe looks whether anybody listens where a broker was. Only a machine that
// is there can refuse.
func (b *broker) probe(target meta.Broker) {
	w, o := b.w, b.w.brokers[target.ID]
	delay, gone := 1+w.rng.Int64N(5), !o.up
	if !w.linked(b, o) {
		delay, gone = 300, false
	}
	w.soon(b, delay, func() { b.tellSessions(meta.SessionProbed{ID: target.ID, Epoch: target.Epoch, Gone: gone}) })
}

// tellSessions gives the sessions an event and has done what they want.
func (b *broker) tellSessions(e meta.SessionEvent) {
	if b.leads == 0 || b.applied < b.barrier {
		return
	}
	for _, want := range b.watch(b.image, e) {
		b.change(want)
	}
}

// change asks the controller, which is this process, for a change of a broker.
func (b *broker) change(want meta.ChangeBroker) {
	b.control(&request{
		what: fmt.Sprintf("the sessions want %+v", want),
		decide: func(img *meta.Image) (any, []meta.Change, error) {
			changes, err := b.w.decisions.ChangeBroker(img, want)
			return nil, changes, err
		},
		reply: func(any, error) {},
	})
}

// hungUp tells controllers that the connections of a process have ended.
func (b *broker) hungUp() {
	for _, o := range b.w.brokers {
		if o != b && o.up && o.leads != 0 && b.w.linked(b, o) {
			epoch := b.epoch
			b.w.soon(o, 1+b.w.rng.Int64N(5), func() { o.tellSessions(meta.SessionDisconnected{ID: b.id, Epoch: epoch}) })
		}
	}
}

// followImage brings the replicas to what the image wants. An image in which
// this start is not registered yet is of the past: it says what an earlier
// process was, and to lead in its epochs again would give offsets out twice.
func (b *broker) followImage() {
	b.registered()
	if b.epoch < 0 {
		return
	}
	for _, t := range b.image.Topics() {
		for i := range t.Partitions {
			b.follow(t, int32(i))
		}
	}
	b.dropDeleted()
}

func (b *broker) follow(t *meta.Topic, index int32) {
	p := &t.Partitions[index]
	k := partitionKey{t.ID, index}
	r := b.replicas[k]
	if !contains(p.Replicas, b.id) {
		if r != nil {
			r.leave()
			delete(b.replicas, k)
		}
		if b.logs[k] != nil { // reassigned away, by a committed change: the files go
			b.w.oracle.removed(b, k)
			delete(b.logs, k)
		}
		return
	}
	if r == nil {
		log := b.logs[k]
		if log == nil {
			log = newLog(0)
			b.logs[k] = log
		}
		r = &replica{b: b, w: b.w, key: k, name: t.Key(index), log: log, leader: meta.NoLeader, epoch: -1}
		b.replicas[k] = r
	}
	r.apply(t, p)
}

// dropDeleted removes what committed tombstones name, and confirms it.
func (b *broker) dropDeleted() {
	for _, d := range b.image.DeletedTopics() {
		for i := range d.Partitions {
			k := partitionKey{d.ID, i}
			if r := b.replicas[k]; r != nil {
				r.leave()
				delete(b.replicas, k)
			}
			if d.Tier && b.tier != nil {
				b.tier.bury(topic.Partition{Topic: d.Name, ID: d.ID, Index: i})
			}
			if b.logs[k] != nil {
				b.w.oracle.deleted(b, k)
				delete(b.logs, k)
			}
		}
		b.confirmGone(d)
	}
}

// confirmGone confirms what is gone of a topic: what was here once the bucket has
// been cleared from here, and what was in the bucket when all have done so.
func (b *broker) confirmGone(d meta.DeletedTopic) {
	for i := range d.Partitions {
		if d.Tier && b.tier != nil && !b.cleared[partitionKey{d.ID, i}] {
			return
		}
	}
	switch {
	case contains(d.Brokers, b.id):
		b.confirm(meta.ConfirmDeleted{ID: d.ID, Broker: b.id})
	case d.Tier && b.tier != nil && len(d.Brokers) == 0:
		b.confirm(meta.ConfirmDeleted{ID: d.ID, Broker: -1, Tier: true})
	}
}

// confirm tells the controller what is gone, until it has taken that.
func (b *broker) confirm(c meta.ConfirmDeleted) {
	if !b.confirming[c] {
		b.confirming[c] = true
		b.confirmAgain(c)
	}
}

func (b *broker) confirmAgain(c meta.ConfirmDeleted) {
	if d, ok := b.image.Deleted(c.ID); !ok || c.Tier && !d.Tier || !c.Tier && !contains(d.Brokers, c.Broker) {
		delete(b.confirming, c)
		return
	}
	b.w.soon(b, 1000, func() { b.confirmAgain(c) })
	b.ask(fmt.Sprintf("%s confirms a deletion", b.name), func(_ *broker, img *meta.Image) (any, []meta.Change, error) {
		return nil, b.w.decisions.ConfirmDeleted(img, c), nil
	}, func(any, error) {})
}

func contains(ids []int32, id int32) bool {
	for _, o := range ids {
		if o == id {
			return true
		}
	}
	return false
}
