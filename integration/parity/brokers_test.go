package parity

import (
	"testing"

	"github.com/varvelog/varve/integration/kafkatest"
	"github.com/varvelog/varve/integration/nodetest"
)

// Both brokers run with Kafka's defaults, but for the rebalance delay, which
// only makes stories slow.
const rebalanceDelay = "group.initial.rebalance.delay.ms=0"

func startKafka(t *testing.T) string { return kafkatest.Start(t, clientsDir(), rebalanceDelay) }

func startVarve(t *testing.T) string {
	return nodetest.Start(t, t.TempDir(), "--set", rebalanceDelay, "--set", "auto.create.topics.enable=false").Bootstrap
}
