package conf

import (
	"errors"
	"strings"
	"testing"
)

func TestListenersAreSortedByWhatTheyAreFor(t *testing.T) {
	plan, err := mustBroker(t, "listeners=PLAINTEXT://0.0.0.0:9092,CONTROLLER://:9093",
		"advertised.listeners=PLAINTEXT://b1.example.com:19092").Plan()
	if err != nil {
		t.Fatal(err)
	}
	if c := plan.Between(); c.Address() != "0.0.0.0:9092" || c.Advertised.String() != "PLAINTEXT://b1.example.com:19092" ||
		plan.Controller.Address() != ":9093" || plan.Controller.Advertised != plan.Controller.Listener || !c.Everywhere() || c.SSL != nil {
		t.Errorf("plan: %+v", plan)
	}
	plan, err = mustBroker(t, "listeners=IN://10.0.0.1:9092", "listener.security.protocol.map=IN:PLAINTEXT").Plan()
	if err != nil || plan.Between().Name != "IN" || plan.Controller != nil || plan.Between().Everywhere() {
		t.Errorf("a listener by another name: %+v, %v", plan, err)
	}
	for _, c := range []struct{ pairs, want string }{
		{"listeners=SASL_SSL://:9092", "SASL_SSL speaks SASL_SSL (listener.security.protocol.map): PLAINTEXT and SSL are served"},
		{"listeners=OWN://:9092", "add OWN:PLAINTEXT or OWN:SSL to it"},
		{"listeners=CONTROLLER://:9093", "no listener for clients: add PLAINTEXT://HOST:PORT"},
		{"listeners=PLAINTEXT://:9092,PLAINTEXT://:9093", "PLAINTEXT is there twice"},
		{"listeners=9092", `"9092" is not NAME://HOST:PORT`},
		{"listeners=PLAINTEXT://x", "is not NAME://HOST:PORT"},
		{"listeners=PLAINTEXT://x:70000", "the port is a number from 0 to 65535"},
		{"listeners=A://:1,B://:2 listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT", "set inter.broker.listener.name to one of A, B"},
		{"listeners=PLAINTEXT://:1,A://:2,B://:3 controller.listener.names=A,B", "leave A or B out"},
		{"listeners=PLAINTEXT://:1 advertised.listeners=CONTROLLER://a:2", "which listeners=PLAINTEXT://:1 does not have"},
	} {
		_, err := mustBroker(t, strings.Fields(c.pairs)...).Plan()
		if err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, ErrInvalid) {
			t.Errorf("%s\n got %v\nwant %s", c.pairs, err, c.want)
		}
	}
}

func TestAClusterIsRefusedWhenItCannotForm(t *testing.T) {
	const three = "controller.quorum.voters=1@a:9093,2@b:9093,3@c:9093"
	for _, c := range []struct{ pairs, want string }{
		{three, "node.id is not set"},
		{three + " node.id=1", "add CONTROLLER://HOST:PORT"},
		{three + " node.id=1 listeners=PLAINTEXT://:1,CONTROLLER://:2", ""},
		{three + " node.id=4 listeners=PLAINTEXT://:1,CONTROLLER://:2", "name running brokers in controller.quorum.bootstrap.servers (--join HOST:PORT)"},
		{three + " node.id=4 controller.quorum.bootstrap.servers=a:9092 listeners=PLAINTEXT://:1,CONTROLLER://:2", ""},
		{"controller.quorum.bootstrap.servers=a:9092", "node.id is not set"},
		{"controller.quorum.bootstrap.servers=a node.id=2", `"a" is not HOST:PORT of a running broker`},
		{"controller.quorum.voters=1@a:9093,1@b:9093", "node 1 is there twice"},
		{"controller.quorum.voters=a:9093", "is not ID@HOST:PORT"},
		{"controller.quorum.voters=1@:9093", "the host is missing"},
		{"controller.quorum.voters=1@a:0", "from 1 to 65535"},
		{"controller.quorum.voters=1@a:1,2@a:2,3@a:3,4@a:4,5@a:5,6@a:6", "up to 5 vote"},
		{"controller.quorum.voters=1@a:9093", ""}, // Kafka's quickstart: one node that is its own quorum
	} {
		_, err := ParseBroker(pairMap(strings.Fields(c.pairs)))
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", c.pairs, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, ErrInvalid) {
			t.Errorf("%s\n got %v\nwant %s", c.pairs, err, c.want)
		}
	}
}

func TestInternalTopicsFitASmallCluster(t *testing.T) {
	const setting = "offsets.topic.replication.factor"
	alone := mustBroker(t)
	three := mustBroker(t, "node.id=1", "listeners=PLAINTEXT://:1,CONTROLLER://:2", "controller.quorum.voters=1@a:9093,2@b:9093,3@c:9093")
	given := mustBroker(t, setting+"=2", "transaction.state.log.min.isr=1")
	for _, c := range []struct {
		b          *Broker
		registered int
		want       int16
	}{
		{alone, 0, 1}, {alone, 1, 1}, {alone, 2, 2}, {alone, 9, 3},
		{three, 1, 3}, // the others are on their way
		{given, 1, 2}, {given, 9, 2},
	} {
		if n := c.b.InternalReplicas(setting, c.registered); n != c.want {
			t.Errorf("%v with %d brokers: %d replicas, want %d", c.b.Given(), c.registered, n, c.want)
		}
	}
	if a, b, c := alone.InternalMinISR("transaction.state.log.min.isr", 1), alone.InternalMinISR("transaction.state.log.min.isr", 3), given.InternalMinISR("transaction.state.log.min.isr", 3); a != 1 || b != 2 || c != 1 {
		t.Errorf("least in-sync replicas: %d, %d, %d", a, b, c)
	}
}
