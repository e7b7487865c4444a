package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/coordinator"
)

// FindCoordinator (10): versions 0–6.
//
//	v1 coordinator type    v3 flexible    v4 several keys (KIP-699)    v6 share-partitions (KIP-932)
//
// The first question for a group or a transactional id has its topic created; until its partition serves, the answer is
// COORDINATOR_NOT_AVAILABLE, which clients retry.
var apiFindCoordinator = api{key: 10, name: "FindCoordinator", min: 0, max: 6, handle: typed((*Server).findCoordinator)}

const (
	coordinatorOfGroup int8 = 0
	coordinatorOfTxn   int8 = 1
	coordinatorOfShare int8 = 2
)

func (s *Server) findCoordinator(r *request, q *kmsg.FindCoordinatorRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrFindCoordinatorResponse()
	if r.version < 4 {
		one := s.coordinatorOf(r, q.CoordinatorType, q.CoordinatorKey)
		resp.ErrorCode, resp.ErrorMessage = one.ErrorCode, one.ErrorMessage
		resp.NodeID, resp.Host, resp.Port = one.NodeID, one.Host, one.Port
		if one.ErrorCode == codeNone {
			resp.ErrorMessage = kmsg.StringPtr("NONE")
		}
		return resp, nil
	}
	for _, key := range q.CoordinatorKeys {
		resp.Coordinators = append(resp.Coordinators, s.coordinatorOf(r, q.CoordinatorType, key))
	}
	return resp, nil
}

func (s *Server) coordinatorOf(r *request, kind int8, key string) kmsg.FindCoordinatorResponseCoordinator {
	c := kmsg.NewFindCoordinatorResponseCoordinator()
	c.Key, c.NodeID, c.Port, c.ErrorMessage = key, -1, -1, kmsg.StringPtr("")
	fail := func(code int16, message string) kmsg.FindCoordinatorResponseCoordinator {
		c.ErrorCode, c.ErrorMessage = code, &message
		return c
	}
	const (
		unavailable = "The coordinator is not available."
		malformed   = "This most likely occurs because of a request being malformed by the client library or the message was sent " +
			"to an incompatible broker. See the broker logs for more details."
	)
	var locate func(context.Context, string) (int32, error)
	switch {
	case kind == coordinatorOfTxn && s.deps.Transactions != nil:
		locate = s.deps.Transactions.Locate
	case kind == coordinatorOfGroup && s.deps.Groups != nil:
		locate = s.deps.Groups.Locate
	case kind == coordinatorOfShare && r.version >= 6:
		k, err := coordinator.ParseShareKey(key)
		if err != nil {
			return fail(codeInvalidRequest, "")
		}
		key = k.String()
		if s.deps.Shares == nil {
			return fail(codeCoordinatorNotAvailable, unavailable)
		}
		locate = s.deps.Shares.Locate
	case kind == coordinatorOfShare:
		return fail(codeInvalidRequest, "") // of an older version
	case kind == coordinatorOfTxn || kind == coordinatorOfGroup:
		return fail(codeCoordinatorNotAvailable, unavailable)
	default:
		return fail(codeInvalidRequest, malformed)
	}
	id, err := locate(r.ctx, key)
	if err == nil {
		b, ok := s.deps.Metadata.Image().Brokers[id]
		host, port, reached := b.At(r.c.door.Name)
		if ok && reached && !b.Fenced {
			c.NodeID, c.Host, c.Port = b.ID, host, port
			return c
		}
		err = coordinator.ErrNotAvailable
	}
	return fail(s.codeOf(r, err), unavailable)
}
