package broker

import "errors"

// ErrServerClosed is returned by Serve after Close.
var ErrServerClosed = errors.New("server closed")

var (
	// errClosed is returned when the connection or the server went away while something was waited for.
	errClosed = errors.New("connection closed")

	// errBadRequest is returned when a request's bytes do not hold what its key and version promise. The connection is closed.
	errBadRequest = errors.New("malformed request")

	// errUnsupported is returned for a key or version that is not served. The connection is closed, as Kafka does.
	errUnsupported = errors.New("unsupported api key or version")

	// errTooLarge is returned when a frame's size is not in (0, limit].
	errTooLarge = errors.New("frame size out of bounds")

	// errCrowded is returned when a connection beyond max.connections turns out not to be a broker's.
	errCrowded = errors.New("too many connections")

	// errDuplicateVoter is returned when a node is to get a vote that it has.
	errDuplicateVoter = errors.New("duplicate voter")

	// errVoterNotFound is returned when a node is to lose a vote that it does not have.
	errVoterNotFound = errors.New("voter not found")

	// errThrottled is returned when partitions are created or deleted beyond the quota of who asks.
	errThrottled = errors.New("The throttling quota has been exceeded.")

	// errProduceFailed is returned when a produce without acknowledgement failed: closing the connection is the only
	// answer that the client can see.
	errProduceFailed = errors.New("produce with acks=0 failed")
)
