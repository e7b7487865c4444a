package broker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/replica"
)

// Produce (0): versions 3–13, advertised from 0 (KAFKA-18659); 0–2 close the connection, as in Kafka 4.
//
//	v3  batches of magic 2 only        v5  log start offset
//	v7  zstd                           v8  record errors (KIP-467)
//	v9  flexible                       v10 current leader (KIP-951)
//	v12 implicit transaction adds      v13 topic ids
var apiProduce = api{key: 0, name: "Produce", min: 3, max: 13, advertised: new(int16), handle: (*Server).produce}

// adminClient is the client id that may write to internal topics, as in Kafka.
const adminClient = "__admin_client"

// produceOp is one Produce from its decoding until its answer. It is pooled only when nothing waited for a commit: a
// callback that comes late must find its own op.
type produceOp struct {
	req kmsg.ProduceRequest

	c        *conn
	rep      *reply
	corr     int32
	version  int16
	deadline int64
	muted    time.Duration // until when, by the quotas' time, its client has to wait
	names    []byte        // topic names, copied: the frame is gone when the answer is written
	topics   []produceTopic

	unverified bool // transactional without a transactional id

	mu      sync.Mutex // guards the following once callbacks may run
	parts   []producePart
	pending int // partitions not committed yet, plus one while the handler runs
	ended   bool
}

type produceTopic struct {
	nameEnd int // in names; the name starts at the previous topic's end
	id      topic.ID
	parts   int // how many of parts are of this topic
}

type producePart struct {
	index     int32
	code      int16
	waiting   bool
	base      int64
	logTime   int64
	logStart  int64
	cancel    func()
	leader    leaderHint
	message   string
	recErrors []batch.RecordError
}

var produceOps = sync.Pool{New: func() any { return new(produceOp) }}

func (op *produceOp) reset() {
	clear(op.parts)
	op.c, op.rep = nil, nil
	op.names, op.topics, op.parts = op.names[:0], op.topics[:0], op.parts[:0]
	op.pending, op.ended, op.muted = 0, false, 0
	op.req.TransactionID = nil
	clear(op.req.Topics) // they point into the frame
	op.req.Topics = op.req.Topics[:0]
}

// produce appends every partition's batch and answers at once, or, with acks=all, when the last of them is committed.
func (s *Server) produce(r *request) error {
	op := produceOps.Get().(*produceOp)
	op.req.SetVersion(r.version)
	if err := decodeUnsafe(r, &op.req); err != nil {
		return err
	}
	q := &op.req
	op.c, op.corr, op.version = r.c, r.corr, r.version
	now := s.nowMillis()
	op.deadline = now + int64(max(q.TimeoutMillis, 0))
	op.pending = 1
	if err := op.size(q); err != nil {
		return err
	}
	op.unverified = unverifiedTransaction(q)
	failed, at := false, 0
	for i := range q.Topics {
		t := &q.Topics[i]
		for j := range t.Partitions {
			part := &op.parts[at]
			at++
			*part = producePart{index: t.Partitions[j].Partition, base: -1, logTime: -1, logStart: -1, leader: noLeader}
			s.produceOne(r, op, at-1, t, t.Partitions[j].Records, now)
			failed = failed || part.code != codeNone
		}
	}
	if t := s.quotas.table.Load(); t != nil && !r.exempt {
		op.muted = s.throttleProduce(r, t, q.Acks == 0)
	}
	if q.Acks == 0 {
		r.answered = true
		op.reset()
		produceOps.Put(op)
		if failed {
			return errProduceFailed
		}
		return nil
	}
	return op.answer(r)
}

// size lays out topics and parts, so that callbacks find parts where they stay. Null records end the connection, as in
// Kafka, before anything is appended.
func (op *produceOp) size(q *kmsg.ProduceRequest) error {
	n := 0
	for i := range q.Topics {
		t := &q.Topics[i]
		op.names = append(op.names, t.Topic...)
		op.topics = append(op.topics, produceTopic{nameEnd: len(op.names), id: t.TopicID, parts: len(t.Partitions)})
		n += len(t.Partitions)
		for j := range t.Partitions {
			if t.Partitions[j].Records == nil {
				return fmt.Errorf("%w: Produce version %d: null records", errBadRequest, op.version)
			}
		}
	}
	if cap(op.parts) < n {
		op.parts = make([]producePart, n)
	}
	op.parts = op.parts[:n]
	return nil
}

// produceOne appends one partition's batch and fills in its part.
func (s *Server) produceOne(r *request, op *produceOp, at int, t *kmsg.ProduceRequestTopic, records []byte, now int64) {
	part := &op.parts[at]
	p, err := s.produceTarget(r, t, part.index, op.req.Acks)
	if err == nil {
		records, err = checkProduceRecords(records, r.version)
	}
	if err == nil && op.unverified {
		err = errUnverifiedTransaction
	}
	var done replica.Appended
	a := replica.AppendRequest{Acks: op.req.Acks, Version: r.version, Now: now}
	reached := false
	for tries := 0; err == nil; tries++ {
		if err = s.verified(r, op, p, records, &a); err != nil {
			break
		}
		reached = true
		r.c.appending = true
		done, err = p.Append(records, a)
		r.c.appending = false
		// The marker of the transaction before may come right after the question whether this one is open: it is asked again.
		if tries == txnAsksMax || !errors.Is(err, replica.ErrTxnEndedMeanwhile) {
			break
		}
		err = nil
	}
	s.stats.produced.Add(1)
	if err != nil {
		s.stats.produceFailed.Add(1)
		part.recErrors = done.RecordErrors
		if reached && tellsLogStart(err) {
			part.logStart = done.LogStart
		}
		s.produceError(r, part, t, err)
		return
	}
	s.stats.messagesIn.Add(done.LastOffset - done.BaseOffset + 1)
	part.base, part.logTime, part.logStart = done.BaseOffset, done.LogAppendTime, done.LogStart
	if op.req.Acks != -1 {
		return
	}
	op.mu.Lock()
	op.pending++
	part.waiting = true
	op.mu.Unlock()
	cancel := p.OnCommitted(done.LeaderEpoch, done.LastOffset, func(err error) { op.committed(at, err) })
	op.mu.Lock()
	if part.waiting {
		part.cancel = cancel
	}
	op.mu.Unlock()
}

// tellsLogStart says whether the answer to a failed append carries the log start: Kafka leaves it out of the errors that
// come from the log rather than from the batch.
func tellsLogStart(err error) bool {
	switch code(err) {
	case codeUnknownTopicOrPartition, codeNotLeaderOrFollower, codeMessageTooLarge, codeRecordListTooLarge, codeCorruptMessage,
		codeStorageError, codeUnknownServerError, codeNotEnoughReplicas, codeInvalidRequiredAcks:
		return false
	}
	return true
}

// produceTarget finds the partition to write to.
func (s *Server) produceTarget(r *request, t *kmsg.ProduceRequestTopic, index int32, acks int16) (Partition, error) {
	if acks < -1 || acks > 1 {
		return nil, replica.ErrInvalidAcks
	}
	if r.version >= 13 {
		p, err := s.deps.Partitions.PartitionByID(t.TopicID, index)
		if err == nil && r.client != adminClient && topic.IsInternal(p.ID().Topic) {
			return nil, errInternalTopic
		}
		return p, err
	}
	p, err := s.deps.Partitions.Partition(t.Topic, index)
	if err == nil && r.client != adminClient && topic.IsInternal(t.Topic) {
		return nil, errInternalTopic
	}
	return p, err
}

// checkProduceRecords applies what Kafka checks before it looks for the log (ProduceRequest.validateRecords): exactly one
// batch, of magic 2, and no zstd before version 7. It returns the batch; bytes behind it that are no whole batch are
// dropped, as Kafka drops them.
func checkProduceRecords(records []byte, version int16) ([]byte, error) {
	size, err := nextBatchSize(records)
	switch {
	case err != nil:
		return nil, err
	case size == 0:
		return nil, errNoBatch
	}
	b := batch.Batch(records[:size])
	if b.Magic() != 2 {
		return nil, errBatchMagic
	}
	if version < 7 && b.Attributes()&0x07 == 4 {
		return nil, batch.ErrUnsupportedCompression
	}
	more, err := nextBatchSize(records[size:])
	if err != nil {
		return nil, err
	}
	if more > 0 {
		return nil, errManyBatches
	}
	return b, nil
}

const (
	batchPrefixBytes = 17 // what says how long a batch is and of which format
	batchSizeMin     = 14 // smallest size any format may declare
)

// nextBatchSize is the length of the first whole batch in b, 0 if there is none (ByteBufferLogInputStream.nextBatchSize).
func nextBatchSize(b []byte) (int, error) {
	if len(b) < batchPrefixBytes {
		return 0, nil
	}
	size := int32(binary.BigEndian.Uint32(b[8:]))
	if size < batchSizeMin {
		return 0, withMessage(batch.ErrCorrupt, "Record size %d is less than the minimum record overhead (%d)", size, batchSizeMin)
	}
	magic := int8(b[16])
	if magic < 0 || magic > 2 {
		return 0, withMessage(batch.ErrCorrupt, "Invalid magic found in record: %d", magic)
	}
	if int(size)+12 > len(b) {
		return 0, nil
	}
	if magic == 2 && int(size)+12 < batch.HeaderSize {
		return 0, withMessage(batch.ErrCorrupt, "Record batch of %d bytes is shorter than its header", size)
	}
	return int(size) + 12, nil
}

var (
	// errNoBatch is returned when a partition of a Produce carries no whole batch.
	errNoBatch = invalidRecord("Produce requests must have at least one record batch per partition")
	// errBatchMagic is returned when a batch is of an old format.
	errBatchMagic = invalidRecord("Produce requests are only allowed to contain record batches with magic version 2")
	// errManyBatches is returned when a partition of a Produce carries more than one batch.
	errManyBatches = invalidRecord("Produce requests are only allowed to contain exactly one record batch per partition")
)

// unverifiedTransaction says that the request carries a transactional batch but names no transactional id, so that nobody
// can say whether it may.
func unverifiedTransaction(q *kmsg.ProduceRequest) bool {
	if q.TransactionID != nil {
		return false
	}
	for i := range q.Topics {
		for j := range q.Topics[i].Partitions {
			b := q.Topics[i].Partitions[j].Records
			if len(b) >= batch.HeaderSize && b[16] == 2 && batch.Batch(b).Transactional() {
				return true
			}
		}
	}
	return false
}

// produceError fills in a part that failed. As in Kafka, there is a message when single records are to blame, the bytes
// are no batch at all or the transaction is not open, and the log start unless the log was never reached or has failed.
// What only this broker knows, and somebody has to mend, is said as well (produceWords).
func (s *Server) produceError(r *request, part *producePart, t *kmsg.ProduceRequestTopic, err error) {
	part.code = s.codeOf(r, err)
	var worded *messageError
	tells := part.code == codeCorruptMessage || part.code == codeInvalidTxnState || part.code == codeTransactionAbortable
	if len(part.recErrors) > 0 || tells && errors.As(err, &worded) {
		part.message = err.Error()
	} else {
		part.message = s.produceWords(part.code, err)
	}
	switch part.code {
	case codeNotLeaderOrFollower:
		if r.version >= 10 {
			part.leader = s.leaderOf(t.Topic, t.TopicID, part.index)
		}
	case codeStorageError:
		s.logFailure("append failed", t.Topic, t.TopicID, part.index, part.code, err)
	}
}

// produceWords are the cause and the fix for a producer whose records are refused for a reason that its error code does
// not tell. Other codes say it all, or pass by themselves.
func (s *Server) produceWords(c int16, err error) string {
	switch {
	case errors.Is(err, replica.ErrDiskFull):
		return fmt.Sprintf("The disk of broker %d is nearly full: free space, or lower local.retention.ms or local.retention.bytes", s.cfg.NodeID)
	case errors.Is(err, replica.ErrOffline):
		return fmt.Sprintf("The partition's log on broker %d has stopped at an I/O error, which that broker's log names: mend the disk and restart the broker", s.cfg.NodeID)
	case c == codeStorageError:
		return fmt.Sprintf("Broker %d cannot use what the partition has stored; that broker's log names the cause", s.cfg.NodeID)
	case c == codeMessageTooLarge, c == codeRecordListTooLarge, c == codeNotEnoughReplicas, c == codeNotEnoughReplicasAfter:
		return strings.TrimPrefix(err.Error(), "replica: ")
	}
	return ""
}

// committed is called by the log, from any goroutine, when part at is committed or cannot be any more.
func (op *produceOp) committed(at int, err error) {
	op.mu.Lock()
	part := &op.parts[at]
	if !part.waiting || op.ended {
		op.mu.Unlock()
		return
	}
	part.waiting, part.cancel = false, nil
	if err != nil {
		op.c.srv.stats.produceFailed.Add(1)
		part.fail(code(err))
		part.message = op.c.srv.produceWords(part.code, err)
	}
	op.settleLocked()
}

func (part *producePart) fail(c int16) {
	part.code, part.base, part.logTime, part.logStart = c, -1, -1, -1
}

// settleLocked takes one off pending; the last one writes the answer. It unlocks op.mu.
func (op *produceOp) settleLocked() {
	op.pending--
	last := op.pending == 0 && !op.ended
	if last {
		op.ended = true
	}
	rep := op.rep
	op.mu.Unlock()
	if last && rep != nil {
		op.encode(rep)
		op.c.complete(rep)
	}
}

// answer ends the handler's part: everything is committed already and the answer goes out, or the op stays behind.
func (op *produceOp) answer(r *request) error {
	op.mu.Lock()
	if op.pending == 1 {
		op.pending, op.ended = 0, true
		op.mu.Unlock()
		p := newReply()
		op.encode(p)
		op.reset()
		produceOps.Put(op)
		return r.reply(p)
	}
	rep := newReply()
	rep.wait = op
	op.rep = rep
	op.req = kmsg.ProduceRequest{} // the frame goes back to the pool now
	op.mu.Unlock()
	if err := r.later(rep); err != nil {
		op.abandon()
		return err
	}
	op.mu.Lock()
	op.settleLocked()
	return nil
}

// expire answers REQUEST_TIMED_OUT for what is not committed by the deadline. The records stay in the log.
func (op *produceOp) expire(nowMillis int64) {
	if nowMillis < op.deadline {
		return
	}
	op.stop(true)
}

// abandon forgets the callbacks: nobody is left to answer.
func (op *produceOp) abandon() { op.stop(false) }

func (op *produceOp) stop(answer bool) {
	op.mu.Lock()
	if op.ended {
		op.mu.Unlock()
		return
	}
	op.ended = true
	var cancels []func()
	for i := range op.parts {
		part := &op.parts[i]
		if !part.waiting {
			continue
		}
		if part.cancel != nil {
			cancels = append(cancels, part.cancel)
		}
		part.waiting, part.cancel = false, nil
		part.fail(codeRequestTimedOut)
		if answer {
			op.c.srv.stats.produceFailed.Add(1)
		}
	}
	rep := op.rep
	op.mu.Unlock()
	for _, cancel := range cancels {
		cancel()
	}
	if answer && rep != nil {
		op.encode(rep)
		op.c.complete(rep)
	}
}

// encode writes the answer into rep.
//
//	topics: name (–12) or id (13), partitions: index, error, base offset, log append time, log start (5+),
//	record errors and message (8+), current leader as tag 0 (10+) · throttle · node endpoints as tag 0 (10+)
func (op *produceOp) encode(rep *reply) {
	v, flexible := op.version, op.version >= 9
	rep.begin(op.corr, flexible)
	b := appendLen(rep.head, len(op.topics), flexible)
	at, nameStart := 0, 0
	var nodes []endpoint
	for i := range op.topics {
		t := &op.topics[i]
		if v >= 13 {
			b = append(b, t.id[:]...)
		} else {
			b = appendString(b, string(op.names[nameStart:t.nameEnd]), flexible)
		}
		nameStart = t.nameEnd
		b = appendLen(b, t.parts, flexible)
		for j := at; j < at+t.parts; j++ {
			b = op.parts[j].append(b, v, flexible)
			if op.parts[j].leader != noLeader {
				nodes = op.c.srv.addEndpoint(nodes, op.parts[j].leader.id, op.c.door.Name)
			}
		}
		at += t.parts
		if flexible {
			b = append(b, 0)
		}
	}
	b = appendInt32(b, op.throttleMillis())
	if flexible {
		b = appendEndpointsTag(b, nodes)
	}
	rep.head = b
	rep.end()
}

func (part *producePart) append(b []byte, v int16, flexible bool) []byte {
	b = appendInt32(b, part.index)
	b = appendInt16(b, part.code)
	b = appendInt64(b, part.base)
	b = appendInt64(b, part.logTime)
	if v >= 5 {
		b = appendInt64(b, part.logStart)
	}
	if v >= 8 {
		b = appendLen(b, len(part.recErrors), flexible)
		for _, e := range part.recErrors {
			b = appendInt32(b, e.Index)
			b = appendNullableString(b, e.Message, e.Message == "", flexible)
			if flexible {
				b = append(b, 0)
			}
		}
		b = appendNullableString(b, part.message, part.message == "", flexible)
	}
	if !flexible {
		return b
	}
	if part.leader == noLeader || v < 10 {
		return append(b, 0)
	}
	return appendLeaderTag(append(b, 1), 0, part.leader)
}
