package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/coordinator"
	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/replica"
)

// WriteTxnMarkers (27): versions 1–2. A transaction coordinator, or an administrator who aborts a hanging transaction, ends
// transactions in partitions that this broker leads.
//
//	v1 flexible    v2 the version of the transaction protocol (KIP-890)
//
// The answer is given when every marker is committed.
var apiWriteTxnMarkers = api{key: 27, name: "WriteTxnMarkers", min: 1, max: 2, handle: typed((*Server).writeTxnMarkers)}

func (s *Server) writeTxnMarkers(r *request, q *kmsg.WriteTxnMarkersRequest) (kmsg.Response, error) {
	markers := make([]coordinator.TxnMarker, len(q.Markers))
	for i := range q.Markers {
		m := &q.Markers[i]
		markers[i] = coordinator.TxnMarker{
			Producer: coordinator.Producer{ID: m.ProducerID, Epoch: m.ProducerEpoch}, Commit: m.Committed,
			CoordinatorEpoch: m.CoordinatorEpoch, Version: m.TransactionVersion,
		}
		for _, t := range m.Topics {
			for _, p := range t.Partitions {
				markers[i].Partitions = append(markers[i].Partitions, coordinator.TxnPartition{Topic: t.Topic, Partition: p})
			}
		}
	}
	results := s.endTxns(r.ctx, markers)
	resp := kmsg.NewPtrWriteTxnMarkersResponse()
	for i := range q.Markers {
		out := kmsg.NewWriteTxnMarkersResponseMarker()
		out.ProducerID = q.Markers[i].ProducerID
		at := 0
		for _, t := range q.Markers[i].Topics {
			rt := kmsg.NewWriteTxnMarkersResponseMarkerTopic()
			rt.Topic = t.Topic
			for _, p := range t.Partitions {
				a := kmsg.NewWriteTxnMarkersResponseMarkerTopicPartition()
				a.Partition, a.ErrorCode = p, s.codeOf(r, results[i][at])
				at++
				rt.Partitions = append(rt.Partitions, a)
			}
			out.Topics = append(out.Topics, rt)
		}
		resp.Markers = append(resp.Markers, out)
	}
	return resp, nil
}

// endTxns writes markers to partitions led here, all at once, and returns when each is committed or has failed. A marker that
// names a partition again is refused there.
func (s *Server) endTxns(ctx context.Context, markers []coordinator.TxnMarker) [][]error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.RequestsTime)
	defer cancel()
	results := make([][]error, len(markers))
	var offsets []func()   // ends in the offsets topic: the group coordinator's to count
	var commits []endedTxn // appended, and not committed yet
	for i := range markers {
		m := &markers[i]
		results[i] = make([]error, len(m.Partitions))
		named := make(map[coordinator.TxnPartition]bool, len(m.Partitions))
		for j, at := range m.Partitions {
			out := &results[i][j]
			switch {
			case named[at]:
				*out = fmt.Errorf("%w: a marker names %s-%d twice", meta.ErrInvalidRequest, at.Topic, at.Partition)
			case at.Topic == topic.ConsumerOffsets && s.deps.Groups != nil:
				offsets = append(offsets, func() {
					*out = s.deps.Groups.EndTransaction(ctx, at.Partition, &coordinator.EndMarker{
						Producer: m.Producer, Commit: m.Commit, CoordinatorEpoch: m.CoordinatorEpoch})
				})
			default:
				var e endedTxn
				if e, *out = s.endTxnIn(m, at); *out == nil {
					e.out = out
					commits = append(commits, e)
				}
			}
			named[at] = true
		}
	}
	abreast(len(offsets), func(i int) { offsets[i]() })
	for _, e := range commits {
		select {
		case *e.out = <-e.committed:
		case <-ctx.Done():
			select {
			case *e.out = <-e.committed: // what is known is told, however late it was another's turn
			default:
				*e.out = ctx.Err()
			}
		}
		e.cancel()
	}
	return results
}

// endedTxn is a marker that is appended.
type endedTxn struct {
	committed chan error // has room for one
	cancel    func()
	out       *error
}

// endTxnIn appends one marker.
func (s *Server) endTxnIn(m *coordinator.TxnMarker, at coordinator.TxnPartition) (endedTxn, error) {
	p, err := s.deps.Partitions.Partition(at.Topic, at.Partition)
	if err != nil {
		return endedTxn{}, err
	}
	kind := batch.Abort
	if m.Commit {
		kind = batch.Commit
	}
	now := s.nowMillis()
	done, err := p.Append(batch.EndTxn(batch.Marker{Type: kind, CoordinatorEpoch: m.CoordinatorEpoch}, m.Producer.ID, m.Producer.Epoch, now),
		replica.AppendRequest{Acks: -1, Version: apiProduce.max, Origin: replica.FromCoordinator, Now: now, TxnV2: m.Version >= txnV2})
	if err != nil {
		return endedTxn{}, err
	}
	e := endedTxn{committed: make(chan error, 1)}
	e.cancel = p.OnCommitted(done.LeaderEpoch, done.LastOffset, func(err error) { e.committed <- err })
	return e, nil
}

// WriteTxnMarkers has a broker write the ends of transactions to partitions that it leads, as the transaction coordinator
// needs it.
func (s *Server) WriteTxnMarkers(ctx context.Context, broker int32, markers []coordinator.TxnMarker) ([][]error, error) {
	if broker == s.cfg.NodeID {
		results := s.endTxns(ctx, markers)
		for _, list := range results {
			for i, err := range list {
				list[i] = markerError(code(err), err)
			}
		}
		return results, nil
	}
	if s.deps.Brokers == nil {
		return nil, fmt.Errorf("%w: broker %d", errNoBroker, broker)
	}
	q := kmsg.NewPtrWriteTxnMarkersRequest()
	q.Version = apiWriteTxnMarkers.max
	for i := range markers {
		m := kmsg.NewWriteTxnMarkersRequestMarker()
		m.ProducerID, m.ProducerEpoch, m.Committed = markers[i].Producer.ID, markers[i].Producer.Epoch, markers[i].Commit
		m.CoordinatorEpoch, m.TransactionVersion = markers[i].CoordinatorEpoch, markers[i].Version
		for _, p := range markers[i].Partitions {
			t := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
			t.Topic, t.Partitions = p.Topic, []int32{p.Partition}
			m.Topics = append(m.Topics, t)
		}
		q.Markers = append(q.Markers, m)
	}
	resp, err := s.deps.Brokers.Ask(ctx, broker, q)
	if err != nil {
		return nil, err
	}
	return markerResults(resp, markers)
}

// errNoBroker is returned when another broker is to be asked and this one knows none.
var errNoBroker = errors.New("broker: there is no way to other brokers")

// markerResults reads an answer: one error or nil for each partition, in the order of the question.
func markerResults(resp kmsg.Response, markers []coordinator.TxnMarker) ([][]error, error) {
	a, ok := resp.(*kmsg.WriteTxnMarkersResponse)
	if !ok || len(a.Markers) != len(markers) {
		return nil, fmt.Errorf("%w: answer to WriteTxnMarkers", errBadRequest)
	}
	results := make([][]error, len(markers))
	for i := range a.Markers {
		for _, t := range a.Markers[i].Topics {
			for _, p := range t.Partitions {
				results[i] = append(results[i], markerError(p.ErrorCode, fmt.Errorf("%w: error %d for %s-%d", errMarkerRefused, p.ErrorCode, t.Topic, p.Partition)))
			}
		}
		if len(results[i]) != len(markers[i].Partitions) {
			return nil, fmt.Errorf("%w: answer to WriteTxnMarkers", errBadRequest)
		}
	}
	return results, nil
}

// errMarkerRefused is returned when another broker could not write a marker.
var errMarkerRefused = errors.New("broker: marker not written")

// markerError tells what ends the attempts from what does not.
func markerError(c int16, err error) error {
	switch c {
	case codeNone:
		return nil
	case codeInvalidProducerEpoch:
		return fmt.Errorf("%w: %w", coordinator.ErrProducerFenced, err)
	case codeCoordinatorFenced:
		return fmt.Errorf("%w: %w", coordinator.ErrCoordinatorFenced, err)
	}
	return err
}
