package share

import "errors"

var (
	// ErrInvalidRecordState is returned when a record is acknowledged by somebody who does not hold it: another does, or the lock
	// has run out, or it has been acknowledged already.
	ErrInvalidRecordState = errors.New("share: the record is not held by this member")
	// ErrInvalidAcknowledgement is returned when an acknowledgement is not well formed, or goes beyond what has been delivered.
	ErrInvalidAcknowledgement = errors.New("share: not a valid acknowledgement")
)
