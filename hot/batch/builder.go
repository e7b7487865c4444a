package batch

import (
	"encoding/binary"
	"fmt"
	"sync"
)

// Producer identifies the idempotent or transactional producer of a batch.
type Producer struct {
	ID       int64
	Epoch    int16
	Sequence int32 // of the first record; NoSequence for markers
}

// Options is what a Builder puts into the header.
type Options struct {
	BaseOffset  int64
	LeaderEpoch int32
	Codec       Codec
	// Level is the codec's level as compression.*.level numbers it; 0 is the
	// codec's default.
	Level int
	// Producer is nil for a batch of no idempotent producer.
	Producer      *Producer
	Transactional bool
	Control       bool
	// TimestampType LogAppendTime gives all records AppendTime.
	TimestampType TimestampType
	AppendTime    int64 // milliseconds; with LogAppendTime only
}

// Builder builds one batch. It compresses as records arrive, so it holds the
// compressed bytes only. Not safe for concurrent use.
type Builder struct {
	o        Options
	out      []byte
	scratch  []byte // one encoded record
	headers  []byte // its encoded headers
	deflater deflater
	pool     *sync.Pool

	horizon     int64 // NoTimestamp or the delete horizon
	base        int64 // base timestamp
	count       int32
	raw         int64 // bytes of records before compression
	last        int64 // last offset appended
	lastFixed   int64 // last offset to declare, or -1 for last
	max         int64 // largest timestamp
	offsetOfMax int64
}

// NewBuilder returns a builder of an empty batch. It panics when the codec is
// not an assigned one.
func NewBuilder(o Options) *Builder {
	b := &Builder{}
	b.Reset(o)
	return b
}

// Reset starts another batch in the same memory: what Bytes returned before
// is overwritten.
func (b *Builder) Reset(o Options) {
	if !o.Codec.Valid() {
		panic(fmt.Sprintf("batch: builder with %s", o.Codec))
	}
	*b = Builder{o: o, out: b.out[:0], scratch: b.scratch[:0], headers: b.headers[:0], horizon: NoTimestamp,
		last: o.BaseOffset - 1, lastFixed: -1, max: NoTimestamp, offsetOfMax: -1}
	if cap(b.out) < HeaderSize {
		b.out = make([]byte, 0, 1024)
	}
	b.out = b.out[:HeaderSize]
}

// Append adds a record at the next offset. Timestamps are milliseconds. It
// returns ErrTooLarge when the batch would pass 2 GiB, and adds nothing.
func (b *Builder) Append(timestamp int64, key, value []byte, headers []Header) error {
	return b.AppendAt(b.last+1, timestamp, key, value, headers)
}

// AppendAt adds a record at an offset above those before; it panics at
// another, since a log with such a batch could not be read.
func (b *Builder) AppendAt(offset, timestamp int64, key, value []byte, headers []Header) error {
	b.headers = encodeHeaders(b.headers[:0], headers)
	return b.append(offset, timestamp, key, value, int32(len(headers)), b.headers)
}

func (b *Builder) append(offset, timestamp int64, key, value []byte, headerCount int32, headers []byte) error {
	delta := offset - b.o.BaseOffset
	if offset <= b.last && (b.count > 0 || delta < 0) {
		panic(fmt.Sprintf("batch: offset %d after %d", offset, b.last))
	}
	if b.count == 0 {
		b.base = timestamp
		if b.horizon != NoTimestamp {
			b.base = b.horizon
		}
	}
	b.scratch = appendRecord(b.scratch[:0], timestamp-b.base, int32(delta), key, value, headerCount, headers)
	if delta > maxInt32 || b.raw+int64(len(b.scratch)) > maxInt32-HeaderSize {
		return fmt.Errorf("batch of %d records: %w", b.count, ErrTooLarge)
	}
	b.raw += int64(len(b.scratch))
	b.write(b.scratch)
	b.count++
	b.last = offset
	if timestamp > b.max {
		b.max, b.offsetOfMax = timestamp, offset
	}
	return nil
}

// write puts record bytes into the batch, through the encoder if there is one.
func (b *Builder) write(p []byte) {
	if b.o.Codec == None {
		b.out = append(b.out, p...)
		return
	}
	if b.deflater == nil {
		d, pool, err := openDeflater(b.o.Codec, b.o.Level, (*builderOut)(b))
		if err != nil {
			panic("batch: " + err.Error()) // levels are clamped, codecs checked
		}
		b.deflater, b.pool = d, pool
	}
	if _, err := b.deflater.Write(p); err != nil {
		panic("batch: compress into memory: " + err.Error())
	}
}

// builderOut appends what the encoder emits.
type builderOut Builder

func (o *builderOut) Write(p []byte) (int, error) {
	o.out = append(o.out, p...)
	return len(p), nil
}

// Count is the number of records so far.
func (b *Builder) Count() int32 { return b.count }

// RawBytes is the length of the records so far, before compression.
func (b *Builder) RawBytes() int64 { return b.raw }

// SizeBytes is the length of the batch so far; an encoder may hold back what
// it has not emitted.
func (b *Builder) SizeBytes() int { return len(b.out) }

// MaxTimestamp is the largest timestamp so far and the offset of the first
// record that has it; both -1 without records.
func (b *Builder) MaxTimestamp() (millis, offset int64) { return b.max, b.offsetOfMax }

// Bytes finishes the batch and returns it, nil without records. The memory is
// the builder's until Reset; Append must not be called in between.
func (b *Builder) Bytes() Batch {
	if b.count == 0 {
		return nil
	}
	if b.deflater != nil {
		if err := b.deflater.Close(); err != nil {
			panic("batch: compress into memory: " + err.Error())
		}
		b.pool.Put(b.deflater)
		b.deflater, b.pool = nil, nil
	}
	last := b.last
	if b.lastFixed >= 0 {
		last = b.lastFixed
	}
	b.header(int32(last-b.o.BaseOffset), b.max)
	return Batch(b.out)
}

// header writes the header in front of the records and signs it.
func (b *Builder) header(lastDelta int32, max int64) {
	h := b.out
	attrs := int16(b.o.Codec)
	if b.o.TimestampType == LogAppendTime {
		attrs |= attrLogAppendTime
		max = b.o.AppendTime
	}
	if b.o.Transactional {
		attrs |= attrTransactional
	}
	if b.o.Control {
		attrs |= attrControl
	}
	if b.horizon != NoTimestamp {
		attrs |= attrDeleteHorizon
	}
	producer := Producer{ID: NoProducerID, Epoch: NoProducerEpoch, Sequence: NoSequence}
	if b.o.Producer != nil {
		producer = *b.o.Producer
	}
	binary.BigEndian.PutUint64(h[baseOffsetAt:], uint64(b.o.BaseOffset))
	binary.BigEndian.PutUint32(h[lengthAt:], uint32(len(h)-lengthPrefixSize))
	binary.BigEndian.PutUint32(h[leaderEpochAt:], uint32(b.o.LeaderEpoch))
	h[magicAt] = Magic
	binary.BigEndian.PutUint16(h[attributesAt:], uint16(attrs))
	binary.BigEndian.PutUint32(h[lastDeltaAt:], uint32(lastDelta))
	binary.BigEndian.PutUint64(h[baseTimestampAt:], uint64(b.base))
	binary.BigEndian.PutUint64(h[maxTimestampAt:], uint64(max))
	binary.BigEndian.PutUint64(h[producerIDAt:], uint64(producer.ID))
	binary.BigEndian.PutUint16(h[producerEpochAt:], uint16(producer.Epoch))
	binary.BigEndian.PutUint32(h[baseSequenceAt:], uint32(producer.Sequence))
	binary.BigEndian.PutUint32(h[countAt:], uint32(b.count))
	Batch(h).updateCRC()
}
