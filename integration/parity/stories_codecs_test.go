package parity

import (
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	hotbatch "github.com/varvelog/varve/hot/batch"
)

func codecStories() []story {
	return []story{
		{"compressed batches", compressed},
		{"recompression", recompression},
		{"sizes and recompression", recompressedSizes},
		{"append time in every version", appendTimeVersions},
		{"records of every shape", recordShapes},
	}
}

var codecs = []hotbatch.Codec{hotbatch.None, hotbatch.Gzip, hotbatch.Snappy, hotbatch.LZ4, hotbatch.Zstd}

// packed is a good batch under a codec.
func packed(s *session, codec hotbatch.Codec, values ...string) []byte {
	b := hotbatch.NewBuilder(hotbatch.Options{Codec: codec, LeaderEpoch: -1})
	for i, v := range values {
		if err := b.Append(recent+int64(i), []byte("k"), []byte(v), nil); err != nil {
			s.t.Fatal(err)
		}
	}
	return b.Bytes()
}

func compressed(s *session) {
	id := createTopic(s, "codecs", 1, nil)
	long := strings.Repeat("all work and no play ", 200)
	for _, codec := range codecs {
		for _, v := range []int16{3, 6, 7, 12, 13} {
			s.ask("produce "+codec.String(), v, produceRequest(-1, "codecs", id, 0, packed(s, codec, "a", long, "b")))
		}
	}
	for _, v := range []int16{4, 9, 10, 12, 18} { // zstd is not for consumers below 10
		s.ask("fetch them all", v, fetchRequest(want{topic: "codecs", id: id}))
	}
	listOffset(s, "time inside compressed batches", 7, "codecs", recent+1)
	listOffset(s, "greatest timestamp", 7, "codecs", -3)
}

func recompression(s *session) {
	for _, target := range []string{"uncompressed", "gzip", "snappy", "lz4", "zstd", "producer"} {
		topic := "re-" + target
		createTopic(s, topic, 1, map[string]string{"compression.type": target})
		for _, codec := range codecs {
			sent(s, codec.String()+" to "+target, topic, packed(s, codec, "a", strings.Repeat("b", 300)))
		}
		fetchOne(s, "all as "+target, 12, topic, 0)
		listOffset(s, "greatest timestamp as "+target, 7, topic, -3)
	}
}

func recompressedSizes(s *session) {
	long := strings.Repeat("all work and no play ", 100)
	createTopic(s, "re-small", 1, map[string]string{"compression.type": "uncompressed", "max.message.bytes": "1000"})
	sent(s, "fits only while compressed", "re-small", packed(s, hotbatch.Gzip, long))
	createTopic(s, "re-tight", 1, map[string]string{"compression.type": "gzip", "max.message.bytes": "1000"})
	sent(s, "would fit once compressed", "re-tight", packed(s, hotbatch.None, long))
	createTopic(s, "re-level", 1, map[string]string{"compression.type": "zstd", "compression.zstd.level": "19"})
	sent(s, "with a level", "re-level", packed(s, hotbatch.None, long))
	fetchOne(s, "with a level", 12, "re-level", 0)
	createTopic(s, "re-inflate", 1, map[string]string{"max.decompressed.message.bytes": "1000"})
	sent(s, "inflates too far", "re-inflate", packed(s, hotbatch.Gzip, long))
	sent(s, "does not", "re-inflate", packed(s, hotbatch.Gzip, long[:500]))
}

func appendTimeVersions(s *session) {
	id := createTopic(s, "at", 1, map[string]string{"message.timestamp.type": "LogAppendTime"})
	versions(3, 13, func(v int16) {
		s.ask("plain", v, produceRequest(-1, "at", id, 0, batch("a", "b").bytes()))
		s.ask("compressed", v, produceRequest(-1, "at", id, 0, packed(s, hotbatch.LZ4, "a", "b")))
	})
	for _, v := range []int16{4, 12, 18} {
		s.ask("fetch", v, fetchRequest(want{topic: "at", id: id}))
	}
	createTopic(s, "at-re", 1, map[string]string{"message.timestamp.type": "LogAppendTime", "compression.type": "zstd"})
	sent(s, "recompressed", "at-re", packed(s, hotbatch.LZ4, "a", "b"))
	fetchOne(s, "recompressed", 12, "at-re", 0)
}

// recordShapes are records that are right but rare.
func recordShapes(s *session) {
	createTopic(s, "shapes", 1, nil)
	one := func(step string, change func(*shape)) {
		b := batch("a")
		change(&b)
		sent(s, step, "shapes", b.bytes())
	}
	one("no key", func(b *shape) { b.records[0].key = nil })
	one("empty key", func(b *shape) { b.records[0].key = []byte{} })
	one("no value", func(b *shape) { b.records[0].value = nil })
	one("empty value", func(b *shape) { b.records[0].value = []byte{} })
	one("neither", func(b *shape) { b.records[0].key, b.records[0].value = nil, nil })
	one("timestamps fall", func(b *shape) { b.records = append(b.records, rec{-500, nil, []byte("b")}) })
	one("time zero", func(b *shape) { b.firstTS = 0 })
	one("leader epoch and delete horizon set", func(b *shape) { b.attributes = 0x40 })
	one("unused attributes", func(b *shape) { b.attributes = 0x0100 })
	headers := func(step string, list ...kmsg.Header) {
		b := hotbatch.NewBuilder(hotbatch.Options{LeaderEpoch: -1})
		var hs []hotbatch.Header
		for _, h := range list {
			hs = append(hs, hotbatch.Header{Key: []byte(h.Key), Value: h.Value})
		}
		if err := b.Append(recent, []byte("k"), []byte("v"), hs); err != nil {
			s.t.Fatal(err)
		}
		sent(s, step, "shapes", b.Bytes())
	}
	headers("a header", kmsg.Header{Key: "h", Value: []byte("x")})
	headers("the same header twice", kmsg.Header{Key: "h", Value: []byte("x")}, kmsg.Header{Key: "h", Value: []byte("y")})
	headers("header without a value", kmsg.Header{Key: "h"})
	headers("header with an empty name", kmsg.Header{Key: "", Value: []byte("x")})
	fetchOne(s, "all", 12, "shapes", 0)
	raw := func(step string, change func(body []byte) []byte) {
		b := batch("a", "b")
		full := b.bytes()
		sent(s, step, "shapes", resigned(full[:61], change(append([]byte{}, full[61:]...))))
	}
	raw("record shorter than it says", func(b []byte) []byte { return b[:len(b)-1] })
	raw("a byte too many", func(b []byte) []byte { return append(b, 0) })
	raw("negative record length", func(b []byte) []byte { b[0] = 1; return b })
	raw("value longer than its record", func(b []byte) []byte { b[6] = 0x7e; return b })
	raw("negative header count", func(b []byte) []byte { b[8] = 1; return b })
	raw("no bytes", func([]byte) []byte { return nil })
	for _, delta := range []byte{4, 0, 1} {
		raw(fmt.Sprint("second offset delta ", delta), func(b []byte) []byte { b[9+3] = delta; return b })
	}
	fetchOne(s, "what is left of them", 12, "shapes", 14)
}
