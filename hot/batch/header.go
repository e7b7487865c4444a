package batch

import (
	"encoding/binary"
	"hash/crc32"
)

// Record batch, version 2 (magic 2, KIP-98), big-endian. Format: do not
// renumber.
//
//	offset size field
//	     0    8  base offset
//	     8    4  length of what follows, so 12 less than the batch
//	    12    4  partition leader epoch
//	    16    1  magic, 2
//	    17    4  CRC-32C of everything from byte 21 on
//	    21    2  attributes
//	    23    4  last offset delta
//	    27    8  base timestamp, or the delete horizon when bit 6 is set
//	    35    8  max timestamp
//	    43    8  producer id, -1 none
//	    51    2  producer epoch, -1 none
//	    53    4  base sequence, -1 none
//	    57    4  record count
//	    61    …  records, compressed as one run when a codec is set
//
//	attributes: bits 0-2 codec, 3 timestamp type (1 = LogAppendTime),
//	4 transactional, 5 control, 6 delete horizon set (KIP-534)
//
// Base offset and leader epoch lie before the checksummed part, so that the
// broker stamps both without touching the CRC.
const (
	baseOffsetAt     = 0
	lengthAt         = 8
	leaderEpochAt    = 12
	magicAt          = 16
	crcAt            = 17
	attributesAt     = ChecksumFrom
	lastDeltaAt      = 23
	baseTimestampAt  = 27
	maxTimestampAt   = 35
	producerIDAt     = 43
	producerEpochAt  = 51
	baseSequenceAt   = 53
	countAt          = 57
	lengthPrefixSize = lengthAt + 4

	// HeaderSize is the length in bytes of a batch without its records.
	HeaderSize = 61

	// ChecksumFrom is where the bytes that CRC covers begin; they go to the end.
	ChecksumFrom = 21
)

const (
	attrCodec         int16 = 0x07
	attrLogAppendTime int16 = 0x08
	attrTransactional int16 = 0x10
	attrControl       int16 = 0x20
	attrDeleteHorizon int16 = 0x40
)

// What fields hold when there is nothing to say.
const (
	NoTimestamp     int64 = -1
	NoProducerID    int64 = -1
	NoProducerEpoch int16 = -1
	NoSequence      int32 = -1
	NoLeaderEpoch   int32 = -1
)

// Magic is the only batch version there is since Kafka 4.
const Magic = 2

// CRC-32C, the Castagnoli polynomial.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// TimestampType says where the timestamps of a batch come from.
type TimestampType int8

// The timestamp types, as the attribute bit has them.
const (
	CreateTime    TimestampType = 0
	LogAppendTime TimestampType = 1
)

// Batch is one whole record batch, a view of the caller's bytes. PeekHeader
// returns one that holds the header alone, on which only the accessors work.
// Nothing here checks lengths again after Next or PeekHeader.
type Batch []byte

// BaseOffset is the offset of the first record (which compaction may have
// removed since).
func (b Batch) BaseOffset() int64 { return int64(binary.BigEndian.Uint64(b[baseOffsetAt:])) }

// SizeBytes is the length of the whole batch as the header gives it.
func (b Batch) SizeBytes() int { return lengthPrefixSize + int(b.length()) }

func (b Batch) length() int32 { return int32(binary.BigEndian.Uint32(b[lengthAt:])) }

// LeaderEpoch is the epoch of the leader that appended the batch.
func (b Batch) LeaderEpoch() int32 { return int32(binary.BigEndian.Uint32(b[leaderEpochAt:])) }

// Magic is the version byte.
func (b Batch) Magic() int8 { return int8(b[magicAt]) }

// CRC is the stored checksum.
func (b Batch) CRC() uint32 { return binary.BigEndian.Uint32(b[crcAt:]) }

// Attributes is the raw attribute field.
func (b Batch) Attributes() int16 { return int16(binary.BigEndian.Uint16(b[attributesAt:])) }

// LastOffsetDelta is the last offset less the base offset.
func (b Batch) LastOffsetDelta() int32 { return int32(binary.BigEndian.Uint32(b[lastDeltaAt:])) }

// LastOffset is the last offset the batch stands for, inclusive. Compaction
// keeps it even when it removes that record.
func (b Batch) LastOffset() int64 { return b.BaseOffset() + int64(b.LastOffsetDelta()) }

// NextOffset is the offset after the batch.
func (b Batch) NextOffset() int64 { return b.LastOffset() + 1 }

// BaseTimestamp is what record timestamps are relative to, in milliseconds.
// In a batch with a delete horizon the field holds that instead, and the
// record deltas are relative to it.
func (b Batch) BaseTimestamp() int64 { return int64(binary.BigEndian.Uint64(b[baseTimestampAt:])) }

// MaxTimestamp is the largest record timestamp, or the append time in a
// LogAppendTime batch, in milliseconds; NoTimestamp if there is none.
func (b Batch) MaxTimestamp() int64 { return int64(binary.BigEndian.Uint64(b[maxTimestampAt:])) }

// ProducerID is the idempotent producer's id or NoProducerID.
func (b Batch) ProducerID() int64 { return int64(binary.BigEndian.Uint64(b[producerIDAt:])) }

// ProducerEpoch is the producer's epoch or NoProducerEpoch.
func (b Batch) ProducerEpoch() int16 { return int16(binary.BigEndian.Uint16(b[producerEpochAt:])) }

// BaseSequence is the sequence number of the first record or NoSequence.
func (b Batch) BaseSequence() int32 { return int32(binary.BigEndian.Uint32(b[baseSequenceAt:])) }

// LastSequence is the sequence number of the last record; sequences wrap from
// the largest int32 to 0. NoSequence if the batch has none.
func (b Batch) LastSequence() int32 {
	base := b.BaseSequence()
	if base == NoSequence {
		return NoSequence
	}
	return addSequence(base, b.LastOffsetDelta())
}

func addSequence(base, delta int32) int32 {
	sum := int64(base) + int64(delta)
	if sum > maxInt32 {
		sum -= maxInt32 + 1
	}
	return int32(sum)
}

const maxInt32 = 1<<31 - 1

// Count is the number of records as the header gives it.
func (b Batch) Count() int32 { return int32(binary.BigEndian.Uint32(b[countAt:])) }

// Codec is the compression of the records.
func (b Batch) Codec() Codec { return Codec(b.Attributes() & attrCodec) }

// LogAppendTime reports whether every record carries MaxTimestamp as its
// timestamp.
func (b Batch) LogAppendTime() bool { return b.Attributes()&attrLogAppendTime != 0 }

// TimestampType is the batch's timestamp type.
func (b Batch) TimestampType() TimestampType {
	if b.LogAppendTime() {
		return LogAppendTime
	}
	return CreateTime
}

// Transactional reports whether the batch is part of a transaction.
func (b Batch) Transactional() bool { return b.Attributes()&attrTransactional != 0 }

// Control reports whether the batch carries a marker instead of data.
func (b Batch) Control() bool { return b.Attributes()&attrControl != 0 }

// HasProducer reports whether an idempotent producer wrote the batch.
func (b Batch) HasProducer() bool { return b.ProducerID() > NoProducerID }

// DeleteHorizon is the time in milliseconds from which compaction may drop
// the batch's tombstones and markers (KIP-534); ok is false when none is set.
func (b Batch) DeleteHorizon() (millis int64, ok bool) {
	if b.Attributes()&attrDeleteHorizon == 0 {
		return NoTimestamp, false
	}
	return b.BaseTimestamp(), true
}

// SetBaseOffset stamps the base offset in place; the CRC does not cover it.
func (b Batch) SetBaseOffset(offset int64) {
	binary.BigEndian.PutUint64(b[baseOffsetAt:], uint64(offset))
}

// SetLastOffset stamps the base offset such that the last one is offset.
func (b Batch) SetLastOffset(offset int64) { b.SetBaseOffset(offset - int64(b.LastOffsetDelta())) }

// SetLeaderEpoch stamps the leader epoch in place; the CRC does not cover it.
func (b Batch) SetLeaderEpoch(epoch int32) {
	binary.BigEndian.PutUint32(b[leaderEpochAt:], uint32(epoch))
}

// SetMaxTimestamp stamps type and maximum and recomputes the CRC, unless both
// are so already.
func (b Batch) SetMaxTimestamp(millis int64, t TimestampType) {
	attrs := b.Attributes() &^ attrLogAppendTime
	if t == LogAppendTime {
		attrs |= attrLogAppendTime
	}
	if attrs == b.Attributes() && millis == b.MaxTimestamp() {
		return
	}
	binary.BigEndian.PutUint16(b[attributesAt:], uint16(attrs))
	binary.BigEndian.PutUint64(b[maxTimestampAt:], uint64(millis))
	b.updateCRC()
}

func (b Batch) clearDeleteHorizon() {
	binary.BigEndian.PutUint16(b[attributesAt:], uint16(b.Attributes()&^attrDeleteHorizon))
	b.updateCRC()
}

func (b Batch) updateCRC() {
	binary.BigEndian.PutUint32(b[crcAt:], b.computeCRC())
}

func (b Batch) computeCRC() uint32 { return crc32.Checksum(b[attributesAt:], castagnoli) }
