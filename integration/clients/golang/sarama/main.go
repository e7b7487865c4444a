// Command sarama drives IBM/sarama through the verbs of integration/clients.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

func main() {
	var err error
	switch os.Args[1] {
	case "produce":
		err = produce(os.Args[2], os.Args[3], os.Args[4], number(os.Args[5]), number(os.Args[6]))
	case "verify":
		err = verify(os.Args[2], os.Args[3], os.Args[4], number(os.Args[5]), os.Args[6])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "sarama:", err)
		os.Exit(1)
	}
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

var codecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
	"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

func config() *sarama.Config {
	cfg := sarama.NewConfig()
	cfg.Version = sarama.MaxVersion
	cfg.Producer.Return.Successes = true
	cfg.Producer.Idempotent = true
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Net.MaxOpenRequests = 1
	cfg.Producer.Partitioner = sarama.NewManualPartitioner
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	cfg.Consumer.Offsets.AutoCommit.Enable = false
	return cfg
}

func produce(bootstrap, topic, codec string, count, first int) error {
	cfg := config()
	cfg.Producer.Compression = codecs[codec]
	p, err := sarama.NewSyncProducer([]string{bootstrap}, cfg)
	if err != nil {
		return err
	}
	defer p.Close()
	var messages []*sarama.ProducerMessage
	for i := first; i < first+count; i++ {
		messages = append(messages, &sarama.ProducerMessage{
			Topic: topic, Key: sarama.StringEncoder("k" + strconv.Itoa(i)),
			Value:     sarama.StringEncoder(strconv.Itoa(i) + " " + strings.Repeat("varve ", 34)[:200]),
			Timestamp: time.UnixMilli(1600000000000 + 1000*int64(i)),
		})
	}
	return p.SendMessages(messages)
}

type handler struct {
	left int
	done context.CancelFunc
}

func (h *handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (h *handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (h *handler) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	for m := range c.Messages() {
		fmt.Printf("%d\t%d\t%s\t%s\n", m.Offset, m.Timestamp.UnixMilli(), m.Key, m.Value)
		s.MarkMessage(m, "")
		if h.left--; h.left == 0 {
			s.Commit()
			h.done()
			return nil
		}
	}
	return nil
}

func verify(bootstrap, topic, group string, count int, times string) error {
	cl, err := sarama.NewClient([]string{bootstrap}, config())
	if err != nil {
		return err
	}
	defer cl.Close()
	g, err := sarama.NewConsumerGroupFromClient(group, cl)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	h := &handler{left: count, done: cancel}
	for ctx.Err() == nil {
		if err := g.Consume(ctx, []string{topic}, h); err != nil {
			return err
		}
	}
	if h.left != 0 {
		return fmt.Errorf("%d records missing", h.left)
	}
	if err := g.Close(); err != nil {
		return err
	}
	if cl.Closed() {
		if cl, err = sarama.NewClient([]string{bootstrap}, config()); err != nil {
			return err
		}
	}
	for _, text := range strings.Split(times, ",") {
		offset, err := cl.GetOffset(topic, 0, int64(number(text)))
		if err != nil {
			return err
		}
		fmt.Printf("time\t%s\t%d\n", text, offset)
	}
	return nil
}
