package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/coordinator"
)

// AlterShareGroupOffsets (91): version 0 (KIP-932). It sets where a share group without members begins.
var apiAlterShareOffsets = api{key: 91, name: "AlterShareGroupOffsets", min: 0, max: 0, handle: typed((*Server).alterShareOffsets)}

func (s *Server) alterShareOffsets(r *request, q *kmsg.AlterShareGroupOffsetsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrAlterShareGroupOffsetsResponse()
	x := &coordinator.AlterShareRequest{Group: q.GroupID}
	for _, t := range q.Topics {
		to := coordinator.AlterShareTopic{Name: t.Topic}
		for _, p := range t.Partitions {
			to.Partitions = append(to.Partitions, coordinator.AlterSharePartition{Partition: p.Partition, Start: p.StartOffset})
		}
		x.Topics = append(x.Topics, to)
	}
	a, err := s.deps.Groups.AlterShares(r.ctx, x)
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = s.codeOf(r, err), refusal(err)
		return resp, nil
	}
	for i, t := range a.Topics {
		out := kmsg.NewAlterShareGroupOffsetsResponseTopic()
		out.Topic, out.TopicID = t.Name, t.ID
		for j, err := range t.Errs {
			p := kmsg.NewAlterShareGroupOffsetsResponseTopicPartition()
			p.Partition = q.Topics[i].Partitions[j].Partition
			p.ErrorCode, p.ErrorMessage = s.shareAnswer(r, err)
			out.Partitions = append(out.Partitions, p)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp, nil
}
