package coordinator

// endTxn decides a transaction's outcome. The answer says as whom the producer goes on.
func (c *txnCore) endTxn(e event, q *EndTxnRequest) {
	x := c.txns[q.TransactionalID]
	var err error
	switch {
	case q.TransactionalID == "":
		err = ErrInvalidTxnRequest
	case x == nil:
		err = ErrInvalidProducerIDMapping
	case q.Version >= txnV2:
		err = c.endV2(x, q)
	case x.producer.ID != q.Producer.ID:
		err = ErrInvalidProducerIDMapping
	case x.producer.Epoch != q.Producer.Epoch:
		err = ErrProducerFenced
	default:
		err = c.endV1(x, q)
	}
	if err != nil {
		c.reply(e, Producer{ID: noProducer, Epoch: noEpoch}, err)
		return
	}
	c.reply(e, x.handed(), nil)
}

// outcome is the state in which a decision is carried out, and done the one after that.
func outcome(commit bool) (deciding, done TxnState) {
	if commit {
		return TxnPrepareCommit, TxnCompleteCommit
	}
	return TxnPrepareAbort, TxnCompleteAbort
}

// endV1 is the end in the old protocol: the producer keeps its epoch, so that an end that is asked for twice cannot be told
// from the end of the next transaction but by its outcome.
func (c *txnCore) endV1(x *transaction, q *EndTxnRequest) error {
	deciding, done := outcome(q.Commit)
	switch x.state {
	case TxnOngoing:
		x.version = q.Version
		c.prepare(x, deciding)
		return nil
	case done:
		return nil
	}
	if x.state.prepared() { // whichever outcome is asked for
		return ErrConcurrentTransactions
	}
	return ErrInvalidTxnState
}

// endV2 is the end with KIP-890: it raises the producer's epoch, so that nothing sent before counts in the next transaction,
// and an end that is asked for twice is known by its old epoch.
func (c *txnCore) endV2(x *transaction, q *EndTxnRequest) error {
	again := x.producer.ID == q.Producer.ID && x.producer.Epoch == q.Producer.Epoch+1 ||
		x.previous == q.Producer.ID && x.producer.Epoch == 0 && q.Producer.Epoch == epochLimit
	switch {
	case !again && x.producer.ID != q.Producer.ID:
		return ErrInvalidProducerIDMapping
	case !again && x.producer.Epoch != q.Producer.Epoch:
		return ErrProducerFenced
	}
	deciding, done := outcome(q.Commit)
	switch {
	case again && x.state == done:
		return nil
	case x.state.prepared():
		// Whichever outcome is asked for, again or for what the producer took for its next transaction: no answer is final
		// before the end that is under way.
		return ErrConcurrentTransactions
	case again && (x.state == TxnOngoing || x.state == TxnEmpty):
		return ErrProducerFenced // the newer epoch is at work already
	case again:
		return ErrInvalidTxnState
	case x.state != TxnOngoing && q.Commit:
		return ErrInvalidTxnState // there is nothing to commit
	case x.exhausted() && q.newID == noProducer:
		return errNeedProducerID
	}
	// An abort without a transaction raises the epoch, too: the producer may have written what the coordinator has not heard
	// of, and must not be able to go on with that.
	if x.state != TxnOngoing {
		x.partitions = make(map[partition]struct{})
	}
	x.lastEpoch, x.version = x.producer.Epoch, q.Version
	if x.exhausted() {
		x.next = q.newID
	}
	x.producer.Epoch++
	c.prepare(x, deciding)
	return nil
}
