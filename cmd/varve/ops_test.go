package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// tieredNode is a node with a topic whose three records are in the bucket only.
func tieredNode(t *testing.T) *node {
	t.Helper()
	ctx := t.Context()
	n := startFrom(t, devSettings(t.TempDir(), "127.0.0.1:0", "127.0.0.1:0", ""))
	cl, err := kgo.NewClient(kgo.SeedBrokers(n.Kafka), kgo.DefaultProduceTopic("cold"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	configs := map[string]*string{}
	for name, value := range demoSettings {
		configs[name] = &value
	}
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, 1, 1, configs, "cold"); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := cl.ProduceSync(ctx, &kgo.Record{Value: fmt.Append(nil, i)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	deadline := time.Now().Add(30 * time.Second)
	for {
		at, err := listOffsets(ctx, cl, []partitionKey{{"cold", 0}}, timestampLocalStart, false)
		if err == nil && at[partitionKey{"cold", 0}].offset == 3 {
			return n
		}
		if time.Now().After(deadline) {
			t.Fatalf("records never left local disk: %v %v", at, err)
		}
		<-time.After(20 * time.Millisecond) // the manager has no hook for tests
	}
}

func get(t *testing.T, n *node, path string) (int, string) {
	t.Helper()
	resp, err := http.Get("http://" + n.HTTP + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestOperatorsSeeMetricsHealthAndTheConsole(t *testing.T) {
	n := tieredNode(t)
	cl, err := kgo.NewClient(kgo.SeedBrokers(n.Kafka))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	offsets := kadm.Offsets{}
	offsets.AddOffset("cold", 0, 1, -1)
	if err := kadm.NewClient(cl).CommitAllOffsets(t.Context(), "readers", offsets); err != nil {
		t.Fatal(err)
	}
	status, body := get(t, n, "/metrics")
	if status != http.StatusOK {
		t.Fatalf("/metrics answers %d: %s", status, body)
	}
	for _, line := range []string{
		`kafka_log_log_logendoffset{partition="0",topic="cold"} 3`,
		`varve_log_localstartoffset{partition="0",topic="cold"} 3`,
		`varve_log_remoteendoffset{partition="0",topic="cold"} 3`,
		`kafka_server_replicamanager_leadercount [1-9]\d*`,
		`kafka_controller_kafkacontroller_activecontrollercount 1`,
		`kafka_server_brokertopicmetrics_remotecopylagbytes{topic="cold"} 0`,
		`kafka_server_brokertopicmetrics_remotelogmetadatacount{topic="cold"} [1-3]`,
		`kafka_server_brokertopicmetrics_remotecopyerrors_total{topic="cold"} 0`,
		`varve_tier_atriskseconds{topic="cold"} 0`,
		`varve_tier_stuckpartitions 0`,
		`varve_tier_removals 0`,
		`varve_tier_blockedremovals 0`,
		`varve_store_requests_total{op="put"} [1-9]`,
		`kafka_network_requestmetrics_requests_total{request="Produce"} [1-9]`,
		`kafka_network_requestmetrics_totaltime_seconds_count{request="Produce"} [1-9]`,
		`kafka_network_requestmetrics_totaltime_seconds_bucket{request="Produce",le="30"} [1-9]`,
		`kafka_server_brokertopicmetrics_messagesin_total 3`,
		`kafka_server_brokertopicmetrics_totalproducerequests_total 3`,
		`kafka_server_brokertopicmetrics_failedproducerequests_total 0`,
		`kafka_server_brokertopicmetrics_failedfetchrequests_total 0`,
		`kafka_server_brokertopicmetrics_remotedeletelagsegments{topic="cold"} \d`,
		`kafka_server_replicamanager_underreplicatedpartitions 0`,
		`kafka_server_replicamanager_underminisrpartitioncount 0`,
		`kafka_server_replicamanager_atminisrpartitioncount [1-9]\d*`,
		`kafka_server_replicamanager_isrshrinks_total 0`,
		`kafka_server_replicamanager_isrexpands_total 0`,
		`kafka_server_socketservermetrics_connection_count [1-9]`,
		`varve_disk_full 0`,
		`varve_log_damagedpartitions 0`,
		`varve_log_lostpartitions 0`,
		`varve_log_producersheldpartitions 0`,
		`kafka_server_replicamanager_offlinereplicacount 0`,
		`kafka_coordinator_group_groupmetadatamanager_numgroups 1`,
		`varve_coordinator_held{coordinator="group"} 1`,
		`varve_coordinator_partitions{coordinator="group"} [1-9]`,
		`varve_coordinator_loadfailures_total{coordinator="transaction"} 0`,
		`process_resident_memory_bytes [1-9]`,
	} {
		if !regexp.MustCompile(`(?m)^` + line).MatchString(body) {
			t.Errorf("/metrics lacks %s", line)
		}
	}
	if status, body = get(t, n, "/healthz"); status != http.StatusOK {
		t.Errorf("/healthz answers %d: %s", status, body)
	}
	if status, body = get(t, n, "/readyz"); status != http.StatusOK || !strings.Contains(body, "1 partitions served") {
		t.Errorf("/readyz answers %d: %s", status, body)
	}
	status, body = get(t, n, "/")
	if status != http.StatusOK || !strings.Contains(body, "cold") || !strings.Contains(body, n.conf.VarveTierStore) {
		t.Errorf("the console answers %d: %s", status, body)
	}
	if status, _ = get(t, n, "/debug/pprof/goroutine?debug=1"); status != http.StatusOK {
		t.Errorf("pprof answers %d", status)
	}
	if status, _ = get(t, n, "/no/such"); status != http.StatusNotFound {
		t.Errorf("an unknown path answers %d", status)
	}
}

func TestAFailedRoomMakesTheNodeUnhealthy(t *testing.T) {
	n := tieredNode(t)
	n.fail(errors.New("the disk is on fire"))
	for _, path := range []string{"/healthz", "/readyz"} {
		if status, body := get(t, n, path); status != http.StatusServiceUnavailable || !strings.Contains(body, "on fire") {
			t.Errorf("%s answers %d: %s", path, status, body)
		}
	}
	if _, body := get(t, n, "/"); !strings.Contains(body, "the disk is on fire") {
		t.Error("the console does not say that the node has failed")
	}
}

func TestAFullDiskAndASilentBucketAreToldButLeaveTheNodeHealthy(t *testing.T) {
	s := devSettings(t.TempDir(), "127.0.0.1:0", "127.0.0.1:0", "s3://none?endpoint=http://127.0.0.1:1&region=x&path-style=true")
	s["varve.disk.reserve.bytes"] = "4000000000000000000"
	t.Setenv("AWS_ACCESS_KEY_ID", "x")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "x")
	n, err := startNode(t.Context(), s, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close(context.Background()) })
	for _, path := range []string{"/healthz", "/readyz"} {
		status, body := get(t, n, path)
		if status != http.StatusOK || !strings.HasPrefix(body, "ok") ||
			!strings.Contains(body, "degraded: the disk is nearly full") || !strings.Contains(body, "degraded: the bucket does not answer") {
			t.Errorf("%s answers %d: %s", path, status, body)
		}
	}
}

// TestOperatorsSeeWhatIsDamaged has a disk damage the only copy of a record.
func TestOperatorsSeeWhatIsDamaged(t *testing.T) {
	dir := t.TempDir()
	settings := devSettings(dir, "127.0.0.1:0", "127.0.0.1:0", "")
	settings["varve.log.verify.interval.ms"] = "0"
	n := startFrom(t, settings)
	cl, err := kgo.NewClient(kgo.SeedBrokers(n.Kafka), kgo.DefaultProduceTopic("events"))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if _, err := kadm.NewClient(cl).CreateTopic(t.Context(), 1, 1, nil, "events"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := cl.ProduceSync(t.Context(), kgo.StringRecord(strings.Repeat("x", 200))).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	logs, err := filepath.Glob(filepath.Join(dir, "*", "events*", "*.log"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("segments are %v, %v", logs, err)
	}
	f, err := os.OpenFile(logs[0], os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("rot"), 80); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	// A consumer finds it.
	reader, err := kgo.NewClient(kgo.SeedBrokers(n.Kafka), kgo.ConsumeTopics("events"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	p, err := n.replica.Partition("events", 0)
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(30 * time.Second)
	for !p.Damage().Lost {
		if time.Now().After(deadline) {
			t.Fatalf("the damage was not found: %+v", p.Damage())
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		reader.PollFetches(ctx)
		cancel()
	}
	_, metrics := get(t, n, "/metrics")
	for _, line := range []string{"varve_log_damagedpartitions 1", "varve_log_lostpartitions 1", "varve_log_producersheldpartitions 0"} {
		if !strings.Contains(metrics, "\n"+line+"\n") {
			t.Errorf("/metrics lacks %s", line)
		}
	}
	const told = "offsets 0 to 0 are damaged; nobody has the records any more"
	for _, path := range []string{"/", "/healthz", "/readyz"} {
		if status, body := get(t, n, path); status != http.StatusOK || !strings.Contains(body, told) {
			t.Errorf("%s answers %d: %s", path, status, body)
		}
	}
	var out, errs strings.Builder
	cmd := segmentsCommand()
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SetArgs([]string{"events", "--http", n.HTTP})
	if err := cmd.ExecuteContext(t.Context()); err != nil || !strings.Contains(out.String(), "damaged") || !strings.Contains(errs.String(), "partition 0: "+told) {
		t.Errorf("%v, varve segments says\n%s%s", err, out.String(), errs.String())
	}
}
