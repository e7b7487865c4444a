package replica

import (
	"errors"
	"fmt"

	"github.com/varvelog/varve/hot"
)

var (
	// ErrUnknownPartition is returned when the metadata image holds no such topic or partition.
	ErrUnknownPartition = errors.New("replica: unknown topic or partition")
	// ErrUnknownTopicID is returned when the metadata image holds no topic of that id.
	ErrUnknownTopicID = errors.New("replica: unknown topic id")
	// ErrNotLeader is returned when this broker does not lead the partition, or does not serve it yet: the caller should
	// refresh its metadata and try again. Nothing was appended.
	ErrNotLeader = errors.New("replica: not the leader of the partition")
	// ErrOffline is returned when the partition's log has met a disk error and serves no more until the broker is
	// restarted.
	ErrOffline = errors.New("replica: partition is offline after a disk error")
	// ErrClosed is returned when the broker is shutting down.
	ErrClosed = errors.New("replica: closed")

	// ErrFencedLeaderEpoch is returned when the caller's leader epoch is older than the partition's (KIP-320).
	ErrFencedLeaderEpoch = errors.New("replica: the caller's leader epoch is behind the partition's")
	// ErrUnknownLeaderEpoch is returned when the caller's leader epoch is newer than what this broker has heard of (KIP-320).
	ErrUnknownLeaderEpoch = errors.New("replica: the caller's leader epoch is ahead of this broker's")

	// ErrISRTooSmall is returned when an acks=all append finds fewer in-sync replicas than min.insync.replicas; nothing was
	// appended.
	ErrISRTooSmall = errors.New("replica: fewer in-sync replicas than min.insync.replicas")
	// ErrISRTooSmallAfterAppend is returned when the in-sync set fell below min.insync.replicas after the append: the records
	// may or may not survive.
	ErrISRTooSmallAfterAppend = errors.New("replica: in-sync replicas fell below min.insync.replicas after the append")
	// ErrInvalidAcks is returned when acks is none of -1, 0 and 1.
	ErrInvalidAcks = errors.New("replica: acks must be -1, 0 or 1")

	// ErrOffsetOutOfRange is returned when an offset lies below the log start or above the log end, or, for DeleteRecords,
	// above the high watermark.
	ErrOffsetOutOfRange = errors.New("replica: offset out of range")
	// ErrMovedToTiered is returned to a replica whose fetch offset is below the local log start and only in the bucket.
	ErrMovedToTiered = errors.New("replica: offset moved to tiered storage")
	// ErrOffsetNotAvailable is returned when a new leader's high watermark has not yet reached the start of its epoch, so that
	// the latest offset is not known (KIP-207), and while damage hides where an epoch ended.
	ErrOffsetNotAvailable = errors.New("replica: the offset is not known yet")
	// ErrUnsupportedTimestamp is returned when ListOffsets asks for a negative timestamp that has no meaning.
	ErrUnsupportedTimestamp = errors.New("replica: no such special timestamp")
	// ErrRemoteUnavailable is returned when the bucket could not answer for offsets that the partition does hold; trying again
	// is right.
	ErrRemoteUnavailable = errors.New("replica: the remote part of the log is not available")

	// ErrPolicyViolation is returned when DeleteRecords names a topic whose cleanup.policy does not include delete.
	ErrPolicyViolation = errors.New("replica: records of a topic without cleanup.policy=delete cannot be deleted")
)

// What the local log refuses an append or a read for, under names that the front door may use: it does not know that there is
// a local log.
var (
	// ErrOutOfOrderSequence is returned when a producer's sequence number does not follow its last one.
	ErrOutOfOrderSequence = hot.ErrOutOfOrderSequence
	// ErrStaleProducerEpoch is returned when a producer's epoch is below the one the partition has seen.
	ErrStaleProducerEpoch = hot.ErrStaleProducerEpoch
	// ErrInvalidTxnState is returned when a transactional append has no ongoing transaction, or a plain one comes in the middle
	// of one.
	ErrInvalidTxnState = hot.ErrInvalidTxnState
	// ErrTxnEndedMeanwhile is returned, with ErrInvalidTxnState, when a marker of the producer came between TxnGuard and the
	// append: the coordinator has to be asked again.
	ErrTxnEndedMeanwhile = hot.ErrTxnEndedMeanwhile
	// ErrStaleCoordinator is returned when a transaction marker comes from a coordinator with a lower epoch than the last one's.
	ErrStaleCoordinator = hot.ErrStaleCoordinator
	// ErrDiskFull is returned when free space is below the reserve.
	ErrDiskFull = hot.ErrDiskFull
	// ErrRecordsTooLarge is returned when one append does not fit a segment.
	ErrRecordsTooLarge = hot.ErrRecordsTooLarge
	// ErrCorrupt is returned when the bytes on local disk are not what was written.
	ErrCorrupt = hot.ErrCorrupt
)

// fromLog turns an error of the local log into this package's. A log that has gone offline takes the partition with it.
func (p *Partition) fromLog(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, hot.ErrOffline):
		p.goOffline(err)
		return fmt.Errorf("%w: %w", ErrOffline, err)
	case errors.Is(err, hot.ErrClosed):
		return ErrClosed
	case errors.Is(err, hot.ErrOffsetOutOfRange):
		return ErrOffsetOutOfRange
	}
	return err
}

// Fenced says whether an append was refused because its producer, or the coordinator that ends its transaction, has been
// replaced. Nothing of it is in the log, and trying again does not help.
func Fenced(err error) bool {
	return errors.Is(err, ErrStaleProducerEpoch) || errors.Is(err, ErrStaleCoordinator)
}
