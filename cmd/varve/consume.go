package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"
)

func consumeCommand() *cobra.Command {
	var (
		c      client
		s      span
		format string
		count  int64
	)
	cmd := &cobra.Command{
		Use:   "consume TOPIC",
		Short: "Print records from an offset or a time on, to the end, to a time, or for ever",
		Long: "Print records of all partitions, or of those given.\n\n" +
			"A span by time follows ListOffsets: each partition starts at its first record with a timestamp\n" +
			"at or after --from and ends before its first record with a timestamp at or after --to.\n\n" +
			"--format takes %t topic, %p partition, %o offset, %k key, %v value, %h{%k=%v } headers,\n" +
			"%d{go#RFC3339#} time, \\n, or the word json.",
		Example: "  varve consume events --from 2024-03-03T14:05Z --to 2024-03-03T15:00Z\n" +
			"  varve consume events --from -36h --format '%d{go#RFC3339#} %k %v\\n'\n" +
			"  varve consume events --from latest --follow",
		Args: needs("TOPIC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			print, err := printer(format)
			if err != nil {
				return err
			}
			// Transaction markers are kept so that one at the very end shows that
			// the end is reached; they are never printed.
			opts := []kgo.Opt{kgo.FetchMaxWait(500 * time.Millisecond), kgo.FetchMaxPartitionBytes(4 << 20), kgo.KeepControlRecords()}
			if s.committed {
				opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
			}
			var starts map[int32]kgo.Offset
			var ends map[int32]int64
			if err := c.withAdmin(cmd, func(ctx context.Context, adm *admin) error {
				starts, ends, err = s.resolve(ctx, adm, args[0], time.Now())
				return err
			}); err != nil {
				return err
			}
			opts = append(opts, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{args[0]: starts}))
			cl, err := c.dial(cmd.Context(), opts...)
			if err != nil {
				return err
			}
			defer cl.Close()
			return consume(cmd.Context(), cl, cmd.OutOrStdout(), starts, ends, count, print)
		},
	}
	c.flags(cmd)
	cmd.Flags().StringVar(&s.from, "from", "earliest", "earliest, latest, an offset, or a time such as 2024-03-03T14:05Z or -36h")
	cmd.Flags().StringVar(&s.to, "to", "", "stop before this offset or time (default: the end as it is now)")
	cmd.Flags().BoolVarP(&s.follow, "follow", "f", false, "go on when the end is reached")
	cmd.Flags().Int32SliceVar(&s.partitions, "partition", nil, "only these partitions, comma separated")
	cmd.Flags().StringVar(&format, "format", "%v\\n", "how to print a record, or json")
	cmd.Flags().Int64VarP(&count, "count", "n", 0, "stop after this many records (0: no limit)")
	cmd.Flags().BoolVar(&s.committed, "read-committed", false, "leave out records of open and aborted transactions")
	return cmd
}

// span says what to read of a topic.
type span struct {
	from, to   string
	follow     bool
	committed  bool // read_committed: ends are last stable offsets
	partitions []int32
}

// resolve turns the span into a start for each partition and, unless
// following, an exclusive end.
func (s *span) resolve(ctx context.Context, adm *admin, topic string, now time.Time) (map[int32]kgo.Offset, map[int32]int64, error) {
	keys, err := topicPartitions(ctx, adm, []string{topic})
	if err != nil {
		return nil, nil, err
	}
	if keys, err = s.chosen(topic, keys); err != nil {
		return nil, nil, err
	}
	first, err := offsetsAt(ctx, adm.raw, keys, s.from, s.committed, now)
	if err != nil {
		return nil, nil, err
	}
	starts := make(map[int32]kgo.Offset, len(keys))
	for _, k := range keys {
		starts[k.partition] = kgo.NewOffset().At(first[k])
	}
	if s.follow && s.to == "" {
		return starts, nil, nil
	}
	to := s.to
	if to == "" {
		to = "latest"
	}
	last, err := offsetsAt(ctx, adm.raw, keys, to, s.committed, now)
	if err != nil {
		return nil, nil, err
	}
	ends := make(map[int32]int64, len(keys))
	for _, k := range keys {
		if last[k] > first[k] {
			ends[k.partition] = last[k]
		} else {
			delete(starts, k.partition)
		}
	}
	return starts, ends, nil
}

func (s *span) chosen(topic string, keys []partitionKey) ([]partitionKey, error) {
	if len(s.partitions) == 0 {
		return keys, nil
	}
	var chosen []partitionKey
	for _, want := range s.partitions {
		if want < 0 || int(want) >= len(keys) {
			return nil, fmt.Errorf("topic %s has partitions 0 to %d, not %d", topic, len(keys)-1, want)
		}
		chosen = append(chosen, partitionKey{topic, want})
	}
	return chosen, nil
}

// consume prints until every partition has reached its end, count records are
// out, or the context ends.
func consume(ctx context.Context, cl *kgo.Client, w io.Writer, starts map[int32]kgo.Offset, ends map[int32]int64, count int64, print recordPrinter) error {
	out := bufio.NewWriterSize(w, 256<<10)
	defer out.Flush()
	open := len(starts)
	var printed int64
	for open > 0 || ends == nil {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			return out.Flush()
		}
		if err := fetches.Err0(); err != nil {
			return err
		}
		for _, fe := range fetches.Errors() {
			return fmt.Errorf("read %s-%d: %w", fe.Topic, fe.Partition, fe.Err)
		}
		var failed error
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			end, bounded := ends[p.Partition]
			if ends != nil && !bounded {
				return
			}
			for _, r := range p.Records {
				if failed != nil || (bounded && r.Offset >= end) || (count > 0 && printed == count) {
					break
				}
				if r.Attrs.IsControl() {
					continue
				}
				failed = print(out, r)
				printed++
			}
			if n := len(p.Records); bounded && n > 0 && p.Records[n-1].Offset >= end-1 {
				delete(ends, p.Partition)
				cl.PauseFetchPartitions(map[string][]int32{p.Topic: {p.Partition}})
				open--
			}
		})
		if failed != nil || (count > 0 && printed == count) {
			return failed
		}
		if err := out.Flush(); err != nil {
			return err
		}
	}
	return out.Flush()
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
