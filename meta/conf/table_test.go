package conf

import (
	"os"
	"strings"
	"testing"
)

var kinds = map[string]Kind{"topic": KindTopic, "broker": KindBroker, "group": KindGroup}

// beyondKafka are settings that the tables hold beyond those that Kafka's
// tools list on one node: addresses and identities, which they leave out, and
// settings that Kafka itself hides.
var beyondKafka = map[string]bool{
	"advertised.listeners": true, "listeners": true, "listener.security.protocol.map": true, "log.dirs": true, "node.id": true,
	"controller.quorum.voters": true, "controller.quorum.bootstrap.servers": true,
	"internal.segment.bytes": true, "log.initial.task.delay.ms": true,
	"leader.replication.throttled.rate": true, "follower.replication.throttled.rate": true, "replica.alter.log.dirs.io.max.bytes.per.second": true,
}

func TestDefaultsAreKafkas(t *testing.T) {
	text, err := os.ReadFile("testdata/kafka-4.4.txt")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[Kind]map[string]bool{KindTopic: {}, KindBroker: {}, KindGroup: {}}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "#") {
			continue
		}
		kind, setting, _ := strings.Cut(line, " ")
		name, rest, _ := strings.Cut(setting, "=")
		want, synonym, _ := strings.Cut(rest, " ")
		d, ok := Lookup(kinds[kind], name)
		if !ok {
			t.Errorf("%s setting %s is missing", kind, name)
			continue
		}
		seen[kinds[kind]][name] = true
		got := d.Default
		if d.Null {
			got = "null"
		}
		if got != want {
			t.Errorf("%s setting %s: default %q, Kafka has %q", kind, name, got, want)
		}
		if synonym != "" && d.Synonym != synonym {
			t.Errorf("%s setting %s: synonym %q, Kafka has %q", kind, name, d.Synonym, synonym)
		}
	}
	for kind, names := range seen {
		for _, d := range tableOf(kind).defs {
			if !names[d.Name] && !beyondKafka[d.Name] && !strings.HasPrefix(d.Name, "varve.") {
				t.Errorf("%s setting %s is not Kafka's", kind, d.Name)
			}
		}
	}
}

func TestEveryDefaultIsValidAndEverySettingDocumented(t *testing.T) {
	for _, kind := range kinds {
		for _, d := range tableOf(kind).defs {
			if d.Doc == "" || !strings.HasSuffix(d.Doc, ".") {
				t.Errorf("%s: doc %q is not a sentence", d.Name, d.Doc)
			}
			if d.ReadOnly == d.Dynamic {
				t.Errorf("%s is read-only and dynamic, or neither", d.Name)
			}
			if d.Null {
				continue
			}
			if _, err := d.Parse(d.Default); err != nil {
				t.Errorf("%s: default: %v", d.Name, err)
			}
			if c := d.Canonical(d.Default); c != d.Default {
				t.Errorf("%s: default %q prints as %q", d.Name, d.Default, c)
			}
			for _, s := range d.Synonyms {
				b, ok := Lookup(KindBroker, s.Name)
				if !ok {
					t.Errorf("%s: synonym %s is no broker setting", d.Name, s.Name)
				} else if s.Factor == 1 && !b.Null && len(d.Synonyms) == 1 && b.Default != d.Default {
					t.Errorf("%s: default %q, but %s has %q", d.Name, d.Default, s.Name, b.Default)
				}
			}
		}
	}
}

func TestParseSpeaksAsKafka(t *testing.T) {
	for _, c := range []struct {
		kind              Kind
		name, text, error string
	}{
		{KindTopic, "retention.ms", "abc", "Invalid value abc for configuration retention.ms: Not a number of type LONG"},
		{KindTopic, "retention.ms", "-2", "Invalid value -2 for configuration retention.ms: Value must be at least -1"},
		{KindTopic, "max.message.bytes", "2147483648", "Invalid value 2147483648 for configuration max.message.bytes: Not a number of type INT"},
		{KindTopic, "segment.bytes", "1000", "Invalid value 1000 for configuration segment.bytes: Value must be at least 1048576"},
		{KindTopic, "preallocate", "yes", "Invalid value yes for configuration preallocate: Expected value to be either true or false"},
		{KindTopic, "min.cleanable.dirty.ratio", "1.5", "Invalid value 1.5 for configuration min.cleanable.dirty.ratio: Value must be no more than 1"},
		{KindTopic, "compression.type", "brotli", "Invalid value brotli for configuration compression.type: String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"},
		{KindTopic, "compression.gzip.level", "0", "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1"},
		{KindTopic, "message.timestamp.type", "createtime", "Invalid value createtime for configuration message.timestamp.type: String must be one of: CreateTime, LogAppendTime"},
		{KindTopic, "cleanup.policy", "delete,forget", "Invalid value forget for configuration cleanup.policy: String must be one of: compact, delete"},
		{KindTopic, "cleanup.policy", "delete,delete", "Configuration 'cleanup.policy' values must not be duplicated."},
		{KindTopic, "leader.replication.throttled.replicas", "1-2", "Invalid value [1-2] for configuration leader.replication.throttled.replicas: leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."},
		{KindBroker, "max.connections.per.ip.overrides", "10.0.0.1", `Invalid value 10.0.0.1 for configuration max.connections.per.ip.overrides: "10.0.0.1" is not address:count`},
		{KindGroup, "share.auto.offset.reset", "by_duration:PT", "Invalid value by_duration:PT for configuration share.auto.offset.reset: String must be one of: latest, earliest, by_duration:<duration>"},
		{KindGroup, "share.auto.offset.reset", "by_duration:P2DT3H", ""},
		{KindTopic, "cleanup.policy", "", ""},
		{KindTopic, "retention.ms", " 7 ", ""},
		{KindTopic, "preallocate", "TRUE", ""},
	} {
		d, _ := Lookup(c.kind, c.name)
		_, err := d.Parse(c.text)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != c.error {
			t.Errorf("%s=%q\n got %s\nwant %s", c.name, c.text, got, c.error)
		}
	}
}

func TestCanonicalIsHowJavaPrints(t *testing.T) {
	ratio, _ := Lookup(KindTopic, "min.cleanable.dirty.ratio")
	rate, _ := Lookup(KindBroker, "log.cleaner.io.max.bytes.per.second")
	for text, want := range map[string]string{"1": "1.0", "0.50": "0.5", ".25": "0.25", "1e-4": "1.0E-4", "0": "0.0"} {
		if got := ratio.Canonical(text); got != want {
			t.Errorf("ratio %s: %s, want %s", text, got, want)
		}
	}
	for text, want := range map[string]string{"12345678": "1.2345678E7", "9999999": "9999999.0", "1e300": "1.0E300"} {
		if got := rate.Canonical(text); got != want {
			t.Errorf("rate %s: %s, want %s", text, got, want)
		}
	}
	policy, _ := Lookup(KindTopic, "cleanup.policy")
	if got := policy.Canonical(" compact , delete"); got != "compact,delete" {
		t.Errorf("policy: %q", got)
	}
}

func TestNearest(t *testing.T) {
	for _, c := range []struct {
		kind       Kind
		name, want string
	}{
		{KindTopic, "retention.msec", "retention.ms"},
		{KindTopic, "retension.bytes", "retention.bytes"},
		{KindTopic, "cleanup_policy", "cleanup.policy"},
		{KindBroker, "log.retention.hour", "log.retention.hours"},
		{KindBroker, "varve.durable", "varve.durability"},
		{KindBroker, "zzzzzzzzzzzzzzzz", ""},
		{KindTopic, strings.Repeat("x", 1000), ""},
	} {
		if got := Nearest(c.kind, c.name); got != c.want {
			t.Errorf("Nearest(%s, %.20q) = %q, want %q", c.kind, c.name, got, c.want)
		}
	}
}

func TestThrottledReplicasAreNamedAsKafkaNamesThem(t *testing.T) {
	for list, want := range map[string]bool{"": false, "*": true, "0:2": true, "1:1,0:2": true, " 0:2 ,1:1": true, "0:1,1:2": false, "10:2": false, "0:22": false} {
		if got := Throttles(list, 0, 2); got != want {
			t.Errorf("%q names partition 0 of broker 2: %v", list, got)
		}
	}
}
