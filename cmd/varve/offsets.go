package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Special timestamps of ListOffsets (KIP-79, KIP-405, KIP-1005).
const (
	timestampLatest     = -1
	timestampEarliest   = -2
	timestampLocalStart = -4
	timestampLastTiered = -5
)

// found is one partition's answer to a ListOffsets question.
type found struct {
	offset, timestamp int64
}

type partitionKey struct {
	topic     string
	partition int32
}

// listOffsets asks for one timestamp, special or real, on every given partition.
// committed bounds the latest offset by the last stable one (KIP-98).
func listOffsets(ctx context.Context, cl *kgo.Client, partitions []partitionKey, timestamp int64, committed bool) (map[partitionKey]found, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	if committed {
		req.IsolationLevel = 1
	}
	byTopic := map[string]int{}
	for _, p := range partitions {
		i, ok := byTopic[p.topic]
		if !ok {
			i = len(req.Topics)
			byTopic[p.topic] = i
			t := kmsg.NewListOffsetsRequestTopic()
			t.Topic = p.topic
			req.Topics = append(req.Topics, t)
		}
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.Timestamp, rp.CurrentLeaderEpoch = p.partition, timestamp, -1
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, rp)
	}
	out := make(map[partitionKey]found, len(partitions))
	for _, shard := range cl.RequestSharded(ctx, req) {
		if shard.Err != nil {
			return nil, shard.Err
		}
		for _, t := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return nil, fmt.Errorf("offsets of %s-%d: %w", t.Topic, p.Partition, err)
				}
				out[partitionKey{t.Topic, p.Partition}] = found{p.Offset, p.Timestamp}
			}
		}
	}
	return out, nil
}

// topicPartitions lists the partitions of the named topics, of all when none is named.
func topicPartitions(ctx context.Context, adm *admin, topics []string) ([]partitionKey, error) {
	details, err := adm.ListTopics(ctx, topics...)
	if err != nil {
		return nil, err
	}
	var keys []partitionKey
	for _, t := range details.Sorted() {
		if t.Err != nil {
			return nil, topicError(t.Topic, t.Err, "")
		}
		for _, p := range t.Partitions.Sorted() {
			keys = append(keys, partitionKey{t.Topic, p.Partition})
		}
	}
	return keys, nil
}

// offsetsRow is one partition in the answer of `varve offsets`. RemoteEnd is
// the first offset that is not in the bucket, nil when nothing is; AtTime and TimestampAtTime are -1
// when no record is that young.
type offsetsRow struct {
	Topic      string `json:"topic"`
	Partition  int32  `json:"partition"`
	Earliest   int64  `json:"earliest"`
	LocalStart int64  `json:"localStart"`
	RemoteEnd  *int64 `json:"remoteEnd"`
	Latest     int64  `json:"latest"`
	AtTime     *int64 `json:"atTime,omitempty"`
	Timestamp  *int64 `json:"timestampAtTime,omitempty"`
}

func offsetsCommand() *cobra.Command {
	var (
		c   client
		out output
		at  string
	)
	cmd := &cobra.Command{
		Use:   "offsets [TOPIC…]",
		Short: "Show where each partition starts and ends, locally and in the bucket, and where a time is",
		Example: "  varve offsets events\n" +
			"  varve offsets events --at 2024-03-03T14:05Z",
		RunE: func(cmd *cobra.Command, topics []string) error {
			return c.withAdmin(cmd, func(ctx context.Context, adm *admin) error {
				list, err := offsetRows(ctx, adm, topics, at)
				if err != nil {
					return err
				}
				header := []string{"TOPIC", "PARTITION", "EARLIEST", "LOCAL START", "REMOTE END", "LATEST"}
				if at != "" {
					header = append(header, "AT "+at, "ITS TIMESTAMP")
				}
				return rows(&out, cmd.OutOrStdout(), header, list, offsetsRow.cells)
			})
		},
	}
	c.flags(cmd)
	out.flags(cmd)
	cmd.Flags().StringVar(&at, "at", "", "also show the first record at or after this time: 2024-03-03T14:05Z, 2024-03-03, now, -36h, -90d or @MILLISECONDS")
	return cmd
}

func (r offsetsRow) cells() []string {
	remote := "-"
	if r.RemoteEnd != nil {
		remote = strconv.FormatInt(*r.RemoteEnd, 10)
	}
	cells := []string{r.Topic, fmt.Sprint(r.Partition), fmt.Sprint(r.Earliest), fmt.Sprint(r.LocalStart), remote, fmt.Sprint(r.Latest)}
	switch {
	case r.AtTime == nil:
	case *r.AtTime < 0:
		cells = append(cells, "none", "-")
	default:
		cells = append(cells, fmt.Sprint(*r.AtTime), moment(*r.Timestamp))
	}
	return cells
}

func offsetRows(ctx context.Context, adm *admin, topics []string, at string) ([]offsetsRow, error) {
	keys, err := topicPartitions(ctx, adm, topics)
	if err != nil || len(keys) == 0 {
		return []offsetsRow{}, err
	}
	questions := []int64{timestampEarliest, timestampLocalStart, timestampLastTiered, timestampLatest}
	if at != "" {
		t, err := parseTime(at, time.Now())
		if err != nil {
			return nil, fmt.Errorf("--at: %w", err)
		}
		questions = append(questions, t.UnixMilli())
	}
	answers := make([]map[partitionKey]found, len(questions))
	for i, q := range questions {
		if answers[i], err = listOffsets(ctx, adm.raw, keys, q, false); err != nil {
			return nil, err
		}
	}
	rows := make([]offsetsRow, 0, len(keys))
	for _, k := range keys {
		row := offsetsRow{Topic: k.topic, Partition: k.partition, Earliest: answers[0][k].offset,
			LocalStart: answers[1][k].offset, Latest: answers[3][k].offset}
		if last := answers[2][k].offset; last >= 0 {
			end := last + 1
			row.RemoteEnd = &end
		}
		if at != "" {
			f := answers[4][k]
			row.AtTime, row.Timestamp = &f.offset, &f.timestamp
		}
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b offsetsRow) int {
		if a.Topic != b.Topic {
			if a.Topic < b.Topic {
				return -1
			}
			return 1
		}
		return int(a.Partition - b.Partition)
	})
	return rows, nil
}
