package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/coordinator"
)

// WriteShareGroupState (85): versions 0–1, between brokers (KIP-932). The leader of a partition keeps what has become of records.
//
//	v1 how many records are done (KIP-1226)
//
// The answer is given when that is committed.
var apiWriteShareState = api{key: 85, name: "WriteShareGroupState", min: 0, max: 1, handle: typed((*Server).writeShareState)}

func (s *Server) writeShareState(r *request, q *kmsg.WriteShareGroupStateRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrWriteShareGroupStateResponse()
	if q.GroupID == "" {
		return resp, nil
	}
	var asked []*coordinator.ShareWrite
	var answers []*kmsg.WriteShareGroupStateResponseTopicPartition
	resp.Topics = make([]kmsg.WriteShareGroupStateResponseTopic, len(q.Topics))
	for i := range q.Topics {
		t, out := &q.Topics[i], &resp.Topics[i]
		out.TopicID, out.Partitions = t.TopicID, make([]kmsg.WriteShareGroupStateResponseTopicPartition, len(t.Partitions))
		for j := range t.Partitions {
			p := &t.Partitions[j]
			out.Partitions[j].Partition = p.Partition
			w := &coordinator.ShareWrite{
				ShareKey:   coordinator.ShareKey{Group: q.GroupID, Topic: t.TopicID, Partition: p.Partition},
				StateEpoch: p.StateEpoch, LeaderEpoch: p.LeaderEpoch, Start: p.StartOffset, DeliveryCompleteCount: coordinator.NoDeliveryCount,
			}
			if r.version >= 1 {
				w.DeliveryCompleteCount = p.DeliveryCompleteCount
			}
			for _, b := range p.StateBatches {
				w.Batches = append(w.Batches, coordinator.ShareBatch{
					First: b.FirstOffset, Last: b.LastOffset, State: coordinator.ShareDelivery(b.DeliveryState), DeliveryCount: b.DeliveryCount,
				})
			}
			asked, answers = append(asked, w), append(answers, &out.Partitions[j])
		}
	}
	abreast(len(asked), func(i int) {
		answers[i].ErrorCode, answers[i].ErrorMessage = s.shareAnswer(r, s.deps.Shares.Write(r.ctx, asked[i]))
	})
	return resp, nil
}
