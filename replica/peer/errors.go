package peer

import "errors"

var (
	// ErrClosed is returned when the connection or the pool was closed by this side.
	ErrClosed = errors.New("peer connection is closed")
	// ErrDisconnected is returned when the connection ended before the answer came: the peer may have carried the request out.
	ErrDisconnected = errors.New("peer disconnected")
	// ErrNotSent is returned, wrapped around the cause, when nothing of the request has left this process.
	ErrNotSent = errors.New("request was not sent")
	// ErrUnsupported is returned when the peer does not serve the request's key, or no version that this side can speak.
	ErrUnsupported = errors.New("peer does not support the request")
	// ErrMalformed is returned when the peer sent what is no answer to what was asked. The connection is closed.
	ErrMalformed = errors.New("malformed answer from peer")
)
