package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
)

// CreatePartitions (37): versions 0–3; v2 is flexible, v3 adds an error code only.
var apiCreatePartitions = api{key: 37, name: "CreatePartitions", min: 0, max: 3, forwarded: true, handle: typed((*Server).createPartitions)}

func (s *Server) createPartitions(r *request, q *kmsg.CreatePartitionsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrCreatePartitionsResponse()
	ctx, cancel := s.metadataContext(r, q.TimeoutMillis)
	defer cancel()
	topics := make([]meta.MorePartitions, len(q.Topics))
	for i := range q.Topics {
		t := &q.Topics[i]
		topics[i] = meta.MorePartitions{Name: t.Topic, Count: t.Count}
		for _, a := range t.Assignment {
			topics[i].Assignment = append(topics[i].Assignment, a.Replicas)
		}
	}
	results, err := s.growWithin(ctx, r, topics, q.ValidateOnly)
	if err != nil {
		results = make([]meta.TopicResult, len(topics))
		for i := range topics {
			results[i] = meta.TopicResult{Name: topics[i].Name, Err: err}
		}
	}
	var grown []meta.CreatedTopic
	for i := range results {
		x := &results[i]
		out := kmsg.NewCreatePartitionsResponseTopic()
		out.Topic, out.ErrorCode, out.ErrorMessage = x.Name, s.codeOf(r, x.Err), message(x.Err)
		resp.Topics = append(resp.Topics, out)
		if t := s.deps.Metadata.Image().Topic(x.Name); t != nil && x.Err == nil && !q.ValidateOnly {
			grown = append(grown, meta.CreatedTopic{Name: x.Name, Partitions: int32(len(t.Partitions))})
		}
	}
	if !r.enveloped {
		s.awaitReady(ctx, grown)
	}
	return resp, nil
}
