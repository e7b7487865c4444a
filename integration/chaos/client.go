//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/varvelog/varve/integration/history"
)

// Where an assigned consumer begins, beside offsets proper.
const (
	fromLatest   = -1
	fromEarliest = -2
)

// client is one client library, used as a worker uses it: one operation at a
// time.
type client interface {
	name() string
	// send sends values to a key and says what became of them.
	send(ctx context.Context, key string, values []int64, bytes int) sent
	// assign makes a fresh consumer of these keys, subscribe one of a group.
	assign(ctx context.Context, from map[string]int64) error
	subscribe(ctx context.Context, topics []string, group string) error
	// poll gives what arrived within its time; it may be nothing.
	poll(ctx context.Context) ([]history.Step, error)
	// commit commits what was polled last, or, when it is not to, lets go of it:
	// until then the group may not rebalance.
	commit(ctx context.Context, really bool) (committed, error)
	// crash ends the client without a word to the brokers, where it can.
	crash()
}

// committed is what a client knows of a commit: key → offset. Both are nil when
// it does not say.
type committed struct {
	ok, unknown map[string]int64
}

// sent is the outcome of a send. Offsets are -1 where they are not known; with
// an info outcome those that are known were acknowledged.
type sent struct {
	outcome history.Type
	offsets []int64
	err     error
}

func unsentOffsets(n int) []int64 {
	offsets := make([]int64, n)
	for i := range offsets {
		offsets[i] = -1
	}
	return offsets
}

func splitKey(key string) (topic string, partition int32) {
	topic, number, _ := strings.Cut(key, "/")
	p, err := strconv.ParseInt(number, 10, 32)
	if err != nil {
		panic("key " + key)
	}
	return topic, int32(p)
}

func joinKey(topic string, partition int32) string { return fmt.Sprintf("%s/%d", topic, partition) }

// record is what a value looks like in a log: the number, and padding.
func record(value int64, size int) []byte {
	b := strconv.AppendInt(make([]byte, 0, size+20), value, 10)
	return append(b, bytes.Repeat([]byte{'.'}, max(0, size-len(b)))...)
}

// valueOf reads a record; what is none is -1, which nobody sends.
func valueOf(b []byte) int64 {
	number, _, _ := bytes.Cut(b, []byte{'.'})
	v, err := strconv.ParseInt(string(number), 10, 64)
	if err != nil {
		return -1
	}
	return v
}
