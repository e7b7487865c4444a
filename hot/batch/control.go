package batch

import (
	"encoding/binary"
	"fmt"
)

// ControlType is the kind of a control record. Format: do not renumber.
type ControlType int16

// The control records a partition's log may hold.
const (
	Abort  ControlType = 0
	Commit ControlType = 1
)

// String is "abort", "commit" or the number.
func (t ControlType) String() string {
	switch t {
	case Abort:
		return "abort"
	case Commit:
		return "commit"
	}
	return fmt.Sprintf("control(%d)", int16(t))
}

// Control record, big-endian:
//
//	key    0 2 version, 0    2 2 control type
//	value  0 2 version, 0    2 4 coordinator epoch (end-of-transaction marker)
//
// Readers take later versions, which only append fields.
const (
	controlKeySize   = 4
	endTxnValueSize  = 6
	controlTypeAt    = 2
	coordinatorEpoch = 2
)

// Marker is the end of a transaction as its control batch says it.
type Marker struct {
	Type             ControlType
	CoordinatorEpoch int32
}

// EndTxn builds the batch of one marker: the end of the open transaction of
// the producer (id, epoch). Base offset and leader epoch are stamped on append.
func EndTxn(m Marker, producerID int64, producerEpoch int16, timestamp int64) Batch {
	var key [controlKeySize]byte
	binary.BigEndian.PutUint16(key[controlTypeAt:], uint16(m.Type))
	var value [endTxnValueSize]byte
	binary.BigEndian.PutUint32(value[coordinatorEpoch:], uint32(m.CoordinatorEpoch))
	return ControlBatch(Options{
		Transactional: true,
		Producer:      &Producer{ID: producerID, Epoch: producerEpoch, Sequence: NoSequence},
	}, timestamp, key[:], value[:])
}

// ControlBatch builds a control batch of one record.
func ControlBatch(o Options, timestamp int64, key, value []byte) Batch {
	o.Control = true
	b := NewBuilder(o)
	if err := b.Append(timestamp, key, value, nil); err != nil {
		panic("batch: control record: " + err.Error()) // a few bytes always fit
	}
	return b.Bytes()
}

// ParseControl reads the type of a control record from its key.
func ParseControl(key []byte) (ControlType, error) {
	if len(key) < controlKeySize {
		return 0, fmt.Errorf("control record key of %d bytes: %w", len(key), ErrInvalidRecord)
	}
	if version := int16(binary.BigEndian.Uint16(key)); version < 0 {
		return 0, fmt.Errorf("control record key version %d: %w", version, ErrInvalidRecord)
	}
	return ControlType(binary.BigEndian.Uint16(key[controlTypeAt:])), nil
}

// EndTxnMarker reads the marker of a control batch. ok is false when the batch
// is no control batch, has no record left, or is of another type.
func (b Batch) EndTxnMarker() (m Marker, ok bool, err error) {
	if !b.Control() {
		return Marker{}, false, nil
	}
	for r, err := range b.Records(Limits{}) {
		if err != nil {
			return Marker{}, false, err
		}
		t, err := ParseControl(r.Key)
		if err != nil {
			return Marker{}, false, b.corrupt(err)
		}
		if t != Abort && t != Commit {
			return Marker{}, false, nil
		}
		if len(r.Value) < endTxnValueSize {
			return Marker{}, false, b.corrupt(fmt.Errorf("marker value of %d bytes: %w", len(r.Value), ErrInvalidRecord))
		}
		epoch := int32(binary.BigEndian.Uint32(r.Value[coordinatorEpoch:]))
		return Marker{Type: t, CoordinatorEpoch: epoch}, true, nil
	}
	return Marker{}, false, nil
}
