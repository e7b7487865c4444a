package hot

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/varvelog/varve/hot/vfs"
)

// Durability says what Durable means.
type Durability int8

const (
	// Fsync counts a record as durable once it is synced.
	Fsync Durability = iota
	// Replicated counts it once the kernel has it; the disk follows in the
	// background. Power loss may take the last seconds of this replica.
	Replicated
)

// String is the value of varve.durability.
func (d Durability) String() string {
	if d == Replicated {
		return "replicated"
	}
	return "fsync"
}

// Config is how a store behaves.
type Config struct {
	// Dir is the data directory; it is made if absent.
	Dir string
	// Durability is varve.durability.
	Durability Durability
	// ReserveBytes of free space are kept: below it appends are refused.
	// 0 means 1 GiB or 5 % of the file system, whichever is smaller.
	ReserveBytes int64
	// OpenFilesMax bounds descriptors of segments nobody reads or writes now.
	OpenFilesMax int
	// IndexBytesMax bounds heap kept for indexes of sealed segments.
	IndexBytesMax int64
	// FlushInterval is how long bytes stay unsynced in Replicated mode.
	FlushInterval time.Duration
	// CheckpointInterval is how often recovery points move on.
	CheckpointInterval time.Duration
	// CheckpointBytes moves a log's recovery point earlier than that.
	CheckpointBytes int64
	// SyncFilesMax is how many dirty files one group commit syncs one by one;
	// above it the whole file system is synced in one call.
	SyncFilesMax int
	// SharedLogBytes is the size of the shared log, which Fsync writes to when
	// several logs are dirty with few bytes each; 0 has none.
	SharedLogBytes int64
	// PreallocateBytes is the largest step by which active segments reserve
	// blocks ahead of the end; 0 reserves none.
	PreallocateBytes int64
	// VerifyInterval is how long bytes that were checked, as they were appended
	// or read, are sent to readers without another look (Slice.Verify); negative
	// checks none of them.
	VerifyInterval time.Duration
	// ScrubBytesPerSecond is how fast sealed segments are read in turn, in the
	// background, to find damage; 0 reads none.
	ScrubBytesPerSecond int64
}

// DefaultConfig is a configuration for dir.
func DefaultConfig(dir string) Config {
	return Config{
		Dir:                dir,
		Durability:         Fsync,
		OpenFilesMax:       1024,
		IndexBytesMax:      64 << 20,
		FlushInterval:      5 * time.Second,
		CheckpointInterval: 60 * time.Second,
		CheckpointBytes:    64 << 20,
		SyncFilesMax:       4,
		PreallocateBytes:   16 << 20,
		VerifyInterval:     time.Minute,

		ScrubBytesPerSecond: 1 << 20,
	}
}

// Validate reports what is wrong with the configuration.
func (c Config) Validate() error {
	switch {
	case c.Dir == "":
		return errors.New("hot: data directory is not set")
	case c.OpenFilesMax < 1, c.IndexBytesMax < 1, c.SyncFilesMax < 0:
		return errors.New("hot: bounds must be positive")
	case c.FlushInterval <= 0, c.CheckpointInterval <= 0, c.CheckpointBytes <= 0:
		return errors.New("hot: intervals must be positive")
	case c.SharedLogBytes != 0 && c.SharedLogBytes < sharedBytesMin:
		return fmt.Errorf("hot: a shared log takes at least %d bytes", sharedBytesMin)
	case c.ScrubBytesPerSecond < 0:
		return errors.New("hot: the scrubber's pace must not be negative")
	}
	return nil
}

// Deps is what a store stands on.
type Deps struct {
	FS     vfs.FS
	Logger *slog.Logger
	// Boot names the run of the kernel, "" not known. What was written in the
	// same run needs no sync to be there: then recovery takes no bad batch that
	// has sound ones behind it for a tail that power loss has torn. It counts for
	// a log that another run has left once that was opened.
	Boot string
}

// LogConfig is how one log behaves: the topic's settings that concern it. It
// is comparable; equal configurations share memory.
type LogConfig struct {
	SegmentBytes        int64 // segment.bytes
	SegmentMillis       int64 // segment.ms
	SegmentJitterMillis int64 // segment.jitter.ms
	SegmentIndexBytes   int64 // segment.index.bytes
	IndexIntervalBytes  int64 // index.interval.bytes

	Delete  bool // cleanup.policy has delete
	Compact bool // cleanup.policy has compact

	RetentionMillis      int64 // retention.ms, -1 none
	RetentionBytes       int64 // retention.bytes, -1 none
	LocalRetentionMillis int64 // local.retention.ms, -2 as retention.ms
	LocalRetentionBytes  int64 // local.retention.bytes, -2 as retention.bytes
	Tiered               bool  // remote.storage.enable
	CopyDisabled         bool  // remote.log.copy.disable
	FileDeleteDelay      int64 // file.delete.delay.ms

	DeleteRetentionMillis    int64   // delete.retention.ms
	MinCompactionLagMillis   int64   // min.compaction.lag.ms
	MaxCompactionLagMillis   int64   // max.compaction.lag.ms
	MinCleanableDirtyRatio   float64 // min.cleanable.dirty.ratio
	CompactionBufferBytes    int64   // log.cleaner.dedupe.buffer.size
	ProducerExpirationMillis int64   // producer.id.expiration.ms
}

// DefaultLogConfig has Kafka's defaults.
func DefaultLogConfig() LogConfig {
	const week = 7 * 24 * 3600 * 1000
	const day = 24 * 3600 * 1000
	return LogConfig{
		SegmentBytes:             1 << 30,
		SegmentMillis:            week,
		SegmentIndexBytes:        10 << 20,
		IndexIntervalBytes:       4096,
		Delete:                   true,
		RetentionMillis:          week,
		RetentionBytes:           -1,
		LocalRetentionMillis:     -2,
		LocalRetentionBytes:      -2,
		FileDeleteDelay:          60_000,
		DeleteRetentionMillis:    day,
		MaxCompactionLagMillis:   math.MaxInt64,
		MinCleanableDirtyRatio:   0.5,
		CompactionBufferBytes:    128 << 20,
		ProducerExpirationMillis: day,
	}
}

// segmentBytesLimit keeps positions within the index's 32 bits and segments
// within what Kafka's int setting can say.
const segmentBytesLimit = math.MaxInt32

// Validate reports what is wrong with the configuration.
func (c LogConfig) Validate() error {
	switch {
	case c.SegmentBytes < 1 || c.SegmentBytes > segmentBytesLimit:
		return fmt.Errorf("segment.bytes %d is outside 1..%d", c.SegmentBytes, segmentBytesLimit)
	case c.SegmentMillis < 1:
		return fmt.Errorf("segment.ms %d must be positive", c.SegmentMillis)
	case c.SegmentIndexBytes < 4*indexEntrySize:
		return fmt.Errorf("segment.index.bytes %d is too small", c.SegmentIndexBytes)
	case c.IndexIntervalBytes < 0:
		return fmt.Errorf("index.interval.bytes %d is negative", c.IndexIntervalBytes)
	case c.MinCleanableDirtyRatio < 0 || c.MinCleanableDirtyRatio > 1:
		return fmt.Errorf("min.cleanable.dirty.ratio %v is outside 0..1", c.MinCleanableDirtyRatio)
	}
	return nil
}

// localRetention is what local copies are kept for.
func (c LogConfig) localRetention() (millis, bytes int64) {
	millis, bytes = c.RetentionMillis, c.RetentionBytes
	if !c.offloads() {
		return millis, bytes
	}
	if c.LocalRetentionMillis != -2 {
		millis = c.LocalRetentionMillis
	}
	if c.LocalRetentionBytes != -2 {
		bytes = c.LocalRetentionBytes
	}
	return millis, bytes
}

// offloads says whether sealed segments go to the bucket, so that a local
// copy is not the only one.
func (c LogConfig) offloads() bool { return c.Tiered && !c.CopyDisabled }

// segmentMillis is segment.ms, shortened so that a record can be compacted
// within max.compaction.lag.ms (KIP-354).
func (c LogConfig) segmentMillis() int64 {
	if c.Compact && c.MaxCompactionLagMillis > 0 {
		return min(c.SegmentMillis, c.MaxCompactionLagMillis)
	}
	return c.SegmentMillis
}
