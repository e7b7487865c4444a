package integration

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/integration/nodetest"
)

// replicasOf returns the replicas of a topic's partitions, by index.
func replicasOf(t *testing.T, c *nodetest.Cluster, topic string) [][]int32 {
	t.Helper()
	m, err := c.Admin().Metadata(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	var list [][]int32
	for _, p := range m.Topics[topic].Partitions.Sorted() {
		list = append(list, p.Replicas)
	}
	return list
}

// awaitReplicas waits until the replicas of a topic are such, all of them in
// sync and none on its way.
func awaitReplicas(t *testing.T, c *nodetest.Cluster, topic string, ok func(replicas []int32) bool) {
	t.Helper()
	nodetest.Eventually(t, 2*time.Minute, "replicas have moved", func() error {
		m, err := c.Admin().Metadata(context.Background(), topic)
		if err != nil {
			return err
		}
		for _, p := range m.Topics[topic].Partitions.Sorted() {
			if !ok(p.Replicas) || len(p.ISR) != len(p.Replicas) || p.Leader < 0 {
				return fmt.Errorf("%s-%d: replicas %v, in sync %v, leader %d", topic, p.Partition, p.Replicas, p.ISR, p.Leader)
			}
		}
		return nil
	})
}

// A fourth node joins, is given replicas by hand, and then one of the first
// three is emptied and forgotten, all while records are written.
func TestReplicasMoveWhileRecordsAreWritten(t *testing.T) {
	c, s := startStreamed(t, nodetest.ClusterOptions{Settings: map[string]string{"varve.balancer.interval.ms": "500"}})
	s.progress(50)
	c.Join(4, nil)
	admin := c.Admin()

	var wish kadm.AlterPartitionAssignmentsReq
	for i := range int32(6) {
		wish.Assign("events", i, []int32{4, 1 + i%3, 1 + (i+1)%3})
	}
	answer, err := admin.AlterPartitionAssignments(t.Context(), wish)
	if err != nil || answer.Error() != nil {
		t.Fatal(err, answer.Error())
	}
	awaitReplicas(t, c, "events", func(r []int32) bool { return len(r) == 3 && r[0] == 4 })
	if list, err := admin.ListPartitionReassignments(t.Context(), nil); err != nil || len(list) != 0 {
		t.Fatalf("still being reassigned: %v, %v", list, err)
	}
	s.progress(50)

	// With the old leaders gone from half of the partitions the order of
	// replicas still names 4 first: let it lead, then take everything from 2.
	if _, err := admin.ElectLeaders(t.Context(), kadm.ElectPreferredReplica, nil); err != nil {
		t.Fatal(err)
	}
	yes := "true"
	results, err := admin.AlterBrokerConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "varve.balancer.drain", Value: &yes}}, 2)
	if err != nil || results[0].Err != nil {
		t.Fatal(err, results)
	}
	awaitReplicas(t, c, "events", func(r []int32) bool { return len(r) == 3 && !slices.Contains(r, 2) })
	s.progress(50)

	c.Node(2).Stop()
	forget := kmsg.NewPtrUnregisterBrokerRequest()
	forget.BrokerID = 2
	got, err := forget.RequestWith(t.Context(), c.Client())
	if err != nil || kerr.ErrorForCode(got.ErrorCode) != nil {
		t.Fatal(err, kerr.ErrorForCode(got.ErrorCode))
	}
	nodetest.Eventually(t, time.Minute, "broker 2 is forgotten", func() error {
		m, err := c.Metadata(1) // kadm would answer from what it remembers
		if err == nil && slices.Contains(m.Brokers.NodeIDs(), 2) {
			err = fmt.Errorf("brokers %v", m.Brokers.NodeIDs())
		}
		return err
	})
	c.Forget(2)
	s.progress(50)

	// Replicas that came back to where they had been are worth as much as any.
	c.Node(4).Kill()
	s.progress(50)
	t.Log(replicasOf(t, c, "events"))
	s.verify(c)
}
