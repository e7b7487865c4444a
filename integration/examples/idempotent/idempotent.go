// An idempotent consumer: what comes twice counts once.
//
// A record can come twice for two reasons. A consumer that dies between what it
// does and the commit of its offset reads the record again; and a producer that
// does not know whether its record has arrived sends it again. Against the first
// the consumer keeps its offset in the same store, and changes it in the same
// transaction, as what it makes of the record. Against the second each event has
// an id, given where the event happens, and the store remembers the ids.
//
// What holds, whoever is killed when: every event counts exactly once in the
// store. Offsets committed to the brokers play no part. An id is forgotten after
// a while (remember), which has to be longer than any producer goes on trying:
// the store does not grow for ever.
//
// The store here is a file (bbolt), so one process reads all partitions. With a
// database that several processes share it is the same, in a group: on
// assignment take a partition's offset from the database, and fence the owner
// before by a number that each transaction checks, such as the generation.
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	bolt "go.etcd.io/bbolt"
)

// headerID carries an event's id.
const headerID = "event.id"

var (
	offsetBucket  = []byte("offsets")  // partition → next offset
	seenBucket    = []byte("seen")     // id → when it came
	agesBucket    = []byte("ages")     // when it came, 8 bytes, and id: the oldest first
	balanceBucket = []byte("balances") // account → sum, what this consumer is for
)

// ledger adds up payments.
type ledger struct {
	db       *bolt.DB
	remember time.Duration // how long ids are
}

// open makes the store's buckets.
func (l ledger) open() error {
	return l.db.Update(func(tx *bolt.Tx) error {
		var errs []error
		for _, name := range [][]byte{offsetBucket, seenBucket, agesBucket, balanceBucket} {
			_, err := tx.CreateBucketIfNotExists(name)
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
}

// run reads a topic from where the store is, until ctx ends.
func (l ledger) run(ctx context.Context, seeds []string, topic string) error {
	if err := l.open(); err != nil {
		return err
	}
	starts, err := l.starts(ctx, seeds, topic)
	if err != nil {
		return err
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: starts}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return err
	}
	defer cl.Close()
	for {
		f := cl.PollRecords(ctx, 1000)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := l.apply(f.Records(), time.Now()); err != nil {
			return err
		}
	}
}

// starts gives each partition's next offset.
func (l ledger) starts(ctx context.Context, seeds []string, topic string) (map[int32]kgo.Offset, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	topics, err := kadm.NewClient(cl).ListTopics(ctx, topic)
	if err != nil {
		return nil, err
	}
	if err := topics[topic].Err; err != nil {
		return nil, fmt.Errorf("topic %s: %w", topic, err)
	}
	starts := map[int32]kgo.Offset{}
	return starts, l.db.View(func(tx *bolt.Tx) error {
		for p := range topics[topic].Partitions {
			starts[p] = kgo.NewOffset().At(int64(number(tx.Bucket(offsetBucket), strconv.Itoa(int(p)))))
		}
		return nil
	})
}

// apply counts records, and moves on, in one transaction.
func (l ledger) apply(records []*kgo.Record, now time.Time) error {
	if len(records) == 0 {
		return nil
	}
	return l.db.Update(func(tx *bolt.Tx) error {
		for _, r := range records {
			first, err := firstTime(tx, id(r), now)
			if err != nil {
				return err
			}
			if first {
				amount, err := strconv.ParseUint(string(r.Value), 10, 64)
				if err != nil {
					return fmt.Errorf("%s-%d, offset %d: %w", r.Topic, r.Partition, r.Offset, err)
				}
				balances := tx.Bucket(balanceBucket)
				if err := put(balances, string(r.Key), number(balances, string(r.Key))+amount); err != nil {
					return err
				}
			}
			if err := put(tx.Bucket(offsetBucket), strconv.Itoa(int(r.Partition)), uint64(r.Offset+1)); err != nil {
				return err
			}
		}
		return forget(tx, now.Add(-l.remember))
	})
}

// firstTime says whether an id is new, and remembers it.
func firstTime(tx *bolt.Tx, id []byte, now time.Time) (bool, error) {
	seen := tx.Bucket(seenBucket)
	if seen.Get(id) != nil {
		return false, nil
	}
	at := binary.BigEndian.AppendUint64(nil, uint64(now.UnixNano()))
	return true, errors.Join(seen.Put(id, at), tx.Bucket(agesBucket).Put(append(at, id...), nil))
}

// forget drops the ids that came before a time.
func forget(tx *bolt.Tx, before time.Time) error {
	limit := binary.BigEndian.AppendUint64(nil, uint64(before.UnixNano()))
	c := tx.Bucket(agesBucket).Cursor()
	for k, _ := c.First(); k != nil && bytes.Compare(k[:8], limit) < 0; k, _ = c.Next() {
		if err := errors.Join(tx.Bucket(seenBucket).Delete(k[8:]), c.Delete()); err != nil {
			return err
		}
	}
	return nil
}

// id is an event's own; one without has that of its place in the topic.
func id(r *kgo.Record) []byte {
	for _, h := range r.Headers {
		if h.Key == headerID {
			return h.Value
		}
	}
	return fmt.Appendf(nil, "%s-%d@%d", r.Topic, r.Partition, r.Offset)
}

func number(b *bolt.Bucket, key string) uint64 {
	if v := b.Get([]byte(key)); v != nil {
		return binary.BigEndian.Uint64(v)
	}
	return 0
}

func put(b *bolt.Bucket, key string, n uint64) error {
	return b.Put([]byte(key), binary.BigEndian.AppendUint64(nil, n))
}
