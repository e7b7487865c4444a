package coordinator

import (
	"cmp"
	"maps"
	"slices"

	"github.com/varvelog/varve/meta/topic"
)

// shareCore is the machine of the share-partitions of one partition of the share state topic (KIP-932): the share coordinator.
type shareCore struct {
	clockwork
	cfg   *Config
	view  *topicsView
	began int64 // when the machine was made
	parts map[ShareKey]*sharePartition
	end   int64 // offset after the newest record of the log that is known
}

var (
	_ machine = (*shareCore)(nil)
	_ cutter  = (*shareCore)(nil)
)

// sharePartition is the state of one share-partition.
type sharePartition struct {
	snapshot                int32 // counts snapshots
	stateEpoch, leaderEpoch int32
	start                   int64
	done                    int32 // records from start on that are acknowledged or archived; NoDeliveryCount: not known
	batches                 []ShareBatch
	created, written        int64 // time of day of the newest snapshot; they differ in those made only to get out of the way

	fence   int32 // the highest leader epoch seen; leaderEpoch is back at 0 when the share-partition begins anew
	updates int   // since the newest snapshot
	at      int64 // offset of the newest snapshot in the log, -1: not known
}

// shareUpdate is what an update record adds.
type shareUpdate struct {
	snapshot, leaderEpoch int32
	start                 int64 // NoOffset: unchanged
	done                  int32
	batches               []ShareBatch
}

// shareTopicGone says that a topic was deleted.
type shareTopicGone struct{ id topic.ID }

func newShareCore(cfg *Config, now int64) *shareCore {
	c := &shareCore{cfg: cfg, parts: make(map[ShareKey]*sharePartition), began: now}
	c.timers.set(timerKey{kind: timerRetention}, now+cfg.ShareCutMillis)
	return c
}

func (c *shareCore) setTopics(v *topicsView) { c.view = v }

func (c *shareCore) size() int { return len(c.parts) }

func (c *shareCore) loaded(now int64) { c.now = now }

func (c *shareCore) replayMarker(int64, bool) {} // nobody writes this topic in a transaction

// tick sees to it now and then that the log can be cut off at its start.
func (c *shareCore) tick(now int64) {
	c.now = now
	for {
		key, ok := c.timers.due(now)
		if !ok {
			return
		}
		c.sweepDeleted()
		c.refresh()
		c.out.cut = true
		c.timers.set(key, now+c.cfg.ShareCutMillis)
	}
}

// step takes one event.
func (c *shareCore) step(e event, now int64) {
	c.now = now
	var result any
	var err error
	switch q := e.body.(type) {
	case *ShareInitialize:
		err = c.initialize(q)
	case *ShareRead:
		result, err = c.read(q)
	case *ShareWrite:
		err = c.writeState(q)
	case ShareKey:
		result, err = c.summary(q)
	case shareDelete:
		err = c.remove(q.ShareKey)
	case shareTopicGone:
		c.topicGone(q.id)
	default:
		panic("coordinator: unknown event")
	}
	c.out.replies = append(c.out.replies, reply{e.ticket, result, err})
}

// shareDelete deletes a share-partition.
type shareDelete struct{ ShareKey }

// Kafka's texts.
const (
	textInvalidBatch        = "A state batch has offsets, a delivery state or a delivery count that cannot be."
	textNegativePartition   = "The partition id cannot be a negative number."
	textNegativeLeaderEpoch = "The leader epoch cannot be a negative number."
	textNegativeStateEpoch  = "The state epoch cannot be a negative number."
	textWriteUninitialized  = "Write operation on uninitialized share partition not allowed."
	textReadUninitialized   = "Read operation on uninitialized share partition not allowed."
	textFencedLeaderEpoch   = "The leader epoch in the request is older than the epoch on the broker."
	textFencedStateEpoch    = "The coordinator rejected the request because the state epoch did not match."
	textNoPartition         = "This server does not host this topic-partition."
)

// exists says whether the topic of a share-partition has that partition.
func (c *shareCore) exists(k ShareKey) error {
	if t := c.view.byID(k.Topic); t == nil || int(k.Partition) >= len(t.Partitions) {
		return refuse(ErrShareStateUnknown, textNoPartition)
	}
	return nil
}

func (c *shareCore) initialize(q *ShareInitialize) error {
	old := c.parts[q.ShareKey]
	switch {
	case q.Partition < 0:
		return refuse(ErrInvalidShareState, textNegativePartition)
	case q.StateEpoch < 0:
		return refuse(ErrInvalidShareState, textNegativeStateEpoch)
	case old != nil && old.stateEpoch > q.StateEpoch:
		return refuse(ErrFencedStateEpoch, textFencedStateEpoch)
	}
	if err := c.exists(q.ShareKey); err != nil {
		return err
	}
	if old != nil && old.stateEpoch == q.StateEpoch && q.Start == NoOffset {
		return nil // asked twice: what has become of records since is not to be lost
	}
	p := &sharePartition{stateEpoch: q.StateEpoch, start: q.Start, created: c.wall(), written: c.wall()}
	if q.Start == NoOffset {
		p.done = NoDeliveryCount
	}
	if old != nil {
		p.snapshot = old.snapshot + 1
	}
	c.snapshot(q.ShareKey, p)
	return nil
}

func (c *shareCore) read(q *ShareRead) (*ShareReadResult, error) {
	p := c.parts[q.ShareKey]
	switch {
	case q.Partition < 0:
		return nil, refuse(ErrInvalidShareState, textNegativePartition)
	case q.LeaderEpoch < 0:
		return nil, refuse(ErrInvalidShareState, textNegativeLeaderEpoch)
	case p == nil:
		return nil, refuse(ErrInvalidShareState, textReadUninitialized)
	case p.fence > q.LeaderEpoch:
		return nil, refuse(ErrFencedLeaderEpoch, textFencedLeaderEpoch)
	}
	if err := c.exists(q.ShareKey); err != nil {
		return nil, err
	}
	r := &ShareReadResult{StateEpoch: p.stateEpoch, Start: p.start, Batches: slices.Clone(p.batches)}
	if p.fence != q.LeaderEpoch {
		c.put(q.ShareKey, p, &shareUpdate{leaderEpoch: q.LeaderEpoch, start: p.start, done: p.done})
	}
	return r, nil
}

func (c *shareCore) writeState(q *ShareWrite) error {
	p := c.parts[q.ShareKey]
	switch {
	case q.Partition < 0:
		return refuse(ErrInvalidShareState, textNegativePartition)
	case q.LeaderEpoch < 0:
		return refuse(ErrInvalidShareState, textNegativeLeaderEpoch)
	case q.StateEpoch < 0:
		return refuse(ErrInvalidShareState, textNegativeStateEpoch)
	case p == nil:
		return refuse(ErrInvalidShareState, textWriteUninitialized)
	case slices.ContainsFunc(q.Batches, func(b ShareBatch) bool { return !b.valid() }):
		return refuse(ErrInvalidShareState, textInvalidBatch)
	case p.fence > q.LeaderEpoch:
		return refuse(ErrFencedLeaderEpoch, textFencedLeaderEpoch)
	case p.stateEpoch > q.StateEpoch:
		return refuse(ErrFencedStateEpoch, textFencedStateEpoch)
	}
	if err := c.exists(q.ShareKey); err != nil {
		return err
	}
	// A write that comes late does not take the start back, nor the count that goes with it.
	u := &shareUpdate{leaderEpoch: p.leaderEpoch, start: max(q.Start, p.start), done: q.DeliveryCompleteCount}
	switch {
	case q.Start == p.start:
		u.done = max(u.done, p.done)
	case q.Start < p.start:
		u.done = p.done
	}
	u.batches = mergeShareBatches(nil, q.Batches, u.start)
	if len(mergeShareBatches(p.batches, u.batches, u.start))*shareBatchBytes > c.cfg.BatchBytesMax/2 {
		return ErrTooLarge
	}
	c.put(q.ShareKey, p, u)
	return nil
}

func (c *shareCore) summary(k ShareKey) (*ShareSummary, error) {
	if k.Partition < 0 {
		return nil, refuse(ErrInvalidShareState, textNegativePartition)
	}
	if err := c.exists(k); err != nil {
		return nil, err
	}
	p := c.parts[k]
	if p == nil {
		return &ShareSummary{Start: NoOffset, DeliveryCompleteCount: NoDeliveryCount}, nil
	}
	return &ShareSummary{StateEpoch: p.stateEpoch, LeaderEpoch: p.leaderEpoch, Start: p.start, DeliveryCompleteCount: p.done}, nil
}

func (c *shareCore) remove(k ShareKey) error {
	if k.Partition < 0 {
		return refuse(ErrInvalidShareState, textNegativePartition)
	}
	if err := c.exists(k); err != nil {
		return err
	}
	c.erase(k)
	return nil
}

func (c *shareCore) erase(k ShareKey) {
	if c.parts[k] == nil {
		return
	}
	delete(c.parts, k)
	c.out.records = append(c.out.records, shareTombstone(k))
}

// topicGone deletes what there is of a deleted topic: its id is never used again.
func (c *shareCore) topicGone(id topic.ID) {
	for _, k := range c.keys() {
		if k.Topic == id {
			c.erase(k)
		}
	}
}

// keys are the share-partitions, in order.
func (c *shareCore) keys() []ShareKey {
	return slices.SortedFunc(maps.Keys(c.parts), func(a, b ShareKey) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), slices.Compare(a.Topic[:], b.Topic[:]), cmp.Compare(a.Partition, b.Partition))
	})
}

// put adds to the state of a share-partition, by an update or, after enough of them, by a snapshot of the sum.
func (c *shareCore) put(k ShareKey, p *sharePartition, u *shareUpdate) {
	u.snapshot = p.snapshot
	if p.updates < int(c.cfg.ShareSnapshotUpdates) {
		c.out.records = append(c.out.records, shareUpdateRecord(k, u))
		c.update(k, u)
		return
	}
	next := *p
	next.add(u)
	next.snapshot, next.created, next.written = p.snapshot+1, c.wall(), c.wall()
	c.snapshot(k, &next)
}

// snapshot writes p as the state of a share-partition.
func (c *shareCore) snapshot(k ShareKey, p *sharePartition) {
	c.out.records = append(c.out.records, shareSnapshotRecord(k, p))
	c.replace(k, p)
}

// replace applies a snapshot.
func (c *shareCore) replace(k ShareKey, p *sharePartition) {
	p.fence, p.updates, p.at = p.leaderEpoch, 0, -1
	if old := c.parts[k]; old != nil {
		p.fence, p.at = max(p.fence, old.fence), old.at
	}
	c.parts[k] = p
}

// update applies an update. One without a snapshot before it is of a share-partition that was deleted, or whose snapshot could
// not be read: without the state epoch it means nothing.
func (c *shareCore) update(k ShareKey, u *shareUpdate) {
	old := c.parts[k]
	if old == nil {
		return
	}
	next := *old
	next.add(u)
	next.updates++
	next.fence = max(next.fence, u.leaderEpoch)
	c.parts[k] = &next
}

func (p *sharePartition) add(u *shareUpdate) {
	if u.start != NoOffset {
		p.start = u.start
	}
	if u.leaderEpoch >= 0 {
		p.leaderEpoch = u.leaderEpoch
	}
	p.done = u.done
	p.batches = mergeShareBatches(p.batches, u.batches, p.start)
}

// placed learns where a record of the log is.
func (c *shareCore) placed(key []byte, offset int64) {
	c.end = offset + 1
	if kind, k, err := readShareStateKey(key); err == nil && kind == keyShareSnapshot {
		if p := c.parts[k]; p != nil {
			p.at = offset
		}
	}
}

// redundant is the offset below which no record of the log is needed any more.
func (c *shareCore) redundant() int64 {
	least := c.end
	for _, p := range c.parts {
		least = min(least, max(p.at, 0))
	}
	return least
}

// refresh writes snapshots anew that lie in the older half of a log which has grown to twice what is in it: they keep what lies
// between them, long superseded, from being cut off. For every record written so, at least as many others were.
func (c *shareCore) refresh() {
	low := c.redundant()
	if c.end-low <= int64(2*len(c.parts)+int(c.cfg.ShareSnapshotUpdates)) {
		return
	}
	for _, k := range c.keys() {
		p := c.parts[k]
		if p.at >= low+(c.end-low)/2 {
			continue
		}
		next := *p
		next.snapshot, next.written = p.snapshot+1, c.wall()
		c.snapshot(k, &next)
	}
}
