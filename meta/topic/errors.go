package topic

import "errors"

var (
	// ErrInvalidName is returned when a topic name breaks Kafka's rules. The
	// wrapping error carries Kafka's own message.
	ErrInvalidName = errors.New("invalid topic name")

	// ErrInvalidID is returned when a text is not a topic ID.
	ErrInvalidID = errors.New("invalid topic id")
)
