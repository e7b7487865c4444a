package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
)

func TestADrainNamesAllTopicsInItsWay(t *testing.T) {
	topic := func(name string, replicas ...int32) kadm.TopicDetail {
		return kadm.TopicDetail{Topic: name, IsInternal: strings.HasPrefix(name, "__"), Partitions: kadm.PartitionDetails{0: {Topic: name, Replicas: replicas}}}
	}
	all := kadm.TopicDetails{}
	for _, d := range []kadm.TopicDetail{topic("a", 1, 2, 3), topic("b", 2, 3), topic("c", 3, 2, 1), topic("__consumer_offsets", 1, 2, 3), topic("d", 1, 2)} {
		all[d.Topic] = d
	}
	err := undrainable(all, 3, 2)
	if err == nil || !strings.Contains(err.Error(), "more replicas: __consumer_offsets (3), a (3), c (3);") {
		t.Errorf("it says %v", err)
	}
	if err := undrainable(all, 3, 3); err != nil {
		t.Errorf("with a further broker: %v", err)
	}
}

func TestADowngradeIsAskedFor(t *testing.T) {
	n := startWith(t)
	set := func(args ...string) error {
		cmd := rootCommand()
		cmd.SetArgs(append([]string{"cluster", "features", "set", "--bootstrap", n.Kafka}, args...))
		cmd.SetOut(new(bytes.Buffer))
		return cmd.ExecuteContext(context.Background())
	}
	if err := set("transaction.version", "1"); err == nil || !strings.Contains(err.Error(), "--downgrade") {
		t.Errorf("a downgrade without a word: %v", err)
	}
	if err := set("transaction.version", "1", "--downgrade"); err != nil {
		t.Error(err)
	}
	if err := set("transaction.version", "2"); err != nil {
		t.Error(err)
	}
}

func TestTheLineOfAFurtherNodeHasWhatItNeeds(t *testing.T) {
	d := &devCluster{dir: "/d", store: "s3://varve?region=local&endpoint=http://127.0.0.1:9"}
	nodes := []*devNode{{id: 1, kafka: "127.0.0.1:9092"}, {id: 2}, {id: 3}}
	const line = "varve serve --join 127.0.0.1:9092 --set node.id=4 "
	if got := d.joinLine(nodes, false); !strings.HasPrefix(got, "AWS_ACCESS_KEY_ID=varve AWS_SECRET_ACCESS_KEY=varve "+line) || !strings.Contains(got, "'varve.tier.store="+d.store+"'") {
		t.Errorf("without credentials: %s", got)
	}
	if got := d.joinLine(nodes, true); !strings.HasPrefix(got, line) {
		t.Errorf("with credentials: %s", got)
	}
}
