package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/tier/objstore"
)

const (
	demoTopic       = "events"
	demoPartitions  = 4
	demoYears       = 3
	demoSeekYears   = 2
	demoSegment     = 16 << 20
	demoOffloadTime = 3 * time.Minute // for the bucket to have everything
)

// demoSettings make a topic whose segments leave local disk as soon as they
// are in the bucket. Records years apart share a segment: it is rolled by size.
var demoSettings = map[string]string{
	"remote.storage.enable":   "true",
	"retention.ms":            "-1",
	"segment.bytes":           fmt.Sprint(demoSegment),
	"segment.ms":              "9223372036854775807",
	"local.retention.ms":      "1",
	"varve.remote.max.lag.ms": "3000",
}

func demoCommand() *cobra.Command {
	var (
		exit    bool
		events  int64
		verbose bool
		listen  string
		http    string
	)
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show the whole way: write three years of events, offload them, seek two years back, replay",
		Long: "Starts a node in a temporary directory with a folder as its bucket, writes about 300 MiB of\n" +
			"generated events dated over the past three years, waits until they are in the bucket only, seeks\n" +
			"to a date two years back, replays from there out of the bucket and checks every record.\n" +
			"With --exit it ends then, with status 0, or 1 when anything did not match.",
		Args: needs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			level := slog.LevelError
			if verbose {
				level = slog.LevelInfo
			}
			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level}))
			d := &demo{out: cmd.OutOrStdout(), progressTo: cmd.ErrOrStderr(), log: log, listen: listen, http: http}
			return d.run(cmd.Context(), events, exit)
		},
	}
	cmd.Flags().BoolVar(&exit, "exit", false, "end when the check is done")
	cmd.Flags().Int64Var(&events, "events", 1_100_000, "how many events to write")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "print the node's log")
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "where the node listens for Kafka clients (port 0: any free one)")
	cmd.Flags().StringVar(&http, "http", "127.0.0.1:0", "where the node's console and metrics are")
	return cmd
}

// demo runs the demonstration and gathers its figures.
type demo struct {
	out        io.Writer
	progressTo io.Writer
	log        *slog.Logger
	listen     string
	http       string

	node   *node
	events demoEvents

	rawBytes  int64 // keys and values written
	seekTime  time.Duration
	seekReqs  int64
	replayed  int64
	replayRaw int64
	replay    time.Duration
	before    objstore.Stats // of the store, when the replay began
	after     objstore.Stats
}

func (d *demo) run(ctx context.Context, count int64, exit bool) (err error) {
	if count < demoPartitions {
		return fmt.Errorf("--events %d: at least %d are needed", count, demoPartitions)
	}
	for _, dir := range sweepDemos(os.TempDir(), time.Now()) {
		fmt.Fprintf(d.progressTo, "deleted %s, which a demo that was killed had left\n", dir)
	}
	dir, remove, err := demoDir("")
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, remove())
		if err != nil && ctx.Err() != nil { // what fails while the user stops it fails for that
			err = errInterrupted
		}
	}()
	now := time.Now().UTC().Truncate(time.Second)
	d.events = demoEvents{count: count, partitions: demoPartitions, first: now.AddDate(-demoYears, 0, 0), last: now.Add(-time.Hour)}
	set := devSettings(dir, d.listen, d.http, "")
	if d.node, err = startNode(ctx, set, d.log); err != nil {
		return err
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
		defer cancel()
		err = errors.Join(err, d.node.Close(stop))
	}()
	fmt.Fprintf(d.out, "node at %s, bucket %s\n", d.node.Kafka, filepath.Join(dir, "bucket"))
	for _, step := range []func(context.Context) error{d.write, d.waitOffload, d.seekAndReplay} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	d.report()
	if exit {
		return nil
	}
	d.stay(ctx)
	return nil
}

func (d *demo) client(opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(d.node.Kafka), kgo.ClientID("varve-demo")}, opts...)...)
}

// write produces all events, each to its own place.
func (d *demo) write(ctx context.Context) error {
	cl, err := d.client(kgo.DefaultProduceTopic(demoTopic), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedRecords(50_000), kgo.ProducerLinger(5*time.Millisecond))
	if err != nil {
		return err
	}
	defer cl.Close()
	configs := map[string]*string{}
	for name, value := range demoSettings {
		configs[name] = &value
	}
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, demoPartitions, 1, configs, demoTopic); err != nil {
		return fmt.Errorf("create topic %s: %w", demoTopic, err)
	}
	const perEvent = 285 // near enough for the bar
	bar := progress(d.progressTo, d.events.count*perEvent, "writing  ", false)
	var failed firstError
	for i := int64(0); i < d.events.count && failed.get() == nil && ctx.Err() == nil; i++ {
		partition, _ := d.events.place(i)
		rec := &kgo.Record{Partition: partition, Timestamp: time.UnixMilli(d.events.timestamp(i)),
			Key: d.events.appendKey(nil, i), Value: d.events.appendValue(make([]byte, 0, 512), i)}
		size := len(rec.Key) + len(rec.Value)
		d.rawBytes += int64(size)
		cl.Produce(ctx, rec, func(_ *kgo.Record, err error) { failed.set(err) })
		_ = bar.Add(size)
	}
	failed.set(cl.Flush(ctx))
	_ = bar.Finish()
	failed.set(ctx.Err())
	return failed.get()
}

// waitOffload waits until no record is on local disk any more.
func (d *demo) waitOffload(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, demoOffloadTime, fmt.Errorf("the bucket did not have everything within %v: run with -v to see why", demoOffloadTime))
	defer cancel()
	cl, err := d.client()
	if err != nil {
		return err
	}
	defer cl.Close()
	bar := progress(d.progressTo, d.events.count, "offloading", false)
	defer func() { _ = bar.Finish() }()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		starts, err := listOffsets(ctx, cl, d.keys(), timestampLocalStart, false)
		if err != nil {
			return err
		}
		var gone int64
		for _, f := range starts {
			gone += f.offset
		}
		_ = bar.Set64(gone)
		if gone == d.events.count {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

func (d *demo) keys() []partitionKey {
	keys := make([]partitionKey, demoPartitions)
	for p := range keys {
		keys[p] = partitionKey{demoTopic, int32(p)}
	}
	return keys
}

// seekAndReplay asks where a moment two years back is, and reads from there to
// the end, holding every record against the event it must be.
func (d *demo) seekAndReplay(ctx context.Context) error {
	cl, err := d.client()
	if err != nil {
		return err
	}
	defer cl.Close()
	if err := cl.Ping(ctx); err != nil {
		return err
	}
	target := d.events.last.AddDate(-demoSeekYears, 0, 0).UnixMilli()
	d.before = d.node.store.Stats()
	began := time.Now()
	answers, err := listOffsets(ctx, cl, d.keys(), target, false)
	if err != nil {
		return err
	}
	d.seekTime = time.Since(began)
	d.seekReqs = d.node.store.Stats().Requests() - d.before.Requests()
	starts := map[int32]kgo.Offset{}
	next := map[int32]int64{}
	for key, f := range answers {
		if want := d.events.firstAtOrAfter(key.partition, target); f.offset != want {
			return fmt.Errorf("seek: partition %d answered offset %d for %s, the first such event is at %d", key.partition, f.offset, time.UnixMilli(target).UTC(), want)
		}
		starts[key.partition] = kgo.NewOffset().At(f.offset)
		next[key.partition] = f.offset
	}
	return d.replayFrom(ctx, starts, next)
}

func (d *demo) replayFrom(ctx context.Context, starts map[int32]kgo.Offset, next map[int32]int64) error {
	total := d.events.count
	for _, offset := range next {
		total -= offset
	}
	cl, err := d.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{demoTopic: starts}),
		kgo.FetchMaxBytes(50<<20), kgo.FetchMaxPartitionBytes(8<<20))
	if err != nil {
		return err
	}
	defer cl.Close()
	bar := progress(d.progressTo, total, "replaying", false)
	began := time.Now()
	for d.replayed < total {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("replay: %w", err)
		}
		for iter := fetches.RecordIter(); !iter.Done(); {
			if err := d.check(iter.Next(), next); err != nil {
				return err
			}
		}
		_ = bar.Set64(d.replayed)
	}
	_ = bar.Finish()
	d.replay = time.Since(began)
	d.after = d.node.store.Stats()
	return nil
}

// check holds a record against the event that belongs at its place.
func (d *demo) check(r *kgo.Record, next map[int32]int64) error {
	if r.Offset != next[r.Partition] {
		return fmt.Errorf("replay: partition %d gave offset %d where %d comes next", r.Partition, r.Offset, next[r.Partition])
	}
	next[r.Partition]++
	i := d.events.at(r.Partition, r.Offset)
	var key, value [1024]byte
	if r.Timestamp.UnixMilli() != d.events.timestamp(i) || !bytes.Equal(r.Key, d.events.appendKey(key[:0], i)) || !bytes.Equal(r.Value, d.events.appendValue(value[:0], i)) {
		return fmt.Errorf("replay: the record at partition %d offset %d is not event %d: %s", r.Partition, r.Offset, i, r.Value)
	}
	d.replayed++
	d.replayRaw += int64(len(r.Key) + len(r.Value))
	return nil
}

func (d *demo) report() {
	objects, stored := d.bucketSize()
	rate := float64(d.replayRaw) / d.replay.Seconds()
	rows := [][]string{
		{"records written", fmt.Sprint(d.events.count)},
		{"raw bytes", humanBytes(d.rawBytes)},
		{"stored in the bucket", fmt.Sprintf("%s in %d objects", humanBytes(stored), objects)},
		{"requests to write them", fmt.Sprint(d.before.Requests())},
		{"seek two years back", fmt.Sprintf("%.1f ms for %d partitions, %d requests, answers exact", float64(d.seekTime.Microseconds())/1000, demoPartitions, d.seekReqs)},
		{"replayed and checked", fmt.Sprintf("%d records, %s", d.replayed, humanBytes(d.replayRaw))},
		{"replay speed", fmt.Sprintf("%s/s, %.0f records/s", humanBytes(int64(rate)), float64(d.replayed)/d.replay.Seconds())},
		{"requests to replay", fmt.Sprint(d.after.Requests() - d.before.Requests() - d.seekReqs)},
	}
	fmt.Fprintln(d.out)
	var o output
	_ = o.table(d.out, []string{"WHAT", "FIGURE"}, rows)
	fmt.Fprintln(d.out, "\nEvery record matched what was written.")
}

// bucketSize counts what lies in the bucket's folder.
func (d *demo) bucketSize() (objects int, bytes int64) {
	root := filepath.Join(d.node.dir, "bucket")
	_ = filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil
		}
		if info, err := e.Info(); err == nil {
			objects++
			bytes += info.Size()
		}
		return nil
	})
	return objects, bytes
}

// stay keeps the node up until the user has enough.
func (d *demo) stay(ctx context.Context) {
	since := d.events.last.AddDate(-1, 0, 0).Format("2006-01-02")
	fmt.Fprintf(d.out, `
The node stays up; its data goes when you stop it with Ctrl-C. Try, in another terminal:
  export VARVE_BOOTSTRAP=%[1]s VARVE_HTTP=%[2]s
  %[3]s offsets %[4]s --at %[5]s
  %[3]s consume %[4]s --from %[5]s -n 3
  %[3]s segments %[4]s
or any Kafka client, or a browser at http://%[2]s/
`, d.node.Kafka, d.node.HTTP, invocation(os.Args[0]), demoTopic, since)
	<-ctx.Done()
}
