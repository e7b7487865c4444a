package parity

import (
	"os"
	"testing"

	"github.com/varvelog/varve/integration/kafkatest"
	"github.com/varvelog/varve/integration/nodetest"
)

// Both brokers run with Kafka's defaults, but for the rebalance delay, which
// only makes stories slow, and for topics that create themselves: asking for
// one that is not there must not change what the next step sees.
var settings = []string{"group.initial.rebalance.delay.ms=0", "auto.create.topics.enable=false"}

func againstItself() bool { return os.Getenv("VARVE_PARITY_SELF") != "" }

func startKafka(t *testing.T) *kafkatest.Broker {
	return kafkatest.StartBroker(t, clientsDir(), settings...)
}

// startOther starts what is held against Kafka: Varve, or with
// VARVE_PARITY_SELF=1 a second Kafka, which shows that the transcripts hold
// nothing that differs from run to run. It gives the address and what restarts
// it.
func startOther(t *testing.T) (addr string, restart func()) {
	if againstItself() {
		b := startKafka(t)
		return b.Bootstrap, b.Restart
	}
	// Kafka's default is to have no remote storage.
	n := nodetest.Start(t, t.TempDir(), "--set", settings[0], "--set", settings[1], "--set", "varve.tier.store=")
	return n.Bootstrap, func() {
		n.Stop()
		n.Restart()
	}
}
