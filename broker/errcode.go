package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/varvelog/varve/coordinator"
	"github.com/varvelog/varve/coordinator/share"
	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/replica"
)

// Kafka's error codes. Format: do not renumber.
const (
	codeUnknownServerError          int16 = -1
	codeNone                        int16 = 0
	codeOffsetOutOfRange            int16 = 1
	codeCorruptMessage              int16 = 2
	codeUnknownTopicOrPartition     int16 = 3
	codeLeaderNotAvailable          int16 = 5
	codeNotLeaderOrFollower         int16 = 6
	codeRequestTimedOut             int16 = 7
	codeBrokerNotAvailable          int16 = 8
	codeMessageTooLarge             int16 = 10
	codeCoordinatorLoading          int16 = 14
	codeCoordinatorNotAvailable     int16 = 15
	codeNotCoordinator              int16 = 16
	codeInvalidTopic                int16 = 17
	codeRecordListTooLarge          int16 = 18
	codeNotEnoughReplicas           int16 = 19
	codeNotEnoughReplicasAfter      int16 = 20
	codeInvalidRequiredAcks         int16 = 21
	codeOffsetMetadataTooLarge      int16 = 12
	codeIllegalGeneration           int16 = 22
	codeInconsistentGroupProtocol   int16 = 23
	codeInvalidGroupID              int16 = 24
	codeUnknownMemberID             int16 = 25
	codeInvalidSessionTimeout       int16 = 26
	codeRebalanceInProgress         int16 = 27
	codeInvalidTimestamp            int16 = 32
	codeUnsupportedVersion          int16 = 35
	codeTopicExists                 int16 = 36
	codeInvalidPartitions           int16 = 37
	codeInvalidReplicationFactor    int16 = 38
	codeInvalidReplicaAssignment    int16 = 39
	codeInvalidConfig               int16 = 40
	codeNotController               int16 = 41
	codeInvalidRequest              int16 = 42
	codePolicyViolation             int16 = 44
	codeOutOfOrderSequence          int16 = 45
	codeInvalidProducerEpoch        int16 = 47
	codeInvalidTxnState             int16 = 48
	codeInvalidProducerIDMapping    int16 = 49
	codeInvalidTransactionTimeout   int16 = 50
	codeConcurrentTransactions      int16 = 51
	codeCoordinatorFenced           int16 = 52
	codeTransactionalIDDenied       int16 = 53
	codeOperationNotAttempted       int16 = 55
	codeStorageError                int16 = 56
	codeNonEmptyGroup               int16 = 68
	codeGroupIDNotFound             int16 = 69
	codeFetchSessionIDNotFound      int16 = 70
	codeInvalidFetchSessionEpoch    int16 = 71
	codeTopicDeletionDisabled       int16 = 73
	codeFencedLeaderEpoch           int16 = 74
	codeStaleBrokerEpoch            int16 = 77
	codePreferredLeaderNotAvailable int16 = 80
	codeEligibleLeadersNotAvailable int16 = 83
	codeElectionNotNeeded           int16 = 84
	codeMemberIDRequired            int16 = 79
	codeGroupMaxSizeReached         int16 = 81
	codeFencedInstanceID            int16 = 82
	codeGroupSubscribedToTopic      int16 = 86
	codeInvalidUpdateVersion        int16 = 95
	codeDuplicateBroker             int16 = 101
	codeBrokerIDNotRegistered       int16 = 102
	codeInconsistentClusterID       int16 = 104
	codeIneligibleReplica           int16 = 107
	codeNewLeaderElected            int16 = 108
	codeNoReassignmentInProgress    int16 = 85
	codeUnknownLeaderEpoch          int16 = 75
	codeListenerNotFound            int16 = 72
	codeUnsupportedCompression      int16 = 76
	codeOffsetNotAvailable          int16 = 78
	codeInvalidRecord               int16 = 87
	codeUnknownTopicID              int16 = 100
	codeInconsistentTopicID         int16 = 103
	codeFetchSessionTopicIDError    int16 = 106
	codeOffsetMovedToTieredStorage  int16 = 109
	codeDuplicateVoter              int16 = 126
	codeVoterNotFound               int16 = 127
	codeMismatchedEndpointType      int16 = 114
	codeUnsupportedEndpointType     int16 = 115
	codeInvalidRegistration         int16 = 119
	codeUnstableOffsetCommit        int16 = 88
	codeThrottlingQuotaExceeded     int16 = 89
	codeProducerFenced              int16 = 90
	codeFencedMemberEpoch           int16 = 110
	codeUnreleasedInstanceID        int16 = 111
	codeUnsupportedAssignor         int16 = 112
	codeStaleMemberEpoch            int16 = 113
	codeTransactionalIDNotFound     int16 = 105
	codeTransactionAbortable        int16 = 120
	codeFencedStateEpoch            int16 = 124
	codeInvalidRecordState          int16 = 121
	codeShareSessionNotFound        int16 = 122
	codeInvalidShareSessionEpoch    int16 = 123
	codeShareSessionLimitReached    int16 = 133
	codeInvalidRegularExpression    int16 = 128
	codeStreamsInvalidTopology      int16 = 130
)

// errcode is one error and what Kafka calls it.
type errcode struct {
	err  error
	code int16
}

// metaCodes are the metadata quorum's errors. Between brokers they are read backwards too: a code stands for the first of
// its errors here.
var metaCodes = []errcode{
	{meta.ErrTopicExists, codeTopicExists},
	{meta.ErrUnknownTopicID, codeUnknownTopicID},
	{meta.ErrUnknownTopic, codeUnknownTopicOrPartition},
	{meta.ErrInvalidTopic, codeInvalidTopic},
	{meta.ErrInvalidPartitions, codeInvalidPartitions},
	{meta.ErrInvalidReplicationFactor, codeInvalidReplicationFactor},
	{meta.ErrInvalidAssignment, codeInvalidReplicaAssignment},
	{meta.ErrInvalidConfig, codeInvalidConfig},
	{meta.ErrInvalidRequest, codeInvalidRequest},
	{meta.ErrPolicyViolation, codePolicyViolation},
	{meta.ErrTopicDeletionDisabled, codeTopicDeletionDisabled},
	{meta.ErrNotController, codeNotController},
	{meta.ErrUnknownOutcome, codeRequestTimedOut}, // retriable: asking again shows what became of it
	{meta.ErrStale, codeNotController},
	{meta.ErrUnknownBroker, codeBrokerIDNotRegistered},
	{meta.ErrStaleBrokerEpoch, codeStaleBrokerEpoch},
	{meta.ErrDuplicateBroker, codeDuplicateBroker},
	{meta.ErrInconsistentCluster, codeInconsistentClusterID},
	{meta.ErrDirectoryReplaced, codeInvalidRegistration},
	{meta.ErrUnsupportedLevel, codeUnsupportedVersion},
	{meta.ErrUnknownQuotaType, codeUnsupportedVersion},
	{meta.ErrDuplicateVoter, codeDuplicateVoter},
	{meta.ErrVoterNotFound, codeVoterNotFound},
	{meta.ErrFencedLeaderEpoch, codeFencedLeaderEpoch},
	{meta.ErrInvalidUpdateVersion, codeInvalidUpdateVersion},
	{meta.ErrIneligibleReplica, codeIneligibleReplica},
	{meta.ErrElectionNotNeeded, codeElectionNotNeeded},
	{meta.ErrPreferredLeaderNotAvailable, codePreferredLeaderNotAvailable},
	{meta.ErrEligibleLeadersNotAvailable, codeEligibleLeadersNotAvailable},
	{meta.ErrNoReassignment, codeNoReassignmentInProgress},
	{meta.ErrNewLeaderElected, codeNewLeaderElected},
	{meta.ErrBrokerNotEmpty, codeInvalidRequest},
	{meta.ErrExhausted, codeUnknownServerError},
	{meta.ErrClosed, codeNotController},
	{meta.ErrFailed, codeNotController},
}

// errcodes maps the rooms' sentinel errors to Kafka's codes: the only such table. The first match wins, so a sentinel that
// wraps another stands before it. TestEverySentinelHasACode fails on one that is neither here nor in internalErrors.
var errcodes = slices.Concat(metaCodes, []errcode{
	{batch.ErrCorrupt, codeCorruptMessage},
	{batch.ErrShort, codeCorruptMessage},
	{batch.ErrInflated, codeInvalidRecord},
	{batch.ErrInvalidRecord, codeInvalidRecord},
	{batch.ErrInvalidTimestamp, codeInvalidTimestamp},
	{batch.ErrTooLarge, codeMessageTooLarge},
	{batch.ErrUnsupportedCompression, codeUnsupportedCompression},
	{batch.ErrUnsupportedVersion, codeInvalidRecord},

	{errDuplicateVoter, codeDuplicateVoter},
	{errVoterNotFound, codeVoterNotFound},
	{errUnverifiedTransaction, codeTransactionalIDDenied},

	{topic.ErrInvalidName, codeInvalidTopic},
	{topic.ErrInvalidID, codeUnknownTopicID},

	{replica.ErrUnknownPartition, codeUnknownTopicOrPartition},
	{replica.ErrUnknownTopicID, codeUnknownTopicID},
	{replica.ErrNotLeader, codeNotLeaderOrFollower},
	{replica.ErrOffline, codeStorageError},
	{replica.ErrClosed, codeNotLeaderOrFollower}, // the client should look for the next leader
	{replica.ErrFencedLeaderEpoch, codeFencedLeaderEpoch},
	{replica.ErrUnknownLeaderEpoch, codeUnknownLeaderEpoch},
	{replica.ErrISRTooSmallAfterAppend, codeNotEnoughReplicasAfter},
	{replica.ErrISRTooSmall, codeNotEnoughReplicas},
	{replica.ErrInvalidAcks, codeInvalidRequiredAcks},
	{replica.ErrOutOfOrderSequence, codeOutOfOrderSequence},
	{replica.ErrStaleProducerEpoch, codeInvalidProducerEpoch}, // not PRODUCER_FENCED: an idempotent producer recovers
	{replica.ErrInvalidTxnState, codeInvalidTxnState},
	{replica.ErrTxnEndedMeanwhile, codeInvalidTxnState},
	{replica.ErrStaleCoordinator, codeCoordinatorFenced},
	{replica.ErrRecordsTooLarge, codeRecordListTooLarge},
	{replica.ErrDiskFull, codeStorageError},
	{replica.ErrCorrupt, codeStorageError}, // what is stored, not what was sent
	{replica.ErrOffsetOutOfRange, codeOffsetOutOfRange},
	{replica.ErrMovedToTiered, codeOffsetMovedToTieredStorage},
	{replica.ErrOffsetNotAvailable, codeOffsetNotAvailable},
	{replica.ErrUnsupportedTimestamp, codeUnsupportedVersion},
	{replica.ErrRemoteUnavailable, codeStorageError},
	{replica.ErrPolicyViolation, codePolicyViolation},

	{coordinator.ErrLoading, codeCoordinatorLoading},
	{coordinator.ErrNotCoordinator, codeNotCoordinator},
	{coordinator.ErrNotAvailable, codeCoordinatorNotAvailable},
	{coordinator.ErrClosed, codeCoordinatorNotAvailable}, // the client should look for the next coordinator
	{coordinator.ErrInvalidGroup, codeInvalidGroupID},
	{coordinator.ErrUnknownGroup, codeGroupIDNotFound},
	{coordinator.ErrGroupNotEmpty, codeNonEmptyGroup},
	{coordinator.ErrSubscribed, codeGroupSubscribedToTopic},
	{coordinator.ErrGroupFull, codeGroupMaxSizeReached},
	{coordinator.ErrInvalidSessionTimeout, codeInvalidSessionTimeout},
	{coordinator.ErrInconsistentProtocol, codeInconsistentGroupProtocol},
	{coordinator.ErrMemberIDRequired, codeMemberIDRequired},
	{coordinator.ErrUnknownMember, codeUnknownMemberID},
	{coordinator.ErrFencedInstance, codeFencedInstanceID},
	{coordinator.ErrIllegalGeneration, codeIllegalGeneration},
	{coordinator.ErrRebalancing, codeRebalanceInProgress},
	{coordinator.ErrMetadataTooLarge, codeOffsetMetadataTooLarge},
	{coordinator.ErrInvalidHeartbeat, codeInvalidRequest},
	{coordinator.ErrUnsupportedAssignor, codeUnsupportedAssignor},
	{coordinator.ErrInvalidRegex, codeInvalidRegularExpression},
	{coordinator.ErrInvalidTopology, codeStreamsInvalidTopology},
	{coordinator.ErrUnsupported, codeUnsupportedVersion},
	{coordinator.ErrFencedMemberEpoch, codeFencedMemberEpoch},
	{coordinator.ErrStaleMemberEpoch, codeStaleMemberEpoch},
	{coordinator.ErrUnreleasedInstance, codeUnreleasedInstanceID},
	{coordinator.ErrTxnEndedMeanwhile, codeInvalidTxnState},
	{coordinator.ErrOldCommit, codeUnsupportedVersion},
	{coordinator.ErrFencedStateEpoch, codeFencedStateEpoch},
	{coordinator.ErrFencedLeaderEpoch, codeFencedLeaderEpoch},
	{coordinator.ErrShareStateUnknown, codeUnknownTopicOrPartition},
	{coordinator.ErrInvalidShareState, codeInvalidRequest},
	{coordinator.ErrUnstableOffset, codeUnstableOffsetCommit},
	{coordinator.ErrInvalidTxnRequest, codeInvalidRequest},
	{coordinator.ErrInvalidTxnTimeout, codeInvalidTransactionTimeout},
	{coordinator.ErrInvalidProducerIDMapping, codeInvalidProducerIDMapping},
	{coordinator.ErrProducerFenced, codeProducerFenced},
	{coordinator.ErrCoordinatorFenced, codeCoordinatorFenced},
	{coordinator.ErrConcurrentTransactions, codeConcurrentTransactions},
	{coordinator.ErrInvalidTxnState, codeInvalidTxnState},
	{coordinator.ErrTxnAbortable, codeTransactionAbortable},
	{coordinator.ErrUnknownTxnID, codeTransactionalIDNotFound},
	{coordinator.ErrTooLarge, codeUnknownServerError}, // as Kafka answers a state that does not fit a record

	{share.ErrInvalidRecordState, codeInvalidRecordState},
	{share.ErrInvalidAcknowledgement, codeInvalidRequest},
	{errBadShareRequest, codeInvalidRequest},
	{errShareSessionNotFound, codeShareSessionNotFound},
	{errShareSessionEpoch, codeInvalidShareSessionEpoch},
	{errShareSessionsFull, codeShareSessionLimitReached},
	{errShareLoading, codeLeaderNotAvailable},
	{errShareUnused, codeNotLeaderOrFollower},        // it lost a race: asked again, it is loaded anew
	{errShareUnreached, codeCoordinatorNotAvailable}, // whatever the reason
	{errShareRefused, codeUnknownServerError},        // as that of this broker would say

	{errThrottled, codeThrottlingQuotaExceeded},
	{context.DeadlineExceeded, codeRequestTimedOut},
	{context.Canceled, codeRequestTimedOut},
})

// code is the Kafka error code of err. An error that no client can act on is UNKNOWN_SERVER_ERROR; the caller logs it.
func code(err error) int16 {
	if err == nil {
		return codeNone
	}
	for i := range errcodes {
		if errors.Is(err, errcodes[i].err) {
			return errcodes[i].code
		}
	}
	return codeUnknownServerError
}

// metaError is the error of the metadata quorum that the controller's answer stands for.
func metaError(c int16) error {
	if c == codeNone {
		return nil
	}
	for i := range metaCodes {
		if metaCodes[i].code == c && c != codeUnknownServerError {
			return metaCodes[i].err
		}
	}
	return fmt.Errorf("the controller answers error %d", c)
}

// codeOf is code for an error met while serving r: one without a code of its own is a fault of ours and is logged.
func (s *Server) codeOf(r *request, err error) int16 {
	c := code(err)
	if c == codeNotController {
		r.undecided = true
	}
	if c == codeUnknownServerError {
		if omitted, ok := s.limit.Allow(logKey{what: r.api.name, topic: err.Error()}, s.nowMillis()); ok {
			s.log.Error("request failed", "api", r.api.name, "version", r.version, "client", r.c.remote, "client_id", r.client, "err", err, "omitted", omitted)
		}
	}
	return c
}
