package broker

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/coordinator"
	"github.com/varvelog/varve/coordinator/share"
	"github.com/varvelog/varve/meta/topic"
)

// ShareAcknowledge (79): versions 1–2 (KIP-932). v2: renewals (KIP-1222).
//
// With the last epoch it also ends the member's session: what the member holds beyond that is given back.
var apiShareAcknowledge = api{key: 79, name: "ShareAcknowledge", min: 1, max: 2, handle: typed((*Server).shareAcknowledge)}

// errBadShareRequest is returned when a share fetch or acknowledgement contradicts itself.
var errBadShareRequest = errors.New("broker: not a valid request of a share consumer")

func (s *Server) shareAcknowledge(r *request, q *kmsg.ShareAcknowledgeRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrShareAcknowledgeResponse()
	group, member, err := s.shareAcknowledgeContext(q)
	if err != nil {
		resp.ErrorCode = s.shareCode(r, err)
		return resp, nil
	}
	type asked struct {
		key  coordinator.ShareKey
		done <-chan error
		err  error
	}
	var list []asked
	for i := range q.Topics {
		for j := range q.Topics[i].Partitions {
			p := &q.Topics[i].Partitions[j]
			acks := make([]share.Ack, len(p.AcknowledgementBatches))
			for k, b := range p.AcknowledgementBatches {
				acks[k] = share.Ack{First: b.FirstOffset, Last: b.LastOffset, Types: b.AcknowledgeTypes}
			}
			a := asked{key: shareKey(group, q.Topics[i].TopicID, p.Partition)}
			a.done, a.err = s.shareAcknowledged(a.key, member, acks, q.IsRenewAck)
			list = append(list, a)
		}
	}
	if q.ShareSessionEpoch == epochFinal {
		s.shares.end(shareSessionKey{group, member})
	}
	resp.AcquisitionLockTimeoutMillis = int32(s.shareSettings(group).limits.LockMillis)
	topics := map[topic.ID]int{}
	var nodes []endpoint
	for i := range list {
		a := &list[i]
		if a.done != nil {
			select {
			case a.err = <-a.done:
			case <-r.ctx.Done():
				return nil, errClosed
			}
		}
		at, ok := topics[a.key.Topic]
		if !ok {
			at = len(resp.Topics)
			topics[a.key.Topic] = at
			t := kmsg.NewShareAcknowledgeResponseTopic()
			t.TopicID = a.key.Topic
			resp.Topics = append(resp.Topics, t)
		}
		p := kmsg.NewShareAcknowledgeResponseTopicPartition()
		p.Partition, p.ErrorCode, p.ErrorMessage = a.key.Partition, s.shareCode(r, a.err), shareMessage(a.err)
		if p.ErrorCode == codeNotLeaderOrFollower {
			if l := s.leaderOf("", a.key.Topic, a.key.Partition); l != noLeader {
				p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = l.id, l.epoch
				nodes = s.addEndpoint(nodes, l.id, r.c.door.Name)
			}
		}
		resp.Topics[at].Partitions = append(resp.Topics[at].Partitions, p)
	}
	for _, n := range nodes {
		e := kmsg.NewShareAcknowledgeResponseNodeEndpoint()
		e.NodeID, e.Host, e.Port, e.Rack = n.id, n.host, n.port, optional(n.rack)
		resp.NodeEndpoints = append(resp.NodeEndpoints, e)
	}
	return resp, nil
}

// shareAcknowledgeContext checks the request against its session.
func (s *Server) shareAcknowledgeContext(q *kmsg.ShareAcknowledgeRequest) (group, member string, err error) {
	if q.GroupID == nil || q.MemberID == nil || *q.MemberID == "" {
		return "", "", errBadShareRequest
	}
	group, member = *q.GroupID, *q.MemberID
	if q.ShareSessionEpoch == epochInitial {
		return group, member, errShareSessionEpoch // a session begins with a fetch
	}
	return group, member, s.shares.advance(shareSessionKey{group, member}, q.ShareSessionEpoch)
}
