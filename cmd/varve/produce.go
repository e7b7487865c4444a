package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// lineBytesMax bounds one input line: Kafka's largest request.
const lineBytesMax = 100 << 20

// produceRun is what `varve produce` was told.
type produceRun struct {
	client
	reader    recordReader
	partition int32
	codec     string
	quiet     bool
	out       output
	batchMax  string
}

func produceCommand() *cobra.Command {
	var p produceRun
	cmd := &cobra.Command{
		Use:   "produce TOPIC",
		Short: "Write one record per line of standard input",
		Long: "Write one record per line of standard input, and wait until all in-sync replicas have them (acks=all).\n\n" +
			"It ends with the first line that cannot be read or written, and when records have waited for --timeout\n" +
			"without any being acknowledged, with a status other than 0 and the broker's reason. Lines that were\n" +
			"acknowledged before stay written; so may lines that were on their way.",
		Example: "  echo hello | varve produce events\n" +
			"  varve produce events --key-field key --time-field ts < events.ndjson",
		Args: needs("TOPIC"),
		RunE: func(cmd *cobra.Command, args []string) error { return p.run(cmd, args[0]) },
	}
	p.flags(cmd)
	cmd.Flags().StringVar(&p.reader.keySeparator, "key-separator", "", "the key is what stands before this on a line")
	cmd.Flags().StringVar(&p.reader.keyField, "key-field", "", "lines are JSON objects: take the key from this field")
	cmd.Flags().StringVar(&p.reader.timeField, "time-field", "", "lines are JSON objects: take the timestamp (ms, or RFC 3339) from this field")
	cmd.Flags().Int32Var(&p.partition, "partition", -1, "write to this partition only (-1: by key, else spread)")
	cmd.Flags().StringVar(&p.codec, "codec", "zstd", "none, gzip, snappy, lz4 or zstd")
	cmd.Flags().StringVar(&p.batchMax, "batch-max", "1MiB", "largest batch, before compression: a longer line does not fit; the topic's max.message.bytes bounds it too")
	cmd.Flags().BoolVar(&p.quiet, "quiet", false, "no progress")
	cmd.Flags().BoolVar(&p.out.json, "json", false, "print what was written as JSON, also when it ends with an error; errors as JSON on standard error")
	return cmd
}

func (p *produceRun) run(cmd *cobra.Command, topic string) error {
	batchBytes, opts, err := p.options(topic)
	if err != nil {
		return err
	}
	p.heard = &refusals{tell: cmd.ErrOrStderr()}
	if p.out.json {
		p.heard.tell = io.Discard // the error has it
	}
	cl, err := p.dial(cmd.Context(), opts...)
	if err != nil {
		return err
	}
	defer cl.Close()
	if err := canHold(cmd.Context(), cl, topic, p.partition); err != nil {
		return err
	}
	w := &writing{reader: p.reader, cl: cl, limit: p.timeout, bar: progress(cmd.ErrOrStderr(), -1, "writing", p.quiet),
		done: written{Topic: topic, Partitions: map[int32]writtenRange{}}}
	err = w.run(cmd.Context(), cmd.InOrStdin())
	_ = w.bar.Finish()
	sum := w.summary()
	if p.out.json {
		if said := p.out.object(cmd.OutOrStdout(), sum); err == nil {
			return said
		}
	} else if err == nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "%d records written to %s\n", sum.Records, topic)
		return nil
	}
	if sum.Records > 0 && !p.out.json {
		fmt.Fprintf(cmd.ErrOrStderr(), "%d records were written to %s before that\n", sum.Records, topic)
	}
	return produceError(topic, p.heard.explain(err), batchBytes)
}

// options are the producer's, with the size of its largest batch.
func (p *produceRun) options(topic string) (batchBytes int32, opts []kgo.Opt, err error) {
	compression, err := codecArg(p.codec)
	if err != nil {
		return 0, nil, err
	}
	if batchBytes, err = batchBytesArg(p.batchMax); err != nil {
		return 0, nil, err
	}
	opts = []kgo.Opt{
		kgo.DefaultProduceTopic(topic),
		kgo.ProducerBatchCompression(compression),
		kgo.ProducerBatchMaxBytes(batchBytes),
		kgo.BrokerMaxWriteBytes(lineBytesMax),
		kgo.AllowAutoTopicCreation(),
		// No RecordDeliveryTimeout: the client counts it from the record's
		// own timestamp, which in a back-fill is years ago.
		kgo.ProduceRequestTimeout(p.timeout),
	}
	if p.partition >= 0 {
		opts = append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner()))
		p.reader.partition = p.partition
	}
	return batchBytes, opts, nil
}

func batchBytesArg(s string) (int32, error) {
	n, err := humanize.ParseBytes(s)
	if err != nil || n < 1<<10 || n > lineBytesMax {
		return 0, fmt.Errorf("--batch-max %q: write a size from 1KiB to %s, such as 4MiB", s, humanize.IBytes(lineBytesMax))
	}
	return int32(n), nil
}

// produceError says what to do about records that were not written.
func produceError(topic string, err error, batchBytes int32) error {
	var large *tooLarge
	switch {
	case errors.As(err, &large) && large.size >= int(batchBytes):
		return advise(fmt.Errorf("topic %s: MESSAGE_TOO_LARGE: input line %d has %d bytes, more than a batch of this producer takes", topic, large.line, large.size),
			"use --batch-max 4MiB or so, and raise the topic's limit with `varve topic alter "+topic+" --config max.message.bytes=BYTES`")
	case errors.Is(err, kerr.MessageTooLarge):
		return advise(topicError(topic, err, ""), "raise the topic's limit with `varve topic alter "+topic+" --config max.message.bytes=BYTES`, or make batches smaller with --batch-max")
	}
	return topicError(topic, err, "")
}

// canHold refuses a topic that neither exists nor will be made by the first
// record, and a partition that it has not, before any input is read.
func canHold(ctx context.Context, cl *kgo.Client, topic string, partition int32) error {
	adm := kadm.NewClient(cl)
	details, err := adm.Metadata(ctx, topic)
	if err != nil {
		return err
	}
	found := details.Topics[topic]
	switch {
	case found.Err == nil && int(partition) >= len(found.Partitions):
		return noPartition(topic, len(found.Partitions), partition)
	case !errors.Is(found.Err, kerr.UnknownTopicOrPartition):
		return topicError(topic, found.Err, "")
	}
	configs, err := adm.DescribeBrokerConfigs(ctx, details.Controller)
	if err != nil {
		return nil // whether it will be made is not told; the first record shows it
	}
	for _, broker := range configs {
		for _, c := range broker.Configs {
			if c.Key == "auto.create.topics.enable" && c.MaybeValue() == "false" {
				return advise(fmt.Errorf("topic %s: %w, and the broker makes none by itself (auto.create.topics.enable=false)",
					topic, refused(kerr.UnknownTopicOrPartition, "the topic does not exist")), "make it with `varve topic create "+topic+"`")
			}
		}
	}
	return nil
}

func codecArg(name string) (kgo.CompressionCodec, error) {
	switch name {
	case "none":
		return kgo.NoCompression(), nil
	case "gzip":
		return kgo.GzipCompression(), nil
	case "snappy":
		return kgo.SnappyCompression(), nil
	case "lz4":
		return kgo.Lz4Compression(), nil
	case "zstd":
		return kgo.ZstdCompression(), nil
	}
	return kgo.CompressionCodec{}, fmt.Errorf("codec %q: choose none, gzip, snappy, lz4 or zstd", name)
}

// recordReader turns lines into records.
type recordReader struct {
	keySeparator, keyField, timeField string
	partition                         int32
}

func (r *recordReader) record(line []byte) (*kgo.Record, error) {
	rec := &kgo.Record{Value: line, Partition: r.partition}
	if r.keySeparator != "" {
		key, value, ok := bytes.Cut(line, []byte(r.keySeparator))
		if !ok {
			return nil, fmt.Errorf("line has no key separator %q", r.keySeparator)
		}
		rec.Key, rec.Value = key, value
	}
	if r.keyField == "" && r.timeField == "" {
		return rec, nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil {
		return nil, fmt.Errorf("line is not a JSON object: %w", err)
	}
	if r.keyField != "" {
		if raw, ok := fields[r.keyField]; ok {
			rec.Key = unquote(raw)
		}
	}
	if r.timeField != "" {
		raw, ok := fields[r.timeField]
		if !ok {
			return nil, fmt.Errorf("line has no field %q to take the time from", r.timeField)
		}
		t, err := jsonTime(raw)
		if err != nil {
			return nil, fmt.Errorf("field %q: %w", r.timeField, err)
		}
		rec.Timestamp = t
	}
	return rec, nil
}

func unquote(raw json.RawMessage) []byte {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return []byte(s)
	}
	return raw
}

func jsonTime(raw json.RawMessage) (time.Time, error) {
	if ms, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return time.UnixMilli(ms), nil
	}
	return time.Parse(time.RFC3339Nano, string(unquote(raw)))
}

// progress that is looked at is looked at this often.
const stallTick = 100 * time.Millisecond

// writing is one run of `varve produce`.
type writing struct {
	reader recordReader
	cl     *kgo.Client
	bar    *progressbar.ProgressBar
	limit  time.Duration // how long records may wait without any being acknowledged

	failed firstError
	asked  atomic.Int64

	mu   sync.Mutex // guards done
	done written
}

// written is what has been acknowledged. Offsets are from the first to the last
// of each partition; other producers' records may lie between.
type written struct {
	Topic      string                 `json:"topic"`
	Records    int64                  `json:"records"`
	Bytes      int64                  `json:"bytes"`
	Partitions map[int32]writtenRange `json:"partitions"`
}

type writtenRange struct {
	Records int64 `json:"records"`
	First   int64 `json:"firstOffset"`
	Last    int64 `json:"lastOffset"`
}

// errStalled is returned when records have waited for longer than --timeout and none was acknowledged.
var errStalled = errors.New("records are not acknowledged")

// run reads in to its end. It stops at the first record that cannot be read or
// written, and when nothing has been acknowledged for too long: what was
// acknowledged before stays written.
func (w *writing) run(ctx context.Context, in io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan struct{})
	go func() { // ends with the input, or with the process: a read of a terminal cannot be stopped
		defer close(ended)
		w.read(ctx, in)
		w.failed.set(w.cl.Flush(ctx))
	}()
	tick := time.NewTicker(stallTick)
	defer tick.Stop()
	seen, since := int64(-1), time.Now()
	for {
		select {
		case <-ended:
			return w.failed.get()
		case <-ctx.Done():
			w.failed.set(ctx.Err())
			return w.failed.get()
		case <-tick.C:
		}
		if err := w.failed.get(); err != nil {
			return err
		}
		acked := w.summary().Records
		if acked != seen || w.asked.Load() == acked {
			seen, since = acked, time.Now()
		}
		if time.Since(since) >= w.limit {
			return fmt.Errorf("%d %w after %s", w.asked.Load()-acked, errStalled, w.limit)
		}
	}
}

func (w *writing) read(ctx context.Context, from io.Reader) {
	in := bufio.NewScanner(from)
	in.Buffer(make([]byte, 64<<10), lineBytesMax)
	for line := 1; w.failed.get() == nil && ctx.Err() == nil && in.Scan(); line++ {
		rec, err := w.reader.record(bytes.Clone(in.Bytes()))
		if err != nil {
			w.failed.set(fmt.Errorf("input line %d: %w", line, err))
			return
		}
		size := len(rec.Key) + len(rec.Value)
		w.asked.Add(1)
		w.cl.Produce(ctx, rec, func(rec *kgo.Record, err error) {
			if errors.Is(err, kerr.MessageTooLarge) {
				err = &tooLarge{line, size, err}
			}
			if err != nil {
				w.failed.set(err)
				return
			}
			w.acknowledged(rec, size)
			_ = w.bar.Add(size)
		})
	}
	if errors.Is(in.Err(), bufio.ErrTooLong) {
		w.failed.set(fmt.Errorf("an input line is longer than %d bytes, the most that a request can hold: split it", lineBytesMax))
		return
	}
	w.failed.set(in.Err())
}

func (w *writing) acknowledged(rec *kgo.Record, size int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done.Records++
	w.done.Bytes += int64(size)
	r, ok := w.done.Partitions[rec.Partition]
	if !ok {
		r.First, r.Last = rec.Offset, rec.Offset
	}
	r.Records++
	r.First, r.Last = min(r.First, rec.Offset), max(r.Last, rec.Offset)
	w.done.Partitions[rec.Partition] = r
}

func (w *writing) summary() written {
	w.mu.Lock()
	defer w.mu.Unlock()
	sum := w.done
	sum.Partitions = maps.Clone(sum.Partitions)
	return sum
}

// tooLarge is a line that a limit keeps out.
type tooLarge struct {
	line, size int
	err        error
}

func (e *tooLarge) Error() string {
	return fmt.Sprintf("input line %d (%d bytes): %v", e.line, e.size, e.err)
}
func (e *tooLarge) Unwrap() error { return e.err }

// firstError keeps the first error that is set on it.
type firstError struct {
	mu  sync.Mutex // guards err
	err error
}

func (f *firstError) set(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = errors.Join(f.err, err)
	if joined, ok := f.err.(interface{ Unwrap() []error }); ok {
		f.err = joined.Unwrap()[0]
	}
}

func (f *firstError) get() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// progress is a bar on a terminal, in bytes unless units say otherwise, and silent elsewhere. A size of -1
// means that the end is not known. It draws when it is told of something, and never by itself: the library
// has a goroutine for that which races with who tells, and which stays when the bar is left unfinished.
func progress(w io.Writer, size int64, what string, quiet bool, units ...progressbar.Option) *progressbar.ProgressBar {
	if quiet || !isTerminal(w) {
		return progressbar.NewOptions64(size, progressbar.OptionSetVisibility(false))
	}
	return progressbar.NewOptions64(size, append([]progressbar.Option{
		progressbar.OptionSetSpinnerChangeInterval(0),
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetDescription(what),
		progressbar.OptionShowBytes(true),
		progressbar.OptionUseIECUnits(true),
		progressbar.OptionThrottle(100 * time.Millisecond),
		progressbar.OptionClearOnFinish(),
		progressbar.OptionSetWidth(30),
	}, units...)...)
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
