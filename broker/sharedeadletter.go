package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/coordinator/share"
	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/replica"
)

// Dead letters (KIP-1191). What a share group gives up, rejected or delivered too often, is written to the topic that
// errors.deadletterqueue.topic.name names before it is archived. A dead letter says in headers where the record was and why it is
// here; with errors.deadletterqueue.copy.record.enable it has the record's key, value and headers too.
//
// Producing is tried until it is durable: meanwhile the records are neither handed out nor done. Where the settings themselves
// are wrong (a name that is not allowed, a topic that does not exist or does not take dead letters) the records are archived
// without, as in Kafka, and that is logged.

// The headers of a dead letter. Format: Kafka's.
const (
	letterTopic      = "__dlq.errors.topic"
	letterPartition  = "__dlq.errors.partition"
	letterOffset     = "__dlq.errors.offset"
	letterGroup      = "__dlq.errors.group"
	letterDeliveries = "__dlq.errors.delivery.count"
	letterMessage    = "__dlq.errors.message"
)

var letterMessages = map[share.Reason]string{
	share.Exhausted: "Offset delivery count exceeded the threshold.",
	share.Rejected:  "Offset rejected by client.",
}

// errNoDeadLetters is returned when a group's dead letters cannot be written as things are set: trying again does not help.
var errNoDeadLetters = errors.New("broker: the group's dead-letter topic takes none")

const (
	letterPauseMin = 100 * time.Millisecond // between tries, doubled each time
	letterPauseMax = 5 * time.Second
	letterBytes    = 256 << 10 // of one batch; a single record may be larger
	letterWait     = 15 * time.Second
)

// buryLocked begins to produce dead letters, if there are any.
func (p *sharePart) buryLocked() {
	if p.core == nil || p.burying {
		return
	}
	if list := p.core.DeadLetters(nil); len(list) > 0 {
		p.burying = p.srv.shares.start(func() { p.bury(list) })
	}
}

// bury produces dead letters until there are no more, or the share-partition is dropped.
func (p *sharePart) bury(list []share.DeadLetter) {
	pause := letterPauseMin
	for {
		failed := false
		for _, d := range list {
			err := p.letter(d)
			p.mu.Lock()
			if p.core == nil {
				p.mu.Unlock()
				return
			}
			if err == nil || errors.Is(err, errNoDeadLetters) {
				p.core.Buried(d.First, d.Last)
			} else {
				p.core.Unburied(d.First, d.Last)
				failed = true
			}
			p.afterLocked()
			p.mu.Unlock()
			if err != nil {
				p.srv.shares.stats.lettersFailed.Add(1)
				p.srv.logFailure("dead letters not produced", "", p.key.Topic, p.key.Partition, codeNone, err)
			}
		}
		if failed {
			if !p.srv.sleep(pause) {
				return
			}
			pause = min(2*pause, letterPauseMax)
		} else {
			pause = letterPauseMin
		}
		p.mu.Lock()
		list = nil
		if p.core != nil {
			list = p.core.DeadLetters(nil)
		}
		if len(list) == 0 {
			p.burying = false
			p.mu.Unlock()
			p.srv.shares.release(p)
			return
		}
		p.mu.Unlock()
	}
}

// letter writes the dead letters of a run of records, durably.
func (p *sharePart) letter(d share.DeadLetter) error {
	ctx, cancel := context.WithTimeout(p.srv.ctx, letterWait)
	defer cancel()
	s := p.srv.shareSettings(p.key.Group)
	to, err := p.srv.letterTopicOf(ctx, s.deadLetter)
	if err != nil {
		return err
	}
	index := p.key.Partition % int32(len(to.Partitions))
	for at := d.First; at <= d.Last; {
		records := map[int64]batch.Record{}
		last := d.Last
		if s.copyRecord {
			if records, last, err = p.srv.lettersCopied(ctx, p.part, at, d.Last); err != nil {
				return err
			}
		}
		for at <= last {
			b := p.lettersFrom(&at, last, d, records)
			p.srv.shares.stats.letters.Add(1)
			if err := p.srv.produceLetters(ctx, to, index, b); err != nil {
				return err
			}
			p.srv.shares.stats.letterRecords.Add(int64(batch.Batch(b).Count()))
		}
	}
	return nil
}

// lettersFrom makes a batch of dead letters from offset *at on, and moves *at behind them.
func (p *sharePart) lettersFrom(at *int64, last int64, d share.DeadLetter, records map[int64]batch.Record) []byte {
	now := p.srv.nowMillis()
	b := batch.NewBuilder(batch.Options{})
	for ; *at <= last && (b.Count() == 0 || b.SizeBytes() < letterBytes); *at++ {
		r, copied := records[*at]
		headers := r.Headers
		add := func(key, value string) {
			headers = append(headers, batch.Header{Key: []byte(key), Value: []byte(value)})
		}
		add(letterTopic, p.part.ID().Topic)
		add(letterPartition, strconv.Itoa(int(p.key.Partition)))
		add(letterOffset, strconv.FormatInt(*at, 10))
		add(letterGroup, p.key.Group)
		add(letterDeliveries, strconv.Itoa(int(d.Deliveries)))
		add(letterMessage, letterMessages[d.Reason])
		var key, value []byte
		if copied {
			key, value = r.Key, r.Value
		}
		if err := b.Append(now, key, value, headers); err != nil {
			break
		}
	}
	return b.Bytes()
}

// lettersCopied reads the records from an offset on, as far as one read goes: last is how far that is. Offsets up to there
// without a record hold none.
func (s *Server) lettersCopied(ctx context.Context, part Partition, from, to int64) (records map[int64]batch.Record, last int64, err error) {
	records = map[int64]batch.Record{}
	res, b, err := s.readShare(ctx, part, replica.ReadRequest{
		Offset: from, MaxBytes: shareReadBytes, MinOne: true, CurrentEpoch: replica.NoEpoch, LastFetchedEpoch: replica.NoEpoch,
		ReplicaID: replica.NoReplica, ReplicaEpoch: replica.NoBrokerEpoch,
	})
	if errors.Is(err, replica.ErrOffsetOutOfRange) && from < res.LogStart {
		return records, min(to, res.LogStart-1), nil // retention was faster
	}
	if err != nil {
		return nil, 0, err
	}
	if len(b) == 0 {
		return nil, 0, replica.ErrRemoteUnavailable // it is there, but did not come in time
	}
	last = from - 1
	for len(b) > 0 && last < to {
		one, rest, err := batch.Next(b)
		if err != nil {
			return nil, 0, err
		}
		for r, err := range one.Records(batch.Limits{}) {
			if err != nil {
				return nil, 0, err
			}
			if r.Offset >= from && r.Offset <= to && !one.Control() {
				records[r.Offset] = cloned(r)
			}
		}
		last, b = one.LastOffset(), rest
	}
	return records, min(last, to), nil
}

// cloned is a record that does not share memory with its batch.
func cloned(r batch.Record) batch.Record {
	r.Key, r.Value = bytes.Clone(r.Key), bytes.Clone(r.Value)
	headers := make([]batch.Header, len(r.Headers))
	for i, h := range r.Headers {
		headers[i] = batch.Header{Key: bytes.Clone(h.Key), Value: bytes.Clone(h.Value)}
	}
	r.Headers = headers
	return r
}

// letterTopicOf finds the dead-letter topic, or creates it where that is allowed.
func (s *Server) letterTopicOf(ctx context.Context, name string) (*meta.Topic, error) {
	prefix, _ := s.brokerSetting("errors.deadletterqueue.topic.name.prefix")
	switch {
	case name == "":
		return nil, fmt.Errorf("%w: none is configured", errNoDeadLetters)
	case strings.HasPrefix(name, "__"):
		return nil, fmt.Errorf("%w: %s begins with __", errNoDeadLetters, name)
	case !strings.HasPrefix(name, prefix):
		return nil, fmt.Errorf("%w: %s does not begin with %s", errNoDeadLetters, name, prefix)
	}
	t := s.deps.Metadata.Image().Topic(name)
	if t != nil {
		if t.Configs[letterEnable] != "true" {
			return nil, fmt.Errorf("%w: %s of %s is not true", errNoDeadLetters, letterEnable, name)
		}
		return t, nil
	}
	if on, _ := s.brokerSetting("errors.deadletterqueue.auto.create.topics.enable"); on != "true" {
		return nil, fmt.Errorf("%w: %s does not exist, and is not created by itself", errNoDeadLetters, name)
	}
	value := "true"
	created, err := createTopicsAnywhere(ctx, s.deps.Metadata, s.deps.Controller, []meta.NewTopic{{
		Name: name, Partitions: -1, ReplicationFactor: -1, Configs: []meta.ConfigValue{{Name: letterEnable, Value: &value}}}}, false)
	switch {
	case err != nil:
		return nil, err
	case len(created) == 1 && created[0].Err != nil && !errors.Is(created[0].Err, meta.ErrTopicExists):
		return nil, created[0].Err
	}
	if t = s.deps.Metadata.Image().Topic(name); t == nil {
		return nil, replica.ErrUnknownPartition // this broker will hear of it
	}
	return t, nil
}

const letterEnable = "errors.deadletterqueue.group.enable"

// brokerSetting is a setting of this broker as it is now.
func (s *Server) brokerSetting(name string) (string, bool) {
	b := s.settings()
	if b == nil {
		return "", false
	}
	text, _, _, ok := b.Value(name)
	return text, ok
}

// produceLetters writes a batch to a partition of the dead-letter topic, here or on its leader, and waits until it is committed.
func (s *Server) produceLetters(ctx context.Context, t *meta.Topic, index int32, b []byte) error {
	leader := t.Partitions[index].Leader
	if leader == s.cfg.NodeID || s.deps.Brokers == nil {
		p, err := s.deps.Partitions.PartitionByID(t.ID, index)
		if err != nil {
			return err
		}
		a, err := p.Append(b, replica.AppendRequest{Acks: -1, Version: apiProduce.max, Now: s.nowMillis()})
		if err != nil {
			return err
		}
		done := make(chan error, 1)
		cancel := p.OnCommitted(a.LeaderEpoch, a.LastOffset, func(err error) { done <- err })
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			cancel()
			return ctx.Err()
		}
	}
	if leader == meta.NoLeader {
		return replica.ErrNotLeader
	}
	q := kmsg.NewPtrProduceRequest()
	q.Version, q.Acks, q.TimeoutMillis = apiProduce.max, -1, int32(letterWait.Milliseconds())
	x, y := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
	y.Partition, y.Records = index, b
	x.Topic, x.TopicID = t.Name, t.ID
	x.Partitions = append(x.Partitions, y)
	q.Topics = append(q.Topics, x)
	resp, err := s.deps.Brokers.Ask(ctx, leader, q)
	if err != nil {
		return err
	}
	r, ok := resp.(*kmsg.ProduceResponse)
	if !ok || len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 {
		return fmt.Errorf("broker %d gave no answer", leader)
	}
	if c := r.Topics[0].Partitions[0].ErrorCode; c != codeNone {
		return fmt.Errorf("broker %d answers error %d", leader, c)
	}
	return nil
}
