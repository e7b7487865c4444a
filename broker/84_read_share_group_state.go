package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/coordinator"
)

// ReadShareGroupState (84): version 0, between brokers (KIP-932). The leader of a partition takes share-partitions over.
var apiReadShareState = api{key: 84, name: "ReadShareGroupState", min: 0, max: 0, handle: typed((*Server).readShareState)}

func (s *Server) readShareState(r *request, q *kmsg.ReadShareGroupStateRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrReadShareGroupStateResponse()
	if q.GroupID == "" {
		return resp, nil
	}
	var asked []*coordinator.ShareRead
	var answers []*kmsg.ReadShareGroupStateResponseTopicPartition
	resp.Topics = make([]kmsg.ReadShareGroupStateResponseTopic, len(q.Topics))
	for i := range q.Topics {
		t, out := &q.Topics[i], &resp.Topics[i]
		out.TopicID, out.Partitions = t.TopicID, make([]kmsg.ReadShareGroupStateResponseTopicPartition, len(t.Partitions))
		for j := range t.Partitions {
			p := &t.Partitions[j]
			out.Partitions[j].Partition = p.Partition
			asked = append(asked, &coordinator.ShareRead{
				ShareKey: coordinator.ShareKey{Group: q.GroupID, Topic: t.TopicID, Partition: p.Partition}, LeaderEpoch: p.LeaderEpoch,
			})
			answers = append(answers, &out.Partitions[j])
		}
	}
	abreast(len(asked), func(i int) {
		a, got := answers[i], s.deps.Shares.Read(r.ctx, asked[i])
		if a.ErrorCode, a.ErrorMessage = s.shareAnswer(r, got.Err); got.Err != nil {
			return
		}
		a.StateEpoch, a.StartOffset = got.StateEpoch, got.Start
		for _, b := range got.Batches {
			x := kmsg.NewReadShareGroupStateResponseTopicPartitionStateBatch()
			x.FirstOffset, x.LastOffset, x.DeliveryState, x.DeliveryCount = b.First, b.Last, int8(b.State), b.DeliveryCount
			a.StateBatches = append(a.StateBatches, x)
		}
	})
	return resp, nil
}
