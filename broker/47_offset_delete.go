package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/coordinator"
)

// OffsetDelete (47): version 0 (KIP-496).
var apiOffsetDelete = api{key: 47, name: "OffsetDelete", min: 0, max: 0, handle: typed((*Server).offsetDelete)}

func (s *Server) offsetDelete(r *request, q *kmsg.OffsetDeleteRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrOffsetDeleteResponse()
	img := s.deps.Metadata.Image()
	d := &coordinator.DeleteOffsetsRequest{Group: q.Group}
	type place struct{ topic, partition int }
	var asked []place
	for i := range q.Topics {
		t := kmsg.NewOffsetDeleteResponseTopic()
		t.Topic = q.Topics[i].Topic
		for _, p := range q.Topics[i].Partitions {
			a := kmsg.NewOffsetDeleteResponseTopicPartition()
			a.Partition = p.Partition
			if known, _ := img.Partition(t.Topic, p.Partition); known == nil {
				a.ErrorCode = codeUnknownTopicOrPartition
			} else {
				asked = append(asked, place{i, len(t.Partitions)})
				d.Partitions = append(d.Partitions, coordinator.OffsetPartition{Topic: t.Topic, ID: known.ID, Partition: p.Partition})
			}
			t.Partitions = append(t.Partitions, a)
		}
		resp.Topics = append(resp.Topics, t)
	}
	if len(asked) == 0 {
		return resp, nil
	}
	result, err := s.deps.Groups.DeleteOffsets(r.ctx, d)
	if err != nil {
		resp.ErrorCode, resp.Topics = s.codeOf(r, err), nil
		return resp, nil
	}
	for i, err := range result.Errs {
		resp.Topics[asked[i].topic].Partitions[asked[i].partition].ErrorCode = s.codeOf(r, err)
	}
	return resp, nil
}
