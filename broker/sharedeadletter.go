package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
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
// Producing is tried until it is durable: meanwhile the records are neither handed out nor done. What is durable is not produced
// again: only a batch of which nobody knows whether it was written may be there twice. Where the settings themselves are wrong (a
// name that is not allowed, a topic that does not exist or does not take dead letters) the records are archived without, as in
// Kafka, and that is logged. A letter that is too large for its topic goes without the copy of its record.

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
	letterBytes    = 256 << 10        // of one batch; a single record may be larger
	letterWait     = 15 * time.Second // for one batch, or one read
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
		failed, moved := false, false
		for _, d := range list {
			next, err := p.letter(d)
			moved = moved || next > d.First
			if err != nil {
				p.srv.shares.stats.lettersFailed.Add(1)
				p.srv.logFailure("dead letters not produced", "", p.key.Topic, p.key.Partition, codeNone, err)
				if errors.Is(err, errNoDeadLetters) {
					next = d.Last + 1
				}
			}
			if !p.buried(d, next) {
				return
			}
			failed = failed || next <= d.Last
		}
		if moved || !failed {
			pause = letterPauseMin
		}
		if failed {
			if !p.srv.sleep(pause) {
				return
			}
			pause = min(2*pause, letterPauseMax)
		}
		p.mu.Lock()
		list = nil
		if p.readyLocked() == nil {
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

// buried tells the machine that the dead letters below an offset are durable, and that the others of the run are to be tried
// again; false: the share-partition is dropped, and they are its next leader's.
func (p *sharePart) buried(d share.DeadLetter, next int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.readyLocked() != nil {
		return false
	}
	if next > d.First {
		p.core.Buried(d.First, next-1)
	}
	if next <= d.Last {
		p.core.Unburied(next, d.Last)
	}
	p.afterLocked()
	return true
}

// letter writes the dead letters of a run of records, durably. next is how far it got: what lies below needs no other try.
func (p *sharePart) letter(d share.DeadLetter) (next int64, err error) {
	s := p.srv.shareSettings(p.key.Group)
	to, err := p.letterTopic(s.deadLetter)
	if err != nil {
		return d.First, err
	}
	for at := d.First; at <= d.Last; {
		records := map[int64]batch.Record{}
		last := d.Last
		if s.copyRecord {
			if records, last, err = p.srv.lettersCopied(p.part, at, d.Last); err != nil {
				return at, err
			}
		}
		if at, err = p.lettersOf(to, at, last, d, records); err != nil {
			return at, err
		}
	}
	return d.Last + 1, nil
}

// lettersOf writes the dead letters of the offsets from at to last, in batches. What is too large for the topic is tried in
// smaller batches, and in the end without the copies.
func (p *sharePart) lettersOf(to *meta.Topic, at, last int64, d share.DeadLetter, records map[int64]batch.Record) (next int64, err error) {
	index := p.key.Partition % int32(len(to.Partitions))
	for most := math.MaxInt; at <= last; {
		if err := p.ready(); err != nil {
			return at, err
		}
		b, end := p.lettersFrom(at, last, most, d, records)
		n := batch.Batch(b).Count()
		p.srv.shares.stats.letters.Add(1)
		err := p.srv.produceLetters(to, index, b)
		_, copied := records[at]
		switch {
		case err == nil:
			p.srv.shares.stats.letterRecords.Add(int64(n))
			at = end
		case !letterTooLarge(err):
			return at, err
		case n > 1:
			most = int(n) / 2
		case copied:
			delete(records, at)
		default:
			return at, fmt.Errorf("%w: %w", errNoDeadLetters, err)
		}
	}
	return at, nil
}

// letterTooLarge says that a topic does not take a batch because of its size.
func letterTooLarge(err error) bool {
	return errors.Is(err, batch.ErrTooLarge) || errors.Is(err, replica.ErrRecordsTooLarge)
}

// ready is an error once the share-partition is dropped, or is to be.
func (p *sharePart) ready() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.readyLocked()
}

func (p *sharePart) letterTopic(name string) (*meta.Topic, error) {
	ctx, cancel := context.WithTimeout(p.srv.ctx, letterWait)
	defer cancel()
	return p.srv.letterTopicOf(ctx, name)
}

// lettersFrom makes a batch of dead letters from an offset on, most of them at most. next is the offset behind them.
func (p *sharePart) lettersFrom(at, last int64, most int, d share.DeadLetter, records map[int64]batch.Record) (_ []byte, next int64) {
	now := p.srv.nowMillis()
	b := batch.NewBuilder(batch.Options{})
	for ; at <= last && int(b.Count()) < most && (b.Count() == 0 || b.SizeBytes() < letterBytes); at++ {
		r, copied := records[at]
		headers := r.Headers
		add := func(key, value string) {
			headers = append(headers, batch.Header{Key: []byte(key), Value: []byte(value)})
		}
		add(letterTopic, p.part.ID().Topic)
		add(letterPartition, strconv.Itoa(int(p.key.Partition)))
		add(letterOffset, strconv.FormatInt(at, 10))
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
	return b.Bytes(), at
}

// lettersCopied reads the records from an offset on, as far as one read goes: last is how far that is. Offsets up to there
// without a record hold none.
func (s *Server) lettersCopied(part Partition, from, to int64) (records map[int64]batch.Record, last int64, err error) {
	ctx, cancel := context.WithTimeout(s.ctx, letterWait)
	defer cancel()
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
				break // no other try would read them: the letters of the rest go without copies
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
func (s *Server) produceLetters(t *meta.Topic, index int32, b []byte) error {
	ctx, cancel := context.WithTimeout(s.ctx, letterWait)
	defer cancel()
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
		forget := p.OnCommitted(a.LeaderEpoch, a.LastOffset, func(err error) { done <- err })
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			forget()
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
	switch c := r.Topics[0].Partitions[0].ErrorCode; c {
	case codeNone:
		return nil
	case codeMessageTooLarge, codeRecordListTooLarge:
		return fmt.Errorf("%w: broker %d answers error %d", batch.ErrTooLarge, leader, c)
	default:
		return fmt.Errorf("broker %d answers error %d", leader, c)
	}
}
