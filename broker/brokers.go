package broker

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/replica/peer"
)

// NewBrokers asks the brokers of the newest image over a pool, which stays the caller's. What may wait for a commit has a
// connection of its own.
func NewBrokers(pool *peer.Pool, image func() *meta.Image) Brokers {
	return brokersOver{pool, image}
}

type brokersOver struct {
	pool  *peer.Pool
	image func() *meta.Image
}

// Ask sends q to a broker and returns its answer.
func (x brokersOver) Ask(ctx context.Context, id int32, q kmsg.Request) (kmsg.Response, error) {
	b, ok := x.image().Brokers[id]
	if !ok {
		return nil, fmt.Errorf("%w: broker %d", errNoBroker, id)
	}
	lane := peer.LaneReplica
	switch q.Key() {
	case apiAddPartitionsToTxn.key:
		lane = peer.LaneVerify
	case apiWriteTxnMarkers.key:
		lane = peer.LaneMarkers
	case apiInitializeShareState.key, apiReadShareState.key, apiWriteShareState.key, apiDeleteShareState.key, apiReadShareSummary.key:
		lane = peer.LaneShare
	}
	resp, err := x.pool.Do(ctx, peer.Address(b.Host, b.Port), lane, q)
	if err != nil {
		return nil, fmt.Errorf("ask broker %d: %w", id, err)
	}
	return resp, nil
}
