package hot

import (
	"errors"
	"fmt"
)

var (
	// ErrOffsetOutOfRange is returned when an offset lies below the local
	// start or beyond the end of the log.
	ErrOffsetOutOfRange = errors.New("offset out of range")

	// ErrOffline is returned when the log stopped at its first I/O error.
	// Log.Err has the cause; only a restart after repair brings it back.
	ErrOffline = errors.New("log is offline")

	// ErrClosed is returned when the log or its store was closed or deleted.
	ErrClosed = errors.New("log is closed")

	// ErrDiskFull is returned when free space is below the reserve. Reads go
	// on, and appends too once space is back.
	ErrDiskFull = errors.New("disk is nearly full")

	// ErrCorrupt is returned when stored bytes are not what was written; the
	// error is a *CorruptError.
	ErrCorrupt = errors.New("corrupt log segment")

	// ErrUnjudged is returned when a batch may be a repeat of one that is damaged
	// (AppendOptions.MustJudge). Nothing was appended.
	ErrUnjudged = errors.New("producers are not known without what is damaged")

	// ErrBelowLocal is returned when what was derived without damaged records lacks
	// some that are in the bucket alone by now (Log.Complete).
	ErrBelowLocal = errors.New("producers lack records that are in the bucket alone")

	// ErrRecordsTooLarge is returned when one append does not fit a segment
	// (RECORD_LIST_TOO_LARGE).
	ErrRecordsTooLarge = errors.New("records do not fit a segment")

	// ErrOutOfOrderSequence is returned when a producer's sequence number does
	// not follow its last one.
	ErrOutOfOrderSequence = errors.New("out of order sequence number")

	// ErrStaleProducerEpoch is returned when a producer's epoch is below the
	// one the partition has seen.
	ErrStaleProducerEpoch = errors.New("stale producer epoch")

	// ErrInvalidTxnState is returned when a transactional append has no
	// ongoing transaction here, or a plain one comes in the middle of one.
	ErrInvalidTxnState = errors.New("invalid transaction state")

	// ErrTxnEndedMeanwhile is returned, with ErrInvalidTxnState, when a marker of
	// the producer came after TxnGuard was asked: the coordinator's word may be
	// of the transaction that it ended, and has to be asked for again.
	ErrTxnEndedMeanwhile = errors.New("a transaction of the producer ended meanwhile")

	// ErrStaleCoordinator is returned when a transaction marker comes from a
	// coordinator with a lower epoch than the last one's.
	ErrStaleCoordinator = errors.New("stale transaction coordinator epoch")

	// ErrNotContiguous is returned when a follower's batches do not continue
	// the log.
	ErrNotContiguous = errors.New("batches do not continue the log")

	// ErrSegmentGone is returned when a segment was deleted, or replaced by
	// compaction, since it was listed.
	ErrSegmentGone = errors.New("segment is gone")

	// ErrNotClean is returned when a journal or marker is unreadable and the
	// directory must be recovered by scanning.
	ErrNotClean = errors.New("store was not closed cleanly")
)

// CorruptError says which bytes are wrong. It is an ErrCorrupt.
type CorruptError struct {
	Path     string
	Position int64 // bytes into the file
	Err      error // what was found
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s is damaged at byte %d: %v; the segment is quarantined, restore it from a replica or the bucket", e.Path, e.Position, e.Err)
}

// Is makes every CorruptError an ErrCorrupt.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// Unwrap is the cause.
func (e *CorruptError) Unwrap() error { return e.Err }

// OfflineError says why a log stopped. It is an ErrOffline.
type OfflineError struct {
	Op  string // what failed
	Err error
}

func (e *OfflineError) Error() string {
	return fmt.Sprintf("log is offline: %s failed: %v; the disk needs attention, then restart this node", e.Op, e.Err)
}

// Is makes every OfflineError an ErrOffline.
func (e *OfflineError) Is(target error) bool { return target == ErrOffline }

// Unwrap is the cause.
func (e *OfflineError) Unwrap() error { return e.Err }
