package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
)

// ListPartitionReassignments (46): version 0. Null topics mean all; partitions that are not being reassigned, or are not
// there, are left out.
var apiListReassignments = api{key: 46, name: "ListPartitionReassignments", min: 0, max: 0, forwarded: true, handle: typed((*Server).listReassignments)}

func (s *Server) listReassignments(r *request, q *kmsg.ListPartitionReassignmentsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrListPartitionReassignmentsResponse()
	if r.refusal != nil {
		resp.ErrorCode, resp.ErrorMessage = s.codeOf(r, r.refusal), message(r.refusal)
		return resp, nil
	}
	var refs []meta.PartitionRef
	if q.Topics != nil {
		refs = []meta.PartitionRef{}
		for i := range q.Topics {
			for _, index := range q.Topics[i].Partitions {
				refs = append(refs, meta.PartitionRef{Topic: q.Topics[i].Topic, Index: index})
			}
		}
	}
	for _, x := range s.deps.Metadata.Image().Reassignments(refs) {
		if n := len(resp.Topics); n == 0 || resp.Topics[n-1].Topic != x.Topic {
			t := kmsg.NewListPartitionReassignmentsResponseTopic()
			t.Topic = x.Topic
			resp.Topics = append(resp.Topics, t)
		}
		p := kmsg.NewListPartitionReassignmentsResponseTopicPartition()
		p.Partition, p.Replicas, p.AddingReplicas, p.RemovingReplicas = x.Index, x.Replicas, x.Adding, x.Removing
		t := &resp.Topics[len(resp.Topics)-1]
		t.Partitions = append(t.Partitions, p)
	}
	return resp, nil
}
