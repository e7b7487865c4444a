package conf

import (
	"errors"
	"strings"
	"testing"
)

func mustBroker(t testing.TB, pairs ...string) *Broker {
	t.Helper()
	b, err := ParseBroker(pairMap(pairs))
	if err != nil {
		t.Fatal(err)
	}
	return &b
}

func pairMap(pairs []string) map[string]string {
	m := make(map[string]string)
	for _, p := range pairs {
		k, v, _ := strings.Cut(p, "=")
		m[k] = v
	}
	return m
}

func TestBrokerIsStrict(t *testing.T) {
	for _, c := range []struct {
		pairs, want string
		is          error
	}{
		{"log.retention.hour=1", "Unknown broker config name: log.retention.hour (did you mean log.retention.hours?)", ErrUnknown},
		{"retention.ms=1", "Unknown broker config name: retention.ms (did you mean log.retention.ms?)", ErrUnknown},
		{"num.partitions=0", "Invalid value 0 for configuration num.partitions: Value must be at least 1", ErrInvalid},
		{"varve.durability=maybe", "Invalid value maybe for configuration varve.durability: String must be one of: fsync, replicated", ErrInvalid},
		{"node.id=1 broker.id=2", "node.id 1 and broker.id 2 differ: set one of them", ErrInvalid},
		{"remote.log.storage.system.enable=true", "remote.log.storage.system.enable is set but varve.tier.store, the bucket, is not", ErrInvalid},
		{"group.min.session.timeout.ms=10 group.max.session.timeout.ms=5", "group.min.session.timeout.ms (10) > group.max.session.timeout.ms (5)", ErrInvalid},
		{"log.retention.ms=0", "log.retention.ms must be unlimited (-1) or, equal or greater than 1", ErrInvalid},
		{"log.retention.hours=-2", "log.retention.ms must be unlimited (-1) or, equal or greater than 1", ErrInvalid},
		{"log.roll.ms=0", "log.roll.ms must be greater than or equal to 1", ErrInvalid},
		{"max.connections.per.ip=0", "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set.", ErrInvalid},
		{"queued.max.request.bytes=5", "queued.max.request.bytes must be larger or equal to socket.request.max.bytes", ErrInvalid},
		{"default.replication.factor=0", "Invalid value 0 for configuration default.replication.factor: Value must be between 1 and 32767", ErrInvalid},
		{"log.dirs=", "", nil},
		{"log.cleaner.min.compaction.lag.ms=10 log.cleaner.max.compaction.lag.ms=5", "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)", ErrInvalid},
	} {
		_, err := ParseBroker(pairMap(strings.Fields(c.pairs)))
		if c.is == nil {
			if err != nil {
				t.Errorf("%s: %v", c.pairs, err)
			}
			continue
		}
		if err == nil || err.Error() != c.want || !errors.Is(err, c.is) {
			t.Errorf("%s\n got %v\nwant %s", c.pairs, err, c.want)
		}
	}
}

func TestBrokerValuesReachTheirFields(t *testing.T) {
	b := mustBroker(t, "node.id=7", "log.dirs=/a, /b", "listeners=PLAINTEXT://:9", "max.connections.per.ip.overrides=10.0.0.1:5,[::1]:6",
		"varve.tier.store=mem:", "varve.disk.reserve.bytes=5", "remote.log.manager.copy.max.bytes.per.second=9")
	if b.NodeID != 7 || len(b.LogDirs) != 2 || b.LogDirs[1] != "/b" || b.AdvertisedListeners != "PLAINTEXT://:9" ||
		b.MaxConnectionsPerIPByHost["10.0.0.1"] != 5 || b.MaxConnectionsPerIPByHost["[::1]"] != 6 || !b.TieringEnabled() ||
		b.VarveDiskReserveBytes != 5 || b.VarveTierUploadMaxBytesPerSecond != 9 {
		t.Errorf("%+v", b)
	}
	d := mustBroker(t)
	if d.NodeID != 1 || d.LogDirs[0] != "/tmp/kafka-logs" || d.VarveDiskReserveBytes != -1 || d.VarveDurability != "fsync" || d.SocketRequestMaxBytes != 100<<20 || d.TieringEnabled() {
		t.Errorf("%+v", d)
	}
	if id := mustBroker(t, "broker.id=4").NodeID; id != 4 {
		t.Errorf("broker.id=4 gives node %d", id)
	}
}

func TestWithPutsDynamicOverGiven(t *testing.T) {
	b := mustBroker(t, "num.partitions=3", "log.retention.ms=5")
	next, err := b.With(map[string]string{"log.retention.ms": "6"})
	if err != nil || next.NumPartitions != 3 {
		t.Fatal(next.NumPartitions, err)
	}
	topic, err := ParseTopic(nil, &next)
	if err != nil || topic.RetentionMillis != 6 {
		t.Fatal(topic.RetentionMillis, err)
	}
	if v, _, given, _ := b.Value("log.retention.ms"); v != "5" || !given {
		t.Error("With changed its receiver")
	}
}

func TestTopicDefaultsComeFromTheBroker(t *testing.T) {
	for _, c := range []struct {
		broker string
		want   int64
	}{
		{"", 168 * hourMillis},
		{"log.retention.hours=2", 2 * hourMillis},
		{"log.retention.hours=2 log.retention.minutes=3", 3 * minuteMillis},
		{"log.retention.hours=2 log.retention.minutes=3 log.retention.ms=4", 4},
		{"log.retention.hours=-1", -1},
	} {
		topic, err := ParseTopic(nil, mustBroker(t, strings.Fields(c.broker)...))
		if err != nil || topic.RetentionMillis != c.want {
			t.Errorf("%q: retention.ms %d, %v; want %d", c.broker, topic.RetentionMillis, err, c.want)
		}
	}
	plain, err := ParseTopic(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if viaBroker, _ := ParseTopic(nil, mustBroker(t)); viaBroker.RetentionMillis != plain.RetentionMillis || viaBroker.SegmentBytes != plain.SegmentBytes || viaBroker.SegmentMillis != plain.SegmentMillis {
		t.Error("the broker's defaults differ from the topic table's")
	}
	if t2, _ := ParseTopic(pairMap([]string{"internal.segment.bytes=100"}), nil); t2.SegmentBytes != 100 {
		t.Error("internal.segment.bytes does not win over segment.bytes")
	}
}

func TestTieredRules(t *testing.T) {
	tiered := mustBroker(t, "varve.tier.store=mem:")
	const disable = "It is invalid to disable remote storage without deleting remote data. If you want to keep the remote data and turn to read only, please set `remote.storage.enable=true,remote.log.copy.disable=true`. If you want to disable remote storage and delete all remote data, please set `remote.storage.enable=false,remote.log.delete.on.disable=true`."
	for _, c := range []struct {
		broker               *Broker
		before, after, error string
	}{
		{tiered, "", "remote.storage.enable=true", ""},
		{tiered, "", "remote.storage.enable=true cleanup.policy=", ""},
		{nil, "", "remote.storage.enable=true", "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."},
		{tiered, "", "remote.storage.enable=true cleanup.policy=compact", "Remote log storage only supports topics with cleanup.policy=delete or cleanup.policy being an empty list."},
		{tiered, "", "remote.storage.enable=true cleanup.policy=compact,delete", "Remote log storage only supports topics with cleanup.policy=delete or cleanup.policy being an empty list."},
		{tiered, "", "remote.storage.enable=true retention.ms=10 local.retention.ms=11", "Invalid value 11 for configuration local.retention.ms: Value must not be more than retention.ms property value: 10"},
		{tiered, "", "remote.storage.enable=true retention.ms=10 local.retention.ms=-1", "Invalid value -1 for configuration local.retention.ms: Value must not be -1 as retention.ms value is set as 10."},
		{tiered, "", "remote.storage.enable=true retention.bytes=10 local.retention.bytes=11", "Invalid value 11 for configuration local.retention.bytes: Value must not be more than retention.bytes property value: 10"},
		{tiered, "", "remote.storage.enable=true retention.bytes=10 local.retention.bytes=-1", "Invalid value -1 for configuration local.retention.bytes: Value must not be -1 as retention.bytes value is set as 10."},
		{tiered, "", "remote.storage.enable=true retention.ms=-1 local.retention.ms=-1", ""},
		{tiered, "", "remote.storage.enable=true local.retention.ms=10 remote.copy.lag.ms=11", "Invalid value 11 for configuration remote.copy.lag.ms: Value must not exceed local.retention.ms (effective value: 10)"},
		{tiered, "", "remote.storage.enable=true retention.bytes=10 remote.copy.lag.bytes=11", "Invalid value 11 for configuration remote.copy.lag.bytes: Value must not exceed local.retention.bytes (effective value: 10)"},
		{tiered, "", "remote.storage.enable=true remote.log.copy.disable=true local.retention.ms=5", "When `remote.log.copy.disable` is set to true, the `local.retention.ms` and `retention.ms` must be set to the identical value because there will be no more logs copied to the remote storage."},
		{tiered, "", "remote.storage.enable=true remote.log.copy.disable=true local.retention.ms=5 retention.ms=5", ""},
		{tiered, "", "remote.storage.enable=true remote.log.copy.disable=true retention.bytes=9 local.retention.bytes=5", "When `remote.log.copy.disable` is set to true, the `local.retention.bytes` and `retention.bytes` must be set to the identical value because there will be no more logs copied to the remote storage."},
		{tiered, "remote.storage.enable=true", "remote.storage.enable=false", disable},
		{tiered, "remote.storage.enable=true", "", disable},
		{tiered, "remote.storage.enable=true", "remote.log.delete.on.disable=true", ""},
		{tiered, "remote.storage.enable=false", "", ""},
		{nil, "", "local.retention.ms=99 retention.ms=1", ""},
	} {
		_, err := ParseTopicChange(pairMap(strings.Fields(c.before)), pairMap(strings.Fields(c.after)), c.broker)
		got := ""
		if err != nil {
			got = err.Error()
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%s: not ErrInvalid", c.after)
			}
		}
		if got != c.error {
			t.Errorf("%s -> %s\n got %s\nwant %s", c.before, c.after, got, c.error)
		}
	}
}

func TestInheritedRetention(t *testing.T) {
	b := mustBroker(t, "varve.tier.store=mem:")
	for _, c := range []struct {
		pairs         string
		millis, bytes int64
	}{
		{"retention.ms=100", 100, -1},
		{"retention.ms=100 local.retention.ms=50", 50, -1},
		{"retention.ms=-1 local.retention.ms=50", 50, -1},
		{"retention.ms=-1 retention.bytes=70 local.retention.bytes=60", -1, 60},
		{"retention.ms=-1 retention.bytes=70", -1, 70},
	} {
		topic, err := ParseTopic(pairMap(strings.Fields(c.pairs+" remote.storage.enable=true")), b)
		if err != nil {
			t.Errorf("%s: %v", c.pairs, err)
		}
		if topic.LocalRetentionMillis() != c.millis || topic.LocalRetentionBytes() != c.bytes {
			t.Errorf("%s: local %d ms, %d bytes", c.pairs, topic.LocalRetentionMillis(), topic.LocalRetentionBytes())
		}
	}
	if topic, _ := ParseTopic(pairMap([]string{"cleanup.policy=compact", "max.compaction.lag.ms=9"}), nil); topic.SegmentMaxMillis() != 9 {
		t.Error("max.compaction.lag.ms does not bound segment.ms")
	}
}

func TestUnknownTopicSettingNamesTheNearest(t *testing.T) {
	_, err := ParseTopic(map[string]string{"retention.msec": "1", "zzz.a": "2"}, nil)
	if !errors.Is(err, ErrUnknown) || err.Error() != "Unknown topic config name: retention.msec (did you mean retention.ms?)" {
		t.Error(err)
	}
}

func BenchmarkParseTopic(b *testing.B) {
	broker := mustBroker(b)
	overrides := map[string]string{"retention.ms": "-1", "segment.bytes": "2097152"}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseTopic(overrides, broker); err != nil {
			b.Fatal(err)
		}
	}
}
