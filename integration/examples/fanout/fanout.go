// Fan-out to independent groups: any number of groups read the same topic, each
// at its own place and pace. One follows what is written now; another, which is
// new, reads everything from two years ago on. What is that old is in the bucket
// only, which neither reader notices: it is one log.
//
//	                     ┌─▶ group alerts: from now on
//	events ──(2 years)───┤
//	  bucket │ disk      └─▶ group rebuild: everything since a time
//
// What holds, whoever is killed when: each group gets every record from where it
// began at least once, in the order of each partition; where a group begins is
// decided once, and kept as its committed offset. What one group does has no part
// in where another stands.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// reader is a member of a group.
type reader struct {
	group string
	id    string // for good: see kgo.InstanceID
	topic string
	since time.Time // where the group begins when it is new; zero: now
	do    func(r *kgo.Record) error
}

// run reads until ctx ends, or a record cannot be done.
func (m reader) run(ctx context.Context, seeds []string) error {
	if err := m.begin(ctx, seeds); err != nil {
		return fmt.Errorf("where group %s begins: %w", m.group, err)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.ConsumerGroup(m.group), kgo.InstanceID(m.id), kgo.ConsumeTopics(m.topic),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll())
	if err != nil {
		return err
	}
	defer cl.CloseAllowingRebalance()
	for {
		f := cl.PollRecords(ctx, 1000)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		for _, r := range f.Records() {
			if err := m.do(r); err != nil {
				return fmt.Errorf("%s-%d, offset %d: %w", r.Topic, r.Partition, r.Offset, err)
			}
		}
		// What is done is committed before the group may give partitions to
		// others. A commit that fails is made up for by the next one, or what it
		// was for is read again.
		if err := cl.CommitUncommittedOffsets(ctx); err != nil && ctx.Err() == nil {
			fmt.Println("not committed:", err)
		}
		cl.AllowRebalance()
	}
}

// begin commits where a new group begins, in every partition that it has no
// offset for. Two members that do so at once commit the same.
func (m reader) begin(ctx context.Context, seeds []string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...))
	if err != nil {
		return err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	has, err := adm.FetchOffsetsForTopics(ctx, m.group, m.topic)
	if err != nil {
		return err
	}
	var starts kadm.ListedOffsets
	if m.since.IsZero() {
		starts, err = adm.ListEndOffsets(ctx, m.topic)
	} else {
		starts, err = adm.ListOffsetsAfterMilli(ctx, m.since.UnixMilli(), m.topic)
	}
	if err = errors.Join(err, starts.Error()); err != nil {
		return err
	}
	missing := kadm.Offsets{}
	starts.Each(func(o kadm.ListedOffset) {
		if got, ok := has.Lookup(o.Topic, o.Partition); !ok || got.At < 0 {
			missing.Add(kadm.Offset{Topic: o.Topic, Partition: o.Partition, At: o.Offset, LeaderEpoch: o.LeaderEpoch})
		}
	})
	if len(missing) == 0 {
		return nil
	}
	return adm.CommitAllOffsets(ctx, m.group, missing)
}
