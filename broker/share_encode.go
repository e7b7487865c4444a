package broker

import (
	"errors"

	"github.com/varvelog/varve/coordinator"
	"github.com/varvelog/varve/coordinator/share"
)

// encodeShareFetch writes the answer of a share fetch into p. Byte for byte what kmsg.ShareFetchResponse.AppendTo writes, except
// that records are spans. Every version is flexible.
//
//	throttle i32 · error i16, message · lock duration i32 · topics · node endpoints · tags
//	topic: id · partitions · tags
//	partition: index i32, error i16, message, acknowledge error i16, message, leader i32, leader epoch i32, tags,
//	           records (nullable), acquired records, tags
//	acquired records: first i64, last i64, delivery count i16, tags
func (s *Server) encodeShareFetch(p *reply, r *request, op *shareFetchOp) {
	s.shareCodes(r, op)
	p.begin(r.corr, true)
	b := appendInt32(p.head, s.throttleShareFetch(r, op))
	b = appendInt16(b, s.shareCode(r, op.err))
	b = appendNullableString(b, "", true, true)
	b = appendInt32(b, s.shareLockMillis(op))
	topics, order := shareTopics(op)
	b = appendLen(b, len(order), true)
	var nodes []endpoint
	for _, id := range order {
		b = append(b, id[:]...)
		b = appendLen(b, len(topics[id]), true)
		for _, t := range topics[id] {
			b = appendSharePart(b, p, t)
			if t.leader != noLeader {
				nodes = s.addEndpoint(nodes, t.leader.id, r.c.door.Name)
			}
		}
		b = append(b, 0)
	}
	b = appendLen(b, len(nodes), true)
	for _, n := range nodes {
		b = appendInt32(b, n.id)
		b = appendString(b, n.host, true)
		b = appendInt32(b, n.port)
		b = appendNullableString(b, n.rack, n.rack == "", true)
		b = append(b, 0)
	}
	p.head = append(b, 0)
	p.end()
}

func appendSharePart(b []byte, p *reply, t *shareTarget) []byte {
	b = appendInt32(b, t.key.Partition)
	b = appendInt16(b, t.code)
	b = appendMessage(b, t.err)
	b = appendInt16(b, t.ackCode)
	b = appendMessage(b, t.ackErr)
	leader := leaderHint{0, 0} // the schema's defaults
	if t.leader != noLeader {
		leader = t.leader
	}
	b = appendInt32(b, leader.id)
	b = appendInt32(b, leader.epoch)
	b = append(b, 0)
	if t.records == nil {
		b = appendLen(b, 0, true)
	} else {
		b = appendLen(b, t.records.Len(), true)
		p.spans = append(p.spans, span{at: len(b), records: t.records})
		t.records = nil // the reply's now
	}
	b = appendLen(b, len(t.held), true)
	for _, h := range t.held {
		b = appendInt64(b, h.First)
		b = appendInt64(b, h.Last)
		b = appendInt16(b, h.Deliveries)
		b = append(b, 0)
	}
	return append(b, 0)
}

// appendMessage writes what an error says, or null when there is none.
func appendMessage(b []byte, err error) []byte {
	if m := shareMessage(err); m != nil {
		return appendString(b, *m, true)
	}
	return appendNullableString(b, "", true, true)
}

// shareMessage is what a member is told beside a code: what was wrong with its acknowledgement.
func shareMessage(err error) *string {
	if errors.Is(err, share.ErrInvalidRecordState) || errors.Is(err, share.ErrInvalidAcknowledgement) {
		return message(err)
	}
	return nil
}

// shareTopics groups the partitions that the answer names by topic, in the order of the targets.
func shareTopics(op *shareFetchOp) (topics map[[16]byte][]*shareTarget, order [][16]byte) {
	topics = map[[16]byte][]*shareTarget{}
	if op.err != nil {
		return topics, nil
	}
	for i := range op.targets {
		t := &op.targets[i]
		if !t.included {
			continue
		}
		if topics[t.key.Topic] == nil {
			order = append(order, t.key.Topic)
		}
		topics[t.key.Topic] = append(topics[t.key.Topic], t)
	}
	return topics, order
}

// shareCodes makes codes of the targets' errors, and decides which of them the answer names: those for which there is news, and
// each once when it could be asked.
func (s *Server) shareCodes(r *request, op *shareFetchOp) {
	var first []coordinator.ShareKey
	for i := range op.targets {
		t := &op.targets[i]
		t.code, t.ackCode = s.shareCode(r, t.err), s.shareCode(r, t.ackErr)
		t.included = t.ready && !t.told || len(t.acks) > 0 || t.code != codeNone || t.ackCode != codeNone || len(t.held) > 0
		if t.included && t.fetch && !t.told {
			first = append(first, t.key)
		}
		if t.code == codeNotLeaderOrFollower || t.code == codeFencedLeaderEpoch || t.ackCode == codeNotLeaderOrFollower || t.ackCode == codeFencedLeaderEpoch {
			t.leader = s.leaderOf("", t.key.Topic, t.key.Partition)
		}
		if t.code == codeStorageError {
			s.logFailure("share fetch failed", "", t.key.Topic, t.key.Partition, t.code, t.err)
		}
	}
	s.shares.tell(shareSessionKey{op.group, op.member}, first)
}

// shareCode is the code that a share consumer is told. As in Kafka, a leader whose state is in other hands is to it one that
// does not lead, and a share coordinator that is not there is not available, whatever the reason.
func (s *Server) shareCode(r *request, err error) int16 {
	if errors.Is(err, coordinator.ErrInvalidShareState) {
		return codeUnknownServerError // the group has not begun with the partition; it is not the member's fault
	}
	switch c := s.codeOf(r, err); c {
	case codeFencedLeaderEpoch, codeFencedStateEpoch:
		return codeNotLeaderOrFollower
	case codeNotCoordinator, codeCoordinatorLoading:
		return codeCoordinatorNotAvailable
	default:
		return c
	}
}

// shareLockMillis is how long the member may hold what it got.
func (s *Server) shareLockMillis(op *shareFetchOp) int32 {
	if op.err != nil || op.group == "" {
		return 0
	}
	return int32(s.shareSettings(op.group).limits.LockMillis)
}
