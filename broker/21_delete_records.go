package broker

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta/topic"
)

// DeleteRecords (21): versions 0–2; v2 is flexible. Raises the log start of both tiers; -1 means the high watermark.
var apiDeleteRecords = api{key: 21, name: "DeleteRecords", min: 0, max: 2, handle: typed((*Server).deleteRecords)}

func (s *Server) deleteRecords(r *request, q *kmsg.DeleteRecordsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrDeleteRecordsResponse()
	ctx, cancel := context.WithTimeout(r.ctx, time.Duration(max(q.TimeoutMillis, 1))*time.Millisecond)
	defer cancel()
	for i := range q.Topics {
		t := &q.Topics[i]
		rt := kmsg.NewDeleteRecordsResponseTopic()
		rt.Topic = t.Topic
		for j := range t.Partitions {
			out := kmsg.NewDeleteRecordsResponseTopicPartition()
			out.Partition = t.Partitions[j].Partition
			low, err := s.deleteRecordsOne(ctx, t.Topic, &t.Partitions[j])
			if err != nil {
				low = -1
			}
			out.LowWatermark, out.ErrorCode = low, s.codeOf(r, err)
			rt.Partitions = append(rt.Partitions, out)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, nil
}

func (s *Server) deleteRecordsOne(ctx context.Context, name string, part *kmsg.DeleteRecordsRequestTopicPartition) (int64, error) {
	p, err := s.deps.Partitions.Partition(name, part.Partition)
	if err != nil {
		return -1, err
	}
	if topic.IsInternal(name) {
		return -1, errInternalTopic
	}
	return p.DeleteRecords(ctx, part.Offset)
}
