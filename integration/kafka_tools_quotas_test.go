package integration

import (
	"context"
	"crypto/rand"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestKafkaToolsSetQuotasThatHold has kafka-configs set a producer's quota, and
// franz-go produce under it: an idle client has ten seconds' worth at once, and
// waits for the rest.
func TestKafkaToolsSetQuotasThatHold(t *testing.T) {
	n, k := toolsOnOneNode(t)
	entity := []string{"--entity-type", "clients", "--entity-name", "loader"}
	k.wants(k.run("ConfigCommand", append(entity[:4:4], "--alter", "--add-config", "producer_byte_rate=50000,request_percentage=1000")...),
		"Completed updating config for client loader.")
	k.wants(k.run("ConfigCommand", append(entity[:4:4], "--describe")...), "producer_byte_rate=50000.0", "request_percentage=1000.0")
	n.CreateTopic("limited", 1, nil)
	took := func(client string) time.Duration {
		cl := n.Client(kgo.ClientID(client), kgo.DefaultProduceTopic("limited"), kgo.ProducerBatchMaxBytes(16<<10), kgo.ProducerBatchCompression(kgo.NoCompression()))
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		began := time.Now()
		for range 70 { // 700 kB, of which 500 kB are free
			value := make([]byte, 10_000)
			_, _ = rand.Read(value)
			if err := cl.ProduceSync(ctx, &kgo.Record{Value: value}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		return time.Since(began)
	}
	if d := took("loader"); d < 2500*time.Millisecond {
		t.Errorf("700 kB at 50 kB a second took %v", d)
	}
	resp, err := http.Get("http://" + n.HTTP + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	metrics, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	k.wants(string(metrics), `varve_quota_throttled_total{quota="produce"}`, `varve_quota_throttle_seconds_total{quota="fetch"} 0`)
	k.run("ConfigCommand", append(entity[:4:4], "--alter", "--delete-config", "producer_byte_rate,request_percentage")...)
	took("loader")
}
