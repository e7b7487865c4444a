package batch

import (
	"errors"
	"fmt"
)

// ErrShort is returned when the bytes end before the batch does: a reader
// needs more of them, a recovering log cuts here.
var ErrShort = errors.New("record batch is cut short")

// ErrCorrupt is returned when bytes are not a record batch, or not the one
// that was written: framing, checksum or record structure are wrong.
var ErrCorrupt = errors.New("corrupt record batch")

// ErrInvalidRecord is returned when a batch is whole but breaks a rule of the
// log: record counts, control batches from a client, a missing key.
var ErrInvalidRecord = errors.New("invalid record")

// ErrInvalidTimestamp is returned when a record's timestamp lies outside the
// topic's bounds, or a client declares LogAppendTime.
var ErrInvalidTimestamp = errors.New("invalid timestamp")

// ErrTooLarge is returned when a batch is above the topic's
// max.message.bytes, as sent or after recompression.
var ErrTooLarge = errors.New("record batch too large")

// ErrUnsupportedCompression is returned when the codec may not be used: zstd
// below Produce 7, or a codec id nobody assigned.
var ErrUnsupportedCompression = errors.New("unsupported compression")

// ErrUnsupportedVersion is returned, as the cause of a CorruptError, when the
// magic byte is not 2: old message sets, or no batch at all.
var ErrUnsupportedVersion = errors.New("unsupported record batch version")

// ErrInflated is returned when a compressed batch would inflate beyond the
// limits. It is an ErrInvalidRecord too.
var ErrInflated = fmt.Errorf("compressed data inflates beyond the limit: %w", ErrInvalidRecord)

// CorruptError says what is wrong and with which batch. It is an ErrCorrupt.
type CorruptError struct {
	BaseOffset int64
	Reason     string
	Err        error // cause, or nil
}

func (e *CorruptError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("corrupt record batch at offset %d: %s: %v", e.BaseOffset, e.Reason, e.Err)
	}
	return fmt.Sprintf("corrupt record batch at offset %d: %s", e.BaseOffset, e.Reason)
}

// Is makes every CorruptError an ErrCorrupt.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// Unwrap is the cause.
func (e *CorruptError) Unwrap() error { return e.Err }
