package parity

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// clusterStories are about keys that the controller decides, as far as one
// broker can show them.
func clusterStories() []story {
	return []story{
		{"elections", elections},
		{"reassignments", reassignments},
		{"reassignments listed", listedReassignments},
		{"the quorum", quorum},
		{"features", features},
		{"brokers unregistered", func(s *session) {
			for _, id := range []int32{99, -1} {
				req := kmsg.NewPtrUnregisterBrokerRequest()
				req.BrokerID = id
				s.ask(fmt.Sprint("broker ", id), 0, req)
			}
		}},
	}
}

func elections(s *session) {
	createTopic(s, "elected", 1, nil)
	ask := func(step string, v int16, kind int8, topics map[string][]int32) {
		req := kmsg.NewPtrElectLeadersRequest()
		req.ElectionType, req.TimeoutMillis = kind, 10_000
		if topics != nil {
			req.Topics = []kmsg.ElectLeadersRequestTopic{}
		}
		for name, parts := range topics {
			req.Topics = append(req.Topics, kmsg.ElectLeadersRequestTopic{Topic: name, Partitions: parts})
		}
		s.ask(step, v, req)
	}
	versions(0, 2, func(v int16) {
		ask("not needed", v, 0, map[string][]int32{"elected": {0}})
		ask("no such topic", v, 0, map[string][]int32{"nobody-elected": {0}})
		ask("no such partition", v, 0, map[string][]int32{"elected": {0, 7}})
		ask("nothing", v, 0, map[string][]int32{})
	})
	ask("unclean", 2, 1, map[string][]int32{"elected": {0}, "nobody-elected": {0}})
	ask("another kind", 2, 7, map[string][]int32{"elected": {0}})
	req := kmsg.NewPtrElectLeadersRequest()
	req.TimeoutMillis = 10_000
	if resp, ok := s.quiet(2, req).(*kmsg.ElectLeadersResponse); ok { // every topic of every story is in it
		found := false
		for _, t := range resp.Topics {
			found = found || t.Topic == "elected" && len(t.Partitions) == 0
		}
		s.note("all", "error %d, found %v", resp.ErrorCode, found)
	}
}

func reassignments(s *session) {
	createTopic(s, "moved", 1, nil)
	ask := func(step string, v int16, change func(*kmsg.AlterPartitionAssignmentsRequest), topic string, parts ...kmsg.AlterPartitionAssignmentsRequestTopicPartition) {
		req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
		req.TimeoutMillis = 10_000
		req.Topics = []kmsg.AlterPartitionAssignmentsRequestTopic{{Topic: topic, Partitions: parts}}
		if change != nil {
			change(req)
		}
		s.ask(step, v, req)
	}
	to := func(index int32, replicas ...int32) kmsg.AlterPartitionAssignmentsRequestTopicPartition {
		p := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
		p.Partition, p.Replicas = index, replicas
		return p
	}
	versions(0, 1, func(v int16) {
		ask("to where it is", v, nil, "moved", to(0, 1))
		ask("cancel nothing", v, nil, "moved", to(0))
		ask("no such topic", v, nil, "nobody-moved", to(0, 1))
		ask("no such partition", v, nil, "moved", to(9, 1))
		ask("no such broker", v, nil, "moved", to(0, 99))
		ask("a broker twice", v, nil, "moved", to(0, 1, 1))
		ask("a negative broker", v, nil, "moved", to(0, -1))
		ask("no replica", v, nil, "moved", kmsg.AlterPartitionAssignmentsRequestTopicPartition{Partition: 0, Replicas: []int32{}})
	})
	ask("another factor, which may not change", 1, func(q *kmsg.AlterPartitionAssignmentsRequest) { q.AllowReplicationFactorChange = false }, "moved", to(0, 1, 99))
	ask("the same factor, which may not change", 1, func(q *kmsg.AlterPartitionAssignmentsRequest) { q.AllowReplicationFactorChange = false }, "moved", to(0, 1))
}

func listedReassignments(s *session) {
	createTopic(s, "listed", 1, nil)
	req := kmsg.NewPtrListPartitionReassignmentsRequest()
	req.TimeoutMillis = 10_000
	s.ask("all", 0, req)
	req.Topics = []kmsg.ListPartitionReassignmentsRequestTopic{{Topic: "listed", Partitions: []int32{0, 9}}, {Topic: "nobody-listed", Partitions: []int32{0}}}
	s.ask("named", 0, req)
	req.Topics = []kmsg.ListPartitionReassignmentsRequestTopic{}
	s.ask("none", 0, req)
}

func quorum(s *session) {
	ask := func(v int16, topic string, parts ...int32) *kmsg.DescribeQuorumRequest {
		req := kmsg.NewPtrDescribeQuorumRequest()
		t := kmsg.NewDescribeQuorumRequestTopic()
		t.Topic = topic
		for _, p := range parts {
			t.Partitions = append(t.Partitions, kmsg.DescribeQuorumRequestTopicPartition{Partition: p})
		}
		req.Topics = append(req.Topics, t)
		return req
	}
	versions(0, 2, func(v int16) {
		s.ask("another topic", v, ask(v, "nobody", 0))
		s.ask("another partition", v, ask(v, "__cluster_metadata", 1))
		s.ask("two partitions", v, ask(v, "__cluster_metadata", 0, 1))
		resp, ok := s.quiet(v, ask(v, "__cluster_metadata", 0)).(*kmsg.DescribeQuorumResponse)
		step := fmt.Sprintf("describe v%d", v)
		if !ok || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
			s.note(step, "%+v", resp)
			return
		}
		p := &resp.Topics[0].Partitions[0]
		s.note(step, "errors %d %d, messages %s %s", resp.ErrorCode, p.ErrorCode, text(resp.ErrorMessage), text(p.ErrorMessage))
		s.note(step, "leader %d, epoch %v, high watermark %v, observers %d", p.LeaderID, p.LeaderEpoch > 0, p.HighWatermark > 0, len(p.Observers))
		for _, m := range p.CurrentVoters {
			s.note(step, "voter %d, end %v, fetched %v, caught up %v", m.ReplicaID, m.LogEndOffset > 0, m.LastFetchTimestamp > 0, m.LastCaughtUpTimestamp > 0)
		}
		for _, n := range resp.Nodes {
			s.note(step, "node %d, %d listeners", n.NodeID, len(n.Listeners))
		}
	})
	req := kmsg.NewPtrDescribeQuorumRequest()
	req.Topics = []kmsg.DescribeQuorumRequestTopic{}
	s.ask("nothing", 2, req)
}

// features changes nothing that lasts: the other stories see the same levels.
func features(s *session) {
	ask := func(step string, v int16, dry bool, updates ...kmsg.UpdateFeaturesRequestFeatureUpdate) {
		req := kmsg.NewPtrUpdateFeaturesRequest()
		req.TimeoutMillis, req.ValidateOnly, req.FeatureUpdates = 10_000, dry, updates
		s.ask(step, v, req)
	}
	level := func(name string, to int16, upgrade int8) kmsg.UpdateFeaturesRequestFeatureUpdate {
		u := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
		u.Feature, u.MaxVersionLevel, u.UpgradeType, u.AllowDowngrade = name, to, upgrade, upgrade != 1
		return u
	}
	versions(0, 2, func(v int16) {
		ask("the same level", v, false, level("transaction.version", 2, 1))
		ask("nobody's feature", v, false, level("nobody.version", 1, 1))
		ask("too high", v, false, level("transaction.version", 9, 1))
		ask("one of two too high", v, false, level("group.version", 1, 1), level("transaction.version", 9, 1))
		ask("lower as an upgrade", v, false, level("transaction.version", 1, 1))
		ask("nothing", v, false)
	})
	versions(1, 2, func(v int16) {
		ask("a dry run", v, true, level("transaction.version", 1, 2))
		ask("unknown kind", v, true, level("transaction.version", 1, 9))
	})
}

func text(s *string) string {
	if s == nil {
		return "null"
	}
	return fmt.Sprintf("%q", *s)
}
