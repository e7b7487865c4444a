package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// lineBytesMax bounds one input line: Kafka's largest request.
const lineBytesMax = 100 << 20

func produceCommand() *cobra.Command {
	var (
		c         client
		reader    recordReader
		partition int32
		codec     string
		quiet     bool
	)
	cmd := &cobra.Command{
		Use:   "produce TOPIC",
		Short: "Write one record per line of standard input",
		Example: "  echo hello | varve produce events\n" +
			"  varve produce events --key-field key --time-field ts < events.ndjson",
		Args: needs("TOPIC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			compression, err := codecArg(codec)
			if err != nil {
				return err
			}
			c.heard = &refusals{tell: cmd.ErrOrStderr()}
			opts := []kgo.Opt{
				kgo.DefaultProduceTopic(args[0]),
				kgo.ProducerBatchCompression(compression),
				kgo.AllowAutoTopicCreation(),
				// No RecordDeliveryTimeout: the client counts it from the record's
				// own timestamp, which in a back-fill is years ago.
				kgo.RecordRetries(10),
			}
			if partition >= 0 {
				opts = append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner()))
				reader.partition = partition
			}
			cl, err := c.dial(cmd.Context(), opts...)
			if err != nil {
				return err
			}
			defer cl.Close()
			if err := canHold(cmd.Context(), cl, args[0]); err != nil {
				return err
			}
			n, err := reader.produce(cmd, cl, quiet)
			if err != nil {
				return topicError(args[0], c.heard.explain(err), "")
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%d records written to %s\n", n, args[0])
			return nil
		},
	}
	c.flags(cmd)
	cmd.Flags().StringVar(&reader.keySeparator, "key-separator", "", "the key is what stands before this on a line")
	cmd.Flags().StringVar(&reader.keyField, "key-field", "", "lines are JSON objects: take the key from this field")
	cmd.Flags().StringVar(&reader.timeField, "time-field", "", "lines are JSON objects: take the timestamp (ms, or RFC 3339) from this field")
	cmd.Flags().Int32Var(&partition, "partition", -1, "write to this partition only (-1: by key, else spread)")
	cmd.Flags().StringVar(&codec, "codec", "zstd", "none, gzip, snappy, lz4 or zstd")
	cmd.Flags().BoolVar(&quiet, "quiet", false, "no progress")
	return cmd
}

// canHold refuses a topic that neither exists nor will be made by the first
// record, before any input is read.
func canHold(ctx context.Context, cl *kgo.Client, topic string) error {
	adm := kadm.NewClient(cl)
	details, err := adm.Metadata(ctx, topic)
	if err != nil {
		return err
	}
	if known := details.Topics[topic].Err; !errors.Is(known, kerr.UnknownTopicOrPartition) {
		return topicError(topic, known, "")
	}
	configs, err := adm.DescribeBrokerConfigs(ctx, details.Controller)
	if err != nil {
		return nil // whether it will be made is not told; the first record shows it
	}
	for _, broker := range configs {
		for _, c := range broker.Configs {
			if c.Key == "auto.create.topics.enable" && c.MaybeValue() == "false" {
				return fmt.Errorf("%w, and the broker makes none by itself (auto.create.topics.enable=false): make it with `varve topic create %s`",
					topicError(topic, kerr.UnknownTopicOrPartition, "the topic does not exist"), topic)
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

// produce reads standard input to its end. It stops at the first record that
// cannot be read or written: what was acknowledged before stays written.
func (r *recordReader) produce(cmd *cobra.Command, cl *kgo.Client, quiet bool) (int64, error) {
	var (
		failed  firstError
		written int64
		mu      sync.Mutex // guards written
		in      = bufio.NewScanner(cmd.InOrStdin())
		bar     = progress(cmd.ErrOrStderr(), -1, "writing", quiet)
	)
	in.Buffer(make([]byte, 64<<10), lineBytesMax)
	for line := 1; failed.get() == nil && in.Scan(); line++ {
		rec, err := r.record(bytes.Clone(in.Bytes()))
		if err != nil {
			failed.set(fmt.Errorf("input line %d: %w", line, err))
			break
		}
		size := len(rec.Key) + len(rec.Value)
		cl.Produce(cmd.Context(), rec, func(_ *kgo.Record, err error) {
			if err != nil {
				failed.set(err)
				return
			}
			mu.Lock()
			written++
			mu.Unlock()
			_ = bar.Add(size)
		})
	}
	failed.set(in.Err())
	failed.set(cl.Flush(cmd.Context()))
	_ = bar.Finish()
	mu.Lock()
	defer mu.Unlock()
	return written, failed.get()
}

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

// progress is a bar in bytes on a terminal, and silent elsewhere. A size of -1
// means that the end is not known.
func progress(w io.Writer, size int64, what string, quiet bool) *progressbar.ProgressBar {
	if quiet || !isTerminal(w) {
		return progressbar.DefaultBytesSilent(size, what)
	}
	return progressbar.NewOptions64(size,
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetDescription(what),
		progressbar.OptionShowBytes(true),
		progressbar.OptionUseIECUnits(true),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish(),
		progressbar.OptionSetWidth(30),
	)
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
