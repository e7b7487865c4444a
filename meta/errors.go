package meta

import (
	"errors"
	"fmt"
)

// What requests are refused for. Each stands for one Kafka error code; the
// error that carries it has Kafka's message as its text.
var (
	// ErrTopicExists is returned when a topic is created under a name in use.
	ErrTopicExists = errors.New("topic exists")
	// ErrUnknownTopic is returned when there is no topic or partition of this name.
	ErrUnknownTopic = errors.New("unknown topic or partition")
	// ErrUnknownTopicID is returned when there is no topic with this id.
	ErrUnknownTopicID = errors.New("unknown topic id")
	// ErrInvalidTopic is returned when a topic's name is not allowed or collides with another's.
	ErrInvalidTopic = errors.New("invalid topic")
	// ErrInvalidPartitions is returned when a number of partitions is not allowed.
	ErrInvalidPartitions = errors.New("invalid number of partitions")
	// ErrInvalidReplicationFactor is returned when a replication factor is not allowed or cannot be reached.
	ErrInvalidReplicationFactor = errors.New("invalid replication factor")
	// ErrInvalidAssignment is returned when a replica assignment is not allowed.
	ErrInvalidAssignment = errors.New("invalid replica assignment")
	// ErrInvalidConfig is returned when a setting is unknown or its value not allowed.
	ErrInvalidConfig = errors.New("invalid config")
	// ErrInvalidRequest is returned when a request contradicts itself.
	ErrInvalidRequest = errors.New("invalid request")
	// ErrPolicyViolation is returned when a request asks for more than one request may.
	ErrPolicyViolation = errors.New("policy violation")
	// ErrTopicDeletionDisabled is returned when delete.topic.enable is false.
	ErrTopicDeletionDisabled = errors.New("topic deletion is disabled")
	// ErrNotController is returned when another node decides, or none does at the moment.
	ErrNotController = errors.New("this is not the controller")
	// ErrUnknownBroker is returned when a broker was never registered.
	ErrUnknownBroker = errors.New("unknown broker")
	// ErrStaleBrokerEpoch is returned when a broker speaks for an earlier start of itself.
	ErrStaleBrokerEpoch = errors.New("stale broker epoch")
	// ErrDuplicateBroker is returned when two live processes register with one broker id.
	ErrDuplicateBroker = errors.New("duplicate broker registration")
	// ErrInconsistentCluster is returned when a broker belongs to another cluster.
	ErrInconsistentCluster = errors.New("inconsistent cluster id")
	// ErrDirectoryReplaced is returned when a node that votes in the quorum comes with another data directory.
	ErrDirectoryReplaced = errors.New("data directory was replaced")
	// ErrFencedLeaderEpoch is returned when a leader speaks for an earlier leadership.
	ErrFencedLeaderEpoch = errors.New("fenced leader epoch")
	// ErrInvalidUpdateVersion is returned when a partition changed since the caller last saw it.
	ErrInvalidUpdateVersion = errors.New("invalid update version")
	// ErrIneligibleReplica is returned when a broker may not be in the in-sync set.
	ErrIneligibleReplica = errors.New("ineligible replica")
	// ErrElectionNotNeeded is returned when the wanted leader leads already.
	ErrElectionNotNeeded = errors.New("election not needed")
	// ErrPreferredLeaderNotAvailable is returned when the preferred leader cannot lead.
	ErrPreferredLeaderNotAvailable = errors.New("preferred leader not available")
	// ErrEligibleLeadersNotAvailable is returned when no replica can lead.
	ErrEligibleLeadersNotAvailable = errors.New("eligible leaders not available")
	// ErrNoReassignment is returned when a reassignment is cancelled where none is in progress.
	ErrNoReassignment = errors.New("no reassignment in progress")
	// ErrNewLeaderElected is returned when a leader's new in-sync set has completed a reassignment that takes the leader away.
	ErrNewLeaderElected = errors.New("new leader elected")
	// ErrBrokerNotEmpty is returned when a broker is to be removed that still holds replicas.
	ErrBrokerNotEmpty = errors.New("broker still holds replicas")
	// ErrUnsupportedLevel is returned when a change needs a higher feature level than the cluster is at.
	ErrUnsupportedLevel = errors.New("feature level is too low")
	// ErrUnknownQuotaType is returned when a filter names a type of entity that no quota can have.
	ErrUnknownQuotaType = errors.New("unknown type of entity")
	// ErrDuplicateVoter is returned when a node is to get a vote that has one.
	ErrDuplicateVoter = errors.New("duplicate voter")
	// ErrVoterNotFound is returned when a node is to lose a vote that has none.
	ErrVoterNotFound = errors.New("voter not found")
	// ErrExhausted is returned when there are no producer ids left.
	ErrExhausted = errors.New("producer ids are exhausted")
)

// What keeps the quorum itself from working. These do not reach clients.
var (
	// ErrUnknownOutcome is returned when a change was not seen through in time:
	// it may yet be applied.
	ErrUnknownOutcome = errors.New("outcome of the metadata change is unknown")
	// ErrStale is returned when a decision was made on an image that was no
	// longer the newest; nothing has changed.
	ErrStale = errors.New("metadata changed under the decision")
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("metadata node is closed")
	// ErrNoWayIn is returned when a node is to join a cluster and nobody has
	// said where a broker of it listens; the process should exit.
	ErrNoWayIn = errors.New("no way to join the cluster is known")
	// ErrFailed is returned after the log store failed; the process should exit.
	ErrFailed = errors.New("metadata node has failed")
	// ErrCorrupt is returned when the log, a snapshot or a command is damaged.
	ErrCorrupt = errors.New("metadata is corrupt")
	// ErrVersion is returned when something was written by a release this one cannot read.
	ErrVersion = errors.New("unknown metadata format version")
	// ErrState is returned when a command contradicts the image it is applied to.
	ErrState = errors.New("metadata command contradicts the state")
)

// Error is a refusal: one of the sentinels above with Kafka's message. An empty
// Message stands for Kafka's null, where it sends the code alone.
type Error struct {
	Kind    error
	Message string
}

func (e *Error) Error() string {
	if e.Message == "" {
		return e.Kind.Error()
	}
	return e.Message
}

// Unwrap returns Kind.
func (e *Error) Unwrap() error { return e.Kind }

// StaleRegistration is the refusal of a registration that is to replace another
// one than the broker has. Whoever lives asks again, with the epoch it is told;
// a request of a dead start does not.
type StaleRegistration struct {
	Epoch int64 // of the registration there is, -1 for none
}

func (e *StaleRegistration) Error() string {
	return fmt.Sprintf("the broker is registered with epoch %d, which is not the one to be replaced", e.Epoch)
}

// Is makes it an ErrStaleBrokerEpoch.
func (e *StaleRegistration) Is(target error) bool { return target == ErrStaleBrokerEpoch }

func refuse(kind error, format string, args ...any) error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}
