package coordinator

import (
	"encoding/hex"
	"reflect"
	"testing"
)

// streamsVectors are values as Apache Kafka 4.4.0 writes them.
var streamsVectors = map[string]struct {
	record record
	hex    string
}{
	"group": {
		streamsGroupRecord("g", &streamsGroup{
			epoch: 5, hash: 77, validated: 3, configs: map[string]string{standbyConfig: "1"}, stored: noTopology, failed: noTopology,
		}),
		"000000000005000000000000004d02000400000003011902156e756d2e7374616e6462792e7265706c69636173023100",
	},
	"member": {
		streamsMemberRecord("g", &streamsMember{
			id: "m", instance: new("i"), clientID: "c", clientHost: "/h", rebalanceMillis: 60_000, topologyEpoch: 3, process: "p",
			endpoint: &Endpoint{"e", 40_000}, tags: map[string]string{"k": "v"},
		}),
		"00000269000263032f680000ea600000000302700102659c400002026b02760000",
	},
	"member without what may be left out": {
		streamsMemberRecord("g", &streamsMember{id: "m", rack: new("r"), clientID: "c", clientHost: "/h", rebalanceMillis: 1, process: "p"}),
		"00000002720263032f6800000001000000000270ff0100",
	},
	"target epoch":            {streamsTargetEpochRecord("g", 5, 1234), "00000000000501000800000000000004d2"},
	"target epoch of no time": {streamsTargetEpochRecord("g", 5, 0), "00000000000500"},
	"target": {
		streamsTargetRecord("g", "m", taskSets{active: taskSet{{"0", 2}: 0, {"0", 0}: 0}, standby: taskSet{{"1", 1}: 0}}),
		"0000020230030000000000000002000202310200000001000100",
	},
	"current": {
		streamsCurrentRecord("g", &streamsMember{
			id: "m", epoch: 5, previous: 4, state: memberUnrevoked,
			assigned: taskSets{active: taskSet{{"0", 0}: 4, {"0", 2}: 5}, standby: taskSet{{"1", 1}: 0}},
			revoking: taskSets{active: taskSet{{"1", 0}: 3}},
		}),
		"00000000000500000004010202300300000000000000020100090300000004000000050202310200000001000102023102000000000100050200000003010100",
	},
	"topology": {
		streamsTopologyRecord("g", &Topology{Epoch: 3, Subtopologies: []Subtopology{{
			ID: "0", Sources: []string{"in"}, Sinks: []string{"out"},
			Changelogs:  []InternalTopic{{Name: "log", Replicas: 3, Configs: []TopicConfig{{"cleanup.policy", "compact"}}}},
			Repartition: []InternalTopic{{Name: "rep", Partitions: 4}},
			Copartition: []CopartitionGroup{{Sources: []int16{0}, Repartition: []int16{0}}},
		}}}),
		"0000000000030202300203696e0102046c6f67000000000003020f636c65616e75702e706f6c69637908636f6d70616374000002046f7574020472657000000004000001000202000001020000000000",
	},
}

func TestStreamsRecordsAreKafkas(t *testing.T) {
	for name, v := range streamsVectors {
		if got := hex.EncodeToString(v.record.value); got != v.hex {
			t.Errorf("%s is written\n%s, Kafka writes\n%s", name, got, v.hex)
		}
	}
}

func TestStreamsRecordsAreReadBack(t *testing.T) {
	cfg := testConfig()
	c := newCore(&cfg, 0)
	for name, v := range streamsVectors {
		if err := c.replay(noProducer, v.record.key, v.record.value); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for n := range v.record.value {
			if err := newCore(&cfg, 0).replay(noProducer, v.record.key, v.record.value[:n]); err == nil && n > 0 {
				t.Errorf("%s is taken though only %d of %d bytes are there", name, n, len(v.record.value))
			}
		}
	}
	g := c.groups["g"].streams
	m := g.members["m"]
	if g.epoch != 5 || g.hash != 77 || g.validated != 3 || g.stored != noTopology || g.configs[standbyConfig] != "1" || g.targetEpoch != 5 {
		t.Errorf("the group is %+v", g)
	}
	if m.epoch != 5 || m.previous != 4 || m.state != memberUnrevoked || m.assigned.active[task{"0", 2}] != 5 || !m.revoking.active.has(task{"1", 0}) {
		t.Errorf("the member is %+v", m)
	}
	if s := g.topology.Subtopologies[0]; s.ID != "0" || !reflect.DeepEqual(s.Copartition[0].Repartition, []int16{0}) || s.Changelogs[0].Replicas != 3 {
		t.Errorf("the topology is %+v", s)
	}
	// Everything of a group is gone with the record that says so.
	for _, r := range g.tombstones("g") {
		if err := c.replay(noProducer, r.key, nil); err != nil {
			t.Error(err)
		}
	}
	if c.groups["g"] != nil {
		t.Errorf("after its deletion the group is %+v", c.groups["g"])
	}
}
