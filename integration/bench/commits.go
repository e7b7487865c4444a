package main

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// commitsAtOnce is how many commits are under way; each has a connection.
const commitsAtOnce = 100

// commits measures commits a second, of one group whose readers commit at the
// same time, and of as many groups.
func (b *bench) commits(ctx context.Context, s *system, round int) error {
	const topic = "commits"
	if err := createTopic(ctx, s.addr, topic, commitsAtOnce, 1, nil); err != nil {
		return err
	}
	id, err := topicID(ctx, s.addr, topic)
	if err != nil {
		return err
	}
	clients, err := dialMany(s.addr, commitsAtOnce)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	for _, groups := range []int{1, commitsAtOnce} {
		f, err := closedLoop(ctx, s.pid, commitsAtOnce, func(ctx context.Context, worker int) error {
			group := fmt.Sprintf("commits-%d-%d", groups, worker%groups)
			return commitOffset(ctx, clients[worker], group, topic, id, int32(worker), 1)
		})
		if err != nil {
			return fmt.Errorf("commits of %d groups on %s: %w", groups, s.name, err)
		}
		if err := b.note(measured{"groups", fmt.Sprint("commits-", groups), s.name, round, f}); err != nil {
			return err
		}
	}
	return nil
}

// requester sends a request: a client finds whom it is for, a broker of a
// client is asked itself.
type requester interface {
	Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error)
}

// commitOffset commits one partition for a group without members, as a reader
// that is given its partitions by hand does.
func commitOffset(ctx context.Context, to requester, group, topic string, id kadm.TopicID, partition int32, offset int64) error {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group = group
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic, t.TopicID = topic, id
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset = partition, offset
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := to.Request(ctx, req)
	if err != nil {
		return err
	}
	for _, t := range resp.(*kmsg.OffsetCommitResponse).Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return fmt.Errorf("commit for %s: %w", group, err)
			}
		}
	}
	return nil
}

// topicID waits for a broker to have heard of a topic.
func topicID(ctx context.Context, addr, topic string) (id kadm.TopicID, err error) {
	cl, err := dial(addr)
	if err != nil {
		return id, err
	}
	defer cl.Close()
	err = waitFor(func() error {
		m, err := kadm.NewClient(cl).Metadata(ctx, topic)
		if err != nil {
			return err
		}
		id = m.Topics[topic].ID
		return m.Topics[topic].Err
	})
	return id, err
}

// dialMany gives clients with connections of their own.
func dialMany(addr string, n int, opts ...kgo.Opt) ([]*kgo.Client, error) {
	clients := make([]*kgo.Client, 0, n)
	for range n {
		cl, err := dial(addr, opts...)
		if err != nil {
			closeAll(clients)
			return nil, err
		}
		clients = append(clients, cl)
	}
	return clients, nil
}

func closeAll(clients []*kgo.Client) {
	for _, cl := range clients {
		cl.Close()
	}
}
