package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/coordinator"
)

// DeleteShareGroupState (86): version 0, between brokers (KIP-932). A group coordinator has share-partitions forgotten.
var apiDeleteShareState = api{key: 86, name: "DeleteShareGroupState", min: 0, max: 0, handle: typed((*Server).deleteShareState)}

func (s *Server) deleteShareState(r *request, q *kmsg.DeleteShareGroupStateRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrDeleteShareGroupStateResponse()
	if q.GroupID == "" {
		return resp, nil
	}
	var asked []coordinator.ShareKey
	var answers []*kmsg.DeleteShareGroupStateResponseTopicPartition
	resp.Topics = make([]kmsg.DeleteShareGroupStateResponseTopic, len(q.Topics))
	for i := range q.Topics {
		t, out := &q.Topics[i], &resp.Topics[i]
		out.TopicID, out.Partitions = t.TopicID, make([]kmsg.DeleteShareGroupStateResponseTopicPartition, len(t.Partitions))
		for j := range t.Partitions {
			out.Partitions[j].Partition = t.Partitions[j].Partition
			asked = append(asked, coordinator.ShareKey{Group: q.GroupID, Topic: t.TopicID, Partition: t.Partitions[j].Partition})
			answers = append(answers, &out.Partitions[j])
		}
	}
	abreast(len(asked), func(i int) {
		answers[i].ErrorCode, answers[i].ErrorMessage = s.shareAnswer(r, s.deps.Shares.Delete(r.ctx, asked[i]))
	})
	return resp, nil
}
