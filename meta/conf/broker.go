package conf

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Broker holds the broker settings the product uses, typed, and every setting
// that was given, as text. Times are in milliseconds and sizes in bytes unless
// a name says otherwise. A Broker is immutable: derive another with With.
type Broker struct {
	// Identity and addresses.
	NodeID                      int32
	Rack                        string // "" when there is none
	LogDirs                     []string
	ProcessRoles                []string
	Listeners                   string
	AdvertisedListeners         string // Listeners when it is not set
	ListenerSecurityProtocolMap string
	InterBrokerListenerName     string
	ControllerListenerNames     []string
	ControllerQuorumVoters      []string // as given
	QuorumVoters                []Voter  // the same, parsed
	// ControllerQuorumBootstrapServers are Kafka addresses of running brokers.
	ControllerQuorumBootstrapServers []string
	ControlledShutdownEnable         bool
	// InitialRegistrationTimeoutMillis bounds how long a start waits for the cluster.
	InitialRegistrationTimeoutMillis int32
	MetadataLogDir                   string // "" means beside the data
	MetadataSnapshotBytes            int64

	// Connections and requests.
	SocketRequestMaxBytes     int32
	ConnectionsMaxIdleMillis  int64
	MaxConnections            int32
	MaxConnectionsPerIP       int32
	MaxConnectionsPerIPByHost map[string]int32
	MaxConnectionCreationRate int32
	QueuedMaxRequestBytes     int64
	FetchMaxBytes             int32
	FetchSessionCacheSlots    int32
	MaxRequestPartitionSize   int32

	// Topics.
	AutoCreateTopicsEnable   bool
	DeleteTopicEnable        bool
	NumPartitions            int32
	DefaultReplicationFactor int16
	MinInsyncReplicas        int32

	// Leadership.
	AutoLeaderRebalanceEnable           bool
	LeaderImbalanceCheckIntervalSeconds int64

	// Logs.
	LogRetentionCheckIntervalMillis  int64
	LogCleanerEnable                 bool
	LogCleanerThreads                int32
	LogCleanerDedupeBufferBytes      int64
	ReplicaLagTimeMaxMillis          int64
	ReplicaFetchMaxBytes             int32
	ReplicaFetchMinBytes             int32
	ReplicaFetchWaitMaxMillis        int32
	ReplicaFetchResponseMaxBytes     int32
	ReplicaFetchBackoffMillis        int32
	ReplicaSelectorClass             string // LeaderSelector or RackAwareSelector
	LeaderReplicationThrottledRate   int64  // Unlimited means none
	FollowerReplicationThrottledRate int64  // likewise
	BrokerHeartbeatIntervalMillis    int32
	BrokerSessionTimeoutMillis       int32

	// Groups and offsets.
	GroupRebalanceProtocols                 []string // always with classic
	GroupMinSessionTimeoutMillis            int32
	GroupMaxSessionTimeoutMillis            int32
	GroupInitialRebalanceDelayMillis        int32
	GroupConsumerSessionTimeoutMillis       int32
	GroupConsumerHeartbeatIntervalMillis    int32
	GroupConsumerMaxSize                    int32
	GroupConsumerAssignmentIntervalMillis   int32
	GroupConsumerMigrationPolicy            string
	GroupConsumerAssignors                  []string
	GroupMaxSize                            int32
	OffsetMetadataMaxBytes                  int32
	OffsetsTopicNumPartitions               int32
	OffsetsTopicSegmentBytes                int32
	OffsetsTopicCompressionCodec            int8
	OffsetsRetentionMinutes                 int32
	OffsetsRetentionCheckIntervalMillis     int64
	OffsetsCommitTimeoutMillis              int32
	ProducerIDExpirationMillis              int32
	TransactionMaxTimeoutMillis             int32
	TransactionVerification                 bool // transaction.partition.verification.enable
	TransactionStateLogNumPartitions        int32
	TransactionStateLogSegmentBytes         int32
	TransactionalIDExpirationMillis         int32
	TransactionExpirationCheckMillis        int32
	ShareCoordinatorSnapshotUpdates         int32 // share.coordinator.snapshot.update.records.per.snapshot
	ShareCoordinatorStateTopicNumPartitions int32
	ShareCoordinatorStateTopicSegmentBytes  int32
	GroupShareSessionTimeoutMillis          int32
	GroupShareHeartbeatIntervalMillis       int32
	GroupShareAssignmentIntervalMillis      int32
	GroupShareMaxSize                       int32

	// Streams groups.
	GroupStreamsSessionTimeoutMillis        int32
	GroupStreamsHeartbeatIntervalMillis     int32
	GroupStreamsMaxSize                     int32
	GroupStreamsNumStandbyReplicas          int32
	GroupStreamsInitialRebalanceDelayMillis int32
	GroupStreamsAssignmentIntervalMillis    int32
	GroupStreamsRackAwareAssignmentTags     []string

	// Tiered storage.
	RemoteFetchMaxWaitMillis           int32
	RemoteListOffsetsTimeoutMillis     int64
	RemoteManagerCopierThreads         int32
	RemoteManagerExpirationThreads     int32
	RemoteManagerCopyMaxBytesPerSecond int64  // math.MaxInt64 means no limit
	VarveTierStore                     string // "" means no tiering
	VarveTierPrefix                    string
	VarveTierFencing                   string // "cas" or "lease"
	VarveTierUploadMaxBytesPerSecond   int64  // RemoteManagerCopyMaxBytesPerSecond when not set
	VarveTierCacheBytes                int64
	VarveTierReadParallelism           int32
	VarveTierDeleteGraceMillis         int64
	VarveTierOrphanSearchMillis        int64
	VarveTierScrubMillis               int64
	VarveTierScrubReadMillis           int64
	VarveTierScrubBytesPerSecond       int64
	VarveTierScrubRequestsPerDay       int64
	VarveDurability                    string // "fsync" or "replicated"
	VarveLogScrubBytesPerSecond        int64  // 0 none
	VarveLogSharedBytes                int64  // 0 none
	VarveLogVerifyIntervalMillis       int64  // 0 checks every read, -1 none
	VarveRequestMemoryBytes            int64
	VarveDiskReserveBytes              int64 // -1 means 1 GiB or 5 % of the disk, whichever is smaller
	VarveHTTPListen                    string
	VarveBalancerEnable                bool
	VarveBalancerIntervalMillis        int64
	VarveBalancerMovesMax              int32
	VarveBalancerThresholdPercent      int32
	remoteStorageSystemEnable          bool
	given                              map[string]string
	topicDefaults                      map[string]any
}

// ParseBroker reads broker settings. It is strict: a name that is no broker
// setting is an error that wraps ErrUnknown and names the nearest known one; a
// value that breaks a rule is one that wraps ErrInvalid.
func ParseBroker(given map[string]string) (Broker, error) {
	if err := CheckNames(KindBroker, given); err != nil {
		return Broker{}, err
	}
	given, err := canonicalNames(given)
	if err != nil {
		return Broker{}, err
	}
	v, err := parseAll(brokerTable, given, nil)
	if err != nil {
		return Broker{}, err
	}
	if err := checkListenerValues(given); err != nil {
		return Broker{}, err
	}
	b := Broker{given: given}
	b.fillServer(v)
	b.fillLog(v)
	b.fillGroup(v)
	b.fillTier(v)
	if err := b.checkBroker(v); err != nil {
		return Broker{}, err
	}
	b.topicDefaults = topicDefaults(v)
	if _, err := parseTopic(nil, nil, &b); err != nil {
		return Broker{}, err
	}
	return b, nil
}

// With returns the broker settings with these put over the given ones, as the
// dynamic broker settings are.
func (b *Broker) With(overrides map[string]string) (Broker, error) {
	overrides, err := canonicalNames(overrides)
	if err != nil {
		return Broker{}, err
	}
	all := make(map[string]string, len(b.given)+len(overrides))
	maps.Copy(all, b.given)
	maps.Copy(all, overrides)
	return ParseBroker(all)
}

// checkListenerValues parses the settings of single listeners, which the table does not list.
func checkListenerValues(given map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if _, _, ok := splitListenerSetting(name); !ok {
			continue
		}
		if d, ok := Lookup(KindBroker, name); ok {
			if _, err := d.Parse(given[name]); err != nil {
				return err
			}
		}
	}
	return nil
}

// Defs returns every broker setting and, of those for single listeners, the given ones, sorted by name.
func (b *Broker) Defs() []Def {
	list := BrokerDefs()
	for name := range b.given {
		if _, _, ok := splitListenerSetting(name); !ok {
			continue
		}
		if d, ok := Lookup(KindBroker, name); ok {
			list = append(list, d)
		}
	}
	slices.SortFunc(list, func(x, y Def) int { return strings.Compare(x.Name, y.Name) })
	return list
}

// Given returns the settings that were given, as a copy.
func (b *Broker) Given() map[string]string { return maps.Clone(b.given) }

// Value returns the text of a broker setting as DescribeConfigs shows it: the
// given one, else the default. null is true when there is none; ok is false
// when there is no such setting.
func (b *Broker) Value(name string) (text string, null, given, ok bool) {
	d, ok := Lookup(KindBroker, name)
	if !ok {
		return "", false, false, false
	}
	if v, found := b.given[canonicalName(name)]; found {
		return d.Canonical(v), false, true, true
	}
	return d.Default, d.Null, false, true
}

// The values of replica.selector.class.
const (
	LeaderSelector    = "org.apache.kafka.common.replica.LeaderSelector"
	RackAwareSelector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
)

// Unlimited is the rate of a throttle that is off.
const Unlimited int64 = math.MaxInt64

// TieringEnabled reports whether topics may be tiered: there is a bucket.
func (b *Broker) TieringEnabled() bool { return b.VarveTierStore != "" }

func (b *Broker) fillServer(v parsed) {
	b.NodeID = v.i32("node.id")
	if _, ok := b.given["node.id"]; !ok {
		b.NodeID = v.i32("broker.id")
	}
	b.Rack = v.str("broker.rack")
	b.LogDirs = v.list("log.dirs")
	if len(b.LogDirs) == 0 {
		b.LogDirs = v.list("log.dir")
	}
	b.ProcessRoles = v.list("process.roles")
	b.Listeners = v.str("listeners")
	b.AdvertisedListeners = v.str("advertised.listeners")
	if b.AdvertisedListeners == "" {
		b.AdvertisedListeners = b.Listeners
	}
	b.ListenerSecurityProtocolMap = v.str("listener.security.protocol.map")
	b.InterBrokerListenerName = v.str("inter.broker.listener.name")
	b.ControllerListenerNames = v.list("controller.listener.names")
	b.ControllerQuorumVoters = v.list("controller.quorum.voters")
	b.ControllerQuorumBootstrapServers = v.list("controller.quorum.bootstrap.servers")
	b.ControlledShutdownEnable = v.flag("controlled.shutdown.enable")
	b.InitialRegistrationTimeoutMillis = v.i32("initial.broker.registration.timeout.ms")
	b.MetadataLogDir = v.str("metadata.log.dir")
	b.MetadataSnapshotBytes = v.i64("metadata.log.max.record.bytes.between.snapshots")
	b.SocketRequestMaxBytes = v.i32("socket.request.max.bytes")
	b.ConnectionsMaxIdleMillis = v.i64("connections.max.idle.ms")
	b.MaxConnections = v.i32("max.connections")
	b.MaxConnectionsPerIP = v.i32("max.connections.per.ip")
	b.MaxConnectionsPerIPByHost = perIP(v.str("max.connections.per.ip.overrides"))
	b.MaxConnectionCreationRate = v.i32("max.connection.creation.rate")
	b.QueuedMaxRequestBytes = v.i64("queued.max.request.bytes")
	b.FetchMaxBytes = v.i32("fetch.max.bytes")
	b.FetchSessionCacheSlots = v.i32("max.incremental.fetch.session.cache.slots")
	b.MaxRequestPartitionSize = v.i32("max.request.partition.size.limit")
	b.AutoCreateTopicsEnable = v.flag("auto.create.topics.enable")
	b.DeleteTopicEnable = v.flag("delete.topic.enable")
	b.NumPartitions = v.i32("num.partitions")
	b.DefaultReplicationFactor = int16(min(v.i32("default.replication.factor"), math.MaxInt16))
	b.AutoLeaderRebalanceEnable = v.flag("auto.leader.rebalance.enable")
	b.LeaderImbalanceCheckIntervalSeconds = v.i64("leader.imbalance.check.interval.seconds")
	b.MinInsyncReplicas = v.i32("min.insync.replicas")
	b.VarveDurability = v.str("varve.durability")
	b.VarveLogScrubBytesPerSecond = v.i64("varve.log.scrub.bytes.per.second")
	b.VarveLogSharedBytes = v.i64("varve.log.shared.bytes")
	b.VarveLogVerifyIntervalMillis = v.i64("varve.log.verify.interval.ms")
	b.VarveRequestMemoryBytes = v.i64("varve.request.memory.bytes")
	b.VarveHTTPListen = v.str("varve.http.listen")
	b.VarveBalancerEnable = v.flag("varve.balancer.enable")
	b.VarveBalancerIntervalMillis = v.i64("varve.balancer.interval.ms")
	b.VarveBalancerMovesMax = v.i32("varve.balancer.moves.max")
	b.VarveBalancerThresholdPercent = v.i32("varve.balancer.threshold.percent")
	b.BrokerHeartbeatIntervalMillis = v.i32("broker.heartbeat.interval.ms")
	b.BrokerSessionTimeoutMillis = v.i32("broker.session.timeout.ms")
}

func (b *Broker) fillLog(v parsed) {
	b.LogRetentionCheckIntervalMillis = v.i64("log.retention.check.interval.ms")
	b.LogCleanerEnable = v.flag("log.cleaner.enable")
	b.LogCleanerThreads = v.i32("log.cleaner.threads")
	b.LogCleanerDedupeBufferBytes = v.i64("log.cleaner.dedupe.buffer.size")
	b.ReplicaLagTimeMaxMillis = v.i64("replica.lag.time.max.ms")
	b.ReplicaFetchMaxBytes = v.i32("replica.fetch.max.bytes")
	b.ReplicaFetchMinBytes = v.i32("replica.fetch.min.bytes")
	b.ReplicaFetchWaitMaxMillis = v.i32("replica.fetch.wait.max.ms")
	b.ReplicaFetchResponseMaxBytes = v.i32("replica.fetch.response.max.bytes")
	b.ReplicaFetchBackoffMillis = v.i32("replica.fetch.backoff.ms")
	b.ReplicaSelectorClass = v.str("replica.selector.class")
	switch b.ReplicaSelectorClass {
	case "":
		b.ReplicaSelectorClass = LeaderSelector
	case "rack-aware":
		b.ReplicaSelectorClass = RackAwareSelector
	}
	b.LeaderReplicationThrottledRate = v.i64("leader.replication.throttled.rate")
	b.FollowerReplicationThrottledRate = v.i64("follower.replication.throttled.rate")
	b.VarveDiskReserveBytes = -1
	if n, ok := v["varve.disk.reserve.bytes"].(int64); ok {
		b.VarveDiskReserveBytes = n
	}
}

func (b *Broker) fillGroup(v parsed) {
	b.GroupRebalanceProtocols = v.list("group.coordinator.rebalance.protocols")
	b.GroupMinSessionTimeoutMillis = v.i32("group.min.session.timeout.ms")
	b.GroupMaxSessionTimeoutMillis = v.i32("group.max.session.timeout.ms")
	b.GroupConsumerSessionTimeoutMillis = v.i32("group.consumer.session.timeout.ms")
	b.GroupConsumerHeartbeatIntervalMillis = v.i32("group.consumer.heartbeat.interval.ms")
	b.GroupConsumerMaxSize = v.i32("group.consumer.max.size")
	b.GroupConsumerAssignmentIntervalMillis = v.i32("group.consumer.assignment.interval.ms")
	b.GroupConsumerMigrationPolicy = v.str("group.consumer.migration.policy")
	b.GroupConsumerAssignors = v.list("group.consumer.assignors")
	b.GroupInitialRebalanceDelayMillis = v.i32("group.initial.rebalance.delay.ms")
	b.GroupMaxSize = v.i32("group.max.size")
	b.GroupStreamsSessionTimeoutMillis = v.i32("group.streams.session.timeout.ms")
	b.GroupStreamsHeartbeatIntervalMillis = v.i32("group.streams.heartbeat.interval.ms")
	b.GroupStreamsMaxSize = v.i32("group.streams.max.size")
	b.GroupStreamsNumStandbyReplicas = v.i32("group.streams.num.standby.replicas")
	b.GroupStreamsInitialRebalanceDelayMillis = v.i32("group.streams.initial.rebalance.delay.ms")
	b.GroupStreamsAssignmentIntervalMillis = v.i32("group.streams.assignment.interval.ms")
	b.GroupStreamsRackAwareAssignmentTags = v.list("group.streams.rack.aware.assignment.tags")
	b.OffsetMetadataMaxBytes = v.i32("offset.metadata.max.bytes")
	b.OffsetsTopicNumPartitions = v.i32("offsets.topic.num.partitions")
	b.OffsetsTopicSegmentBytes = v.i32("offsets.topic.segment.bytes")
	b.OffsetsTopicCompressionCodec = int8(v.i32("offsets.topic.compression.codec"))
	b.OffsetsRetentionMinutes = v.i32("offsets.retention.minutes")
	b.OffsetsRetentionCheckIntervalMillis = v.i64("offsets.retention.check.interval.ms")
	b.OffsetsCommitTimeoutMillis = v.i32("offsets.commit.timeout.ms")
	b.ProducerIDExpirationMillis = v.i32("producer.id.expiration.ms")
	b.TransactionMaxTimeoutMillis = v.i32("transaction.max.timeout.ms")
	b.TransactionVerification = v.flag("transaction.partition.verification.enable")
	b.ShareCoordinatorSnapshotUpdates = v.i32("share.coordinator.snapshot.update.records.per.snapshot")
	b.ShareCoordinatorStateTopicNumPartitions = v.i32("share.coordinator.state.topic.num.partitions")
	b.ShareCoordinatorStateTopicSegmentBytes = v.i32("share.coordinator.state.topic.segment.bytes")
	b.GroupShareSessionTimeoutMillis = v.i32("group.share.session.timeout.ms")
	b.GroupShareHeartbeatIntervalMillis = v.i32("group.share.heartbeat.interval.ms")
	b.GroupShareAssignmentIntervalMillis = v.i32("group.share.assignment.interval.ms")
	b.GroupShareMaxSize = v.i32("group.share.max.size")
	b.TransactionStateLogNumPartitions = v.i32("transaction.state.log.num.partitions")
	b.TransactionStateLogSegmentBytes = v.i32("transaction.state.log.segment.bytes")
	b.TransactionalIDExpirationMillis = v.i32("transactional.id.expiration.ms")
	b.TransactionExpirationCheckMillis = v.i32("transaction.remove.expired.transaction.cleanup.interval.ms")
}

func (b *Broker) fillTier(v parsed) {
	b.RemoteFetchMaxWaitMillis = v.i32("remote.fetch.max.wait.ms")
	b.RemoteListOffsetsTimeoutMillis = v.i64("remote.list.offsets.request.timeout.ms")
	b.RemoteManagerCopierThreads = v.i32("remote.log.manager.copier.thread.pool.size")
	b.RemoteManagerExpirationThreads = v.i32("remote.log.manager.expiration.thread.pool.size")
	b.RemoteManagerCopyMaxBytesPerSecond = v.i64("remote.log.manager.copy.max.bytes.per.second")
	b.VarveTierStore = v.str("varve.tier.store")
	b.VarveTierPrefix = v.str("varve.tier.prefix")
	b.VarveTierFencing = v.str("varve.tier.fencing")
	b.VarveTierCacheBytes = v.i64("varve.tier.cache.bytes")
	b.VarveTierReadParallelism = v.i32("varve.tier.read.parallelism")
	b.VarveTierDeleteGraceMillis = v.i64("varve.tier.delete.grace.ms")
	b.VarveTierOrphanSearchMillis = v.i64("varve.tier.orphan.search.interval.ms")
	b.VarveTierScrubMillis = v.i64("varve.tier.scrub.interval.ms")
	b.VarveTierScrubReadMillis = v.i64("varve.tier.scrub.read.interval.ms")
	b.VarveTierScrubBytesPerSecond = v.i64("varve.tier.scrub.bytes.per.second")
	b.VarveTierScrubRequestsPerDay = v.i64("varve.tier.scrub.requests.per.day")
	b.VarveTierUploadMaxBytesPerSecond = b.RemoteManagerCopyMaxBytesPerSecond
	if n, ok := v["varve.tier.upload.max.bytes.per.second"].(int64); ok {
		b.VarveTierUploadMaxBytesPerSecond = n
	}
	b.remoteStorageSystemEnable = v.flag("remote.log.storage.system.enable")
}

// checkBroker refuses settings that contradict each other.
func (b *Broker) checkBroker(v parsed) error {
	if id, ok := b.given["broker.id"]; ok {
		if node, both := b.given["node.id"]; both && id != node {
			return contradiction("node.id %s and broker.id %s differ: set one of them", node, id)
		}
	}
	if b.remoteStorageSystemEnable && b.VarveTierStore == "" {
		return contradiction("remote.log.storage.system.enable is set but varve.tier.store, the bucket, is not")
	}
	if b.GroupMinSessionTimeoutMillis > b.GroupMaxSessionTimeoutMillis {
		return contradiction("group.min.session.timeout.ms (%d) > group.max.session.timeout.ms (%d)", b.GroupMinSessionTimeoutMillis, b.GroupMaxSessionTimeoutMillis)
	}
	if n := v.i32("default.replication.factor"); n < 1 || n > math.MaxInt16 {
		return invalid("default.replication.factor", strconv.Itoa(int(n)), "Value must be between 1 and 32767")
	}
	if len(b.LogDirs) == 0 {
		return contradiction("log.dirs names no directory")
	}
	if err := b.checkRefusals(v); err != nil {
		return err
	}
	if err := b.checkQuorum(); err != nil {
		return err
	}
	return b.checkLimits(v)
}

// checkLimits holds Kafka's rules between settings that no single setting's
// rule covers, in Kafka's words.
func (b *Broker) checkLimits(v parsed) error {
	for _, rule := range []struct {
		holds  bool
		reason string
	}{
		{v["log.roll.ms"] == nil || v.i64("log.roll.ms") >= 1, "log.roll.ms must be greater than or equal to 1"},
		{v.i64("log.roll.jitter.ms") >= 0, "log.roll.jitter.ms must be greater than or equal to 0"},
		{unlimitedOrPositive(v, "log.retention.ms") && unlimitedOrPositive(v, "log.retention.minutes") && unlimitedOrPositive(v, "log.retention.hours"),
			"log.retention.ms must be unlimited (-1) or, equal or greater than 1"},
		{b.LogCleanerDedupeBufferBytes/int64(max(b.LogCleanerThreads, 1)) > 1<<20, "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread."},
		{b.ReplicaFetchWaitMaxMillis <= v.i32("replica.socket.timeout.ms"), "replica.socket.timeout.ms should always be at least replica.fetch.wait.max.ms to prevent unnecessary socket timeouts"},
		{int64(b.ReplicaFetchWaitMaxMillis) <= b.ReplicaLagTimeMaxMillis, "replica.fetch.wait.max.ms should always be less than or equal to replica.lag.time.max.ms to prevent frequent changes in ISR"},
		{b.QueuedMaxRequestBytes <= 0 || b.QueuedMaxRequestBytes >= int64(b.SocketRequestMaxBytes), "queued.max.request.bytes must be larger or equal to socket.request.max.bytes"},
		{b.MaxConnectionsPerIP > 0 || len(b.MaxConnectionsPerIPByHost) > 0, "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set."},
		{b.BrokerHeartbeatIntervalMillis <= b.BrokerSessionTimeoutMillis/2, "broker.heartbeat.interval.ms must be less than or equal to half of the broker.session.timeout.ms"},
	} {
		if !rule.holds {
			return contradiction("%s", rule.reason)
		}
	}
	return nil
}

// unlimitedOrPositive allows null, -1 and every positive number.
func unlimitedOrPositive(v parsed, name string) bool {
	n, ok := v[name].(int64)
	return !ok || n == -1 || n >= 1
}

func perIP(text string) map[string]int32 {
	m := make(map[string]int32)
	for _, entry := range splitList(text) {
		if i := strings.LastIndexByte(entry, ':'); i > 0 {
			n, _ := strconv.ParseInt(strings.TrimSpace(entry[i+1:]), 10, 32)
			m[entry[:i]] = int32(n)
		}
	}
	return m
}

// parsed holds typed values by name; a null has no entry.
type parsed map[string]any

// parseAll parses the given texts and fills the rest from base, or else from
// the table's defaults. Names must be known.
func parseAll(t *table, given map[string]string, base parsed) (parsed, error) {
	v := make(parsed, len(t.defs))
	for i := range t.defs {
		d := &t.defs[i]
		text, ok := given[d.Name]
		if !ok {
			if b, inherited := base[d.Name]; inherited {
				v[d.Name] = b
				continue
			}
			if d.Null {
				continue
			}
			text = d.Default
		}
		value, err := d.Parse(text)
		if err != nil {
			return nil, err
		}
		v[d.Name] = value
	}
	return v, nil
}

func (v parsed) i64(name string) int64 { n, _ := v[name].(int64); return n }
func (v parsed) i32(name string) int32 { return int32(v.i64(name)) }
func (v parsed) f64(name string) float64 {
	f, _ := v[name].(float64)
	return f
}
func (v parsed) flag(name string) bool  { f, _ := v[name].(bool); return f }
func (v parsed) str(name string) string { s, _ := v[name].(string); return s }
func (v parsed) list(name string) []string {
	l, _ := v[name].([]string)
	return l
}

// topicDefaults computes each topic setting's default from its synonyms.
func topicDefaults(broker parsed) parsed {
	defaults := make(parsed)
	for i := range topicTable.defs {
		d := &topicTable.defs[i]
		for _, s := range d.Synonyms {
			value, ok := broker[s.Name]
			if !ok {
				continue // null: the next synonym counts
			}
			if n, isInt := value.(int64); isInt && s.Factor != 1 {
				if n < 0 {
					value = int64(-1) // "for ever" is -1 in every unit
				} else {
					value = n * s.Factor
				}
			}
			defaults[d.Name] = value
			break
		}
	}
	return defaults
}
