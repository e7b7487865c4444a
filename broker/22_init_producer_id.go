package broker

import (
	"context"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/coordinator"
)

// InitProducerId (22): versions 0–5.
//
//	v2 flexible    v3 current producer id and epoch (KIP-360)    v4, v5 new error codes only
var apiInitProducerID = api{key: 22, name: "InitProducerId", min: 0, max: 5, handle: typed((*Server).initProducerID)}

func (s *Server) initProducerID(r *request, q *kmsg.InitProducerIDRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrInitProducerIDResponse()
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	switch {
	case r.version >= 3 && (q.ProducerID == -1) != (q.ProducerEpoch == -1):
		resp.ErrorCode = codeInvalidRequest
	case q.TransactionalID != nil && *q.TransactionalID == "":
		resp.ErrorCode = codeInvalidRequest
	case q.TransactionalID != nil && s.deps.Transactions == nil:
		resp.ErrorCode = codeCoordinatorNotAvailable
	case q.TransactionalID != nil:
		p, err := s.deps.Transactions.InitProducer(r.ctx, &coordinator.InitProducerRequest{
			TransactionalID: *q.TransactionalID, TimeoutMillis: q.TransactionTimeoutMillis,
			Current: coordinator.Producer{ID: q.ProducerID, Epoch: q.ProducerEpoch},
		})
		resp.ProducerID, resp.ProducerEpoch = p.ID, p.Epoch
		resp.ErrorCode = s.txnCode(r, err, r.version >= 4)
	default:
		id, err := s.ProducerID(r.ctx)
		if err != nil {
			resp.ErrorCode = s.codeOf(r, err)
			return resp, nil
		}
		resp.ProducerID, resp.ProducerEpoch = id, 0
	}
	return resp, nil
}

// ProducerID gives out a producer id that nobody has had. It is coordinator.ErrLoading while there is no block of them to be
// had, as Kafka has it.
func (s *Server) ProducerID(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.RequestsTime)
	defer cancel()
	id, err := s.pids.next(ctx, s.deps.Metadata, s.cfg.NodeID)
	if err != nil {
		s.log.Warn("no producer id", "err", err)
		if c := code(err); c == codeNotController || c == codeRequestTimedOut {
			err = fmt.Errorf("%w: %w", coordinator.ErrLoading, err)
		}
	}
	return id, err
}

// producerIDs gives out ids from the block that the metadata quorum allotted to this broker. A block that is not used up
// when the broker stops is lost; there are 2^63 ids.
type producerIDs struct {
	mu       sync.Mutex // guards the following
	at, end  int64
	fetching chan struct{} // closed when the fetch under way has ended
}

// next gives out an id, fetching a block when there is none. Callers wait for one fetch together.
func (p *producerIDs) next(ctx context.Context, m Metadata, broker int32) (int64, error) {
	for {
		p.mu.Lock()
		if p.at < p.end {
			id := p.at
			p.at++
			p.mu.Unlock()
			return id, nil
		}
		if p.fetching == nil {
			p.fetching = make(chan struct{})
			p.mu.Unlock()
			if err := p.fetch(ctx, m, broker); err != nil {
				return 0, err
			}
			continue
		}
		wait := p.fetching
		p.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

func (p *producerIDs) fetch(ctx context.Context, m Metadata, broker int32) error {
	block, err := m.AllocateProducerIDs(ctx, broker, m.Image().Brokers[broker].Epoch)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		p.at, p.end = block.First, block.First+int64(block.Count)
	}
	close(p.fetching)
	p.fetching = nil
	return err
}
