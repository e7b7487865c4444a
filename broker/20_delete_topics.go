package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
)

// DeleteTopics (20): versions 1–6.
//
//	v4 flexible    v5 error messages    v6 topics by name or by id
var apiDeleteTopics = api{key: 20, name: "DeleteTopics", min: 1, max: 6, forwarded: true, handle: typed((*Server).deleteTopics)}

func (s *Server) deleteTopics(r *request, q *kmsg.DeleteTopicsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrDeleteTopicsResponse()
	ctx, cancel := s.metadataContext(r, q.TimeoutMillis)
	defer cancel()
	var refs []meta.TopicRef
	for _, name := range q.TopicNames {
		refs = append(refs, meta.TopicRef{Name: name})
	}
	for i := range q.Topics {
		ref := meta.TopicRef{ID: q.Topics[i].TopicID}
		if q.Topics[i].Topic != nil {
			ref.Name = *q.Topics[i].Topic
		}
		refs = append(refs, ref)
	}
	results, err := s.deleteWithin(ctx, r, refs)
	if err != nil {
		results = make([]meta.TopicResult, len(refs))
		for i, ref := range refs {
			results[i] = meta.TopicResult{Name: ref.Name, ID: ref.ID, Err: err}
		}
	}
	for i := range results {
		x := &results[i]
		out := kmsg.NewDeleteTopicsResponseTopic()
		out.Topic, out.TopicID = optional(x.Name), x.ID
		if r.version < 6 && out.Topic == nil {
			out.Topic = kmsg.StringPtr("")
		}
		out.ErrorCode, out.ErrorMessage = s.codeOf(r, x.Err), message(x.Err)
		resp.Topics = append(resp.Topics, out)
	}
	return resp, nil
}
