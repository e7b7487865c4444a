// Command franz drives franz-go through the verbs of integration/clients.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
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
		fmt.Fprintln(os.Stderr, "franz:", err)
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

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func produce(ctx context.Context, bootstrap, topic, codec string, count, first int) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(codecs[codec]))
	if err != nil {
		return err
	}
	defer cl.Close()
	records := make([]*kgo.Record, 0, count)
	for i := first; i < first+count; i++ {
		records = append(records, &kgo.Record{
			Key:       []byte("k" + strconv.Itoa(i)),
			Value:     []byte(strconv.Itoa(i) + " " + strings.Repeat("varve ", 34)[:200]),
			Timestamp: time.UnixMilli(1600000000000 + 1000*int64(i)),
		})
	}
	return cl.ProduceSync(ctx, records...).FirstErr()
}

func verify(ctx context.Context, bootstrap, topic, group string, count int, times string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ConsumeTopics(topic), kgo.ConsumerGroup(group),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())
	if err != nil {
		return err
	}
	defer cl.Close()
	for seen := 0; seen < count; {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		for _, r := range fetches.Records() {
			fmt.Printf("%d\t%d\t%s\t%s\n", r.Offset, r.Timestamp.UnixMilli(), r.Key, r.Value)
			seen++
		}
	}
	if err := cl.CommitUncommittedOffsets(ctx); err != nil {
		return err
	}
	adm := kadm.NewClient(cl)
	for _, text := range strings.Split(times, ",") {
		offsets, err := adm.ListOffsetsAfterMilli(ctx, int64(number(text)), topic)
		if err != nil {
			return err
		}
		o, _ := offsets.Lookup(topic, 0)
		if o.Err != nil {
			return o.Err
		}
		if o.Timestamp == -1 {
			o.Offset = -1 // kadm answers the end of the log where Kafka answers none
		}
		fmt.Printf("time\t%s\t%d\n", text, o.Offset)
	}
	return nil
}
