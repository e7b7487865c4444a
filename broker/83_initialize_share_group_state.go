package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/coordinator"
)

// InitializeShareGroupState (83): version 0, between brokers (KIP-932). A group coordinator has share-partitions begun, or begun
// anew, by their share coordinator.
var apiInitializeShareState = api{key: 83, name: "InitializeShareGroupState", min: 0, max: 0, handle: typed((*Server).initializeShareState)}

func (s *Server) initializeShareState(r *request, q *kmsg.InitializeShareGroupStateRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrInitializeShareGroupStateResponse()
	if q.GroupID == "" {
		return resp, nil
	}
	var asked []*coordinator.ShareInitialize
	var answers []*kmsg.InitializeShareGroupStateResponseTopicPartition
	resp.Topics = make([]kmsg.InitializeShareGroupStateResponseTopic, len(q.Topics))
	for i := range q.Topics {
		t, out := &q.Topics[i], &resp.Topics[i]
		out.TopicID, out.Partitions = t.TopicID, make([]kmsg.InitializeShareGroupStateResponseTopicPartition, len(t.Partitions))
		for j := range t.Partitions {
			p := &t.Partitions[j]
			out.Partitions[j].Partition = p.Partition
			asked = append(asked, &coordinator.ShareInitialize{
				ShareKey:   coordinator.ShareKey{Group: q.GroupID, Topic: t.TopicID, Partition: p.Partition},
				StateEpoch: p.StateEpoch, Start: p.StartOffset,
			})
			answers = append(answers, &out.Partitions[j])
		}
	}
	abreast(len(asked), func(i int) {
		answers[i].ErrorCode, answers[i].ErrorMessage = s.shareAnswer(r, s.deps.Shares.Initialize(r.ctx, asked[i]))
	})
	return resp, nil
}
