package replica

import (
	"github.com/varvelog/varve/hot"
	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/meta/conf"
	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/tier"
)

// settings are a topic's settings in the shapes its parts need; immutable, shared by the topic's partitions.
type settings struct {
	topic conf.Topic
	check batch.ValidateOptions // all but what each append brings
	log   hot.LogConfig
	tier  tier.TopicConfig

	compacts       bool   // cleanup.policy asks for it, and log.cleaner.enable does not stop it
	followThrottle string // follower.replication.throttled.replicas
}

// newSettings reads a topic's overrides over the broker's defaults. archived says whether this broker has a store at all.
func newSettings(name string, overrides map[string]string, b *conf.Broker, archived bool) (*settings, error) {
	t, err := conf.ParseTopic(overrides, b)
	if err != nil {
		return nil, err
	}
	codec, err := batch.ParseCodec(t.CompressionType)
	if err != nil {
		return nil, err
	}
	s := &settings{topic: t, compacts: t.CleanupCompact && b.LogCleanerEnable, followThrottle: overrides["follower.replication.throttled.replicas"]}
	tiered := t.RemoteStorageEnable && archived && !t.CleanupCompact && !topic.IsInternal(name)
	s.check = checks(&t, codec)
	s.log = logConfig(&t, b, tiered)
	s.tier = tier.TopicConfigOf(&t)
	s.tier.Enabled = tiered
	s.tier.Topic = &tier.TopicInfo{Name: name, Configs: overrides}
	return s, nil
}

// checks are what the topic asks of every batch.
func checks(t *conf.Topic, codec batch.Codec) batch.ValidateOptions {
	o := batch.ValidateOptions{
		MaxBytes:    int(t.MaxMessageBytes),
		BeforeMaxMs: t.TimestampBeforeMaxMillis, AfterMaxMs: t.TimestampAfterMaxMillis,
		Compression: codec,
		GzipLevel:   int(t.CompressionGzipLevel), LZ4Level: int(t.CompressionLz4Level), ZstdLevel: int(t.CompressionZstdLevel),
		Compacted: t.CleanupCompact,
		Limits:    batch.Limits{MaxBytes: int64(t.MaxDecompressedMessageBytes)},
	}
	if t.TimestampLogAppend {
		o.TimestampType = batch.LogAppendTime
	}
	return o
}

// validation is checks with what one append brings.
func (s *settings) validation(r AppendRequest, partition string) batch.ValidateOptions {
	o := s.check
	o.Now, o.ProduceVersion, o.Origin, o.Partition = r.Now, r.Version, r.Origin, partition
	return o
}

func logConfig(t *conf.Topic, b *conf.Broker, tiered bool) hot.LogConfig {
	return hot.LogConfig{
		SegmentBytes: int64(t.SegmentBytes), SegmentMillis: t.SegmentMaxMillis(), SegmentJitterMillis: t.SegmentJitterMillis,
		SegmentIndexBytes: int64(t.SegmentIndexBytes), IndexIntervalBytes: int64(t.IndexIntervalBytes),
		Delete: t.CleanupDelete, Compact: t.CleanupCompact,
		RetentionMillis: t.RetentionMillis, RetentionBytes: t.RetentionBytes,
		LocalRetentionMillis: t.LocalRetentionMillisConfigured, LocalRetentionBytes: t.LocalRetentionBytesConfigured,
		Tiered: tiered, CopyDisabled: t.RemoteLogCopyDisable,
		FileDeleteDelay:       t.FileDeleteDelayMillis,
		DeleteRetentionMillis: t.DeleteRetentionMillis, MinCompactionLagMillis: t.MinCompactionLagMillis,
		MaxCompactionLagMillis: t.MaxCompactionLagMillis, MinCleanableDirtyRatio: t.MinCleanableDirtyRatio,
		CompactionBufferBytes: b.LogCleanerDedupeBufferBytes, ProducerExpirationMillis: int64(b.ProducerIDExpirationMillis),
	}
}
