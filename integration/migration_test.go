package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/varvelog/varve/integration/nodetest"
)

// TestClientsRollAGroupFromClassicToConsumerAndBack replaces the members of a group,
// Java clients and one of librdkafka, one by one: first by members of the
// consumer protocol, then by classic ones again, while records come all the
// time. At every step each partition has one owner that alone reads it; in the
// end every record was read, and the group has committed all.
func TestClientsRollAGroupFromClassicToConsumerAndBack(t *testing.T) {
	needsClients(t)
	for _, client := range []string{"java", "confluent-kafka"} {
		if tool := missing(clientTools[client]); tool != "" {
			t.Skipf("this machine has no %s", tool)
		}
	}
	c := nodetest.StartCluster(t, nodetest.ClusterOptions{Settings: map[string]string{
		"group.initial.rebalance.delay.ms": "100", "group.min.session.timeout.ms": "1000",
		"group.consumer.session.timeout.ms": "3000", "group.consumer.min.session.timeout.ms": "1000",
		"group.consumer.heartbeat.interval.ms": "300", "group.consumer.min.heartbeat.interval.ms": "100",
		"group.consumer.assignment.interval.ms": "200", "offsets.topic.num.partitions": "4",
	}})
	programs := clientPrograms(t)
	const name = "rolling"
	c.CreateTopic(name, churnPartitions, 3, replicated)
	g := &churned{t: t, c: c, topic: name}
	join := func(client, protocol string) {
		m := startClient(t, fmt.Sprintf("%s %s member %d", client, protocol, len(g.members)), programs[client], "member", c.Bootstrap(), name, name, protocol)
		g.members, g.alive = append(g.members, m), append(g.alive, m)
	}
	ctx, stop := context.WithCancel(context.Background())
	fed := make(chan struct{})
	go func() { defer close(fed); g.feed(ctx) }()
	defer func() { stop(); <-fed }()

	// A group whose assignments librdkafka has made cannot be upgraded, as in Kafka: they carry data that would be lost.
	for range 3 {
		join("java", "classic")
	}
	g.settled("all are classic")
	g.is("classic")
	clients := []string{"java", "confluent-kafka", "java"}
	for _, protocol := range []string{"consumer", "classic"} {
		for i, client := range clients {
			g.remove(0).leave()
			join(client, protocol)
			g.settled(fmt.Sprintf("%d of 3 are %s", i+1, protocol))
			if protocol == "consumer" || i < len(clients)-1 {
				g.is("consumer")
			}
		}
	}
	g.is("classic")
	stop()
	<-fed
	g.all()
	for len(g.alive) > 0 {
		g.remove(0).leave()
	}
	g.committed(name)
}

// is checks which protocol the group is of.
func (g *churned) is(protocol string) {
	g.t.Helper()
	nodetest.Eventually(g.t, 20*time.Second, "the group is "+protocol, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		list, err := g.c.Admin().ListGroupsByType(ctx, []string{protocol})
		if err != nil {
			return err
		}
		if _, ok := list[g.topic]; !ok {
			return fmt.Errorf("it is not among %v", list.Groups())
		}
		return nil
	})
}
