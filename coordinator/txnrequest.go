package coordinator

import "regexp"

// txnV2 is the version of the transaction protocol in which every transaction has an epoch of its own (KIP-890).
const txnV2 int8 = 2

// InitProducerRequest begins the work of a transactional producer: whoever had its transactional id before is fenced.
type InitProducerRequest struct {
	TransactionalID string
	TimeoutMillis   int32
	// Current is what the producer goes on from (KIP-360); an id of -1: it starts.
	Current Producer
	newID   int64 // used if the transactional id needs another producer id; noProducer: none yet
}

// TxnPartition names a partition of a transaction.
type TxnPartition struct {
	Topic     string
	Partition int32
}

// AddPartitionsRequest puts partitions into the producer's transaction, which begins with the first of them.
type AddPartitionsRequest struct {
	TransactionalID string
	Producer        Producer
	Partitions      []TxnPartition
	// Version is that of the transaction protocol that the producer speaks: 2 for KIP-890's.
	Version int8
	// VerifyOnly puts nothing in, but asks whether they are.
	VerifyOnly bool
}

// AddPartitionsResult answers, partition by partition in the request's order.
type AddPartitionsResult struct {
	Errs []error
}

// EndTxnRequest commits or aborts the producer's transaction.
type EndTxnRequest struct {
	TransactionalID string
	Producer        Producer
	Commit          bool
	Version         int8
	newID           int64
}

// TxnDescription describes a transactional id.
type TxnDescription struct {
	TransactionalID string
	State           TxnState
	TimeoutMillis   int32
	StartMillis     int64 // time of day at which the newest transaction began, -1: none has
	Producer        Producer
	Partitions      []TxnPartition // sorted
}

// ListTxnsRequest lists transactional ids. Every condition that is set must hold.
type ListTxnsRequest struct {
	States      []TxnState
	ProducerIDs []int64
	// OlderMillis asks for transactions open that long; negative: for all.
	OlderMillis int64
	Pattern     *regexp.Regexp // the whole id has to match
}

// ListedTxn is one transactional id of a list.
type ListedTxn struct {
	TransactionalID string
	ProducerID      int64
	State           TxnState
}
