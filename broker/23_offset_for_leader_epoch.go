package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/replica"
)

// OffsetForLeaderEpoch (23): versions 2–4.
//
//	v2 current leader epoch (KIP-320)    v3 replica id    v4 flexible
//
// An epoch that the log does not know is answered -1/-1 without an error.
var apiOffsetForLeaderEpoch = api{key: 23, name: "OffsetForLeaderEpoch", min: 2, max: 4, handle: typed((*Server).offsetForLeaderEpoch)}

func (s *Server) offsetForLeaderEpoch(r *request, q *kmsg.OffsetForLeaderEpochRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
	r.exempt = r.exempt || q.ReplicaID >= 0
	for i := range q.Topics {
		t := &q.Topics[i]
		rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
		rt.Topic = t.Topic
		for j := range t.Partitions {
			part := &t.Partitions[j]
			out := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			out.Partition, out.LeaderEpoch, out.EndOffset = part.Partition, replica.NoEpoch, replica.NoOffset
			p, err := s.deps.Partitions.Partition(t.Topic, part.Partition)
			if err == nil {
				var epoch int32
				var end int64
				epoch, end, err = p.EndOffsetForEpoch(part.CurrentLeaderEpoch, part.LeaderEpoch)
				if err == nil {
					out.LeaderEpoch, out.EndOffset = epoch, end
				}
			}
			out.ErrorCode = s.codeOf(r, err)
			rt.Partitions = append(rt.Partitions, out)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, nil
}
