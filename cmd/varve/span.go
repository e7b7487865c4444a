package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"
)

// span says what to read of a topic.
type span struct {
	from, to   string
	follow     bool
	committed  bool   // read_committed: ends are last stable offsets
	disorder   string // how much earlier than one before it a record may be; "": not known
	partitions []int32
}

// reading is a span, resolved: which offsets to read of each partition, and
// which of the records there to print.
type reading struct {
	starts   map[partitionKey]int64
	ends     map[partitionKey]int64 // exclusive; nil: for ever
	since    int64                  // timestamps in milliseconds: at or after this
	before   int64                  // and before this
	earliest bool                   // a start that retention has passed meanwhile is the new earliest
	notes    []string               // what the user may not expect
}

// wants says whether a record's timestamp lies in the span.
func (r *reading) wants(rec *kgo.Record) bool {
	ms := rec.Timestamp.UnixMilli()
	return ms >= r.since && ms < r.before
}

// total is how many offsets there are to read, -1 when there is no end.
func (r *reading) total() int64 {
	if r.ends == nil {
		return -1
	}
	var n int64
	for k, end := range r.ends {
		n += max(0, end-r.starts[k])
	}
	return n
}

// nothing says that there is nothing to read.
func (r *reading) nothing() bool { return r.total() == 0 || len(r.starts) == 0 }

func (s *span) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.from, "from", "earliest", "begin here: "+placeForms)
	cmd.Flags().StringVar(&s.to, "to", "", "stop before this, written as --from is (default: the end as it is now)")
	cmd.Flags().BoolVarP(&s.follow, "follow", "f", false, "go on when the end is reached, until interrupted")
	cmd.Flags().Int32SliceVar(&s.partitions, "partition", nil, "only these partitions, comma separated (default: all)")
	cmd.Flags().BoolVar(&s.committed, "read-committed", false, "leave out records of open and aborted transactions")
	cmd.Flags().StringVar(&s.disorder, "disorder", "", "with a time in --to: no record is more than this (0s, 1h, 2d) earlier than one before it, so reading may end early (default: not known, read to the end)")
}

// resolve asks the cluster where the span lies. Records before the offset that
// ListOffsets gives for --from are all earlier, so reading begins there; later
// ones may be earlier as well, and are left out one by one. ListOffsets cannot
// tell the last record before --to: without --disorder the partition is read
// to its end.
func (s *span) resolve(ctx context.Context, adm *admin, topics []string, now time.Time) (*reading, error) {
	from, to, err := s.places(now)
	if err != nil {
		return nil, err
	}
	keys, err := topicPartitions(ctx, adm, topics)
	if err != nil {
		return nil, err
	}
	if keys, err = s.chosen(keys); err != nil {
		return nil, err
	}
	r := &reading{starts: map[partitionKey]int64{}, since: math.MinInt64, before: math.MaxInt64, earliest: from.kind == placeEarliest}
	if from.kind == placeTime {
		r.since = from.at
	}
	until := to
	if to.kind == placeTime {
		r.before = to.at
		until = place{kind: placeLatest}
		if s.disorder != "" {
			d, err := parseDuration(s.disorder)
			if err != nil || d < 0 {
				return nil, fmt.Errorf("--disorder %q: write how far out of order records are at most, such as 0s, 1h or 2d", s.disorder)
			}
			until = place{placeTime, to.at + d.Milliseconds()}
		}
	}
	var at [4]map[partitionKey]int64
	for i, p := range []place{{kind: placeEarliest}, from, until, {kind: placeLatest}} {
		if at[i], err = offsetsAt(ctx, adm.raw, keys, p, s.committed); err != nil {
			return nil, err
		}
	}
	if !s.follow {
		r.ends = map[partitionKey]int64{}
	}
	for _, k := range keys {
		r.add(k, from, to, at[0][k], at[1][k], at[2][k], at[3][k], s.follow)
	}
	if len(r.starts) == 0 && (from.kind == placeOffset || to.kind == placeOffset) && !s.allEmpty(keys, at[0], at[3]) {
		return nil, fmt.Errorf("nothing of %s lies there: %s", strings.Join(topics, ", "), strings.Join(r.notes, "; "))
	}
	return r, nil
}

func (s *span) allEmpty(keys []partitionKey, first, last map[partitionKey]int64) bool {
	for _, k := range keys {
		if last[k] > first[k] {
			return false
		}
	}
	return true
}

// places reads --from and --to, and refuses what cannot hold a record.
func (s *span) places(now time.Time) (from, to place, err error) {
	if from, err = parsePlace("--from", s.from, now); err != nil {
		return from, to, err
	}
	to = place{kind: placeLatest}
	if s.to == "" {
		return from, to, nil
	}
	if s.follow {
		return from, to, errors.New("--follow has no end: leave out --to, or --follow")
	}
	if to, err = parsePlace("--to", s.to, now); err != nil {
		return from, to, err
	}
	backwards := from.kind == to.kind && from.at >= to.at && from.kind != placeLatest ||
		from.kind == placeLatest || to.kind == placeEarliest
	if backwards {
		return from, to, fmt.Errorf("no record is at or after --from %s and before --to %s: --to has to be later", s.from, s.to)
	}
	return from, to, nil
}

// add takes in one partition, which has offsets first to last (exclusive).
func (r *reading) add(k partitionKey, from, to place, first, start, end, last int64, follow bool) {
	has := fmt.Sprintf("%s-%d has offsets %d to %d", k.topic, k.partition, first, last-1)
	if last == first {
		has = fmt.Sprintf("%s-%d is empty, its next offset is %d", k.topic, k.partition, last)
	}
	switch {
	case from.kind == placeOffset && start > last, from.kind == placeOffset && start == last && !follow:
		r.notes = append(r.notes, has+fmt.Sprintf(", none at or after %d", start))
	case from.kind == placeOffset && start < first:
		r.notes = append(r.notes, has+fmt.Sprintf(": %d is gone, reading begins at %d", start, first))
		start = first
	case from.kind == placeTime && start == last && !follow:
		r.notes = append(r.notes, has+", none of them that late")
	}
	if follow {
		r.starts[k] = min(start, last)
		return
	}
	switch {
	case to.kind == placeOffset && end > last:
		r.notes = append(r.notes, has+fmt.Sprintf(": %d is not there yet", end))
		end = last
	case to.kind == placeOffset && end <= first && start < last:
		r.notes = append(r.notes, has+fmt.Sprintf(", none before %d", end))
	}
	if start < end {
		r.starts[k], r.ends[k] = start, end
	}
}

// chosen leaves of each topic's partitions those that --partition names.
func (s *span) chosen(keys []partitionKey) ([]partitionKey, error) {
	if len(s.partitions) == 0 {
		return keys, nil
	}
	has := map[string]int{}
	for _, k := range keys {
		has[k.topic]++
	}
	var chosen []partitionKey
	for _, topic := range slices.Sorted(maps.Keys(has)) {
		for _, want := range s.partitions {
			if want < 0 || int(want) >= has[topic] {
				return nil, noPartition(topic, has[topic], want)
			}
			chosen = append(chosen, partitionKey{topic, want})
		}
	}
	return chosen, nil
}

// noPartition says that a topic has not got the partition that was asked for.
func noPartition(topic string, has int, want int32) error {
	return fmt.Errorf("topic %s has partitions 0 to %d, not %d", topic, has-1, want)
}
