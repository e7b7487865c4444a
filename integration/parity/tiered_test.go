package parity

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/integration/kafkatest"
	"github.com/varvelog/varve/integration/nodetest"
)

// TestTieredAnswersEqualApacheKafkas runs the stories of tiered topics against
// a Kafka that tiers to a folder and a Varve that does.
func TestTieredAnswersEqualApacheKafkas(t *testing.T) {
	needsJava(t)
	expected := readDifferences(t)
	kafka := kafkatest.StartTiered(t, clientsDir(), settings...).Bootstrap
	varve := nodetest.Start(t, t.TempDir(), "--set", settings[0], "--set", settings[1], "--set", "log.retention.check.interval.ms=300").Bootstrap
	for _, st := range tieredStories() {
		st.compare(t, kafka, varve, expected)
	}
	if !t.Failed() {
		expected.unused(t, true)
	}
}

func tieredStories() []story {
	return []story{
		{"tiered settings", tieredSettings},
		{"tiered offsets and reads", tieredLife},
		{"tiered topic, nothing in it", tieredEmpty},
	}
}

func tieredSettings(s *session) {
	for i, settings := range []map[string]string{
		{"remote.storage.enable": "true"},
		{"remote.storage.enable": "true", "cleanup.policy": "compact"},
		{"remote.storage.enable": "true", "cleanup.policy": "compact,delete"},
		{"remote.storage.enable": "true", "cleanup.policy": ""},
		{"remote.storage.enable": "true", "retention.ms": "5", "local.retention.ms": "6"},
		{"remote.storage.enable": "true", "retention.ms": "5", "local.retention.ms": "5"},
		{"remote.storage.enable": "true", "retention.ms": "5", "local.retention.ms": "-1"},
		{"remote.storage.enable": "true", "retention.ms": "5", "local.retention.ms": "-2"},
		{"remote.storage.enable": "true", "retention.ms": "-1", "local.retention.ms": "-1"},
		{"remote.storage.enable": "true", "retention.bytes": "5", "local.retention.bytes": "6"},
		{"remote.storage.enable": "true", "retention.bytes": "5", "local.retention.bytes": "-1"},
		{"remote.storage.enable": "true", "retention.bytes": "-1", "local.retention.bytes": "7"},
		{"remote.storage.enable": "true", "remote.log.copy.disable": "true"},
		{"remote.storage.enable": "true", "remote.log.copy.disable": "true", "local.retention.ms": "5"},
		{"remote.storage.enable": "true", "remote.log.copy.disable": "true", "local.retention.ms": "604800000"},
		{"remote.storage.enable": "true", "remote.log.copy.disable": "true", "local.retention.bytes": "5"},
		{"remote.storage.enable": "true", "remote.log.delete.on.disable": "true"},
		{"remote.storage.enable": "true", "remote.copy.lag.ms": "-1"},
		{"remote.storage.enable": "true", "remote.copy.lag.ms": "5", "local.retention.ms": "4"},
		{"remote.storage.enable": "true", "remote.copy.lag.bytes": "5", "local.retention.bytes": "4"},
		{"remote.storage.enable": "true", "remote.copy.lag.ms": "700000000"},
	} {
		s.ask(fmt.Sprint(settings), 7, createRequest(newTopic("ts-"+string(rune('a'+i)), 1, 1, settings)))
	}
	createTopic(s, "ts-live", 1, map[string]string{"remote.storage.enable": "true"})
	for _, changes := range [][]change{
		{{"remote.storage.enable", opSet, str("false")}},
		{{"remote.storage.enable", opDelete, nil}},
		{{"cleanup.policy", opSet, str("compact")}},
		{{"local.retention.ms", opSet, str("700000000")}},
		{{"remote.log.copy.disable", opSet, str("true")}},
		{{"remote.log.copy.disable", opSet, str("true")}, {"local.retention.ms", opSet, str("5")}},
		{{"remote.storage.enable", opSet, str("false")}, {"remote.log.delete.on.disable", opSet, str("true")}},
	} {
		name := ""
		for _, c := range changes {
			name += " " + c.name
		}
		s.ask("alter"+name, 1, incrementalRequest(resourceTopic, "ts-live", changes...))
	}
	createTopic(s, "ts-compact", 1, map[string]string{"cleanup.policy": "compact"})
	s.ask("tier a compacted topic", 1, incrementalRequest(resourceTopic, "ts-compact", change{"remote.storage.enable", opSet, str("true")}))
}

// tieredTopic makes a topic of small segments that leave local disk soon.
func tieredTopic(s *session, name string) {
	createTopic(s, name, 1, map[string]string{
		"remote.storage.enable": "true", "retention.ms": "-1", "local.retention.ms": "1", "internal.segment.bytes": "600",
	})
}

// shortly names a timestamp: a special one by its number.
func shortly(ts int64) string {
	if ts < 0 {
		return fmt.Sprint(ts)
	}
	return sinceRun(ts)
}

// offsetNow is what ListOffsets says of a special timestamp.
func offsetNow(s *session, topic string, timestamp int64) int64 {
	resp, _ := s.quiet(11, listRequest(topic, 0, timestamp)).(*kmsg.ListOffsetsResponse)
	if resp == nil || resp.Topics[0].Partitions[0].ErrorCode != 0 {
		return -99
	}
	return resp.Topics[0].Partitions[0].Offset
}

// tieredLife writes twelve batches of two records, two to a segment, and asks
// about them when all segments are in the bucket and gone from local disk: the
// active one is sealed when its local time is up.
func tieredLife(s *session) {
	tieredTopic(s, "tl")
	for i := range 12 {
		b := batch(fmt.Sprint("v", i), strings.Repeat("x", 100))
		b.firstTS = recent + int64(100*i)
		s.quiet(12, produceRequest(-1, "tl", [16]byte{}, 0, b.bytes()))
	}
	nodetest.Eventually(s.t, 60*time.Second, "sealed segments leave local disk", func() error {
		if local, remote := offsetNow(s, "tl", -4), offsetNow(s, "tl", -5); local != 24 || remote != 23 {
			return fmt.Errorf("local start %d, latest tiered %d", local, remote)
		}
		return nil
	})
	versions(1, 11, func(v int16) {
		for _, ts := range []int64{-1, -2, -3, -4, -5, -6} {
			listOffset(s, fmt.Sprint("special ", ts), v, "tl", ts)
		}
	})
	for _, d := range []int64{-1, 0, 1, 2, 99, 100, 555, 1100, 1101, 1102} {
		listOffset(s, fmt.Sprint("at ", d), 7, "tl", recent+d)
	}
	readAll(s, "read all", "tl", 0)
	readAll(s, "read from inside a batch", "tl", 7)
	for _, offset := range []int64{-1, 25} {
		fetchOne(s, fmt.Sprint("offset ", offset), 12, "tl", offset)
	}
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.TimeoutMillis = 10_000
	t := kmsg.NewDeleteRecordsRequestTopic()
	t.Topic = "tl"
	p := kmsg.NewDeleteRecordsRequestTopicPartition()
	p.Offset = 9
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	s.ask("delete records", 2, req)
	fetchOne(s, "below the new start", 12, "tl", 8)
	readAll(s, "read from the new start", "tl", 9)
	for _, ts := range []int64{-2, -3, -5, recent, recent + 401} {
		listOffset(s, fmt.Sprint("after that ", shortly(ts)), 11, "tl", ts)
	}
}

func tieredEmpty(s *session) {
	tieredTopic(s, "te")
	for _, ts := range []int64{-1, -2, -3, -4, -5, -6, recent} {
		listOffset(s, fmt.Sprint("list ", shortly(ts)), 11, "te", ts)
	}
	fetchOne(s, "fetch", 12, "te", 0)
}

// readAll reads a partition to its end and writes down every batch, however
// many answers they came in.
func readAll(s *session, step, topic string, offset int64) {
	at, n := offset, 0
	nodetest.Eventually(s.t, 20*time.Second, "read to the end", func() error {
		for {
			req := fetchRequest(want{topic: topic, offset: at})
			req.MaxWaitMillis = 2000
			resp, _ := s.quiet(12, req).(*kmsg.FetchResponse)
			if resp == nil || len(resp.Topics) == 0 {
				return errors.New("no answer")
			}
			p := &resp.Topics[0].Partitions[0]
			if p.ErrorCode != 0 {
				s.note(step, "%s at %d", errorName(p.ErrorCode), at)
				return nil
			}
			if at >= p.HighWatermark {
				return nil
			}
			next := wholeBatches(p.RecordBatches)
			if len(next) == 0 {
				return errors.New("nothing yet")
			}
			for _, raw := range next {
				s.records(fmt.Sprintf("%s %d", step, n), "", raw)
				var b kmsg.RecordBatch
				if err := b.ReadFrom(raw); err != nil {
					s.t.Fatal(err)
				}
				at, n = b.FirstOffset+int64(b.LastOffsetDelta)+1, n+1
			}
		}
	})
}

// wholeBatches cuts what a fetch gave into batches; a part of one at its end is
// left out.
func wholeBatches(b []byte) [][]byte {
	var out [][]byte
	for len(b) > 61 {
		var batch kmsg.RecordBatch
		if batch.ReadFrom(b) != nil {
			break
		}
		n := 12 + int(batch.Length)
		out = append(out, b[:n])
		b = b[n:]
	}
	return out
}
