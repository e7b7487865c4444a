package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/coordinator"
)

// ReadShareGroupStateSummary (87): versions 0–1, between brokers (KIP-932). A group coordinator asks where share-partitions begin.
//
//	v1 how many records are done (KIP-1226)
var apiReadShareSummary = api{key: 87, name: "ReadShareGroupStateSummary", min: 0, max: 1, handle: typed((*Server).readShareSummary)}

func (s *Server) readShareSummary(r *request, q *kmsg.ReadShareGroupStateSummaryRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrReadShareGroupStateSummaryResponse()
	if q.GroupID == "" {
		return resp, nil
	}
	var asked []coordinator.ShareKey
	var answers []*kmsg.ReadShareGroupStateSummaryResponseTopicPartition
	resp.Topics = make([]kmsg.ReadShareGroupStateSummaryResponseTopic, len(q.Topics))
	for i := range q.Topics {
		t, out := &q.Topics[i], &resp.Topics[i]
		out.TopicID, out.Partitions = t.TopicID, make([]kmsg.ReadShareGroupStateSummaryResponseTopicPartition, len(t.Partitions))
		for j := range t.Partitions {
			out.Partitions[j] = kmsg.NewReadShareGroupStateSummaryResponseTopicPartition()
			out.Partitions[j].Partition = t.Partitions[j].Partition
			asked = append(asked, coordinator.ShareKey{Group: q.GroupID, Topic: t.TopicID, Partition: t.Partitions[j].Partition})
			answers = append(answers, &out.Partitions[j])
		}
	}
	abreast(len(asked), func(i int) {
		a, got := answers[i], s.deps.Shares.Summary(r.ctx, asked[i])
		if a.ErrorCode, a.ErrorMessage = s.shareAnswer(r, got.Err); got.Err == nil {
			a.StateEpoch, a.LeaderEpoch, a.StartOffset, a.DeliveryCompleteCount = got.StateEpoch, got.LeaderEpoch, got.Start, got.DeliveryCompleteCount
		}
	})
	return resp, nil
}
