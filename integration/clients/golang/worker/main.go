// Command worker is IBM/sarama as a worker of integration/chaos: one request a
// line on standard input, one answer a line on standard output, both JSON.
//
//	{"op":"send","key":"t/0","values":[4,5],"bytes":100}
//	{"outcome":"ok","offsets":[17,18]}
//
// It ends with its input.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

type request struct {
	Op     string           `json:"op"`
	Key    string           `json:"key"`
	Values []int64          `json:"values"`
	Bytes  int              `json:"bytes"`
	From   map[string]int64 `json:"from"`
	Topics []string         `json:"topics"`
	Group  string           `json:"group"`
	Millis int64            `json:"millis"`
}

type answer struct {
	Outcome string                `json:"outcome,omitempty"`
	Offsets []int64               `json:"offsets,omitempty"`
	Reads   map[string][][2]int64 `json:"reads,omitempty"`
	Error   string                `json:"error,omitempty"`
}

type worker struct {
	bootstrap []string
	producer  sarama.SyncProducer
	messages  chan *sarama.ConsumerMessage
	failures  chan error
	stop      func() // ends the consumer
	session   sarama.ConsumerGroupSession
	sessions  chan generation
}

// generation is a session of the group and what arrives in it.
type generation struct {
	session  sarama.ConsumerGroupSession
	messages chan *sarama.ConsumerMessage
}

func main() {
	w := &worker{bootstrap: strings.Split(os.Args[1], ","), stop: func() {}}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	out := json.NewEncoder(os.Stdout)
	for in.Scan() {
		var r request
		if err := json.Unmarshal(in.Bytes(), &r); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		if err := out.Encode(w.do(r)); err != nil {
			os.Exit(1)
		}
	}
}

func (w *worker) do(r request) answer {
	var err error
	switch r.Op {
	case "send":
		return w.send(r)
	case "poll":
		return w.poll(time.Duration(r.Millis) * time.Millisecond)
	case "assign":
		err = w.assign(r.From)
	case "subscribe":
		err = w.subscribe(r.Topics, r.Group)
	case "commit":
		if w.session != nil {
			w.session.Commit()
		}
	default:
		err = errors.New("no such operation: " + r.Op)
	}
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{}
}

func config() *sarama.Config {
	cfg := sarama.NewConfig()
	cfg.Version = sarama.MaxVersion
	cfg.Net.DialTimeout, cfg.Net.ReadTimeout, cfg.Net.WriteTimeout = 2*time.Second, 8*time.Second, 8*time.Second
	cfg.Net.MaxOpenRequests = 1
	cfg.Metadata.RefreshFrequency = 3 * time.Second
	cfg.Metadata.Retry.Max = 5
	cfg.Producer.Return.Successes = true
	cfg.Producer.Idempotent = true
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Timeout = 5 * time.Second
	cfg.Producer.Retry.Max, cfg.Producer.Retry.Backoff = 10, 300*time.Millisecond
	cfg.Producer.Partitioner = sarama.NewManualPartitioner
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	cfg.Consumer.Offsets.AutoCommit.Enable = false
	cfg.Consumer.IsolationLevel = sarama.ReadCommitted
	cfg.Consumer.Return.Errors = true
	cfg.Consumer.Group.Session.Timeout = 6 * time.Second
	cfg.Consumer.Group.Heartbeat.Interval = time.Second
	cfg.Consumer.MaxWaitTime = 300 * time.Millisecond
	return cfg
}

func split(key string) (string, int32) {
	topic, number, _ := strings.Cut(key, "/")
	p, err := strconv.ParseInt(number, 10, 32)
	if err != nil {
		panic(err)
	}
	return topic, int32(p)
}

func (w *worker) send(r request) answer {
	a := answer{Outcome: "ok", Offsets: make([]int64, len(r.Values))}
	for i := range a.Offsets {
		a.Offsets[i] = -1
	}
	if w.producer == nil {
		p, err := sarama.NewSyncProducer(w.bootstrap, config())
		if err != nil { // no message was made yet
			a.Outcome, a.Error = "fail", err.Error()
			return a
		}
		w.producer = p
	}
	topic, partition := split(r.Key)
	messages := make([]*sarama.ProducerMessage, len(r.Values))
	for i, v := range r.Values {
		text := strconv.AppendInt(nil, v, 10)
		text = append(text, bytes.Repeat([]byte{'.'}, max(0, r.Bytes-len(text)))...)
		messages[i] = &sarama.ProducerMessage{Topic: topic, Partition: partition, Value: sarama.ByteEncoder(text), Offset: -1}
	}
	err := w.producer.SendMessages(messages)
	failed := map[*sarama.ProducerMessage]bool{}
	if err != nil {
		a.Outcome, a.Error = "info", err.Error()
		var errs sarama.ProducerErrors
		if !errors.As(err, &errs) {
			return a
		}
		for _, e := range errs {
			failed[e.Msg] = true
			a.Error = e.Err.Error()
		}
	}
	for i, m := range messages {
		if !failed[m] {
			a.Offsets[i] = m.Offset
		}
	}
	return a
}

func (w *worker) assign(from map[string]int64) error {
	w.stop()
	w.session, w.sessions = nil, nil
	c, err := sarama.NewConsumer(w.bootstrap, config())
	if err != nil {
		return err
	}
	w.messages, w.failures = make(chan *sarama.ConsumerMessage, 500), make(chan error, 100)
	done := make(chan struct{})
	var parts []sarama.PartitionConsumer
	w.stop = func() {
		close(done)
		for _, p := range parts {
			p.AsyncClose()
		}
		_ = c.Close()
		w.stop = func() {}
	}
	for key, offset := range from {
		topic, partition := split(key)
		p, err := c.ConsumePartition(topic, partition, offset)
		if err != nil {
			w.stop()
			return err
		}
		parts = append(parts, p)
		go pass(p.Messages(), w.messages, done)
		go func() {
			for e := range p.Errors() {
				report(w.failures, e)
			}
		}()
	}
	return nil
}

func pass(from <-chan *sarama.ConsumerMessage, to chan<- *sarama.ConsumerMessage, done <-chan struct{}) {
	for m := range from {
		select {
		case to <- m:
		case <-done:
		}
	}
}

func report(to chan<- error, err error) {
	select {
	case to <- err:
	default:
	}
}

// member hands over each generation with a channel of its own: what is left of
// an older one must not be mixed with what is read again.
type member struct {
	generations chan<- generation
	messages    chan *sarama.ConsumerMessage
}

func (m *member) Setup(s sarama.ConsumerGroupSession) error {
	m.messages = make(chan *sarama.ConsumerMessage, 500)
	m.generations <- generation{s, m.messages}
	return nil
}
func (m *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (m *member) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	for msg := range c.Messages() {
		select {
		case m.messages <- msg:
			s.MarkMessage(msg, "")
		case <-s.Context().Done():
			return nil
		}
	}
	return nil
}

func (w *worker) subscribe(topics []string, group string) error {
	w.stop()
	w.session = nil
	g, err := sarama.NewConsumerGroup(w.bootstrap, group, config())
	if err != nil {
		return err
	}
	failures, sessions := make(chan error, 100), make(chan generation, 100)
	w.messages, w.failures, w.sessions = nil, failures, sessions
	ctx, cancel := context.WithCancel(context.Background())
	w.stop = func() {
		cancel()
		go g.Close()
		w.stop = func() {}
	}
	go func() {
		for e := range g.Errors() {
			report(failures, e)
		}
	}()
	go func() {
		for ctx.Err() == nil {
			if err := g.Consume(ctx, topics, &member{generations: sessions}); err != nil {
				report(failures, err)
				select {
				case <-ctx.Done():
				case <-time.After(300 * time.Millisecond):
				}
			}
		}
	}()
	return nil
}

func (w *worker) poll(limit time.Duration) answer {
	a := answer{Reads: map[string][][2]int64{}}
	late := time.After(limit)
	for n := 0; n < 500; n++ {
		select {
		case m := <-w.messages:
			text, _, _ := bytes.Cut(m.Value, []byte{'.'})
			v, err := strconv.ParseInt(string(text), 10, 64)
			if err != nil {
				v = -1
			}
			key := fmt.Sprintf("%s/%d", m.Topic, m.Partition)
			a.Reads[key] = append(a.Reads[key], [2]int64{m.Offset, v})
			continue
		case g := <-w.sessions:
			w.session, w.messages = g.session, g.messages // and this poll is over
		case err := <-w.failures:
			a.Error = err.Error()
		case <-late:
		}
		break
	}
	return a
}
