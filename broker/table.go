package broker

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const keyApiVersions = 18

// api is one API key as this broker serves it.
type api struct {
	key      int16
	name     string
	min, max int16 // versions served
	// advertised is the minimum that ApiVersions names when it is not min: Produce alone (KAFKA-18659).
	advertised *int16
	// keeps says that the handler retains slices of the request body: the frame's buffer is then not reused.
	keeps bool
	// forwarded says that the controller decides: any other broker sends the request on.
	forwarded bool
	// internal keys are between brokers: not advertised to clients, and served where there is a controller to call.
	internal bool
	handle   func(*Server, *request) error

	// waits says that most of the handler's time is waiting: for a group, a log, the bucket or the controller.
	waits bool

	flexible int16   // first flexible version; filled in by newTable
	schema   *schema // filled in by newTable
}

// betweenBrokers says that only brokers ask it: those keys that are not advertised, and the state of share groups, which
// Kafka advertises and keeps to whom it trusts as a broker.
func (a *api) betweenBrokers() bool {
	return a.internal || a.key >= apiInitializeShareState.key && a.key <= apiReadShareSummary.key
}

// apis lists every key served, in order. A key that is not finished is not listed, and so is not advertised.
var apis = []api{
	apiProduce,
	apiFetch,
	apiListOffsets,
	apiMetadata,
	apiOffsetCommit,
	apiOffsetFetch,
	apiFindCoordinator,
	apiJoinGroup,
	apiHeartbeat,
	apiLeaveGroup,
	apiSyncGroup,
	apiDescribeGroups,
	apiListGroups,
	apiApiVersions,
	apiCreateTopics,
	apiDeleteTopics,
	apiDeleteRecords,
	apiInitProducerID,
	apiOffsetForLeaderEpoch,
	apiAddPartitionsToTxn,
	apiAddOffsetsToTxn,
	apiEndTxn,
	apiWriteTxnMarkers,
	apiTxnOffsetCommit,
	apiDescribeConfigs,
	apiAlterConfigs,
	apiDescribeLogDirs,
	apiCreatePartitions,
	apiDeleteGroups,
	apiElectLeaders,
	apiIncrementalAlterConfigs,
	apiAlterReassignments,
	apiListReassignments,
	apiOffsetDelete,
	apiDescribeQuotas,
	apiAlterQuotas,
	apiDescribeQuorum,
	apiAlterPartition,
	apiUpdateFeatures,
	apiEnvelope,
	apiDescribeCluster,
	apiDescribeProducers,
	apiBrokerRegistration,
	apiBrokerHeartbeat,
	apiUnregisterBroker,
	apiDescribeTransactions,
	apiListTransactions,
	apiAllocateProducerIDs,
	apiConsumerGroupHeartbeat,
	apiConsumerGroupDescribe,
	apiListConfigResources,
	apiDescribeTopicPartitions,
	apiShareFetch,
	apiShareAcknowledge,
	apiAddRaftVoter,
	apiRemoveRaftVoter,
	apiShareGroupHeartbeat,
	apiShareGroupDescribe,
	apiInitializeShareState,
	apiReadShareState,
	apiWriteShareState,
	apiDeleteShareState,
	apiReadShareSummary,
	apiStreamsGroupHeartbeat,
	apiStreamsGroupDescribe,
	apiStreamsTopologyUpdate,
	apiDescribeShareOffsets,
	apiAlterShareOffsets,
	apiDeleteShareOffsets,
}

// keyMax bounds the table; Kafka 4.4's highest key is 94.
const keyMax = 127

// table finds an api by its key.
type table struct {
	byKey [keyMax + 1]*api
}

func newTable(list []api) *table {
	t := &table{}
	for i := range list {
		a := list[i]
		a.schema = schemas[a.key]
		a.flexible = a.schema.flexible
		a.waits = a.waits || a.forwarded || waitingKeys[a.key]
		t.byKey[a.key] = &a
	}
	return t
}

func (t *table) lookup(key int16) *api {
	if key < 0 || key > keyMax {
		return nil
	}
	return t.byKey[key]
}

// typed makes a handler of a function from one kmsg request to its response. A response of nil with a nil error means
// that the function has answered by itself. An error closes the connection.
func typed[T any, P interface {
	*T
	kmsg.Request
}](fn func(*Server, *request, P) (kmsg.Response, error)) func(*Server, *request) error {
	return func(s *Server, r *request) error {
		q := P(new(T))
		q.SetVersion(r.version)
		if err := decode(r, q); err != nil {
			return err
		}
		var begun time.Time
		if r.api.waits {
			begun = time.Now()
		}
		resp, err := fn(s, r, q)
		if r.api.waits {
			r.parked += time.Since(begun)
		}
		if err != nil || resp == nil {
			return err
		}
		resp.SetVersion(r.version)
		return r.send(resp)
	}
}
