package coordinator

import (
	"maps"
	"slices"
)

// describe is DescribeTransactions for one transactional id.
func (c *txnCore) describe(e event, q describeTxn) {
	x := c.txns[q.id]
	if x == nil {
		c.reply(e, &TxnDescription{TransactionalID: q.id, State: TxnDead}, ErrUnknownTxnID)
		return
	}
	d := &TxnDescription{
		TransactionalID: x.id, State: x.state, TimeoutMillis: int32(x.timeout), StartMillis: x.start, Producer: x.producer,
	}
	for _, p := range x.sorted() {
		d.Partitions = append(d.Partitions, TxnPartition{p.topic, p.index})
	}
	c.reply(e, d, nil)
}

// list is this partition's part of ListTransactions.
func (c *txnCore) list(e event, q *ListTxnsRequest) {
	var out []ListedTxn
	for _, id := range slices.Sorted(maps.Keys(c.txns)) {
		x := c.txns[id]
		switch {
		case len(q.States) > 0 && !slices.Contains(q.States, x.state),
			len(q.ProducerIDs) > 0 && !slices.Contains(q.ProducerIDs, x.producer.ID),
			q.OlderMillis >= 0 && c.wall()-x.start <= q.OlderMillis,
			q.Pattern != nil && !q.Pattern.MatchString(id):
			continue
		}
		out = append(out, ListedTxn{TransactionalID: id, ProducerID: x.producer.ID, State: x.state})
	}
	c.reply(e, out, nil)
}
