package coordinator

// initProducer gives a producer its id and a new epoch.
func (c *txnCore) initProducer(e event, q *InitProducerRequest) {
	none := Producer{ID: noProducer, Epoch: noEpoch}
	switch {
	case q.TransactionalID == "":
		c.reply(e, none, ErrInvalidTxnRequest)
		return
	case q.TimeoutMillis <= 0 || q.TimeoutMillis > c.cfg.TxnTimeoutMillisMax:
		c.reply(e, none, ErrInvalidTxnTimeout)
		return
	}
	x := c.txns[q.TransactionalID]
	if x == nil && q.newID == noProducer {
		c.reply(e, none, errNeedProducerID)
		return
	}
	if x == nil {
		x = &transaction{
			id: q.TransactionalID, producer: Producer{ID: q.newID, Epoch: noEpoch}, lastEpoch: noEpoch,
			previous: noProducer, next: noProducer, start: -1, partitions: make(map[partition]struct{}),
		}
		c.txns[x.id] = x
	} else if !x.mayInit(q.Current) {
		c.reply(e, none, ErrProducerFenced)
		return
	}
	switch {
	case x.state.prepared():
		c.reply(e, none, ErrConcurrentTransactions)
		return
	case x.state == TxnOngoing:
		c.fence(x)
		c.reply(e, none, ErrConcurrentTransactions) // it comes back for its own epoch when the end is through
		return
	}
	given, err := x.nextEpoch(q)
	if err != nil {
		c.reply(e, none, err)
		return
	}
	x.timeout, x.state, x.start = int64(q.TimeoutMillis), TxnEmpty, -1
	x.partitions = make(map[partition]struct{})
	c.write(x)
	c.reply(e, given, nil)
}

// mayInit says whether a producer that names what it goes on from may: that must be what was given out last, or, of a producer
// that has not heard of its new id, the last there was of the one before.
func (x *transaction) mayInit(current Producer) bool {
	switch {
	case current.ID == noProducer || x.producer.Epoch == noEpoch:
		return true
	case current.ID == x.producer.ID:
		// Whoever is behind must not end the transaction of the one that has taken over.
		return current.Epoch == x.producer.Epoch || current.Epoch == x.lastEpoch
	}
	return current.ID == x.previous && current.Epoch >= epochLimit
}

// nextEpoch gives out the next epoch, of another producer id when this one's are used up. A producer that asks again because it
// has not heard the answer gets the same.
func (x *transaction) nextEpoch(q *InitProducerRequest) (Producer, error) {
	going := q.Current.ID != noProducer
	switch {
	case x.producer.Epoch == noEpoch:
		x.producer.Epoch = 0
		return x.producer, nil
	case going && q.Current.ID == x.previous && x.producer.ID != q.Current.ID:
		return x.producer, nil
	case going && q.Current.Epoch != x.producer.Epoch && q.Current.Epoch == x.lastEpoch:
		return x.producer, nil
	case going && q.Current.Epoch != x.producer.Epoch:
		return x.producer, ErrProducerFenced
	case x.exhausted() && q.newID == noProducer:
		return x.producer, errNeedProducerID
	}
	x.lastEpoch = noEpoch
	if going {
		x.lastEpoch = q.Current.Epoch
	}
	if x.exhausted() {
		x.previous, x.producer = x.producer.ID, Producer{ID: q.newID}
	} else {
		x.producer.Epoch++
	}
	return x.producer, nil
}

// addPartitions puts partitions into the transaction, or only looks whether they are in it.
func (c *txnCore) addPartitions(e event, q *AddPartitionsRequest) {
	r := &AddPartitionsResult{Errs: make([]error, len(q.Partitions))}
	x, err := c.find(q.TransactionalID, q.Producer)
	if err == nil && x.state.prepared() {
		err = ErrConcurrentTransactions
	}
	if err != nil {
		for i := range r.Errs {
			r.Errs[i] = err
		}
		c.reply(e, r, nil)
		return
	}
	if q.VerifyOnly {
		for i, p := range q.Partitions {
			if _, in := x.partitions[partition{p.Topic, p.Partition}]; !in || x.state != TxnOngoing {
				r.Errs[i] = ErrTxnAbortable
			}
		}
		c.reply(e, r, nil)
		return
	}
	changed := x.state != TxnOngoing
	if changed {
		x.state, x.start = TxnOngoing, c.wall()
		x.partitions = make(map[partition]struct{}, len(q.Partitions))
		c.setTimeout(x)
	}
	x.version = q.Version
	for _, p := range q.Partitions {
		at := partition{p.Topic, p.Partition}
		if _, in := x.partitions[at]; !in {
			x.partitions[at] = struct{}{}
			changed = true
		}
	}
	if changed {
		c.write(x)
	}
	c.reply(e, r, nil)
}
