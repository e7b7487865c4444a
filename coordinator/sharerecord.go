package coordinator

import (
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kbin"

	"github.com/varvelog/varve/meta/topic"
)

// Records of the topic __share_group_state, in Kafka's formats (KIP-932). Keys are not flexible, values of version 0 are. A batch
// is first offset i64 | last offset i64 | state i8 | delivery count i16.
//
//	key 0   group string | topic id | partition i32   snapshot epoch i32 | state epoch i32 | leader epoch i32 | start i64 |
//	                                                  created i64 | written i64 | batches | tag 0: records done i32
//	key 1   group string | topic id | partition i32   snapshot epoch i32 | leader epoch i32 | start i64 | batches |
//	                                                  tag 0: records done i32
//
// A snapshot (0) is the whole state of a share-partition, an update (1) what has been added since. A share-partition without a
// value is deleted. Updates of one share-partition have one key and are all needed until the next snapshot, so the topic must
// not be compacted: it is cut off at its start (shareCore.redundant). Format: do not renumber.
const (
	keyShareSnapshot int16 = 0
	keyShareUpdate   int16 = 1
)

func shareStateKey(kind int16, k ShareKey) []byte {
	b := kbin.AppendString(kbin.AppendInt16(nil, kind), k.Group)
	return kbin.AppendInt32(append(b, k.Topic[:]...), k.Partition)
}

func readShareStateKey(key []byte) (kind int16, k ShareKey, err error) {
	f := readFields(key)
	kind, k.Group, k.Topic, k.Partition = f.Int16(), f.String(), topic.ID(f.Uuid()), f.Int32()
	return kind, k, f.end()
}

func shareSnapshotRecord(k ShareKey, p *sharePartition) record {
	b := kbin.AppendInt16(nil, 0)
	b = kbin.AppendInt32(kbin.AppendInt32(kbin.AppendInt32(b, p.snapshot), p.stateEpoch), p.leaderEpoch)
	b = kbin.AppendInt64(kbin.AppendInt64(kbin.AppendInt64(b, p.start), p.created), p.written)
	return record{key: shareStateKey(keyShareSnapshot, k), value: appendShareDone(appendShareBatches(b, p.batches), p.done)}
}

func shareUpdateRecord(k ShareKey, u *shareUpdate) record {
	b := kbin.AppendInt16(nil, 0)
	b = kbin.AppendInt32(kbin.AppendInt32(b, u.snapshot), u.leaderEpoch)
	b = kbin.AppendInt64(b, u.start)
	return record{key: shareStateKey(keyShareUpdate, k), value: appendShareDone(appendShareBatches(b, u.batches), u.done)}
}

func shareTombstone(k ShareKey) record { return record{key: shareStateKey(keyShareSnapshot, k)} }

func appendShareBatches(b []byte, list []ShareBatch) []byte {
	b = kbin.AppendCompactArrayLen(b, len(list))
	for i := range list {
		b = kbin.AppendInt64(kbin.AppendInt64(b, list[i].First), list[i].Last)
		b = kbin.AppendInt16(kbin.AppendInt8(b, int8(list[i].State)), list[i].DeliveryCount)
		b = kbin.AppendUvarint(b, 0)
	}
	return b
}

// appendShareDone ends a value with its tagged fields.
func appendShareDone(b []byte, done int32) []byte {
	if done == NoDeliveryCount {
		return kbin.AppendUvarint(b, 0)
	}
	b = kbin.AppendUvarint(kbin.AppendUvarint(kbin.AppendUvarint(b, 1), 0), 4)
	return kbin.AppendInt32(b, done)
}

// shareBatchBytes is the size of a batch in a record.
const shareBatchBytes = 8 + 8 + 1 + 2 + 1

func (f *fields) shareBatches() []ShareBatch {
	list := make([]ShareBatch, 0, f.count(shareBatchBytes))
	for range cap(list) {
		b := ShareBatch{First: f.Int64(), Last: f.Int64(), State: ShareDelivery(f.Int8()), DeliveryCount: f.Int16()}
		f.tags(nil)
		if f.bad == nil && !b.valid() {
			f.bad = fmt.Errorf("%w: state of offsets %d to %d: %d, %d deliveries", ErrCorrupt, b.First, b.Last, b.State, b.DeliveryCount)
		}
		list = append(list, b)
	}
	return list
}

func (f *fields) shareDone() int32 {
	done := NoDeliveryCount
	f.tags(func(tag uint32, b *fields) {
		if tag == 0 {
			done = b.Int32()
		}
	})
	return done
}

// replay applies one record of the log. Records of other kinds are passed over. On an error nothing has changed.
func (c *shareCore) replay(_ int64, key, value []byte) error {
	if len(key) < 2 {
		return fmt.Errorf("%w: key of %d bytes", ErrCorrupt, len(key))
	}
	if kind := int16(binary.BigEndian.Uint16(key)); kind != keyShareSnapshot && kind != keyShareUpdate {
		return nil
	}
	kind, k, err := readShareStateKey(key)
	if err != nil {
		return err
	}
	if value == nil {
		if kind == keyShareSnapshot {
			delete(c.parts, k)
		}
		return nil
	}
	v := readFields(value)
	if version := v.Int16(); version != 0 {
		return fmt.Errorf("%w: share state of version %d", ErrCorrupt, version)
	}
	if kind == keyShareUpdate {
		u := &shareUpdate{snapshot: v.Int32(), leaderEpoch: v.Int32(), start: v.Int64(), batches: v.shareBatches()}
		u.done = v.shareDone()
		if err := v.end(); err != nil {
			return err
		}
		c.update(k, u)
		return nil
	}
	p := &sharePartition{
		snapshot: v.Int32(), stateEpoch: v.Int32(), leaderEpoch: v.Int32(),
		start: v.Int64(), created: v.Int64(), written: v.Int64(), batches: v.shareBatches(),
	}
	p.done = v.shareDone()
	if err := v.end(); err != nil {
		return err
	}
	c.replace(k, p)
	return nil
}
