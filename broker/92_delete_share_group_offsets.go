package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/coordinator"
)

// DeleteShareGroupOffsets (92): version 0 (KIP-932). What a share group without members keeps of topics is forgotten.
var apiDeleteShareOffsets = api{key: 92, name: "DeleteShareGroupOffsets", min: 0, max: 0, handle: typed((*Server).deleteShareOffsets)}

func (s *Server) deleteShareOffsets(r *request, q *kmsg.DeleteShareGroupOffsetsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrDeleteShareGroupOffsetsResponse()
	x := &coordinator.DeleteShareOffsetsRequest{Group: q.GroupID}
	for _, t := range q.Topics {
		x.Topics = append(x.Topics, t.Topic)
	}
	results, err := s.deps.Groups.DeleteShares(r.ctx, x)
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = s.codeOf(r, err), refusal(err)
		return resp, nil
	}
	for _, t := range results {
		out := kmsg.NewDeleteShareGroupOffsetsResponseTopic()
		out.Topic, out.TopicID = t.Topic, t.ID
		out.ErrorCode, out.ErrorMessage = s.shareAnswer(r, t.Err)
		resp.Topics = append(resp.Topics, out)
	}
	return resp, nil
}
