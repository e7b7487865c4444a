package parity

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/integration/nodetest"
)

func idempotenceStories() []story {
	return []story{
		{"init producer id", initProducerID},
		{"idempotent sequences", sequences},
		{"describe producers", describeProducers},
		{"transactional batches without a transaction", loneTransactional},
	}
}

func newProducer(s *session) int64 {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.ProducerID, req.ProducerEpoch = -1, -1
	var id int64
	nodetest.Eventually(s.t, 20*time.Second, "a producer id", func() error {
		resp, _ := s.quiet(4, req).(*kmsg.InitProducerIDResponse)
		if resp == nil || resp.ErrorCode != 0 || resp.ProducerID == 0 {
			return fmt.Errorf("%+v", resp)
		}
		id = resp.ProducerID
		return nil
	})
	return id
}

func initProducerID(s *session) {
	newProducer(s) // Kafka asks its controller for ids at the first request only
	versions(0, 5, func(v int16) {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.ProducerID, req.ProducerEpoch, req.TransactionTimeoutMillis = -1, -1, 60_000
		s.ask("ask", v, req)
	})
	req := kmsg.NewPtrInitProducerIDRequest()
	req.ProducerID, req.ProducerEpoch = 5, 3
	s.ask("with an id of one's own", 4, req)
	req = kmsg.NewPtrInitProducerIDRequest()
	req.ProducerID, req.ProducerEpoch = -1, 3
	s.ask("epoch without an id", 4, req)
	req = kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID = ptr("")
	req.ProducerID, req.ProducerEpoch = -1, -1
	s.ask("empty transactional id", 4, req)
	for _, millis := range []int32{-1, 0, 1<<31 - 1} {
		req = kmsg.NewPtrInitProducerIDRequest()
		req.ProducerID, req.ProducerEpoch, req.TransactionTimeoutMillis = -1, -1, millis
		s.ask(fmt.Sprint("transaction timeout ", millis), 4, req)
	}
}

// idempotent is a batch of n records in a producer's sequence.
func idempotent(pid int64, epoch int16, sequence int32, n int) []byte {
	values := make([]string, n)
	for i := range values {
		values[i] = string(rune('a' + i))
	}
	b := batch(values...)
	b.producerID, b.epoch, b.sequence = pid, epoch, sequence
	return b.bytes()
}

func sequences(s *session) {
	createTopic(s, "seq", 1, nil)
	pid := newProducer(s)
	put := func(step string, epoch int16, sequence int32, n int) {
		sent(s, step, "seq", idempotent(pid, epoch, sequence, n))
	}
	put("first", 0, 0, 3)
	put("next", 0, 3, 2)
	put("the last again", 0, 3, 2)
	put("the first again", 0, 0, 3)
	put("gap", 0, 7, 1)
	put("overlap", 0, 4, 2)
	put("part of the last", 0, 3, 1)
	for i := range int32(6) {
		put("one more", 0, 5+i, 1)
	}
	put("older than the last five", 0, 0, 3)
	put("the fifth last again", 0, 6, 1)
	put("new epoch not from 0", 1, 4, 1)
	put("new epoch", 1, 0, 1)
	put("old epoch", 0, 11, 1)
	put("no sequence", 1, -1, 1)
	stranger := pid + 500_000
	sent(s, "unknown producer from 0", "seq", idempotent(stranger, 0, 0, 1))
	sent(s, "unknown producer from 9", "seq", idempotent(stranger+1, 0, 9, 1))
	sent(s, "unknown producer, epoch 3", "seq", idempotent(stranger+2, 3, 5, 1))
	wrap := idempotent(stranger+3, 0, 2147483646, 2)
	sent(s, "up to the last sequence", "seq", wrap)
	sent(s, "then 0", "seq", idempotent(stranger+3, 0, 0, 1))
	sent(s, "negative epoch", "seq", idempotent(stranger+4, -1, 0, 1))
}

func describeProducers(s *session) {
	createTopic(s, "dp", 1, nil)
	pid := newProducer(s)
	s.quiet(12, produceRequest(-1, "dp", [16]byte{}, 0, idempotent(pid, 0, 0, 2)))
	req := kmsg.NewPtrDescribeProducersRequest()
	for _, name := range []string{"dp", "dp-none"} {
		t := kmsg.NewDescribeProducersRequestTopic()
		t.Topic, t.Partitions = name, []int32{0, 4}
		req.Topics = append(req.Topics, t)
	}
	s.ask("two topics", 0, req)
	s.quiet(12, produceRequest(-1, "dp", [16]byte{}, 0, idempotent(pid, 0, 2, 1)))
	s.quiet(12, produceRequest(-1, "dp", [16]byte{}, 0, idempotent(pid, 1, 0, 4)))
	one := kmsg.NewPtrDescribeProducersRequest()
	t := kmsg.NewDescribeProducersRequestTopic()
	t.Topic, t.Partitions = "dp", []int32{0}
	one.Topics = append(one.Topics, t)
	s.ask("after a new epoch", 0, one)
	t.Partitions = []int32{0, 0}
	one.Topics = []kmsg.DescribeProducersRequestTopic{t}
	s.ask("the same partition twice", 0, one)
	one.Topics = nil
	s.ask("nothing", 0, one)
}

// loneTransactional sends what only a producer in a transaction may send.
func loneTransactional(s *session) {
	createTopic(s, "lone", 1, nil)
	pid := newProducer(s)
	transactional := func(sequence int32) []byte {
		b := batch("a")
		b.attributes, b.producerID, b.epoch, b.sequence = 0x10, pid, 0, sequence
		return b.bytes()
	}
	ask := func(step string, v int16, id *string, raw []byte) {
		req := produceRequest(-1, "lone", [16]byte{}, 0, raw)
		req.TransactionID = id
		s.ask(step, v, req)
	}
	noProducer := batch("a")
	noProducer.attributes = 0x10
	for _, v := range []int16{3, 9, 12} {
		ask("no transactional id", v, nil, transactional(0))
		ask("no producer id either", v, nil, noProducer.bytes())
		ask("transactional id, plain batch", v, ptr("lone-tx"), batch("a").bytes())
	}
	listOffset(s, "what was taken", 7, "lone", -1)
}
