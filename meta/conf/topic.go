package conf

import (
	"slices"
	"strconv"
)

// Topic holds every topic setting, typed. Times are in milliseconds and sizes
// in bytes unless a name says otherwise.
type Topic struct {
	CleanupCompact bool // cleanup.policy has "compact"
	CleanupDelete  bool // cleanup.policy has "delete"

	CompressionType      string // "producer" keeps what was sent; "uncompressed" means none
	CompressionGzipLevel int32
	CompressionLz4Level  int32
	CompressionZstdLevel int32

	SegmentBytes          int32 // internal.segment.bytes where it is set
	SegmentMillis         int64
	SegmentJitterMillis   int64
	SegmentIndexBytes     int32
	IndexIntervalBytes    int32
	Preallocate           bool
	FileDeleteDelayMillis int64
	FlushMessages         int64
	FlushMillis           int64

	RetentionMillis int64 // -1 keeps for ever
	RetentionBytes  int64 // -1 keeps all

	DeleteRetentionMillis  int64
	MinCompactionLagMillis int64
	MaxCompactionLagMillis int64
	MinCleanableDirtyRatio float64

	MaxMessageBytes             int32
	MaxDecompressedMessageBytes int32
	TimestampLogAppend          bool // message.timestamp.type is LogAppendTime
	TimestampBeforeMaxMillis    int64
	TimestampAfterMaxMillis     int64

	MinInsyncReplicas              int32
	UncleanLeaderElectionEnable    bool
	LeaderThrottledReplicas        []string
	FollowerThrottledReplicas      []string
	ErrorsDeadLetterQueueGroups    bool
	RemoteStorageEnable            bool
	RemoteLogCopyDisable           bool
	RemoteLogDeleteOnDisable       bool
	LocalRetentionMillisConfigured int64 // -2 means as RetentionMillis: see LocalRetentionMillis
	LocalRetentionBytesConfigured  int64 // -2 means as RetentionBytes: see LocalRetentionBytes
	RemoteCopyLagMillisConfigured  int64 // -1 means as the local retention; see package tier for how
	RemoteCopyLagBytesConfigured   int64 // the two criteria go together (KIP-1241)
	VarveRemoteMaxLagMillis        int64 // -1 sets no bound
}

// LocalRetentionMillis is how long a segment that is in the bucket stays on
// local disk; -1 means for ever.
func (t *Topic) LocalRetentionMillis() int64 {
	if t.LocalRetentionMillisConfigured == inheritTotal {
		return t.RetentionMillis
	}
	return t.LocalRetentionMillisConfigured
}

// LocalRetentionBytes is how many bytes of segments that are in the bucket
// stay on local disk; -1 means all.
func (t *Topic) LocalRetentionBytes() int64 {
	if t.LocalRetentionBytesConfigured == inheritTotal {
		return t.RetentionBytes
	}
	return t.LocalRetentionBytesConfigured
}

// SegmentMaxMillis is the age at which a segment is sealed: segment.ms, or
// sooner when a compacted topic's max.compaction.lag.ms asks for it.
func (t *Topic) SegmentMaxMillis() int64 {
	if t.CleanupCompact && t.MaxCompactionLagMillis > 0 {
		return min(t.MaxCompactionLagMillis, t.SegmentMillis)
	}
	return t.SegmentMillis
}

const inheritTotal = -2 // local.retention.*: as retention.*

// ParseTopic reads a topic's settings over the broker's defaults and checks
// them alone and together, tiered rules included. A nil broker means Kafka's
// defaults and no bucket. The error is an *Error whose text is Kafka's.
func ParseTopic(overrides map[string]string, b *Broker) (Topic, error) {
	return parseTopic(nil, overrides, b)
}

// ParseTopicChange is ParseTopic for a topic that had other overrides before:
// it also refuses to turn tiering off without saying what becomes of the data
// in the bucket (KIP-950).
func ParseTopicChange(previous, overrides map[string]string, b *Broker) (Topic, error) {
	return parseTopic(previous, overrides, b)
}

func parseTopic(previous, overrides map[string]string, b *Broker) (Topic, error) {
	if err := CheckNames(KindTopic, overrides); err != nil {
		return Topic{}, err
	}
	var defaults parsed
	if b != nil {
		defaults = b.topicDefaults
	}
	v, err := parseAll(topicTable, overrides, defaults)
	if err != nil {
		return Topic{}, err
	}
	t := fillTopic(v)
	return t, t.check(previous, v.list("cleanup.policy"), b != nil && b.TieringEnabled())
}

func fillTopic(v parsed) Topic {
	policy := v.list("cleanup.policy")
	t := Topic{
		CleanupCompact:                 slices.Contains(policy, "compact"),
		CleanupDelete:                  slices.Contains(policy, "delete"),
		CompressionType:                v.str("compression.type"),
		CompressionGzipLevel:           v.i32("compression.gzip.level"),
		CompressionLz4Level:            v.i32("compression.lz4.level"),
		CompressionZstdLevel:           v.i32("compression.zstd.level"),
		SegmentBytes:                   v.i32("segment.bytes"),
		SegmentMillis:                  v.i64("segment.ms"),
		SegmentJitterMillis:            v.i64("segment.jitter.ms"),
		SegmentIndexBytes:              v.i32("segment.index.bytes"),
		IndexIntervalBytes:             v.i32("index.interval.bytes"),
		Preallocate:                    v.flag("preallocate"),
		FileDeleteDelayMillis:          v.i64("file.delete.delay.ms"),
		FlushMessages:                  v.i64("flush.messages"),
		FlushMillis:                    v.i64("flush.ms"),
		RetentionMillis:                v.i64("retention.ms"),
		RetentionBytes:                 v.i64("retention.bytes"),
		DeleteRetentionMillis:          v.i64("delete.retention.ms"),
		MinCompactionLagMillis:         v.i64("min.compaction.lag.ms"),
		MaxCompactionLagMillis:         v.i64("max.compaction.lag.ms"),
		MinCleanableDirtyRatio:         v.f64("min.cleanable.dirty.ratio"),
		MaxMessageBytes:                v.i32("max.message.bytes"),
		MaxDecompressedMessageBytes:    v.i32("max.decompressed.message.bytes"),
		TimestampLogAppend:             v.str("message.timestamp.type") == "LogAppendTime",
		TimestampBeforeMaxMillis:       v.i64("message.timestamp.before.max.ms"),
		TimestampAfterMaxMillis:        v.i64("message.timestamp.after.max.ms"),
		MinInsyncReplicas:              v.i32("min.insync.replicas"),
		UncleanLeaderElectionEnable:    v.flag("unclean.leader.election.enable"),
		LeaderThrottledReplicas:        v.list("leader.replication.throttled.replicas"),
		FollowerThrottledReplicas:      v.list("follower.replication.throttled.replicas"),
		ErrorsDeadLetterQueueGroups:    v.flag("errors.deadletterqueue.group.enable"),
		RemoteStorageEnable:            v.flag("remote.storage.enable"),
		RemoteLogCopyDisable:           v.flag("remote.log.copy.disable"),
		RemoteLogDeleteOnDisable:       v.flag("remote.log.delete.on.disable"),
		LocalRetentionMillisConfigured: v.i64("local.retention.ms"),
		LocalRetentionBytesConfigured:  v.i64("local.retention.bytes"),
		RemoteCopyLagMillisConfigured:  v.i64("remote.copy.lag.ms"),
		RemoteCopyLagBytesConfigured:   v.i64("remote.copy.lag.bytes"),
		VarveRemoteMaxLagMillis:        v.i64("varve.remote.max.lag.ms"),
	}
	if n, ok := v["internal.segment.bytes"].(int64); ok {
		t.SegmentBytes = int32(n)
	}
	return t
}

// check applies LogConfig's rules in LogConfig's order.
func (t *Topic) check(previous map[string]string, policy []string, tieringEnabled bool) error {
	if t.MinCompactionLagMillis > t.MaxCompactionLagMillis {
		return contradiction("conflict topic config setting min.compaction.lag.ms (%d) > max.compaction.lag.ms (%d)", t.MinCompactionLagMillis, t.MaxCompactionLagMillis)
	}
	if !t.RemoteStorageEnable {
		d, _ := Lookup(KindTopic, "remote.storage.enable")
		was, err := d.Parse(previous["remote.storage.enable"])
		if err == nil && was == true && !t.RemoteLogDeleteOnDisable {
			return contradiction("It is invalid to disable remote storage without deleting remote data. " +
				"If you want to keep the remote data and turn to read only, please set `remote.storage.enable=true,remote.log.copy.disable=true`. " +
				"If you want to disable remote storage and delete all remote data, please set `remote.storage.enable=false,remote.log.delete.on.disable=true`.")
		}
		return nil
	}
	if !tieringEnabled {
		return contradiction("Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage.")
	}
	if len(policy) > 0 && !slices.Equal(policy, []string{"delete"}) {
		return contradiction("Remote log storage only supports topics with cleanup.policy=delete or cleanup.policy being an empty list.")
	}
	for _, err := range []error{
		checkLocal("bytes", t.LocalRetentionBytesConfigured, t.RetentionBytes),
		checkLocal("ms", t.LocalRetentionMillisConfigured, t.RetentionMillis),
		checkCopyLag("bytes", t.RemoteCopyLagBytesConfigured, t.LocalRetentionBytes()),
		checkCopyLag("ms", t.RemoteCopyLagMillisConfigured, t.LocalRetentionMillis()),
	} {
		if err != nil {
			return err
		}
	}
	return t.checkCopyDisabled()
}

// checkLocal holds local retention at or below total retention.
func checkLocal(unit string, local, total int64) error {
	name := "local.retention." + unit
	switch {
	case total < 0 || local == inheritTotal:
		return nil
	case local == -1:
		return invalid(name, itoa(local), "Value must not be -1 as retention."+unit+" value is set as "+itoa(total)+".")
	case local > total:
		return invalid(name, itoa(local), "Value must not be more than retention."+unit+" property value: "+itoa(total))
	}
	return nil
}

// checkCopyLag keeps local retention from asking for segments to go that their
// copy lag keeps from being uploaded.
func checkCopyLag(unit string, lag, local int64) error {
	if lag > 0 && local >= 0 && lag > local {
		return invalid("remote.copy.lag."+unit, itoa(lag), "Value must not exceed local.retention."+unit+" (effective value: "+itoa(local)+")")
	}
	return nil
}

// checkCopyDisabled: with copying off, local retention is all the retention
// there is for new data.
func (t *Topic) checkCopyDisabled() error {
	if !t.RemoteLogCopyDisable {
		return nil
	}
	const message = "When `remote.log.copy.disable` is set to true, the `local.retention.%s` and `retention.%s` must be set to the identical value because there will be no more logs copied to the remote storage."
	if t.LocalRetentionBytesConfigured != inheritTotal && t.LocalRetentionBytesConfigured != t.RetentionBytes {
		return contradiction(message, "bytes", "bytes")
	}
	if t.LocalRetentionMillisConfigured != inheritTotal && t.LocalRetentionMillisConfigured != t.RetentionMillis {
		return contradiction(message, "ms", "ms")
	}
	return nil
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
