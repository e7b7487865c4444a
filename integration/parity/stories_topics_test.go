package parity

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/integration/nodetest"
)

func topicStories() []story {
	return []story{
		{"create topics in every version", createVersions},
		{"create topics, odd ones", createOdd},
		{"create topics with settings", createSettings},
		{"create topics with remote storage", createRemote},
		{"delete topics", deleteTopics},
		{"create partitions", createPartitions},
		{"describe log dirs", logDirs},
	}
}

func createRequest(topics ...kmsg.CreateTopicsRequestTopic) *kmsg.CreateTopicsRequest {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 20_000
	req.Topics = topics
	return req
}

func newTopic(name string, partitions int32, replicas int16, settings map[string]string) kmsg.CreateTopicsRequestTopic {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, partitions, replicas
	for k, v := range settings {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = k, &v
		t.Configs = append(t.Configs, c)
	}
	return t
}

// createTopic makes a topic and waits until its partitions are led; nothing is
// written down.
func createTopic(s *session, name string, partitions int32, settings map[string]string) [16]byte {
	resp, _ := s.quiet(7, createRequest(newTopic(name, partitions, 1, settings))).(*kmsg.CreateTopicsResponse)
	if resp == nil || resp.Topics[0].ErrorCode != 0 {
		s.note("setup", "create topic %s: %+v", name, resp)
		return [16]byte{}
	}
	nodetest.Eventually(s.t, 20*time.Second, "partitions of "+name+" are led", func() error {
		md, _ := s.quiet(9, metadataRequest(name)).(*kmsg.MetadataResponse)
		if md == nil || len(md.Topics) != 1 || md.Topics[0].ErrorCode != 0 || int32(len(md.Topics[0].Partitions)) != partitions {
			return errors.New("not yet in metadata")
		}
		for _, p := range md.Topics[0].Partitions {
			if p.ErrorCode != 0 || p.Leader < 0 {
				return errors.New("no leader yet")
			}
			// A leader can be named before it serves.
			lo, _ := s.quiet(7, listRequest(name, p.Partition, -1)).(*kmsg.ListOffsetsResponse)
			if lo == nil || lo.Topics[0].Partitions[0].ErrorCode != 0 {
				return errors.New("leader does not serve yet")
			}
		}
		return nil
	})
	return resp.Topics[0].TopicID
}

func createVersions(s *session) {
	versions(2, 7, func(v int16) {
		name := "create-" + string(rune('a'+v))
		s.ask("create", v, createRequest(newTopic(name, 1, 1, nil)))
		s.ask("again", v, createRequest(newTopic(name, 1, 1, nil)))
		s.ask("two replicas of one broker", v, createRequest(newTopic(name+"x", 1, 2, nil)))
		s.ask("unknown setting", v, createRequest(newTopic(name+"y", 1, 1, map[string]string{"no.such": "1"})))
	})
	versions(4, 7, func(v int16) {
		name := "create-default-" + string(rune('a'+v))
		s.ask("defaults", v, createRequest(newTopic(name, -1, -1, nil)))
	})
	s.ask("defaults before they are allowed", 3, createRequest(newTopic("create-early", -1, -1, nil)))
}

func createOdd(s *session) {
	ask := func(step string, topics ...kmsg.CreateTopicsRequestTopic) { s.ask(step, 7, createRequest(topics...)) }
	ask("no topics")
	ask("no partitions", newTopic("odd-a", 0, 1, nil))
	ask("minus two partitions", newTopic("odd-a", -2, 1, nil))
	ask("no replicas", newTopic("odd-a", 1, 0, nil))
	ask("minus two replicas", newTopic("odd-a", 1, -2, nil))
	ask("empty name", newTopic("", 1, 1, nil))
	ask("dot", newTopic(".", 1, 1, nil))
	ask("bad character", newTopic("odd/a", 1, 1, nil))
	long := make([]byte, 250)
	for i := range long {
		long[i] = 'x'
	}
	ask("too long", newTopic(string(long), 1, 1, nil))
	ask("twice in one request", newTopic("odd-twice", 1, 1, nil), newTopic("odd-twice", 1, 1, nil))
	ask("underscore", newTopic("odd_c", 1, 1, nil))
	ask("dot against underscore", newTopic("odd.c", 1, 1, nil))
	ask("internal name", newTopic("__consumer_offsets_not", 1, 1, nil))
	assigned := newTopic("odd-assigned", -1, -1, nil)
	ra := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
	ra.Partition, ra.Replicas = 0, []int32{1}
	assigned.ReplicaAssignment = append(assigned.ReplicaAssignment, ra)
	ask("assigned", assigned)
	both := assigned
	both.Topic, both.NumPartitions = "odd-both", 1
	ask("assigned and counted", both)
	gap := assigned
	gap.Topic = "odd-gap"
	ra.Partition = 1
	gap.ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{ra}
	ask("assigned with a gap", gap)
	ra.Partition, ra.Replicas = 0, []int32{9}
	gap.ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{ra}
	ask("assigned to a stranger", gap)
	ra.Replicas = []int32{1, 1}
	gap.ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{ra}
	ask("assigned twice to one", gap)
	only := createRequest(newTopic("odd-validate", 3, 1, map[string]string{"retention.ms": "5"}))
	only.ValidateOnly = true
	s.ask("validate only", 7, only)
	s.ask("validate only left nothing", 9, metadataRequest("odd-validate"))
}

func createSettings(s *session) {
	i := 0
	for _, c := range []struct{ step, name, value string }{
		{"not a number", "retention.ms", "soon"},
		{"below the range", "retention.ms", "-2"},
		{"segment too small", "segment.bytes", "1"},
		{"bad policy", "cleanup.policy", "shred"},
		{"both policies", "cleanup.policy", "compact,delete"},
		{"policy none", "cleanup.policy", ""},
		{"bad codec", "compression.type", "rar"},
		{"good codec", "compression.type", "zstd"},
		{"zstd level", "compression.zstd.level", "99"},
		{"ratio above one", "min.cleanable.dirty.ratio", "1.5"},
		{"not a bool", "preallocate", "maybe"},
		{"timestamp type", "message.timestamp.type", "Whenever"},
		{"no in-sync replicas", "min.insync.replicas", "0"},
		{"max message", "max.message.bytes", "-1"},
		{"replicas to throttle", "leader.replication.throttled.replicas", "x"},
		{"compaction lags", "max.compaction.lag.ms", "0"},
		{"local above total", "local.retention.bytes", "5"},
	} {
		i++
		t := newTopic("settings-"+string(rune('a'+i)), 1, 1, map[string]string{c.name: c.value})
		s.ask(c.step, 7, createRequest(t))
	}
	null := newTopic("settings-null", 1, 1, nil)
	cfg := kmsg.NewCreateTopicsRequestTopicConfig()
	cfg.Name = "retention.ms"
	null.Configs = append(null.Configs, cfg)
	s.ask("null value", 7, createRequest(null))
}

// createRemote asks for tiered topics where there is no remote storage.
func createRemote(s *session) {
	for i, settings := range []map[string]string{
		{"remote.storage.enable": "true"},
		{"remote.storage.enable": "perhaps"},
		{"remote.storage.enable": "true", "cleanup.policy": "compact"},
		{"remote.storage.enable": "false", "local.retention.ms": "5"},
		{"local.retention.ms": "5", "retention.ms": "4"},
		{"local.retention.ms": "-3"},
		{"local.retention.bytes": "-2"},
		{"remote.log.copy.disable": "true"},
		{"remote.log.delete.on.disable": "true"},
		{"remote.copy.lag.ms": "5"},
		{"remote.copy.lag.ms": "-2"},
		{"remote.copy.lag.bytes": "7"},
	} {
		s.ask(fmt.Sprint(settings), 7, createRequest(newTopic("remote-"+string(rune('a'+i)), 1, 1, settings)))
	}
	createTopic(s, "remote-later", 1, nil)
	for _, c := range []change{
		{"remote.storage.enable", opSet, str("true")}, {"remote.storage.enable", opSet, str("false")},
		{"local.retention.ms", opSet, str("5")}, {"remote.log.copy.disable", opSet, str("true")},
	} {
		s.ask("alter "+c.name+" to "+*c.value, 1, incrementalRequest(resourceTopic, "remote-later", c))
	}
}

func deleteRequest(v int16, names ...string) *kmsg.DeleteTopicsRequest {
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TimeoutMillis = 20_000
	req.TopicNames = names
	for _, name := range names {
		t := kmsg.NewDeleteTopicsRequestTopic()
		t.Topic = &name
		req.Topics = append(req.Topics, t)
	}
	return req
}

func deleteTopics(s *session) {
	versions(1, 6, func(v int16) {
		createTopic(s, "del", 1, nil)
		s.ask("delete and an unknown one", v, deleteRequest(v, "del", "del-none"))
		nodetest.Eventually(s.t, 20*time.Second, "topic is gone from metadata", func() error {
			md, _ := s.quiet(9, metadataRequest("del")).(*kmsg.MetadataResponse)
			if md == nil || md.Topics[0].ErrorCode != 3 {
				return errors.New("still there")
			}
			return nil
		})
	})
	s.ask("twice in one request", 6, deleteRequest(6, "del-x", "del-x"))
	s.ask("nothing", 6, deleteRequest(6))
	id := createTopic(s, "del-id", 1, nil)
	byID := func(step string, id [16]byte, name *string) {
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.TimeoutMillis = 20_000
		t := kmsg.NewDeleteTopicsRequestTopic()
		t.TopicID, t.Topic = id, name
		req.Topics = append(req.Topics, t)
		s.ask(step, 6, req)
	}
	name := "del-id"
	byID("id and name", id, &name)
	byID("unknown id", [16]byte{9}, nil)
	byID("neither", [16]byte{}, nil)
	byID("by id", id, nil)
}

func createPartitions(s *session) {
	createTopic(s, "grow", 2, nil)
	ask := func(step string, v int16, name string, count int32, only bool, assignment ...[]int32) {
		req := kmsg.NewPtrCreatePartitionsRequest()
		req.TimeoutMillis, req.ValidateOnly = 20_000, only
		t := kmsg.NewCreatePartitionsRequestTopic()
		t.Topic, t.Count = name, count
		for _, replicas := range assignment {
			a := kmsg.NewCreatePartitionsRequestTopicAssignment()
			a.Replicas = replicas
			t.Assignment = append(t.Assignment, a)
		}
		req.Topics = append(req.Topics, t)
		s.ask(step, v, req)
	}
	versions(0, 3, func(v int16) {
		ask("grow", v, "grow", 3+int32(v), false)
		ask("shrink", v, "grow", 1, false)
		ask("as it is", v, "grow", 3+int32(v), false)
		ask("unknown", v, "grow-none", 3, false)
	})
	ask("minus one", 3, "grow", -1, false)
	ask("validate only", 3, "grow", 9, true)
	ask("assigned", 3, "grow", 7, false, []int32{1})
	ask("assigned too few", 3, "grow", 9, false, []int32{1})
	ask("assigned to a stranger", 3, "grow", 8, false, []int32{5})
	ask("assigned more replicas", 3, "grow", 8, false, []int32{1, 1})
	s.ask("metadata after", 9, metadataRequest("grow"))
	twice := kmsg.NewPtrCreatePartitionsRequest()
	t := kmsg.NewCreatePartitionsRequestTopic()
	t.Topic, t.Count = "grow", 20
	twice.Topics, twice.TimeoutMillis = append(twice.Topics, t, t), 20_000
	s.ask("twice in one request", 3, twice)
	s.ask("nothing", 3, kmsg.NewPtrCreatePartitionsRequest())
	ask("far too many", 3, "grow", 20_000, false)
}

func logDirs(s *session) {
	createTopic(s, "dirs", 2, nil)
	ask := func() *kmsg.DescribeLogDirsRequest {
		req := kmsg.NewPtrDescribeLogDirsRequest()
		t := kmsg.NewDescribeLogDirsRequestTopic()
		t.Topic, t.Partitions = "dirs", []int32{0, 1, 7}
		req.Topics = append(req.Topics, t)
		return req
	}
	nodetest.Eventually(s.t, 20*time.Second, "both logs exist", func() error {
		resp, _ := s.quiet(4, ask()).(*kmsg.DescribeLogDirsResponse)
		if resp == nil || len(resp.Dirs) != 1 || len(resp.Dirs[0].Topics) != 1 || len(resp.Dirs[0].Topics[0].Partitions) != 2 {
			return errors.New("not yet")
		}
		return nil
	})
	versions(1, 4, func(v int16) { s.ask("two partitions and an unknown", v, ask()) })
	req := kmsg.NewPtrDescribeLogDirsRequest()
	req.Topics = []kmsg.DescribeLogDirsRequestTopic{}
	s.ask("no topics", 4, req)
	s.quiet(12, produceRequest(-1, "dirs", [16]byte{}, 0, batch("a", "b").bytes()))
	s.ask("with records", 4, ask())
}
