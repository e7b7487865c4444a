package batch_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/hot/batch"
)

// capture is a broker of one topic that keeps the record batches it is sent.
type capture struct {
	listener net.Listener

	mu      sync.Mutex // guards the following
	batches [][]byte
}

func newCapture(t *testing.T) *capture {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &capture{listener: l}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { c.serve(conn) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		serving.Wait()
	})
	return c
}

func (c *capture) serve(conn net.Conn) {
	defer conn.Close()
	for {
		var size [4]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(conn, body); err != nil {
			return
		}
		resp := c.answer(body)
		if resp == nil {
			return
		}
		if _, err := conn.Write(binary.BigEndian.AppendUint32(nil, uint32(len(resp)))); err != nil {
			return
		}
		if _, err := conn.Write(resp); err != nil {
			return
		}
	}
}

func (c *capture) answer(body []byte) []byte {
	key, version := int16(binary.BigEndian.Uint16(body)), int16(binary.BigEndian.Uint16(body[2:]))
	out := append([]byte(nil), body[4:8]...) // the correlation id
	req := kmsg.RequestForKey(key)
	req.SetVersion(version)
	rest := body[8:]
	clientID := int16(binary.BigEndian.Uint16(rest))
	rest = rest[2+max(clientID, 0):]
	if req.IsFlexible() {
		rest = rest[1:]
		if key != int16(kmsg.ApiVersions) {
			out = append(out, 0)
		}
	}
	if err := req.ReadFrom(rest); err != nil {
		return nil
	}
	resp := req.ResponseKind()
	switch req := req.(type) {
	case *kmsg.ApiVersionsRequest:
		for _, k := range []struct{ key, max int16 }{{0, 9}, {3, 9}, {18, 3}} {
			resp.(*kmsg.ApiVersionsResponse).ApiKeys = append(resp.(*kmsg.ApiVersionsResponse).ApiKeys,
				kmsg.ApiVersionsResponseApiKey{ApiKey: k.key, MaxVersion: k.max})
		}
	case *kmsg.MetadataRequest:
		c.metadata(resp.(*kmsg.MetadataResponse))
	case *kmsg.ProduceRequest:
		c.produce(req, resp.(*kmsg.ProduceResponse))
	default:
		return nil
	}
	return resp.AppendTo(out)
}

func (c *capture) metadata(r *kmsg.MetadataResponse) {
	addr := c.listener.Addr().(*net.TCPAddr)
	b := kmsg.NewMetadataResponseBroker()
	b.Host, b.Port = addr.IP.String(), int32(addr.Port)
	r.Brokers = append(r.Brokers, b)
	topic := kmsg.NewMetadataResponseTopic()
	topic.Topic = kmsg.StringPtr("t")
	p := kmsg.NewMetadataResponseTopicPartition()
	p.Replicas, p.ISR = []int32{0}, []int32{0}
	topic.Partitions = append(topic.Partitions, p)
	r.Topics = append(r.Topics, topic)
}

func (c *capture) produce(req *kmsg.ProduceRequest, r *kmsg.ProduceResponse) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range req.Topics {
		rt := kmsg.NewProduceResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			c.batches = append(c.batches, bytes.Clone(p.Records))
			rt.Partitions = append(rt.Partitions, kmsg.NewProduceResponseTopicPartition())
		}
		r.Topics = append(r.Topics, rt)
	}
}

func TestReadsWhatFranzGoProduces(t *testing.T) {
	for name, codec := range map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()} {
		t.Run(name, func(t *testing.T) {
			broker := newCapture(t)
			client, err := kgo.NewClient(kgo.SeedBrokers(broker.listener.Addr().String()), kgo.DisableIdempotentWrite(),
				kgo.ProducerBatchCompression(codec), kgo.ProducerLinger(50*time.Millisecond), kgo.RecordPartitioner(kgo.ManualPartitioner()))
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			want := sample(2000)
			var records []*kgo.Record
			for _, r := range want {
				k := &kgo.Record{Topic: "t", Key: r.key, Value: r.value, Timestamp: time.UnixMilli(r.timestamp)}
				for _, h := range r.headers {
					k.Headers = append(k.Headers, kgo.RecordHeader{Key: string(h.Key), Value: h.Value})
				}
				records = append(records, k)
			}
			if err := client.ProduceSync(context.Background(), records...).FirstErr(); err != nil {
				t.Fatal(err)
			}
			broker.mu.Lock()
			defer broker.mu.Unlock()
			var got []rec
			for _, b := range broker.batches {
				before := bytes.Clone(b)
				v, err := batch.Validate(b, options())
				if err != nil {
					t.Fatal(err)
				}
				if v.Rebuilt || !bytes.Equal(before, b) {
					t.Error("a good batch was changed")
				}
				if len(broker.batches) == 1 && v.Bytes.Codec().String() != name && name != "none" {
					t.Errorf("codec %s", v.Bytes.Codec())
				}
				v.Bytes.SetBaseOffset(int64(len(got)))
				got = append(got, readAll(t, v.Bytes)...)
			}
			sameRecords(t, got, want)
		})
	}
}

func TestFranzGoReadsWhatIsBuilt(t *testing.T) {
	for _, codec := range codecs {
		t.Run(codec.String(), func(t *testing.T) {
			want := sample(3000)
			b := build(t, batch.Options{BaseOffset: 500, LeaderEpoch: 6, Codec: codec, Producer: &batch.Producer{ID: 3, Epoch: 1}}, want)
			fp, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Topic: "t", Offset: 500},
				&kmsg.FetchResponseTopicPartition{RecordBatches: b, HighWatermark: 1 << 40}, kgo.DefaultDecompressor(), nil)
			if fp.Err != nil || next != 3500 || len(fp.Records) != len(want) {
				t.Fatalf("%v: %d records, next offset %d", fp.Err, len(fp.Records), next)
			}
			for i, r := range fp.Records {
				w := want[i]
				if r.Offset != w.offset+500 || r.Timestamp.UnixMilli() != w.timestamp || !sameField(r.Key, w.key) || !sameField(r.Value, w.value) ||
					r.LeaderEpoch != 6 || r.ProducerID != 3 || len(r.Headers) != len(w.headers) {
					t.Fatalf("record %d: %+v, want %+v", i, r, w)
				}
				for j, h := range r.Headers {
					if h.Key != string(w.headers[j].Key) || !sameField(h.Value, w.headers[j].Value) {
						t.Fatalf("record %d, header %d: %+v", i, j, h)
					}
				}
			}
		})
	}
}

func sameField(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }

func TestHeaderAgreesWithKmsg(t *testing.T) {
	b := build(t, batch.Options{BaseOffset: 1 << 40, LeaderEpoch: 9, Codec: batch.None, Transactional: true,
		Producer: &batch.Producer{ID: 1 << 33, Epoch: 17, Sequence: 55}}, sample(20))
	var k kmsg.RecordBatch
	if err := k.ReadFrom(b); err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(k.FirstOffset, k.Length, k.PartitionLeaderEpoch, k.Magic, uint32(k.CRC), k.Attributes, k.LastOffsetDelta, k.FirstTimestamp,
		k.MaxTimestamp, k.ProducerID, k.ProducerEpoch, k.FirstSequence, k.NumRecords)
	want := fmt.Sprint(b.BaseOffset(), b.SizeBytes()-12, b.LeaderEpoch(), b.Magic(), b.CRC(), b.Attributes(), b.LastOffsetDelta(), b.BaseTimestamp(),
		b.MaxTimestamp(), b.ProducerID(), b.ProducerEpoch(), b.BaseSequence(), b.Count())
	if got != want {
		t.Fatalf("\n got %s\nwant %s", got, want)
	}
	if again := k.AppendTo(nil); !bytes.Equal(again, b) {
		t.Fatal("kmsg encodes the batch differently")
	}
}
