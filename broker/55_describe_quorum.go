package broker

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
)

// DescribeQuorum (55): versions 0–2 (KIP-595, KIP-836, KIP-853).
//
//	v1 times of last fetch and last catching up    v2 directory ids, listeners of the nodes
//
// Kafka's quorum is a partition; ours answers under its name. Offsets are indexes of raft's log, the leader epoch its term.
var apiDescribeQuorum = api{key: 55, name: "DescribeQuorum", min: 0, max: 2, forwarded: true, handle: typed((*Server).describeQuorum)}

// clusterMetadata is the one partition that Kafka's quorum keeps.
const clusterMetadata = "__cluster_metadata"

func (s *Server) describeQuorum(r *request, q *kmsg.DescribeQuorumRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrDescribeQuorumResponse()
	resp.ErrorMessage = kmsg.StringPtr("")
	if len(q.Topics) != 1 || q.Topics[0].Topic != clusterMetadata || len(q.Topics[0].Partitions) != 1 || q.Topics[0].Partitions[0].Partition != 0 {
		describeQuorumRefused(resp, q, codeUnknownTopicOrPartition, "This server does not host this topic-partition.")
		return resp, nil
	}
	quorum, err := s.decider(r).Quorum()
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = s.codeOf(r, err), message(err)
		return resp, nil
	}
	p := kmsg.NewDescribeQuorumResponseTopicPartition()
	p.ErrorMessage = kmsg.StringPtr("")
	p.LeaderID, p.LeaderEpoch, p.HighWatermark = quorum.LeaderID, int32(quorum.LeaderEpoch), quorum.HighWatermark
	p.CurrentVoters, p.Observers = quorumStates(quorum.Voters), quorumStates(quorum.Observers)
	t := kmsg.NewDescribeQuorumResponseTopic()
	t.Topic = clusterMetadata
	t.Partitions = append(t.Partitions, p)
	resp.Topics = append(resp.Topics, t)
	for _, m := range quorum.Voters {
		n := kmsg.NewDescribeQuorumResponseNode()
		n.NodeID = m.NodeID
		if host, port, ok := splitAddress(m.Address); ok {
			n.Listeners = append(n.Listeners, kmsg.DescribeQuorumResponseNodeListener{Name: listenerController, Host: host, Port: port})
		}
		resp.Nodes = append(resp.Nodes, n)
	}
	return resp, nil
}

func describeQuorumRefused(resp *kmsg.DescribeQuorumResponse, q *kmsg.DescribeQuorumRequest, code int16, text string) {
	for i := range q.Topics {
		t := kmsg.NewDescribeQuorumResponseTopic()
		t.Topic = q.Topics[i].Topic
		for j := range q.Topics[i].Partitions {
			p := kmsg.NewDescribeQuorumResponseTopicPartition()
			p.Partition, p.ErrorCode, p.ErrorMessage = q.Topics[i].Partitions[j].Partition, code, &text
			t.Partitions = append(t.Partitions, p)
		}
		resp.Topics = append(resp.Topics, t)
	}
}

func quorumStates(members []meta.QuorumMember) []kmsg.DescribeQuorumResponseTopicPartitionReplicaState {
	states := make([]kmsg.DescribeQuorumResponseTopicPartitionReplicaState, len(members))
	for i, m := range members {
		states[i] = kmsg.NewDescribeQuorumResponseTopicPartitionReplicaState()
		states[i].ReplicaID, states[i].ReplicaDirectoryID, states[i].LogEndOffset = m.NodeID, m.Directory, m.LogEnd
		states[i].LastFetchTimestamp, states[i].LastCaughtUpTimestamp = timestamp(m.LastFetch), timestamp(m.LastCaughtUp)
	}
	return states
}

// timestamp is a time in milliseconds; -1: not known.
func timestamp(t time.Time) int64 {
	if t.IsZero() {
		return -1
	}
	return t.UnixMilli()
}
