package batch

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

// Origin is who asks for an append; rules for clients do not bind the
// coordinators.
type Origin int8

// The origins.
const (
	FromClient      Origin = 0
	FromCoordinator Origin = 1
)

// ValidateOptions is what the topic and the request ask of a batch.
type ValidateOptions struct {
	Now int64 // milliseconds
	// MaxBytes is max.message.bytes; 0 means no limit.
	MaxBytes      int
	TimestampType TimestampType
	// BeforeMaxMs and AfterMaxMs are message.timestamp.{before,after}.max.ms.
	BeforeMaxMs, AfterMaxMs int64
	// Compression is compression.type; AsProduced keeps the producer's codec.
	// The zero value stores everything uncompressed.
	Compression Codec
	// GzipLevel, LZ4Level and ZstdLevel are compression.*.level; 0 means the
	// codec's default.
	GzipLevel, LZ4Level, ZstdLevel int
	Compacted                      bool // cleanup.policy contains compact: keys are required
	ProduceVersion                 int16
	Limits                         Limits
	Origin                         Origin
	// Partition names topic and partition in messages, as in "events-3".
	Partition string
}

func (o *ValidateOptions) level(c Codec) int {
	switch c {
	case Gzip:
		return o.GzipLevel
	case LZ4:
		return o.LZ4Level
	case Zstd:
		return o.ZstdLevel
	}
	return 0
}

// Validated is a batch that may be appended once offsets are assigned.
type Validated struct {
	// Bytes is the batch: the caller's memory, stamped in place, unless
	// records had to be encoded anew.
	Bytes Batch
	Count int32
	// MaxTimestamp is the batch's, in milliseconds: of the records, or the
	// append time.
	MaxTimestamp int64
	// OffsetOfMaxTimestamp is the first record with MaxTimestamp, relative to
	// the base offset.
	OffsetOfMaxTimestamp int64
	// LogAppendTime is the stamped time, or -1 on CreateTime topics.
	LogAppendTime int64
	// Rebuilt reports that Bytes is new memory.
	Rebuilt bool
	// RecordErrors names the records that made Validate fail, the first
	// recordErrorsMax of them.
	RecordErrors []RecordError
}

// RecordError is why one record was refused (Produce 8, KIP-467).
type RecordError struct {
	Index   int32 // of the record in its batch
	Message string
}

// String is Kafka's form of it.
func (e RecordError) String() string {
	return fmt.Sprintf("RecordError(batchIndex=%d, message='%s')", e.Index, e.Message)
}

// recordErrorsMax bounds what a hostile batch can make the broker answer.
const recordErrorsMax = 1000

// RejectError is why a batch was refused. Kind is one of the package's
// sentinels; Message is for the client, in Kafka's words.
type RejectError struct {
	Kind    error
	Message string
}

func (e *RejectError) Error() string { return e.Message }

// Unwrap is Kind.
func (e *RejectError) Unwrap() error { return e.Kind }

func reject(kind error, format string, args ...any) error {
	return &RejectError{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// Validate checks the records field of a produce request for one partition,
// as Kafka's broker does: the request's own rules, framing, size and CRC, then
// the records. It stamps timestamp type and maximum in place, and encodes the
// records anew where the topic asks for another codec or their offsets are not
// 0, 1, 2 and so on. Base offset and leader epoch are left to the log.
//
// A batch that is kept as it is costs no allocation. On error nothing may be
// appended; RecordErrors may then say which records are to blame.
//
// One rule is stricter than Kafka's: bytes after the batch are refused instead
// of dropped. A client's LogAppendTime batch is refused where the topic stamps
// its own times; elsewhere it is taken as CreateTime, and it is the records'
// own timestamps that are checked, where Kafka checks the batch's.
func Validate(b []byte, o ValidateOptions) (Validated, error) {
	batch, err := frameProduced(b, &o)
	if err != nil {
		return Validated{}, err
	}
	if err := checkBatch(batch, &o); err != nil {
		return Validated{}, err
	}
	target := o.Compression
	if target == AsProduced || (batch.Control() && batch.Codec() == None) {
		target = batch.Codec()
	}
	v := validator{o: o, batch: batch, max: NoTimestamp, ordered: true}
	if err := v.run(); err != nil {
		return Validated{RecordErrors: v.failed}, err
	}
	if target != batch.Codec() || !v.ordered {
		return rebuild(batch, o, target, v.max, v.maxAt)
	}
	return v.stamp(), nil
}

// frameProduced applies the rules of the produce request: exactly one whole
// batch of magic 2, and zstd only from version 7 on.
func frameProduced(b []byte, o *ValidateOptions) (Batch, error) {
	size, err := frameAny(b)
	if err != nil {
		return nil, err
	}
	if size == 0 {
		return nil, reject(ErrInvalidRecord, "Produce requests with version %d must have at least one record batch per partition", o.ProduceVersion)
	}
	if magic := int8(b[magicAt]); magic != Magic {
		return nil, reject(ErrInvalidRecord, "Produce requests with version %d are only allowed to contain record batches with magic version 2", o.ProduceVersion)
	}
	if size < HeaderSize {
		return nil, reject(ErrCorrupt, "Record batch is corrupt (the size %d is smaller than the minimum allowed overhead %d)", size, HeaderSize)
	}
	batch := Batch(b[:size:size])
	if o.Origin == FromClient && o.ProduceVersion < 7 && batch.Codec() == Zstd {
		return nil, reject(ErrUnsupportedCompression, "Produce requests with version %d are not allowed to use ZStandard compression", o.ProduceVersion)
	}
	if size < len(b) {
		next, err := frameAny(b[size:])
		if err != nil {
			return nil, err
		}
		if next == 0 {
			return nil, reject(ErrCorrupt, "Record batch of %d bytes is followed by %d bytes that are no batch", size, len(b)-size)
		}
		return nil, reject(ErrInvalidRecord, "Produce requests with version %d are only allowed to contain exactly one record batch per partition", o.ProduceVersion)
	}
	return batch, nil
}

// frameAny is the size of the first batch of any version, 0 when b does not
// hold a whole one.
func frameAny(b []byte) (int, error) {
	// The smallest legacy message, magic 0, follows the length field.
	const legacySizeMin = 14
	if len(b) < lengthPrefixSize {
		return 0, nil
	}
	length := Batch(b).length()
	if length < legacySizeMin {
		return 0, reject(ErrCorrupt, "Record size %d is less than the minimum record overhead (%d)", length, legacySizeMin)
	}
	if len(b) <= magicAt {
		return 0, nil
	}
	if magic := int8(b[magicAt]); magic < 0 || magic > Magic {
		return 0, reject(ErrCorrupt, "Invalid magic found in record: %d", magic)
	}
	if int(length) > len(b)-lengthPrefixSize {
		return 0, nil
	}
	return lengthPrefixSize + int(length), nil
}

// checkBatch applies the rules that need the header alone, and the CRC.
func checkBatch(b Batch, o *ValidateOptions) error {
	client := o.Origin == FromClient
	if client && b.BaseOffset() != 0 {
		return reject(ErrInvalidRecord, "The baseOffset of the record batch in the append to %s should be 0, but it is %d", o.Partition, b.BaseOffset())
	}
	if o.MaxBytes > 0 && len(b) > o.MaxBytes {
		return reject(ErrTooLarge, "The record batch size in the append to %s is %d bytes which exceeds the maximum configured value of %d).", o.Partition, len(b), o.MaxBytes)
	}
	if b.computeCRC() != b.CRC() {
		return reject(ErrCorrupt, "Record is corrupt (stored crc = %d) in topic partition %s.", b.CRC(), o.Partition)
	}
	if !b.Codec().Valid() {
		return reject(ErrUnsupportedCompression, "Unknown compression type id: %d", b.Codec())
	}
	if !client {
		return nil
	}
	return checkClientBatch(b, o)
}

func checkClientBatch(b Batch, o *ValidateOptions) error {
	span := int64(b.LastOffsetDelta()) + 1
	count := int64(b.Count())
	switch {
	case span <= 0:
		return reject(ErrInvalidRecord, "Batch has an invalid offset range: [%d, %d] in topic partition %s", b.BaseOffset(), b.LastOffset(), o.Partition)
	case count <= 0:
		return reject(ErrInvalidRecord, "Invalid reported count for record batch: %d in topic partition %s", count, o.Partition)
	case span != count:
		return reject(ErrInvalidRecord, "Inconsistent batch offset range [%d, %d] and count of records %d in topic partition %s", b.BaseOffset(), b.LastOffset(), count, o.Partition)
	case b.Control():
		return reject(ErrInvalidRecord, "Clients are not allowed to write control records in topic partition %s", o.Partition)
	case b.HasProducer() && b.BaseSequence() < 0:
		return reject(ErrInvalidRecord, "Invalid sequence number %d in record batch with producerId %d in topic partition %s", b.BaseSequence(), b.ProducerID(), o.Partition)
	}
	return nil
}

// validator checks the records of one batch.
type validator struct {
	o       ValidateOptions // by value: a pointer would move every caller's to the heap
	batch   Batch
	walk    walker
	max     int64 // largest timestamp so far
	maxAt   int64 // index of the first record with it
	ordered bool  // offset deltas are 0, 1, 2, …

	failures  int64
	failed    []RecordError
	badStamps bool
}

func (v *validator) run() error {
	defer v.walk.close()
	if err := v.walk.open(v.batch, v.o.Limits, true); err != nil {
		return unreadable(err, v.o.Partition)
	}
	if v.o.TimestampType == CreateTime {
		v.walk.stamped = false
	}
	plain := v.batch.Codec() == None && !v.batch.LogAppendTime() && v.o.Origin == FromClient
	for i := int32(0); ; i++ {
		if plain {
			i = v.scan(i)
		}
		ok, err := v.walk.next()
		if err != nil {
			return unreadable(err, v.o.Partition)
		}
		if !ok {
			break
		}
		v.check(i)
	}
	return v.verdict()
}

// check applies the record rules to the record at hand.
func (v *validator) check(i int32) {
	if v.walk.raw.offsetDelta != i {
		v.ordered = false
	}
	timestamp := v.walk.timestamp()
	if v.o.Compacted && v.walk.raw.key == nil {
		v.fail(i, func() string {
			return "Compacted topic cannot accept message without key in topic partition " + v.o.Partition
		})
		return
	}
	if v.o.TimestampType == LogAppendTime && v.batch.LogAppendTime() && v.o.Origin == FromClient {
		v.badStamps = true
		v.fail(i, func() string {
			return fmt.Sprintf("Invalid timestamp type in message DefaultRecord(offset=%d, timestamp=%d, key=%d bytes, value=%d bytes). Producer should not set timestamp type to LogAppendTime.",
				v.walk.offset(), timestamp, len(v.walk.raw.key), len(v.walk.raw.value))
		})
		return
	}
	if v.o.TimestampType == CreateTime && timestamp != NoTimestamp && v.outOfBounds(timestamp) {
		v.badStamps = true
		v.fail(i, func() string {
			return fmt.Sprintf("Timestamp %d of message with offset %d is out of range. The timestamp should be within [%d, %d]",
				timestamp, v.walk.offset(), v.o.Now-v.o.BeforeMaxMs, v.o.Now+v.o.AfterMaxMs)
		})
		return
	}
	if timestamp > v.max {
		v.max, v.maxAt = timestamp, int64(i)
	}
}

// outOfBounds wraps on overflow as Kafka's arithmetic does: a timestamp near
// the smallest int64 counts as far in the future.
func (v *validator) outOfBounds(timestamp int64) bool {
	age := v.o.Now - timestamp
	return age > v.o.BeforeMaxMs || -age > v.o.AfterMaxMs || age == math.MinInt64
}

func (v *validator) fail(i int32, message func() string) {
	v.failures++
	if len(v.failed) < recordErrorsMax {
		v.failed = append(v.failed, RecordError{Index: i, Message: message()})
	}
}

func (v *validator) verdict() error {
	if v.failures == 0 {
		return nil
	}
	if v.badStamps {
		return reject(ErrInvalidTimestamp, "One or more records have been rejected due to invalid timestamp")
	}
	first := make([]string, 0, 3)
	for _, e := range v.failed[:min(len(v.failed), 3)] {
		first = append(first, e.String())
	}
	return reject(ErrInvalidRecord, "One or more records have been rejected due to %d record errors in total, and only showing the first three errors at most: [%s]",
		v.failures, strings.Join(first, ", "))
}

// unreadable is the refusal of a batch whose records cannot be walked.
func unreadable(err error, partition string) error {
	kind := ErrInvalidRecord
	if errors.Is(err, ErrInflated) {
		kind = ErrInflated
	}
	return reject(kind, "%s in topic partition %s", err, partition)
}

// stamp writes timestamp type and maximum into the batch in place.
func (v *validator) stamp() Validated {
	res := Validated{Bytes: v.batch, Count: v.batch.Count(), LogAppendTime: -1}
	if v.o.TimestampType == LogAppendTime {
		v.max, v.maxAt, res.LogAppendTime = v.o.Now, 0, v.o.Now
	}
	if v.o.Origin == FromClient && v.batch.Attributes()&attrDeleteHorizon != 0 {
		// Compaction alone says when tombstones may go.
		v.batch.clearDeleteHorizon()
	}
	v.batch.SetMaxTimestamp(v.max, v.o.TimestampType)
	res.MaxTimestamp, res.OffsetOfMaxTimestamp = v.max, v.maxAt
	return res
}

// rebuild encodes the records of a checked batch anew, with the target codec
// and rising offsets. It has to hold whole records, so it inflates less than
// checking does.
func rebuild(b Batch, o ValidateOptions, target Codec, max, maxAt int64) (Validated, error) {
	header := b.options()
	header.Codec, header.Level = target, o.level(target)
	header.TimestampType, header.AppendTime = o.TimestampType, o.Now
	builder := NewBuilder(header)
	o.Limits.MaxRatio = min(o.Limits.maxRatio(), rebuildRatio)
	if err := copyRecords(builder, b, o.Limits, o.TimestampType == CreateTime); err != nil {
		return Validated{}, unreadable(err, o.Partition)
	}
	res := Validated{Bytes: builder.Bytes(), Count: builder.Count(), LogAppendTime: -1, Rebuilt: true}
	res.MaxTimestamp, res.OffsetOfMaxTimestamp = max, maxAt
	if o.TimestampType == LogAppendTime {
		res.MaxTimestamp, res.OffsetOfMaxTimestamp, res.LogAppendTime = o.Now, 0, o.Now
	}
	if o.MaxBytes > 0 && len(res.Bytes) > o.MaxBytes {
		return Validated{}, reject(ErrTooLarge, "Message batch size is %d bytes in append to partition %s which exceeds the maximum configured size of %d.",
			len(res.Bytes), o.Partition, o.MaxBytes)
	}
	return res, nil
}

// rebuildRatio is the most a batch may inflate to, as a multiple of its
// length, where its records are encoded anew.
const rebuildRatio = 100

// copyRecords appends all records of a batch at the builder's next offsets,
// with their own timestamps even where the batch says LogAppendTime if so asked.
func copyRecords(to *Builder, b Batch, lim Limits, own bool) error {
	var w walker
	defer w.close()
	if err := w.open(b, lim, false); err != nil {
		return err
	}
	w.stamped = w.stamped && !own
	for {
		ok, err := w.next()
		if err != nil || !ok {
			return err
		}
		if err := to.append(to.last+1, w.timestamp(), w.raw.key, w.raw.value, w.raw.headerCount, w.raw.headers); err != nil {
			return err
		}
	}
}
