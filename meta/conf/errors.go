package conf

import (
	"errors"
	"fmt"
)

var (
	// ErrUnknown is returned when a name is no setting of the kind at hand.
	ErrUnknown = errors.New("unknown setting")

	// ErrInvalid is returned when a value breaks its setting's rule, or when
	// values that are valid alone contradict each other.
	ErrInvalid = errors.New("invalid setting")
)

// Error says which setting is wrong and why. Its text is Kafka's, so that it
// can be sent to a client as it stands; it unwraps to ErrUnknown or ErrInvalid.
type Error struct {
	Name    string // the setting, or "" when the fault is in a combination
	Message string
	kind    error
}

func (e *Error) Error() string { return e.Message }

// Unwrap returns ErrUnknown or ErrInvalid.
func (e *Error) Unwrap() error { return e.kind }

// invalid is Kafka's ConfigException(name, value, message).
func invalid(name, value, message string) error {
	return &Error{Name: name, Message: fmt.Sprintf("Invalid value %s for configuration %s: %s", value, name, message), kind: ErrInvalid}
}

// contradiction is a message about several settings at once.
func contradiction(format string, args ...any) error {
	return &Error{Message: fmt.Sprintf(format, args...), kind: ErrInvalid}
}
