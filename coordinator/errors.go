package coordinator

import (
	"errors"
	"fmt"
)

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

	// ErrInvalidHeartbeat is returned when a heartbeat of a consumer group's member lacks something or contradicts itself.
	ErrInvalidHeartbeat = errors.New("coordinator: invalid heartbeat")
	// ErrUnsupportedAssignor is returned when a member asks for an assignor that there is not.
	ErrUnsupportedAssignor = errors.New("coordinator: unsupported assignor")
	// ErrInvalidRegex is returned when a subscription is not a regular expression (RE2).
	ErrInvalidRegex = errors.New("coordinator: invalid regular expression")
	// ErrFencedMemberEpoch is returned when a member speaks of another epoch than it has: it must give up everything and join
	// again.
	ErrFencedMemberEpoch = errors.New("coordinator: fenced member epoch")
	// ErrStaleMemberEpoch is returned when a commit comes from an epoch that the member is no longer in: it should ask for its
	// newest assignment.
	ErrStaleMemberEpoch = errors.New("coordinator: stale member epoch")
	// ErrOldCommit is returned when a member of the consumer protocol commits with a version of OffsetCommit that knows no member
	// epochs.
	ErrOldCommit = errors.New("coordinator: members of the consumer protocol commit with version 9 or above")
	// ErrUnreleasedInstance is returned when a group instance id is still in use by another member.
	ErrUnreleasedInstance = errors.New("coordinator: the group instance id is in use")

	// ErrFencedStateEpoch is returned when a share group's offsets have been set anew since: the share-partition is to be read
	// again.
	ErrFencedStateEpoch = errors.New("coordinator: fenced state epoch")
	// ErrFencedLeaderEpoch is returned when another leader has taken the share-partition over.
	ErrFencedLeaderEpoch = errors.New("coordinator: fenced leader epoch")
	// ErrShareStateUnknown is returned when the topic of a share-partition is not known.
	ErrShareStateUnknown = errors.New("coordinator: the topic of the share-partition is not known")
	// ErrInvalidShareState is returned when a request about a share-partition makes no sense, or nobody has begun it.
	ErrInvalidShareState = errors.New("coordinator: invalid share-partition")

	// ErrInvalidTopology is returned when an application's topology cannot be, whatever topics there are (KIP-1071).
	ErrInvalidTopology = errors.New("coordinator: invalid topology")
	// ErrUnsupported is returned when a request lacks what members of the group's protocol have to say, or asks for something that
	// there is not here.
	ErrUnsupported = errors.New("coordinator: not supported")

	// ErrMetadataTooLarge is returned when a commit's metadata is longer than offset.metadata.max.bytes.
	ErrMetadataTooLarge = errors.New("coordinator: offset metadata too large")
	// ErrUnstableOffset is returned when an open transaction is about to change the offset; asking again is right.
	ErrUnstableOffset = errors.New("coordinator: an open transaction has an offset pending")
	// ErrTooLarge is returned when the group's state does not fit one record.
	ErrTooLarge = errors.New("coordinator: the group's state does not fit a record")

	// ErrInvalidTxnRequest is returned when a transactional id is empty.
	ErrInvalidTxnRequest = errors.New("coordinator: a transactional id must not be empty")
	// ErrInvalidTxnTimeout is returned when a transaction's timeout is not positive or above transaction.max.timeout.ms.
	ErrInvalidTxnTimeout = errors.New("coordinator: transaction timeout out of bounds")
	// ErrInvalidProducerIDMapping is returned when the transactional id is not known, or belongs to another producer id.
	ErrInvalidProducerIDMapping = errors.New("coordinator: the producer id does not belong to the transactional id")
	// ErrProducerFenced is returned when the transactional id has a newer epoch: another producer has taken it over, or the
	// transaction took too long.
	ErrProducerFenced = errors.New("coordinator: a newer epoch of the producer exists")
	// ErrCoordinatorFenced is returned when a marker comes from a coordinator that has been replaced.
	ErrCoordinatorFenced = errors.New("coordinator: a newer coordinator speaks for the producer")
	// ErrConcurrentTransactions is returned while the end of the transaction before is being carried out; asking again is right.
	ErrConcurrentTransactions = errors.New("coordinator: the transaction before is still being ended")
	// ErrInvalidTxnState is returned when there is no transaction that could be ended so.
	ErrInvalidTxnState = errors.New("coordinator: invalid transaction state")
	// ErrTxnAbortable is returned when a partition is not part of an open transaction (KIP-890): the producer must abort.
	ErrTxnAbortable = errors.New("coordinator: the partition is not part of an open transaction")
	// ErrTxnEndedMeanwhile is returned when a marker of the producer came between the verification of its transaction and a commit
	// that relies on it: the transaction is to be verified again.
	ErrTxnEndedMeanwhile = errors.New("coordinator: a transaction of the producer ended meanwhile")
	// ErrUnknownTxnID is returned when a transactional id that is to be described does not exist.
	ErrUnknownTxnID = errors.New("coordinator: no such transactional id")
	// errNeedProducerID is returned when the machine needs a producer id to go on: the request comes again with one.
	errNeedProducerID = errors.New("coordinator: a producer id is needed")

	// ErrCorrupt is returned when a record of the log is not in a known format. It ends in the log of the broker: a record
	// that cannot be read is left out of the state.
	ErrCorrupt = errors.New("coordinator: corrupt record")
	// ErrInvalidConfig is returned by Config.Validate.
	ErrInvalidConfig = errors.New("coordinator: invalid config")
)

// Refusal is an error with a text for the client, Kafka's where it has one.
type Refusal struct {
	Kind error // one of the sentinels
	Text string
}

// Error is the kind and the text.
func (r *Refusal) Error() string { return r.Kind.Error() + ": " + r.Text }

// Unwrap is the kind.
func (r *Refusal) Unwrap() error { return r.Kind }

func refuse(kind error, format string, args ...any) error {
	return &Refusal{Kind: kind, Text: fmt.Sprintf(format, args...)}
}
