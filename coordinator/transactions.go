package coordinator

import (
	"context"
	"log/slog"

	"github.com/varvelog/varve/meta/topic"
)

// TxnDeps are what the transaction coordinator works with.
type TxnDeps struct {
	Log      Log // the topic __transaction_state
	Metadata Metadata
	Markers  Markers
	// ProducerID gives out a producer id that nobody has had.
	ProducerID func(ctx context.Context) (int64, error)
	Logger     *slog.Logger
}

// Transactions coordinates the transactional ids whose partition of the transaction topic this broker leads.
type Transactions struct {
	cfg         Config
	deps        TxnDeps
	txns        service
	endings     endings
	unsubscribe func()
}

// OpenTransactions starts the coordinator. Partitions that this broker leads already are read back in the background, and what
// was decided in them is carried out.
func OpenTransactions(cfg Config, deps TxnDeps) (*Transactions, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Transactions{cfg: cfg, deps: deps}
	c.txns = service{
		cfg: &c.cfg, topic: topic.TransactionState, log: deps.Log, meta: deps.Metadata, logger: deps.Logger,
		made: topicSettings{
			partitions: cfg.TxnTopicPartitions, replicas: cfg.TxnTopicReplicas,
			segmentBytes: cfg.TxnTopicSegmentBytes, minISR: cfg.TxnTopicMinISR,
		},
		create:   func(now int64) machine { return newTxnCore(&c.cfg, now) },
		carryOut: c.endings.begin,
	}
	c.endings.init(&c.txns, deps.Markers)
	c.txns.start()
	c.unsubscribe = deps.Metadata.Subscribe(c.txns.image)
	return c, nil
}

// Close ends every shard. Requests that wait are told ErrClosed. It is idempotent.
func (c *Transactions) Close(ctx context.Context) error {
	c.unsubscribe()
	return c.txns.close(ctx)
}

// Locate finds the broker that coordinates a transactional id. The first call has the transaction topic created.
// ErrNotAvailable until there is a coordinator that serves.
func (c *Transactions) Locate(_ context.Context, id string) (broker int32, err error) {
	return c.txns.locate(id)
}

// InitProducer is InitProducerId with a transactional id.
func (c *Transactions) InitProducer(ctx context.Context, q *InitProducerRequest) (Producer, error) {
	return c.withID(ctx, q.TransactionalID, func(newID int64) any {
		with := *q
		with.newID = newID
		return &with
	})
}

// withID asks, and asks again with a producer id if one is needed, which is rare.
func (c *Transactions) withID(ctx context.Context, id string, body func(newID int64) any) (Producer, error) {
	p, err := ask[Producer](ctx, &c.txns, id, body(noProducer))
	if err == errNeedProducerID {
		var fresh int64
		if fresh, err = c.deps.ProducerID(ctx); err == nil {
			p, err = ask[Producer](ctx, &c.txns, id, body(fresh))
		}
	}
	if err != nil {
		return Producer{ID: noProducer, Epoch: noEpoch}, err
	}
	return p, nil
}

// AddPartitions is AddPartitionsToTxn for one transactional id. The caller has checked that the partitions exist. When the error
// is not nil, it is that of every partition.
func (c *Transactions) AddPartitions(ctx context.Context, q *AddPartitionsRequest) (*AddPartitionsResult, error) {
	return ask[*AddPartitionsResult](ctx, &c.txns, q.TransactionalID, q)
}

// End is EndTxn. It returns when the outcome is decided and committed; the markers follow. The producer goes on as the one
// returned.
func (c *Transactions) End(ctx context.Context, q *EndTxnRequest) (Producer, error) {
	return c.withID(ctx, q.TransactionalID, func(newID int64) any {
		with := *q
		with.newID = newID
		return &with
	})
}

// Describe is DescribeTransactions for one transactional id. Of one that does not exist, the error is ErrUnknownTxnID.
func (c *Transactions) Describe(ctx context.Context, id string) (*TxnDescription, error) {
	return ask[*TxnDescription](ctx, &c.txns, id, describeTxn{id})
}

// List is ListTransactions: the transactional ids that this broker coordinates. It is ErrLoading while some of them are being
// read back.
func (c *Transactions) List(ctx context.Context, q *ListTxnsRequest) ([]ListedTxn, error) {
	return gather[ListedTxn](ctx, &c.txns, q)
}
