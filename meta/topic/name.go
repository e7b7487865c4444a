package topic

import (
	"fmt"
	"strings"
)

const (
	// ConsumerOffsets is the internal topic that holds groups and their offsets.
	ConsumerOffsets = "__consumer_offsets"

	// TransactionState is the internal topic that holds transactions.
	TransactionState = "__transaction_state"

	// ShareGroupState is the internal topic that holds share groups' state.
	ShareGroupState = "__share_group_state"

	// nameBytesMax leaves room for "-<partition>.<id>-delete" in a file name.
	nameBytesMax = 249
)

// IsInternal reports whether name belongs to the service itself: clients may
// read such topics but not create, write or delete them at will.
func IsInternal(name string) bool {
	return name == ConsumerOffsets || name == TransactionState || name == ShareGroupState
}

// ValidateName checks Kafka's rules: 1 to 249 characters out of
// [a-zA-Z0-9._-], and neither "." nor "..". The error wraps ErrInvalidName.
func ValidateName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: Topic name is invalid: the empty string is not allowed", ErrInvalidName)
	case name == ".":
		return fmt.Errorf("%w: Topic name is invalid: '.' is not allowed", ErrInvalidName)
	case name == "..":
		return fmt.Errorf("%w: Topic name is invalid: '..' is not allowed", ErrInvalidName)
	case len(name) > nameBytesMax:
		return fmt.Errorf("%w: Topic name is invalid: the length of '%s' is longer than the max allowed length %d", ErrInvalidName, name, nameBytesMax)
	}
	for i := range len(name) {
		if !isNameByte(name[i]) {
			return fmt.Errorf("%w: Topic name is invalid: '%s' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'", ErrInvalidName, name)
		}
	}
	return nil
}

func isNameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-'
}

// HasCollisionChars reports whether name holds a character that Collides
// treats as equal to another.
func HasCollisionChars(name string) bool { return strings.ContainsAny(name, "._") }

// CollisionKey maps all names that collide with each other to one text.
func CollisionKey(name string) string { return strings.ReplaceAll(name, ".", "_") }

// Collides reports whether two different names would share a metric name:
// Kafka writes '.' as '_' there, so it refuses to hold both.
func Collides(a, b string) bool { return CollisionKey(a) == CollisionKey(b) }
