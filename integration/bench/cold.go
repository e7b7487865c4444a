package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/integration/nodetest"
	"github.com/varvelog/varve/tier/objstore"
	"github.com/varvelog/varve/tier/objstore/objstoretest"
)

const (
	bucket       = "bench"
	getDelay     = 30 * time.Millisecond // each request to the bucket takes this longer
	coldRecords  = 2_000_000             // of 1 KiB
	coldSegment  = 256 << 20
	replayMax    = "4194304" // bytes a partition and fetch: what Kafka's tiered replay is fastest with
	offloadLimit = 10 * time.Minute
	seekLookups  = 15 // cold lookups a round
)

// cold measures what comes out of the bucket, through a proxy that delays every
// request by 30 ms. Kafka's tiered storage reads local files, undelayed.
func (b *bench) cold(ctx context.Context) error {
	gw, err := objstoretest.BuildVersityGW(ctx)
	if err != nil {
		return err
	}
	files := filepath.Join(b.dir, "s3")
	if err := os.MkdirAll(files, 0o755); err != nil {
		return err
	}
	server, err := objstoretest.StartServer(ctx, gw, files)
	if err != nil {
		return err
	}
	b.onStop(server.Stop)
	if err := server.MakeBucket(bucket); err != nil {
		return err
	}
	_, stop, err := b.process("s3proxy", nil, b.limits, "s3proxy", "-target", server.Endpoint, "-latency", getDelay.String())
	if err != nil {
		return err
	}
	b.onStop(stop)
	proxy, err := b.listening("s3proxy")
	if err != nil {
		return err
	}
	c := &coldBench{bench: b, server: server, proxy: "http://" + proxy}
	if err := c.fill(ctx); err != nil {
		return err
	}
	kafka, err := c.fillKafka(ctx)
	if err != nil {
		return err
	}
	b.onStop(kafka.stop)
	for round := range *rounds + 1 {
		for _, step := range []func(context.Context, int) error{c.relay, c.varveRound, c.seekRound} {
			if err := step(ctx, round); err != nil {
				return err
			}
		}
		f, err := b.run(ctx, kafka, "consume", "-topic", "cold", "-count", strconv.Itoa(coldRecords), "-partition-max", replayMax)
		if err != nil {
			return err
		}
		if err := b.note(measured{"cold", "replay", "kafka-tiered", round, f}); err != nil {
			return err
		}
	}
	return b.stopAll()
}

type coldBench struct {
	*bench
	server *objstoretest.Server
	proxy  string
}

// listening reads the address that a tool prints first.
func (b *bench) listening(name string) (addr string, err error) {
	err = waitFor(func() error {
		text, err := os.ReadFile(filepath.Join(b.dir, name+".log"))
		if err != nil {
			return err
		}
		line, _, ok := strings.Cut(string(text), "\n")
		var at struct{ Listen string }
		if !ok {
			return errors.New("nothing printed yet")
		}
		if err := json.Unmarshal([]byte(line), &at); err != nil {
			return err
		}
		addr = at.Listen
		return nil
	})
	return addr, err
}

func (c *coldBench) start(endpoint string) (system, error) {
	store := fmt.Sprintf("s3://%s/v?endpoint=%s&region=%s&path-style=true", bucket, endpoint, c.server.Region)
	return c.startVarve("varve-cold", c.server.Env(), "--store", store, "--set", "log.segment.delete.delay.ms=0")
}

// coldTopic makes records leave local disk as soon as they are in the bucket.
func coldTopic(segment int) string {
	return fmt.Sprintf("remote.storage.enable=true,retention.ms=-1,local.retention.ms=1,internal.segment.bytes=%d,segment.ms=9223372036854775807,varve.remote.max.lag.ms=3000", segment)
}

// fill writes the archive without delay, and counts what that cost.
func (c *coldBench) fill(ctx context.Context) error {
	s, err := c.start(c.server.Endpoint)
	if err != nil {
		return err
	}
	before, err := c.metrics(s)
	if err != nil {
		return errors.Join(err, s.stop())
	}
	_, err = c.run(ctx, s, "produce", "-topic", "cold", "-partitions", "1", "-count", strconv.Itoa(coldRecords), "-size", "1024", "-configs", coldTopic(coldSegment))
	if err == nil {
		err = waitOffloaded(ctx, s, "cold")
	}
	if err != nil {
		return errors.Join(err, s.stop())
	}
	after, err := c.metrics(s)
	if err != nil {
		return errors.Join(err, s.stop())
	}
	puts, segments := after[`varve_store_requests_total{op="put"}`]-before[`varve_store_requests_total{op="put"}`], after[`kafka_server_brokertopicmetrics_remotelogmetadatacount{topic="cold"}`]
	err = c.note(measured{"cold", "archive", "varve", 1, figures{"puts": puts, "segments": segments, "puts_per_segment": puts / segments}})
	for topic, n := range map[string]int{"seek10": 10, "seek10000": 10_000} {
		if err == nil {
			err = c.fillSegments(ctx, s, topic, n)
		}
	}
	return errors.Join(err, s.stop())
}

// fillSegments writes n batches, each a segment of its own, a minute apart.
func (c *coldBench) fillSegments(ctx context.Context, s system, topic string, n int) error {
	cl, err := dial(s.addr, kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ProducerBatchMaxBytes(14<<10), kgo.ProducerLinger(0))
	if err != nil {
		return err
	}
	defer cl.Close()
	configs := map[string]*string{}
	for kv := range strings.SplitSeq(coldTopic(16<<10), ",") {
		k, v, _ := strings.Cut(kv, "=")
		configs[k] = &v
	}
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, 1, 1, configs, topic); err != nil {
		return err
	}
	value := make([]byte, 12<<10)
	var failed error
	for i := range n {
		rec := &kgo.Record{Value: value, Timestamp: seekTime(i)}
		cl.Produce(ctx, rec, func(_ *kgo.Record, err error) { failed = errors.Join(failed, err) })
	}
	if err := errors.Join(cl.Flush(ctx), failed); err != nil {
		return err
	}
	return waitOffloaded(ctx, s, topic)
}

// seekTime is when segment i of the seek topics was written.
func seekTime(i int) time.Time { return time.UnixMilli(1_600_000_000_000 + int64(i)*60_000) }

// waitOffloaded waits until a topic's one partition has left local disk.
func waitOffloaded(ctx context.Context, s system, topic string) error {
	ctx, cancel := context.WithTimeout(ctx, offloadLimit)
	defer cancel()
	cl, err := dial(s.addr)
	if err != nil {
		return err
	}
	defer cl.Close()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		local, _, lerr := nodetest.OffsetAt(ctx, cl, topic, 0, nodetest.LocalStart)
		end, _, eerr := nodetest.OffsetAt(ctx, cl, topic, 0, nodetest.Latest)
		// Kafka never rolls an active segment for its age alone here.
		if err := errors.Join(lerr, eerr); err == nil && (local == end || s.name == "kafka-tiered" && local > end*8/10) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s on %s: local start %d of %d: %w", topic, s.name, local, end, ctx.Err())
		case <-tick.C:
		}
	}
}

func (c *coldBench) fillKafka(ctx context.Context) (system, error) {
	s, err := c.startKafka(ctx, true)
	if err != nil {
		return s, err
	}
	settings := fmt.Sprintf("remote.storage.enable=true,retention.ms=-1,local.retention.ms=1000,segment.bytes=%d,file.delete.delay.ms=0", coldSegment)
	if _, err := c.run(ctx, s, "produce", "-topic", "cold", "-partitions", "1", "-count", strconv.Itoa(coldRecords), "-size", "1024", "-configs", settings); err != nil {
		return s, errors.Join(err, s.stop())
	}
	if err := waitOffloaded(ctx, s, "cold"); err != nil {
		return s, errors.Join(err, s.stop())
	}
	return s, nil
}

// relay is the limit: parallel ranged GETs put in order and sent on.
func (c *coldBench) relay(ctx context.Context, round int) error {
	cmd := exec.CommandContext(ctx, c.limits, "relay", "-s3", c.server.Endpoint, "-bucket", "relay", "-create", "1GiB", "-latency", getDelay.String(),
		"-rounds", "1", "-access", c.server.AccessKey, "-secret", c.server.SecretKey, "-region", c.server.Region)
	text, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("limits relay: %w", err)
	}
	f, err := limitFigures(text, "GET")
	if err != nil {
		return err
	}
	return c.note(measured{"cold", "replay", "relay", round, f})
}

// varveRound replays from a node that has just started, so that nothing is in
// its memory, with and without a producer beside.
func (c *coldBench) varveRound(ctx context.Context, round int) error {
	s, err := c.start(c.proxy)
	if err != nil {
		return err
	}
	defer s.stop()
	replay := []string{"consume", "-topic", "cold", "-count", strconv.Itoa(coldRecords), "-partition-max", replayMax}
	before, err := c.metrics(s)
	if err != nil {
		return err
	}
	f, err := c.run(ctx, s, replay...)
	if err != nil {
		return err
	}
	after, err := c.metrics(s)
	if err != nil {
		return err
	}
	f["gets"] = after[`varve_store_requests_total{op="get"}`] - before[`varve_store_requests_total{op="get"}`]
	if err := c.note(measured{"cold", "replay", "varve", round, f}); err != nil {
		return err
	}
	paced := []string{"paced", "-topic", "beside", "-size", "1024", "-rate", "5000", "-seconds", "4"}
	alone, err := c.run(ctx, s, paced...)
	if err != nil {
		return err
	}
	if err := c.note(measured{"cold", "produce-alone", "varve", round, alone}); err != nil {
		return err
	}
	over := make(chan error, 1)
	beside, cancel := context.WithCancel(ctx)
	go func() {
		var err error
		for err == nil && beside.Err() == nil {
			_, err = c.run(beside, s, replay...)
		}
		over <- err
	}()
	during, err := c.run(ctx, s, paced...)
	if err == nil {
		err = c.note(measured{"cold", "produce-during-replay", "varve", round, during})
	}
	if err == nil {
		err = c.besideStub(ctx, round, paced)
	}
	cancel()
	<-over // its last replay was cut off
	return err
}

// besideStub produces to the stub broker while the replay goes on: what the
// machine's full cores alone do to a producer, whose broker has no part in the
// replay.
func (c *coldBench) besideStub(ctx context.Context, round int, paced []string) error {
	stub, err := c.startStub()
	if err != nil {
		return err
	}
	defer stub.stop()
	f, err := c.run(ctx, stub, paced...)
	if err != nil {
		return err
	}
	return c.note(measured{"cold", "produce-during-replay", "stub", round, f})
}

// seekRound looks up times on a node that has just started; each lookup falls
// into another segment, so each is cold.
func (c *coldBench) seekRound(ctx context.Context, round int) error {
	get, err := c.oneGet(ctx)
	if err != nil {
		return err
	}
	if err := c.note(measured{"cold", "get", "limit", round, figures{"us": get}}); err != nil {
		return err
	}
	for topic, n := range map[string]int{"seek10": 10, "seek10000": 10_000} {
		if err := c.seek(ctx, round, topic, n); err != nil {
			return err
		}
	}
	return nil
}

func (c *coldBench) seek(ctx context.Context, round int, topic string, segments int) error {
	s, err := c.start(c.proxy)
	if err != nil {
		return err
	}
	defer s.stop()
	cl, err := dial(s.addr)
	if err != nil {
		return err
	}
	defer cl.Close()
	if _, _, err := nodetest.OffsetAt(ctx, cl, topic, 0, nodetest.Latest); err != nil {
		return err // and the connection is open now
	}
	before, err := c.metrics(s)
	if err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(uint64(round), 1))
	var total time.Duration
	lookups := r.Perm(segments)[:min(seekLookups, segments-1)]
	for _, i := range lookups {
		at := seekTime(i).UnixMilli()
		began := time.Now()
		_, found, err := nodetest.OffsetAt(ctx, cl, topic, 0, at)
		if err != nil || found != at {
			return fmt.Errorf("seek to %d in %s found %d: %w", at, topic, found, err)
		}
		total += time.Since(began)
	}
	after, err := c.metrics(s)
	if err != nil {
		return err
	}
	name := `varve_store_requests_total{op="get"}`
	n := float64(len(lookups))
	return c.note(measured{"cold", topic, "varve", round, figures{"us": float64(total.Microseconds()) / n, "gets": (after[name] - before[name]) / n}})
}

// oneGet is how long one small GET takes through the proxy, in microseconds.
func (c *coldBench) oneGet(ctx context.Context) (float64, error) {
	url := fmt.Sprintf("s3://%s/probe?endpoint=%s&region=%s&path-style=true", bucket, c.proxy, c.server.Region)
	store, err := objstore.Open(ctx, url, c.server.Options())
	if err != nil {
		return 0, err
	}
	if _, err := store.Put(ctx, "object", objstore.Bytes(make([]byte, 16<<10)), objstore.PutOptions{}); err != nil {
		return 0, err
	}
	const n = 20
	began := time.Now()
	for range n {
		if _, _, err := objstore.ReadAll(ctx, store, "object", 1<<20); err != nil {
			return 0, err
		}
	}
	return float64(time.Since(began).Microseconds()) / n, nil
}

// metrics scrapes a node.
func (b *bench) metrics(s system) (figures, error) {
	resp, err := http.Get("http://" + s.http + "/metrics")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	f := figures{}
	lines := bufio.NewScanner(io.LimitReader(resp.Body, 64<<20))
	for lines.Scan() {
		name, value, ok := strings.Cut(lines.Text(), "} ")
		if ok {
			name += "}"
		} else if name, value, ok = strings.Cut(lines.Text(), " "); !ok {
			continue
		}
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			f[name] = n
		}
	}
	return f, lines.Err()
}
