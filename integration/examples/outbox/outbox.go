// Outbox to topic: a service changes its database and tells others, and a crash
// between the two must neither lose the message nor send it twice.
//
// The service writes the message into its database, in the same transaction as
// the change: the outbox. A relay moves messages from there to a topic, in
// their order, and deletes what has arrived. A relay that dies between the topic
// and the database would send its last messages again. So it keeps its place
// where the messages go: with each batch of messages it writes, in the same
// transaction, the number of the last one to a topic of its own, and after a
// crash it goes on from there.
//
//	database                          Kafka
//	┌─────────────────────┐           ┌──────────────────────────────┐
//	│ order 17: paid      │           │ orders           … 40 41 42  │
//	│ outbox: 43 44 45 …  │──relay──▶ │ orders.outbox    … 39 42     │ one transaction
//	└─────────────────────┘           └──────────────────────────────┘
//
// What holds, whoever is killed when: every message whose change was committed
// to the database is in the topic exactly once, for readers with read_committed,
// in the order of the changes. The transactional id sees to it that there is one
// relay: another that starts fences the one before, and ends what that had open.
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	bolt "go.etcd.io/bbolt"
)

var outboxBucket = []byte("outbox") // number, 8 bytes big-endian → message

// addToOutbox adds a message to the transaction of the change that it tells of.
func addToOutbox(tx *bolt.Tx, message []byte) error {
	b, err := tx.CreateBucketIfNotExists(outboxBucket)
	if err != nil {
		return err
	}
	number, err := b.NextSequence() // never given out again, not even after a deletion
	if err != nil {
		return err
	}
	return b.Put(binary.BigEndian.AppendUint64(nil, number), message)
}

// relay moves messages from an outbox to a topic with one partition.
type relay struct {
	db    *bolt.DB
	topic string
	// relayed is told the points at which a crash would hurt; tests die there.
	relayed func(point string)
}

const (
	batchMax = 100
	// idlePause is how often an empty outbox is looked at; a database that
	// can tell of changes saves that.
	idlePause = 50 * time.Millisecond
)

// placeTopic is where the relay keeps its place. It is compacted: only the
// last record counts.
func (r relay) placeTopic() string { return r.topic + ".outbox" }

// run works until ctx ends or something fails; a supervisor starts it again.
func (r relay) run(ctx context.Context, seeds []string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.TransactionalID(r.topic+"-relay"), kgo.ProducerLinger(0),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	defer cl.Close()
	// Asking for the producer id ends the transaction that a relay before this
	// one may have left open: only then is the last place the last.
	if _, _, err := cl.ProducerID(ctx); err != nil {
		return fmt.Errorf("become the relay: %w", err)
	}
	place, err := r.lastPlace(ctx, seeds)
	if err != nil {
		return fmt.Errorf("find the place to go on from: %w", err)
	}
	for {
		if err := r.drop(place); err != nil {
			return err
		}
		numbers, messages, err := r.next()
		if err != nil {
			return err
		}
		if len(messages) == 0 {
			select {
			case <-time.After(idlePause):
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		place = numbers[len(numbers)-1]
		if err := r.send(ctx, cl, messages, place); err != nil {
			return fmt.Errorf("relay up to message %d: %w", place, err)
		}
		r.relayed("sent")
	}
}

// next gives the oldest messages and their numbers.
func (r relay) next() (numbers []uint64, messages [][]byte, err error) {
	err = r.db.View(func(tx *bolt.Tx) error {
		b := tx.Bucket(outboxBucket)
		if b == nil {
			return nil
		}
		c := b.Cursor()
		for k, v := c.First(); k != nil && len(messages) < batchMax; k, v = c.Next() {
			numbers = append(numbers, binary.BigEndian.Uint64(k))
			messages = append(messages, append([]byte(nil), v...)) // v is the database's memory
		}
		return nil
	})
	return numbers, messages, err
}

// send writes messages and the number of the last one in one transaction.
func (r relay) send(ctx context.Context, cl *kgo.Client, messages [][]byte, place uint64) error {
	if err := cl.BeginTransaction(); err != nil {
		return err
	}
	first := kgo.AbortingFirstErrPromise(cl)
	for _, m := range messages {
		cl.Produce(ctx, &kgo.Record{Topic: r.topic, Value: m}, first.Promise())
	}
	cl.Produce(ctx, &kgo.Record{Topic: r.placeTopic(), Key: []byte("place"), Value: strconv.AppendUint(nil, place, 10)}, first.Promise())
	if err := first.Err(); err != nil {
		return err // the next relay ends the transaction
	}
	r.relayed("written")
	return cl.EndTransaction(ctx, kgo.TryCommit)
}

// drop deletes what has arrived.
func (r relay) drop(place uint64) error {
	return r.db.Update(func(tx *bolt.Tx) error {
		b := tx.Bucket(outboxBucket)
		if b == nil {
			return nil
		}
		c := b.Cursor()
		for k, _ := c.First(); k != nil && binary.BigEndian.Uint64(k) <= place; k, _ = c.Next() {
			if err := c.Delete(); err != nil {
				return err
			}
		}
		return nil
	})
}

// lastPlace reads the relay's own topic to its end.
func (r relay) lastPlace(ctx context.Context, seeds []string) (place uint64, err error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.ConsumeTopics(r.placeTopic()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords()) // the last record may be a transaction's marker
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListCommittedOffsets(ctx, r.placeTopic())
	if err != nil {
		return 0, err
	}
	end, ok := ends.Lookup(r.placeTopic(), 0)
	if !ok || end.Err != nil {
		return 0, fmt.Errorf("end of %s: %w", r.placeTopic(), end.Err)
	}
	for at := int64(0); at < end.Offset; {
		f := cl.PollFetches(ctx)
		if err := f.Err(); err != nil {
			return 0, err
		}
		for _, rec := range f.Records() {
			at = rec.Offset + 1
			if rec.Attrs.IsControl() {
				continue
			}
			if place, err = strconv.ParseUint(string(rec.Value), 10, 64); err != nil {
				return 0, err
			}
		}
	}
	return place, nil
}
