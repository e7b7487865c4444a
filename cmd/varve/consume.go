package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"
)

// consumeRun is what `varve consume` was told.
type consumeRun struct {
	client
	span   span
	out    output
	format string
	count  int64
	quiet  bool
}

func consumeCommand() *cobra.Command {
	var r consumeRun
	cmd := &cobra.Command{
		Use:   "consume TOPIC",
		Short: "Print records from an offset or a time on, to the end, to a time, or for ever",
		Long: "Print records of all partitions, or of those given, each partition in its order.\n\n" +
			"With times, exactly the records whose timestamp is at or after --from and before --to are printed, whatever\n" +
			"order they were written in. Reading begins at the first record at or after --from, found without reading.\n" +
			"Where the last one before --to is cannot be asked, so each partition is read to its end as it is at the start,\n" +
			"unless --disorder says how far out of order timestamps are: 0s where they only rise, 1h where no record is more\n" +
			"than an hour earlier than one before it. Records that are further out of order are then missed.\n\n" +
			"--format takes %t topic, %p partition, %o offset, %k key, %v value, %h{%k=%v } headers,\n" +
			"%d{go#RFC3339#} time, \\n, or the word json (one object a line; --json is the same).",
		Example: "  varve consume events --from 2024-03-03T14:05Z --to 2024-03-03T15:00Z\n" +
			"  varve consume events --from 2024-03-03 --to 2024-03-04 --disorder 1h\n" +
			"  varve consume events --from -36h --format '%d{go#RFC3339#} %k %v\\n'\n" +
			"  varve consume events --from latest --follow",
		Args: needs("TOPIC"),
		RunE: func(cmd *cobra.Command, args []string) error { return r.run(cmd, args[0]) },
	}
	r.flags(cmd)
	r.span.flags(cmd)
	cmd.Flags().StringVar(&r.format, "format", "%v\\n", "how to print a record, or json")
	cmd.Flags().BoolVar(&r.out.json, "json", false, "print one JSON object a line, as --format json does; errors and notes as JSON too, on standard error")
	cmd.Flags().Int64VarP(&r.count, "count", "n", 0, "stop after this many records (0: no limit)")
	cmd.Flags().BoolVar(&r.quiet, "quiet", false, "no progress")
	return cmd
}

func (c *consumeRun) run(cmd *cobra.Command, topic string) error {
	if c.out.json {
		c.format = "json"
	}
	print, err := printer(c.format)
	if err != nil {
		return err
	}
	var r *reading
	if err := c.withAdmin(cmd, func(ctx context.Context, adm *admin) error {
		r, err = c.span.resolve(ctx, adm, topic, time.Now())
		return err
	}); err != nil {
		return err
	}
	for _, text := range r.notes {
		c.out.note(cmd.ErrOrStderr(), text)
	}
	if len(r.starts) == 0 {
		if len(r.notes) == 0 {
			c.out.note(cmd.ErrOrStderr(), fmt.Sprintf("nothing to read in %s from %s on", topic, c.span.from))
		}
		return nil
	}
	cl, err := c.dial(cmd.Context(), c.span.options(topic, r)...)
	if err != nil {
		return err
	}
	defer cl.Close()
	// Beside records on the same terminal a bar would only be in the way.
	bar := progress(cmd.ErrOrStderr(), r.total(), "reading", c.quiet || isTerminal(cmd.OutOrStdout()), progressbar.OptionShowBytes(false), progressbar.OptionShowCount())
	printed, err := consume(cmd.Context(), cl, cmd.OutOrStdout(), r, c.count, print, bar)
	_ = bar.Finish()
	if err == nil && printed == 0 && cmd.Context().Err() == nil {
		c.out.note(cmd.ErrOrStderr(), fmt.Sprintf("no record of %s lies in that span", topic))
	}
	return err
}

// options are the client's for a reading.
func (s *span) options(topic string, r *reading) []kgo.Opt {
	starts := make(map[int32]kgo.Offset, len(r.starts))
	for p, offset := range r.starts {
		starts[p] = kgo.NewOffset().At(offset)
	}
	opts := []kgo.Opt{
		kgo.FetchMaxWait(500 * time.Millisecond), kgo.FetchMaxPartitionBytes(4 << 20),
		// Transaction markers are kept so that one at the very end shows that
		// the end is reached; they are never printed.
		kgo.KeepControlRecords(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: starts}),
	}
	if s.committed {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	if !r.earliest { // what was asked for is not replaced by what is left
		opts = append(opts, kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	}
	return opts
}

// consume prints what is wanted until every partition has reached its end, count
// records are out, or the context ends. It tells bar of every offset read.
func consume(ctx context.Context, cl *kgo.Client, w io.Writer, r *reading, count int64, print recordPrinter, bar *progressbar.ProgressBar) (printed int64, err error) {
	out := bufio.NewWriterSize(w, 256<<10)
	defer out.Flush()
	next := maps.Clone(r.starts)
	open := len(r.starts)
	for open > 0 || r.ends == nil {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			return printed, out.Flush()
		}
		if err := fetches.Err0(); err != nil {
			return printed, err
		}
		for _, fe := range fetches.Errors() {
			return printed, fmt.Errorf("read %s-%d from offset %d: %w", fe.Topic, fe.Partition, next[fe.Partition], fe.Err)
		}
		var failed error
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			end, bounded := r.ends[p.Partition]
			if r.ends != nil && !bounded {
				return
			}
			for _, rec := range p.Records {
				if failed != nil || (bounded && rec.Offset >= end) || (count > 0 && printed == count) {
					break
				}
				_ = bar.Add64(rec.Offset + 1 - next[p.Partition])
				next[p.Partition] = rec.Offset + 1
				if rec.Attrs.IsControl() || !r.wants(rec) {
					continue
				}
				failed = print(out, rec)
				printed++
			}
			if n := len(p.Records); bounded && n > 0 && p.Records[n-1].Offset >= end-1 {
				delete(r.ends, p.Partition)
				cl.PauseFetchPartitions(map[string][]int32{p.Topic: {p.Partition}})
				open--
			}
		})
		if failed != nil || (count > 0 && printed == count) {
			return printed, failed
		}
		if err := out.Flush(); err != nil {
			return printed, err
		}
	}
	return printed, out.Flush()
}

type recordPrinter func(io.Writer, *kgo.Record) error

func printer(format string) (recordPrinter, error) {
	if strings.EqualFold(format, "json") {
		return printJSON, nil
	}
	f, err := kgo.NewRecordFormatter(format)
	if err != nil {
		return nil, fmt.Errorf("--format %q: %w", format, err)
	}
	var buf []byte
	return func(w io.Writer, r *kgo.Record) error {
		buf = f.AppendRecord(buf[:0], r)
		_, err := w.Write(buf)
		return err
	}, nil
}

func printJSON(w io.Writer, r *kgo.Record) error {
	headers := make(map[string]string, len(r.Headers))
	for _, h := range r.Headers {
		headers[h.Key] = string(h.Value)
	}
	return json.NewEncoder(w).Encode(struct {
		Topic     string            `json:"topic"`
		Partition int32             `json:"partition"`
		Offset    int64             `json:"offset"`
		Timestamp int64             `json:"timestamp"`
		Key       *string           `json:"key"`
		Value     *string           `json:"value"`
		Headers   map[string]string `json:"headers,omitempty"`
	}{r.Topic, r.Partition, r.Offset, r.Timestamp.UnixMilli(), text(r.Key), text(r.Value), headers})
}

// text keeps a null key or value apart from an empty one.
func text(b []byte) *string {
	if b == nil {
		return nil
	}
	s := string(b)
	return &s
}
