package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	txnRecords   = 10 // of 100 bytes in each transaction
	txnProducers = 50
)

// transactions measures the coordinator of transactions: how many a second,
// and 100,000 transactional ids in memory and after a restart.
func (b *bench) transactions(ctx context.Context) error {
	return b.eachFresh(ctx, func(ctx context.Context, s *system, round int) error {
		if err := createTopic(ctx, s.addr, "txns", 6, 1, nil); err != nil {
			return err
		}
		id, err := topicID(ctx, s.addr, "txns")
		if err != nil {
			return err
		}
		if _, err := transact(ctx, s, "warm", id, txnProducers, true); err != nil {
			return err
		}
		for _, producers := range []int{1, txnProducers} {
			for _, offsets := range []bool{false, true} {
				name := fmt.Sprint("transactions-", producers)
				if offsets {
					name += "-offsets"
				}
				f, err := transact(ctx, s, name, id, producers, offsets)
				if err != nil {
					return fmt.Errorf("%s on %s: %w", name, s.name, err)
				}
				if err := b.note(measured{"transactions", name, s.name, round, f}); err != nil {
					return err
				}
			}
		}
		if s.name == "varve-fsync" { // memory and loading are the same, and filling takes longer
			return nil
		}
		return b.population(ctx, s, round, txnPopulation())
	})
}

func transact(ctx context.Context, s *system, name string, id kadm.TopicID, producers int, offsets bool) (figures, error) {
	var clients []*kgo.Client
	defer func() { closeAll(clients) }()
	for i := range producers {
		cl, err := dial(s.addr, kgo.TransactionalID(fmt.Sprint(name, "-", i)), kgo.DefaultProduceTopic("txns"), kgo.ProducerLinger(0))
		if err != nil {
			return nil, err
		}
		clients = append(clients, cl)
	}
	return closedLoop(ctx, s.pid, producers, func(ctx context.Context, worker int) error {
		// What has begun is ended: the loop's end must not leave it open.
		ctx = context.WithoutCancel(ctx)
		group := ""
		if offsets {
			group = fmt.Sprint(name, "-", worker)
		}
		return transactOnce(ctx, clients[worker], txnRecords, group, id)
	})
}

// transactOnce writes records in a transaction of their own, with an offset of
// a group when one is named, and commits.
func transactOnce(ctx context.Context, cl *kgo.Client, records int, group string, id kadm.TopicID) error {
	if err := cl.BeginTransaction(); err != nil {
		return err
	}
	value := make([]byte, 100)
	first := kgo.AbortingFirstErrPromise(cl)
	for range records {
		cl.Produce(ctx, &kgo.Record{Value: value}, first.Promise())
	}
	if err := first.Err(); err != nil {
		return errors.Join(fmt.Errorf("produce in a transaction: %w", err), cl.EndTransaction(ctx, kgo.TryAbort))
	}
	if group != "" {
		if err := commitInTransaction(ctx, cl, group, id); err != nil {
			return err
		}
	}
	if err := cl.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return fmt.Errorf("commit a transaction: %w", err)
	}
	return nil
}

// commitInTransaction commits an offset as part of the client's transaction;
// with version 5 (KIP-890) the coordinator adds the group to it.
func commitInTransaction(ctx context.Context, cl *kgo.Client, group string, id kadm.TopicID) error {
	producer, epoch, err := cl.ProducerID(ctx)
	if err != nil {
		return err
	}
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, _ = cl.OptValue(kgo.TransactionalID).(string)
	req.Group, req.ProducerID, req.ProducerEpoch = group, producer, epoch
	t := kmsg.NewTxnOffsetCommitRequestTopic()
	t.Topic, t.TopicID = "txns", id
	p := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	p.Offset = 1
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return fmt.Errorf("commit for %s in the transaction: %w", group, err)
			}
		}
	}
	return nil
}
