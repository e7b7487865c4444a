package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
)

// AlterPartitionReassignments (45): versions 0–1; v1 may forbid a change of the replication factor (KIP-860). Null replicas
// cancel what is in progress.
var apiAlterReassignments = api{key: 45, name: "AlterPartitionReassignments", min: 0, max: 1, forwarded: true, handle: typed((*Server).alterReassignments)}

func (s *Server) alterReassignments(r *request, q *kmsg.AlterPartitionAssignmentsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrAlterPartitionAssignmentsResponse()
	resp.AllowReplicationFactorChange = q.AllowReplicationFactorChange
	ctx, cancel := s.metadataContext(r, q.TimeoutMillis)
	defer cancel()
	var wishes []meta.Reassign
	for i := range q.Topics {
		for j := range q.Topics[i].Partitions {
			p := &q.Topics[i].Partitions[j]
			wishes = append(wishes, meta.Reassign{PartitionRef: meta.PartitionRef{Topic: q.Topics[i].Topic, Index: p.Partition}, Replicas: p.Replicas})
		}
	}
	results, err := s.decider(r).AlterReassignments(ctx, wishes, r.version < 1 || q.AllowReplicationFactorChange)
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = s.codeOf(r, err), message(err)
		results = make([]meta.ReassignResult, len(wishes))
		for i := range wishes {
			results[i].Err = err
		}
	}
	at := 0
	for i := range q.Topics {
		t := kmsg.NewAlterPartitionAssignmentsResponseTopic()
		t.Topic = q.Topics[i].Topic
		for j := range q.Topics[i].Partitions {
			p := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
			p.Partition = q.Topics[i].Partitions[j].Partition
			p.ErrorCode, p.ErrorMessage = s.codeOf(r, results[at].Err), message(results[at].Err)
			at++
			t.Partitions = append(t.Partitions, p)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp, nil
}
