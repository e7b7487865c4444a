package coordinator

import "errors"

var (
	// ErrLoading is returned while the group's partition is being read back; asking again is right.
	ErrLoading = errors.New("coordinator: loading")
	// ErrNotCoordinator is returned when this broker does not coordinate the group; the client should look for the one that
	// does.
	ErrNotCoordinator = errors.New("coordinator: not the coordinator of the group")
	// ErrNotAvailable is returned when nobody coordinates the group yet, or when a change could not be written; asking again
	// is right.
	ErrNotAvailable = errors.New("coordinator: not available")
	// ErrClosed is returned when the broker is shutting down.
	ErrClosed = errors.New("coordinator: closed")

	// ErrInvalidGroup is returned when a group id is empty where it must not be.
	ErrInvalidGroup = errors.New("coordinator: invalid group id")
	// ErrUnknownGroup is returned when there is no group of that id.
	ErrUnknownGroup = errors.New("coordinator: no such group")
	// ErrGroupNotEmpty is returned when a group that has members is to be deleted.
	ErrGroupNotEmpty = errors.New("coordinator: the group is not empty")
	// ErrSubscribed is returned when offsets of a topic are to be deleted that the group's members subscribe to.
	ErrSubscribed = errors.New("coordinator: the group is subscribed to the topic")
	// ErrGroupFull is returned when the group has group.max.size members.
	ErrGroupFull = errors.New("coordinator: the group has reached its maximum size")

	// ErrInvalidSessionTimeout is returned when a session timeout is outside group.{min,max}.session.timeout.ms.
	ErrInvalidSessionTimeout = errors.New("coordinator: session timeout out of bounds")
	// ErrInconsistentProtocol is returned when a member's protocols have nothing in common with the group's.
	ErrInconsistentProtocol = errors.New("coordinator: the member's protocols do not fit the group's")
	// ErrMemberIDRequired is returned with a member id that the member must join with (KIP-394).
	ErrMemberIDRequired = errors.New("coordinator: join again with the member id given")
	// ErrUnknownMember is returned when the group has no such member.
	ErrUnknownMember = errors.New("coordinator: unknown member")
	// ErrFencedInstance is returned when another member has taken over the group instance id (KIP-345).
	ErrFencedInstance = errors.New("coordinator: another member has the group instance id")
	// ErrIllegalGeneration is returned when a member speaks of another generation than the group's.
	ErrIllegalGeneration = errors.New("coordinator: illegal generation")
	// ErrRebalancing is returned when the group is rebalancing: the member must join again.
	ErrRebalancing = errors.New("coordinator: rebalance in progress")

	// ErrMetadataTooLarge is returned when a commit's metadata is longer than offset.metadata.max.bytes.
	ErrMetadataTooLarge = errors.New("coordinator: offset metadata too large")
	// ErrUnstableOffset is returned when an open transaction is about to change the offset; asking again is right.
	ErrUnstableOffset = errors.New("coordinator: an open transaction has an offset pending")
	// ErrTooLarge is returned when the group's state does not fit one record.
	ErrTooLarge = errors.New("coordinator: the group's state does not fit a record")

	// ErrCorrupt is returned when a record of the log is not in a known format. It ends in the log of the broker: a record
	// that cannot be read is left out of the state.
	ErrCorrupt = errors.New("coordinator: corrupt record")
	// ErrInvalidConfig is returned by Config.Validate.
	ErrInvalidConfig = errors.New("coordinator: invalid config")
)
