package broker

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
)

func electRequest(version int16, kind int8, topic string, parts ...int32) *kmsg.ElectLeadersRequest {
	q := kmsg.NewPtrElectLeadersRequest()
	q.SetVersion(version)
	q.TimeoutMillis, q.ElectionType = 10_000, kind
	if topic != "" {
		q.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: topic, Partitions: parts}}
	}
	return q
}

func moveRequest(version int16, topic string, index int32, replicas ...int32) *kmsg.AlterPartitionAssignmentsRequest {
	q := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	q.SetVersion(version)
	q.TimeoutMillis = 10_000
	q.Topics = []kmsg.AlterPartitionAssignmentsRequestTopic{{Topic: topic,
		Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{{Partition: index, Replicas: replicas}}}}
	return q
}

func TestElectLeadersEveryVersion(t *testing.T) {
	s := startCluster(t, nil, nil)
	c := dial(t, s.addr)
	c.create(newTopic("events", 2))
	for v := int16(0); v <= 2; v++ {
		got := c.ask(electRequest(v, electPreferred, "events", 0, 9)).(*kmsg.ElectLeadersResponse)
		p := got.Topics[0].Partitions
		if got.ErrorCode != 0 || p[0].ErrorCode != codeElectionNotNeeded || p[1].ErrorCode != codeUnknownTopicOrPartition || *p[1].ErrorMessage != "No such partition as events-9" {
			t.Errorf("version %d: %+v", v, got)
		}
	}
	got := c.ask(electRequest(2, 7, "events", 0)).(*kmsg.ElectLeadersResponse)
	if got.ErrorCode != codeInvalidRequest || got.Topics[0].Partitions[0].ErrorCode != codeInvalidRequest {
		t.Errorf("an election of no kind: %+v", got)
	}
	got = c.ask(electRequest(2, electPreferred, "")).(*kmsg.ElectLeadersResponse)
	if got.ErrorCode != 0 || len(got.Topics) != 1 || got.Topics[0].Topic != "events" || len(got.Topics[0].Partitions) != 0 {
		t.Errorf("all partitions, none of which needs it: %+v", got)
	}
}

func TestReassignmentIsShownUntilItsReplicasAreThere(t *testing.T) {
	all := startMembers(t, 3, nil)
	_, others := apart(t, all)
	c := dial(t, others[0].addr)
	one := newTopic("events", 1)
	one.ReplicationFactor = -1
	one.NumPartitions = -1
	one.ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Partition: 0, Replicas: []int32{1}}}
	c.create(one)
	if got := c.ask(moveRequest(1, "events", 0, 2, 3)).(*kmsg.AlterPartitionAssignmentsResponse); got.ErrorCode != 0 || got.Topics[0].Partitions[0].ErrorCode != 0 || !got.AllowReplicationFactorChange {
		t.Fatalf("%+v", got)
	}
	got := c.ask(kmsg.NewPtrListPartitionReassignmentsRequest()).(*kmsg.ListPartitionReassignmentsResponse)
	if len(got.Topics) != 1 || got.Topics[0].Topic != "events" {
		t.Fatalf("%+v", got)
	}
	p := got.Topics[0].Partitions[0]
	slices.Sort(p.AddingReplicas)
	if !slices.Equal(p.AddingReplicas, []int32{2, 3}) || !slices.Equal(p.RemovingReplicas, []int32{1}) {
		t.Errorf("%+v", p)
	}
	if got := c.ask(moveRequest(0, "events", 0, 2, 99)).(*kmsg.AlterPartitionAssignmentsResponse).Topics[0].Partitions[0]; got.ErrorCode != codeInvalidReplicaAssignment {
		t.Errorf("to a broker that is not there: %+v", got)
	}
	cancel := moveRequest(1, "events", 0)
	cancel.AllowReplicationFactorChange = false
	if got := c.ask(cancel).(*kmsg.AlterPartitionAssignmentsResponse); got.Topics[0].Partitions[0].ErrorCode != 0 || got.AllowReplicationFactorChange {
		t.Errorf("cancelled: %+v", got)
	}
	if got := c.ask(cancel).(*kmsg.AlterPartitionAssignmentsResponse).Topics[0].Partitions[0]; got.ErrorCode != codeNoReassignmentInProgress || got.ErrorMessage != nil {
		t.Errorf("cancelled twice: %+v", got)
	}
	wider := moveRequest(1, "events", 0, 1, 2)
	wider.AllowReplicationFactorChange = false
	if got := c.ask(wider).(*kmsg.AlterPartitionAssignmentsResponse).Topics[0].Partitions[0]; got.ErrorCode != codeInvalidReplicationFactor {
		t.Errorf("another factor: %+v", got)
	}
}

func TestDescribeQuorumEveryVersion(t *testing.T) {
	s := startCluster(t, nil, nil)
	c := dial(t, s.addr)
	for v := int16(0); v <= 2; v++ {
		q := quorumRequest()
		q.SetVersion(v)
		got := c.ask(q).(*kmsg.DescribeQuorumResponse)
		p := got.Topics[0].Partitions[0]
		if got.ErrorCode != 0 || p.LeaderID != 1 || p.LeaderEpoch < 1 || p.HighWatermark < 1 || len(p.CurrentVoters) != 1 || p.CurrentVoters[0].LogEndOffset < 1 || len(p.Observers) != 0 {
			t.Errorf("version %d: %+v", v, got)
		}
		q.Topics[0].Topic = "events"
		if got := c.ask(q).(*kmsg.DescribeQuorumResponse); got.ErrorCode != 0 || got.Topics[0].Partitions[0].ErrorCode != codeUnknownTopicOrPartition {
			t.Errorf("version %d: another topic: %+v", v, got)
		}
	}
}

func TestVotersChangeOnRequest(t *testing.T) {
	all := startMembers(t, 3, nil)
	_, others := apart(t, all)
	c := dial(t, others[0].addr)
	cluster := others[0].node.Image().ClusterID
	remove := func(cluster string, id int32) int16 {
		q := kmsg.NewPtrRemoveRaftVoterRequest()
		q.ClusterID, q.VoterID = &cluster, id
		return c.ask(q).(*kmsg.RemoveRaftVoterResponse).ErrorCode
	}
	add := func(id int32, host string) int16 {
		q := kmsg.NewPtrAddRaftVoterRequest()
		q.SetVersion(1)
		q.VoterID, q.TimeoutMillis = id, 10_000
		if host != "" {
			q.Listeners = []kmsg.AddRaftVoterRequestListener{{Name: listenerController, Host: host, Port: 1}}
		}
		return c.ask(q).(*kmsg.AddRaftVoterResponse).ErrorCode
	}
	voters := func() (ids, observers []int32) {
		p := c.ask(quorumRequest()).(*kmsg.DescribeQuorumResponse).Topics[0].Partitions[0]
		for _, m := range p.CurrentVoters {
			ids = append(ids, m.ReplicaID)
		}
		for _, m := range p.Observers {
			observers = append(observers, m.ReplicaID)
		}
		return ids, observers
	}
	id := others[0].cfg.NodeID
	if got := remove("another", id); got != codeInconsistentClusterID {
		t.Errorf("in another cluster: %d", got)
	}
	if got := remove(cluster, 9); got != codeVoterNotFound {
		t.Errorf("nobody's vote: %d", got)
	}
	if got := add(id, ""); got != codeDuplicateVoter {
		t.Errorf("a second vote: %d", got)
	}
	if got := add(9, ""); got != codeInvalidRequest {
		t.Errorf("a vote without an address: %d", got)
	}
	if got := remove(cluster, id); got != 0 {
		t.Fatalf("remove: %d", got)
	}
	if ids, observers := voters(); len(ids) != 2 || slices.Contains(ids, id) || !slices.Equal(observers, []int32{id}) {
		t.Errorf("voters %v, observers %v", ids, observers)
	}
	if got := add(id, ""); got != 0 { // an observer's address is known
		t.Fatalf("add: %d", got)
	}
	if ids, _ := voters(); len(ids) != 3 {
		t.Errorf("voters %v", ids)
	}
}

func TestLastVoterStays(t *testing.T) {
	s := startCluster(t, nil, nil)
	q := kmsg.NewPtrRemoveRaftVoterRequest()
	q.VoterID = 1
	if got := dial(t, s.addr).ask(q).(*kmsg.RemoveRaftVoterResponse); got.ErrorCode != codeInvalidRequest {
		t.Errorf("%+v", got)
	}
}

func TestUnregisteredBrokerIsForgotten(t *testing.T) {
	s := startCluster(t, nil, nil)
	c := dial(t, s.addr)
	node := s.deps.Metadata.(*meta.Node)
	if _, err := node.RegisterBroker(t.Context(), meta.Registration{ID: 5, Host: "h", Port: 1, Fenced: true}); err != nil {
		t.Fatal(err)
	}
	ask := func(id int32) *kmsg.UnregisterBrokerResponse {
		q := kmsg.NewPtrUnregisterBrokerRequest()
		q.BrokerID = id
		return c.ask(q).(*kmsg.UnregisterBrokerResponse)
	}
	if got := ask(5); got.ErrorCode != 0 {
		t.Errorf("%+v", got)
	}
	if got := ask(5); got.ErrorCode != codeBrokerIDNotRegistered || *got.ErrorMessage != "Broker ID 5 is not currently registered" {
		t.Errorf("%+v", got)
	}
	if _, ok := node.Image().Brokers[5]; ok {
		t.Error("it is still there")
	}
}

func TestClientsAreNotSentToFencedBrokers(t *testing.T) {
	all := startMembers(t, 3, nil)
	controller, others := apart(t, all)
	c := dial(t, controller.addr)
	wide := newTopic("wide", 3)
	wide.ReplicationFactor = 3
	c.create(wide)
	gone := others[0].cfg.NodeID
	others[0].member.Close() // no more heartbeats
	node := controller.node
	if err := node.FenceBroker(t.Context(), gone, node.Image().Brokers[gone].Epoch); err != nil {
		t.Fatal(err)
	}
	md := kmsg.NewPtrMetadataRequest()
	md.SetVersion(12)
	resp := c.ask(md).(*kmsg.MetadataResponse)
	for _, b := range resp.Brokers {
		if b.NodeID == gone {
			t.Error("a fenced broker is listed")
		}
	}
	for _, p := range resp.Topics[0].Partitions {
		if p.Leader == gone || !slices.Equal(p.OfflineReplicas, []int32{gone}) || len(p.Replicas) != 3 {
			t.Errorf("metadata: %+v", p)
		}
	}
	dq := kmsg.NewPtrDescribeTopicPartitionsRequest()
	dq.Topics = []kmsg.DescribeTopicPartitionsRequestTopic{{Topic: "wide"}}
	dq.ResponsePartitionLimit = 100
	for _, p := range c.ask(dq).(*kmsg.DescribeTopicPartitionsResponse).Topics[0].Partitions {
		if p.LeaderID == gone || !slices.Equal(p.OfflineReplicas, []int32{gone}) {
			t.Errorf("describe: %+v", p)
		}
	}
	cluster := kmsg.NewPtrDescribeClusterRequest()
	cluster.SetVersion(2)
	cluster.EndpointType = endpointBrokers
	if got := c.ask(cluster).(*kmsg.DescribeClusterResponse); len(got.Brokers) != 2 {
		t.Errorf("without the fenced: %+v", got.Brokers)
	}
	cluster.IncludeFencedBrokers = true
	fenced := 0
	for _, b := range c.ask(cluster).(*kmsg.DescribeClusterResponse).Brokers {
		if b.IsFenced {
			fenced++
			if b.NodeID != gone {
				t.Errorf("broker %d is fenced", b.NodeID)
			}
		}
	}
	if fenced != 1 {
		t.Errorf("%d fenced brokers are listed", fenced)
	}
}

func TestUpdateFeaturesEveryVersion(t *testing.T) {
	all := startMembers(t, 2, nil)
	_, others := apart(t, all)
	c := dial(t, others[0].addr)
	ask := func(version, level int16, upgrade int8, dry bool) *kmsg.UpdateFeaturesResponse {
		q := kmsg.NewPtrUpdateFeaturesRequest()
		q.SetVersion(version)
		q.TimeoutMillis, q.ValidateOnly = 10_000, dry
		q.FeatureUpdates = []kmsg.UpdateFeaturesRequestFeatureUpdate{{Feature: "transaction.version", MaxVersionLevel: level, UpgradeType: upgrade, AllowDowngrade: upgrade != 1}}
		return c.ask(q).(*kmsg.UpdateFeaturesResponse)
	}
	finalized := func() int16 {
		q := kmsg.NewPtrApiVersionsRequest()
		q.SetVersion(4)
		q.ClientSoftwareName, q.ClientSoftwareVersion = "kgo", "1"
		for _, f := range c.ask(q).(*kmsg.ApiVersionsResponse).FinalizedFeatures {
			if f.Name == "transaction.version" {
				return f.MaxVersionLevel
			}
		}
		return 0
	}
	for version := int16(0); version <= 2; version++ {
		if got := ask(version, 1, 1, false); got.ErrorCode != codeInvalidUpdateVersion || finalized() != 2 {
			t.Errorf("version %d: lowered as an upgrade: %+v, level %d", version, got, finalized())
		}
		if version > 0 {
			if got := ask(version, 1, 2, true); got.ErrorCode != 0 || finalized() != 2 {
				t.Errorf("version %d: a dry run: %+v, level %d", version, got, finalized())
			}
		}
		if got := ask(version, 1, 2, false); got.ErrorCode != 0 || finalized() != 1 || version < 2 && len(got.Results) != 1 {
			t.Errorf("version %d: lowered: %+v, level %d", version, got, finalized())
		}
		if got := ask(version, 2, 1, false); got.ErrorCode != 0 || finalized() != 2 {
			t.Errorf("version %d: raised: %+v, level %d", version, got, finalized())
		}
	}
}
