// Command segmentio drives segmentio/kafka-go through the verbs of
// integration/clients.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var err error
	switch os.Args[1] {
	case "produce":
		err = produce(ctx, os.Args[2], os.Args[3], os.Args[4], number(os.Args[5]), number(os.Args[6]))
	case "verify":
		err = verify(ctx, os.Args[2], os.Args[3], os.Args[4], number(os.Args[5]), os.Args[6])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kafka-go:", err)
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

var codecs = map[string]kafka.Compression{
	"none": 0, "gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
}

func produce(ctx context.Context, bootstrap, topic, codec string, count, first int) error {
	w := &kafka.Writer{Addr: kafka.TCP(bootstrap), Topic: topic, RequiredAcks: kafka.RequireAll,
		Compression: codecs[codec], BatchTimeout: 5 * time.Millisecond, BatchSize: 1000}
	defer w.Close()
	var messages []kafka.Message
	for i := first; i < first+count; i++ {
		messages = append(messages, kafka.Message{
			Key:   []byte("k" + strconv.Itoa(i)),
			Value: []byte(strconv.Itoa(i) + " " + strings.Repeat("varve ", 34)[:200]),
			Time:  time.UnixMilli(1600000000000 + 1000*int64(i)),
		})
	}
	return w.WriteMessages(ctx, messages...)
}

func verify(ctx context.Context, bootstrap, topic, group string, count int, times string) error {
	r := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{bootstrap}, GroupID: group, Topic: topic,
		StartOffset: kafka.FirstOffset, MaxWait: 200 * time.Millisecond})
	defer r.Close()
	var last kafka.Message
	for range count {
		m, err := r.FetchMessage(ctx)
		if err != nil {
			return err
		}
		fmt.Printf("%d\t%d\t%s\t%s\n", m.Offset, m.Time.UnixMilli(), m.Key, m.Value)
		last = m
	}
	if err := r.CommitMessages(ctx, last); err != nil {
		return err
	}
	cl := &kafka.Client{Addr: kafka.TCP(bootstrap), Timeout: 30 * time.Second}
	for _, text := range strings.Split(times, ",") {
		resp, err := cl.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{
			topic: {kafka.TimeOffsetOf(0, time.UnixMilli(int64(number(text))))}}})
		if err != nil {
			return err
		}
		offset := int64(-1)
		for _, p := range resp.Topics[topic] {
			if p.Error != nil {
				return p.Error
			}
			for o := range p.Offsets {
				offset = o
			}
		}
		fmt.Printf("time\t%s\t%d\n", text, offset)
	}
	return nil
}
