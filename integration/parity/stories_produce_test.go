package parity

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func produceStories() []story {
	return []story{
		{"produce in every version", produceVersions},
		{"produce, odd requests", produceOdd},
		{"produce, bad batches", produceBad},
		{"produce timestamps", produceTimestamps},
		{"produce to a compacted topic", produceCompacted},
		{"produce sizes", produceSizes},
	}
}

func produceRequest(acks int16, topic string, id [16]byte, partition int32, records []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = acks, 10_000
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.TopicID = topic, id
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, records
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

func produceVersions(s *session) {
	id := createTopic(s, "prod", 1, nil)
	versions(3, 13, func(v int16) {
		s.ask("all", v, produceRequest(-1, "prod", id, 0, batch("a", "b").bytes()))
		s.ask("leader", v, produceRequest(1, "prod", id, 0, batch("c").bytes()))
		s.ask("unknown partition", v, produceRequest(-1, "prod", id, 5, batch("d").bytes()))
		s.ask("unknown topic", v, produceRequest(-1, "prod-none", [16]byte{7}, 0, batch("d").bytes()))
	})
	for v := int16(0); v < 3; v++ {
		s.raw("version "+string(rune('0'+v)), 0, v, false, []byte{0, 1, 0, 0, 0, 10, 0, 0, 0, 0})
	}
}

func produceOdd(s *session) {
	id := createTopic(s, "odd", 2, nil)
	good := func() []byte { return batch("x").bytes() }
	for _, acks := range []int16{2, -2} {
		s.ask("acks out of range", 9, produceRequest(acks, "odd", id, 0, good()))
	}
	empty := kmsg.NewPtrProduceRequest()
	empty.Acks, empty.TimeoutMillis = -1, 1000
	s.ask("no topics", 9, empty)
	s.ask("null records", 9, produceRequest(-1, "odd", id, 0, nil))
	s.ask("empty records", 9, produceRequest(-1, "odd", id, 0, []byte{}))
	s.ask("internal topic", 9, produceRequest(-1, "__consumer_offsets", id, 0, good()))
	s.ask("bad name", 9, produceRequest(-1, "odd/name", id, 0, good()))
	s.ask("zero timeout", 9, func() kmsg.Request { r := produceRequest(-1, "odd", id, 0, good()); r.TimeoutMillis = 0; return r }())
	both := produceRequest(-1, "odd", id, 0, good())
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = 1, good()
	both.Topics[0].Partitions = append(both.Topics[0].Partitions, p)
	s.ask("two partitions", 9, both)
	bad := produceRequest(-1, "odd", id, 0, func() []byte { b := batch("x"); b.crcOff = 1; return b.bytes() }())
	bad.Topics[0].Partitions = append(bad.Topics[0].Partitions, p)
	s.ask("one bad, one good", 9, bad)
	txn := produceRequest(-1, "odd", id, 0, good())
	txn.TransactionID = ptr("txn")
	s.ask("transactional id, plain batch", 9, txn)
	none := produceRequest(0, "odd", id, 0, good())
	none.SetVersion(9)
	if err := s.open().send(0, 9, true, none.AppendTo(nil)); err != nil {
		s.note("acks 0", "%v", err)
	}
	s.ask("after acks 0 comes the next answer", 9, metadataRequest("odd"))
	twice := produceRequest(-1, "odd", id, 1, good())
	twice.Topics[0].Partitions = append(twice.Topics[0].Partitions, twice.Topics[0].Partitions[0])
	s.ask("the same partition twice", 9, twice)
	s.ask("id zero", 13, produceRequest(-1, "", [16]byte{}, 0, good()))
	s.ask("negative partition", 12, produceRequest(-1, "odd", id, -1, good()))
	s.ask("negative timeout", 12, func() kmsg.Request { r := produceRequest(-1, "odd", id, 0, good()); r.TimeoutMillis = -5; return r }())
	late := produceRequest(0, "odd", id, 9, good())
	late.SetVersion(9)
	if err := s.open().send(0, 9, true, late.AppendTo(nil)); err != nil {
		s.note("acks 0", "%v", err)
	}
	s.ask("acks 0 to an unknown partition", 9, metadataRequest("odd"))
	listOffset(s, "records in partition 0", 7, "odd", -1)
}

// sent is a produce of one batch to partition 0 of a topic, in the version
// that tells the most.
func sent(s *session, step, topic string, raw []byte) {
	s.ask(step, 12, produceRequest(-1, topic, [16]byte{}, 0, raw))
}

func produceBad(s *session) {
	createTopic(s, "bad", 1, nil)
	alter := func(change func(*shape)) []byte {
		b := batch("a", "b", "c")
		change(&b)
		return b.bytes()
	}
	sent(s, "checksum", "bad", alter(func(b *shape) { b.crcOff = 1 }))
	sent(s, "base offset is not 0", "bad", alter(func(b *shape) { b.base = 5 }))
	sent(s, "magic 1", "bad", alter(func(b *shape) { b.magic = 1 }))
	sent(s, "magic 3", "bad", alter(func(b *shape) { b.magic = 3 }))
	sent(s, "last delta too small", "bad", alter(func(b *shape) { b.lastDelta = ptr(int32(1)) }))
	sent(s, "last delta too large", "bad", alter(func(b *shape) { b.lastDelta = ptr(int32(9)) }))
	sent(s, "count too small", "bad", alter(func(b *shape) { b.count = ptr(int32(2)); b.lastDelta = ptr(int32(1)) }))
	sent(s, "count too large", "bad", alter(func(b *shape) { b.count = ptr(int32(4)); b.lastDelta = ptr(int32(3)) }))
	sent(s, "count zero", "bad", alter(func(b *shape) { b.count = ptr(int32(0)) }))
	sent(s, "no records", "bad", batch().bytes())
	sent(s, "control batch", "bad", alter(func(b *shape) { b.attributes = 0x20 }))
	sent(s, "transactional without id", "bad", alter(func(b *shape) { b.attributes = 0x10 }))
	sent(s, "unknown codec", "bad", alter(func(b *shape) { b.attributes = 6 }))
	sent(s, "gzip that is none", "bad", alter(func(b *shape) { b.attributes = 1 }))
	sent(s, "zstd that is none", "bad", alter(func(b *shape) { b.attributes = 4 }))
	sent(s, "two batches", "bad", append(batch("a").bytes(), batch("b").bytes()...))
	sent(s, "cut", "bad", batch("a").bytes()[:40])
	sent(s, "cut in the header", "bad", batch("a").bytes()[:10])
	sent(s, "trailing bytes", "bad", append(batch("a").bytes(), 1, 2, 3))
	sent(s, "garbage", "bad", []byte(strings.Repeat("x", 100)))
	sent(s, "good after all", "bad", batch("a").bytes())
	s.ask("zstd before version 7", 6, produceRequest(-1, "bad", [16]byte{}, 0, alter(func(b *shape) { b.attributes = 4 })))
}

func produceTimestamps(s *session) {
	const hour = 3_600_000
	createTopic(s, "ts", 1, map[string]string{"message.timestamp.before.max.ms": "7200000"})
	createTopic(s, "ts-append", 1, map[string]string{"message.timestamp.type": "LogAppendTime"})
	at := func(ts int64) []byte {
		b := batch("a")
		b.firstTS = ts
		return b.bytes()
	}
	sent(s, "a minute ago", "ts", at(recent))
	sent(s, "in two hours", "ts", at(recent+2*hour))
	sent(s, "three hours ago", "ts", at(recent-3*hour))
	sent(s, "no timestamp", "ts", at(-1))
	sent(s, "declares append time", "ts", func() []byte { b := batch("a"); b.attributes = 8; return b.bytes() }())
	sent(s, "wrong max timestamp", "ts", func() []byte { b := batch("a", "b"); b.maxTS = ptr(recent + 999); return b.bytes() }())
	sent(s, "max timestamp missing", "ts", func() []byte { b := batch("a"); b.maxTS = ptr(int64(-1)); return b.bytes() }())
	listOffset(s, "max timestamp is computed", 7, "ts", -3)
	sent(s, "append time topic", "ts-append", at(5))
	sent(s, "append time topic, far future", "ts-append", at(recent+99*hour))
	sent(s, "append time topic, declared", "ts-append", func() []byte { b := batch("a"); b.attributes = 8; return b.bytes() }())
	fetchOne(s, "what was stored", 12, "ts", 0)
}

func produceCompacted(s *session) {
	createTopic(s, "comp", 1, map[string]string{"cleanup.policy": "compact"})
	noKey := batch("a", "b", "c")
	noKey.records[1].key = nil
	versions(7, 12, func(v int16) {
		s.ask("one record without a key", v, produceRequest(-1, "comp", [16]byte{}, 0, noKey.bytes()))
	})
	sent(s, "all with keys", "comp", batch("a").bytes())
	tombstone := batch("a")
	tombstone.records[0].value = nil
	sent(s, "tombstone", "comp", tombstone.bytes())
}

func produceSizes(s *session) {
	createTopic(s, "size", 1, map[string]string{"max.message.bytes": "2000"})
	sent(s, "fits", "size", batch(strings.Repeat("x", 1500)).bytes())
	sent(s, "too large", "size", batch(strings.Repeat("x", 2500)).bytes())
	exact := batch(strings.Repeat("x", 2000))
	over := len(exact.bytes()) - 2000
	sent(s, "just fits", "size", batch(strings.Repeat("x", 2000-over)).bytes())
	sent(s, "one byte too many", "size", batch(strings.Repeat("x", 2001-over)).bytes())
	createTopic(s, "size-recompress", 1, map[string]string{"compression.type": "gzip"})
	sent(s, "recompressed", "size-recompress", batch(strings.Repeat("x", 900)).bytes())
}
