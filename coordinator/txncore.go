package coordinator

import (
	"maps"
	"slices"
)

// txnCore is the machine of the transactional ids of one partition of the transaction topic (KIP-98, KIP-890).
type txnCore struct {
	clockwork
	cfg  *Config
	txns map[string]*transaction
}

var _ machine = (*txnCore)(nil)

// What the machine takes besides requests.
type (
	// txnEnded says that the end of a transaction is in all its partitions.
	txnEnded struct {
		id       string
		producer Producer
	}
	describeTxn struct{ id string }
)

func newTxnCore(cfg *Config, now int64) *txnCore {
	c := &txnCore{cfg: cfg, txns: make(map[string]*transaction)}
	c.timers.set(timerKey{kind: timerRetention}, now+cfg.TxnExpirationCheckMillis)
	return c
}

func (c *txnCore) setTopics(*topicsView) {} // transactions only name theirs

func (c *txnCore) size() int { return len(c.txns) }

// tick aborts transactions that have taken too long and forgets ids that nobody uses.
func (c *txnCore) tick(now int64) {
	c.now = now
	for {
		key, ok := c.timers.due(now)
		if !ok {
			return
		}
		if key.kind == timerRetention {
			c.expire()
			c.timers.set(key, now+c.cfg.TxnExpirationCheckMillis)
			continue
		}
		if x := c.txns[key.group]; x != nil && x.state == TxnOngoing {
			c.fence(x)
		}
	}
}

// step takes one event.
func (c *txnCore) step(e event, now int64) {
	c.now = now
	switch q := e.body.(type) {
	case *InitProducerRequest:
		c.initProducer(e, q)
	case *AddPartitionsRequest:
		c.addPartitions(e, q)
	case *EndTxnRequest:
		c.endTxn(e, q)
	case txnEnded:
		c.ended(e, q)
	case describeTxn:
		c.describe(e, q)
	case *ListTxnsRequest:
		c.list(e, q)
	default:
		panic("coordinator: unknown event")
	}
}

// loaded has everything that was decided carried out again, and gives transactions under way what is left of their time.
func (c *txnCore) loaded(now int64) {
	c.now = now
	for _, id := range slices.Sorted(maps.Keys(c.txns)) {
		switch x := c.txns[id]; {
		case x.state.prepared():
			c.out.ends = append(c.out.ends, x.end())
		case x.state == TxnOngoing:
			c.setTimeout(x)
		}
	}
}

func (c *txnCore) reply(e event, result any, err error) {
	c.out.replies = append(c.out.replies, reply{e.ticket, result, err})
}

// write makes x's state the one that is written down.
func (c *txnCore) write(x *transaction) {
	x.updated = c.wall()
	c.out.records = append(c.out.records, txnRecord(x))
}

// setTimeout gives a transaction what is left of its time: never more than all of it, whatever the clock says of the broker on
// which it began.
func (c *txnCore) setTimeout(x *transaction) {
	left := min(x.start+x.timeout-c.wall(), x.timeout)
	c.timers.set(timerKey{kind: timerTxn, group: x.id}, c.now+max(0, left))
}

// find finds the transactional id that a producer speaks for.
func (c *txnCore) find(id string, p Producer) (*transaction, error) {
	x := c.txns[id]
	switch {
	case id == "":
		return nil, ErrInvalidTxnRequest
	case x == nil:
		return nil, ErrInvalidProducerIDMapping
	case x.producer.ID != p.ID:
		return x, ErrInvalidProducerIDMapping
	case x.producer.Epoch != p.Epoch:
		return x, ErrProducerFenced
	}
	return x, nil
}

// fence ends an open transaction over the head of its producer: the raised epoch of the markers keeps it from going on.
func (c *txnCore) fence(x *transaction) {
	bump := int16(1)
	if x.version >= txnV2 {
		bump = 2 // one more than its own end would have given it, so that it is not taken for that
	}
	x.producer.Epoch = min(x.producer.Epoch, epochLimit+1-bump) + bump
	x.lastEpoch = noEpoch
	c.prepare(x, TxnPrepareAbort)
}

// prepare decides the outcome. What is decided is carried out once it is written down.
func (c *txnCore) prepare(x *transaction, to TxnState) {
	c.timers.cancel(timerKey{kind: timerTxn, group: x.id})
	if x.state != TxnOngoing {
		x.start = c.wall()
	}
	x.state = to
	c.write(x)
	c.out.ends = append(c.out.ends, x.end())
}

// ended notes that the end is in every partition.
func (c *txnCore) ended(e event, q txnEnded) {
	x := c.txns[q.id]
	if x == nil || !x.state.prepared() || x.producer != q.producer {
		c.reply(e, nil, nil) // told before, by somebody who had not heard of it
		return
	}
	if x.state == TxnPrepareCommit {
		x.state = TxnCompleteCommit
	} else {
		x.state = TxnCompleteAbort
	}
	x.partitions = make(map[partition]struct{})
	if x.next != noProducer {
		x.previous, x.producer, x.next = x.producer.ID, Producer{ID: x.next}, noProducer
	}
	c.write(x)
	c.reply(e, nil, nil)
}

// expire forgets ids that nobody has used for transactional.id.expiration.ms.
func (c *txnCore) expire() {
	for _, id := range slices.Sorted(maps.Keys(c.txns)) {
		x := c.txns[id]
		if x.state == TxnOngoing || x.state.prepared() || c.wall()-x.updated < c.cfg.TxnExpirationMillis {
			continue
		}
		delete(c.txns, id)
		c.out.records = append(c.out.records, txnTombstone(id))
	}
}
