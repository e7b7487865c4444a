package broker

import (
	"errors"
	"fmt"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/meta/topic"
)

// messageError is a sentinel with the words that Kafka sends to the client for it.
type messageError struct {
	message string
	err     error
}

func (e *messageError) Error() string { return e.message }
func (e *messageError) Unwrap() error { return e.err }

func invalidRecord(message string) error { return &messageError{message, batch.ErrInvalidRecord} }

func withMessage(err error, format string, args ...any) error {
	return &messageError{fmt.Sprintf(format, args...), err}
}

// errUnverifiedTransaction is returned for every partition of a Produce that carries a transactional batch without a
// transactional id.
var errUnverifiedTransaction = errors.New("transactional batch without a transactional id")

// errInternalTopic is returned when a client produces to a topic of the broker's own.
var errInternalTopic = &messageError{"cannot append to an internal topic", topic.ErrInvalidName}
