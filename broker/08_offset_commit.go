package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/coordinator"
	"github.com/varvelog/varve/meta"
)

// OffsetCommit (8): versions 2–10.
//
//	v2–4 retention time    v6 leader epoch (KIP-320)    v7 group instance id (KIP-345)    v8 flexible
//	v9 GROUP_ID_NOT_FOUND, STALE_MEMBER_EPOCH (KIP-848)    v10 topics by id
//
// Each partition is checked against the metadata here; the coordinator knows groups only.
var apiOffsetCommit = api{key: 8, name: "OffsetCommit", min: 2, max: 10, handle: typed((*Server).offsetCommit)}

func (s *Server) offsetCommit(r *request, q *kmsg.OffsetCommitRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrOffsetCommitResponse()
	img := s.deps.Metadata.Image()
	c := &coordinator.CommitRequest{
		Group: q.Group, MemberID: q.MemberID, InstanceID: q.InstanceID, Generation: q.Generation,
		RetentionMillis: -1, NamesGroup: r.version >= 9,
	}
	if r.version <= 4 {
		c.RetentionMillis = q.RetentionTimeMillis
	}
	type place struct{ topic, partition int }
	var asked []place
	for i := range q.Topics {
		t := &q.Topics[i]
		answer := kmsg.NewOffsetCommitResponseTopic()
		answer.Topic, answer.TopicID = t.Topic, t.TopicID
		known := img.Topic(t.Topic)
		unknown := codeUnknownTopicOrPartition
		if r.version >= 10 {
			known, unknown = img.TopicByID(t.TopicID), codeUnknownTopicID
		}
		for j := range t.Partitions {
			p := &t.Partitions[j]
			a := kmsg.NewOffsetCommitResponseTopicPartition()
			a.Partition = p.Partition
			switch {
			case known == nil:
				a.ErrorCode = unknown
			case p.Partition < 0 || int(p.Partition) >= len(known.Partitions):
				a.ErrorCode = codeUnknownTopicOrPartition
			default:
				asked = append(asked, place{i, j})
				c.Partitions = append(c.Partitions, commitPartition(known, p))
			}
			answer.Partitions = append(answer.Partitions, a)
		}
		resp.Topics = append(resp.Topics, answer)
	}
	if len(asked) == 0 {
		return resp, nil
	}
	result, err := s.deps.Groups.Commit(r.ctx, c)
	for i, at := range asked {
		e := err
		if e == nil {
			e = result.Errs[i]
		}
		resp.Topics[at.topic].Partitions[at.partition].ErrorCode = s.codeOf(r, e)
	}
	return resp, nil
}

func commitPartition(t *meta.Topic, p *kmsg.OffsetCommitRequestTopicPartition) coordinator.CommitPartition {
	c := coordinator.CommitPartition{
		Topic: t.Name, ID: t.ID, Partition: p.Partition, Offset: p.Offset, LeaderEpoch: p.LeaderEpoch,
	}
	if p.Metadata != nil {
		c.Metadata = *p.Metadata
	}
	return c
}
