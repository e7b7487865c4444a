package tier

import (
	"github.com/varvelog/varve/meta/conf"
	"github.com/varvelog/varve/meta/topic"
)

// Log is a partition's local log on the broker that leads it, as the manager
// needs it. Methods are safe for concurrent use; Offsets, Sealed and Config must
// not block on disk I/O for long.
type Log interface {
	Partition() topic.Partition
	LeaderEpoch() int32
	Config() TopicConfig
	Offsets() LogOffsets
	// Sealed returns the whole sealed segments with EndOffset > from and
	// EndOffset ≤ limit, in offset order. The first may begin below from.
	Sealed(from, limit int64) []Segment
	// Roll seals the active segment if it holds anything.
	Roll() error
	// EpochAt is the leader epoch that wrote offset. below: the log's epochs begin
	// above the offset, and epoch is the first of them. −1 and not below: damage
	// hides it for now, and nothing is done before the log can say.
	EpochAt(offset int64) (epoch int32, below bool)
	// Leased says whether the cluster cannot have given up on this broker yet. Who
	// has no lease may have been replaced without a word, and its settings may be of
	// yesterday: it neither claims a manifest, nor begins an upload, nor commits, nor
	// lets the log start rise.
	Leased() bool
	// SetRemoteEnd says that the archive holds every offset in
	// [log start, end): local copies below end may go when local retention says
	// so. −1 withdraws it: nothing local may go on the archive's account.
	SetRemoteEnd(end int64)
	// AdvanceLogStart raises the log start offset (retention); lower values
	// change nothing.
	AdvanceLogStart(offset int64) error
}

// LogOffsets is one consistent view of a local log.
type LogOffsets struct {
	LogStart      int64
	LocalStart    int64
	Durable       int64 // exclusive
	HighWatermark int64 // exclusive
	LastStable    int64 // exclusive; ≤ HighWatermark
	End           int64 // exclusive

	ActiveBase         int64 // base offset of the active segment
	ActiveBytes        int64
	ActiveSince        int64 // wall clock ms when its first record was appended; −1 when empty
	ActiveMaxTimestamp int64 // −1 (or less) when none
}

// stable is the offset below which nothing can change any more (T2).
func (o LogOffsets) stable() int64 { return min(o.HighWatermark, o.LastStable, o.Durable) }

// TopicConfig is what the manager needs of a topic's settings. Retention values
// follow Kafka: −1 is unlimited. Local values are the effective ones, with −2
// ("as the total") already resolved.
type TopicConfig struct {
	Enabled         bool // remote.storage.enable
	CopyDisabled    bool // remote.log.copy.disable
	DeleteOnDisable bool // remote.log.delete.on.disable

	RetentionMillis      int64 // retention.ms
	RetentionBytes       int64 // retention.bytes
	LocalRetentionMillis int64 // local.retention.ms
	LocalRetentionBytes  int64 // local.retention.bytes

	CopyLagMillis int64 // remote.copy.lag.ms (KIP-1241): 0 at once, −1 the local retention
	CopyLagBytes  int64 // remote.copy.lag.bytes (KIP-1241): 0 at once, −1 the local retention
	MaxLagMillis  int64 // varve.remote.max.lag.ms: −1 unbounded

	// Topic, when set, is kept in the partition's head manifest, so that the
	// bucket alone is enough to restore the topic.
	Topic *TopicInfo
}

// TopicConfigOf takes what the manager needs out of a topic's settings. Compacted
// topics are never tiered, whatever they say.
func TopicConfigOf(t *conf.Topic) TopicConfig {
	return TopicConfig{
		Enabled:              t.RemoteStorageEnable && !t.CleanupCompact,
		CopyDisabled:         t.RemoteLogCopyDisable,
		DeleteOnDisable:      t.RemoteLogDeleteOnDisable,
		RetentionMillis:      t.RetentionMillis,
		RetentionBytes:       t.RetentionBytes,
		LocalRetentionMillis: t.LocalRetentionMillis(),
		LocalRetentionBytes:  t.LocalRetentionBytes(),
		CopyLagMillis:        t.RemoteCopyLagMillisConfigured,
		CopyLagBytes:         t.RemoteCopyLagBytesConfigured,
		MaxLagMillis:         t.VarveRemoteMaxLagMillis,
	}
}

// copyLag resolves KIP-1241's two settings. immediate: every sealed segment may
// go at once. A value ≤ 0 of the other two never makes a segment eligible.
func (c TopicConfig) copyLag() (millis, bytes int64, immediate bool) {
	millis, bytes = c.CopyLagMillis, c.CopyLagBytes
	if millis == -1 {
		millis = c.LocalRetentionMillis
	}
	if bytes == -1 {
		bytes = c.LocalRetentionBytes
	}
	return millis, bytes, millis == 0 || bytes == 0
}
