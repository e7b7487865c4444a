package coordinator

import (
	"bytes"
	"strconv"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/integration/fuzztest"
)

// replayFactor is above the 8 that other decoders are held to: a member with the
// shortest of everything is 26 bytes in the log and about 400 as the state of a
// group. The records are the coordinator's own, never a client's, and have been
// such members already before they were written.
const replayFactor = 24

func FuzzReplay(f *testing.F) {
	for _, c := range [][2]string{
		{goldenOffsetKey, goldenOffsetValue}, {goldenOffsetKey, goldenOffsetValueV1}, {goldenGroupKey, goldenGroupValue},
		{"0000 0001 'g' 0001 't' 00000002", "0000 0000000000000005 0001 'm' 0000000000000001"}, {"0003 0001 'g'", "0000"},
	} {
		f.Add(annotated(f, c[0]), annotated(f, c[1]))
	}
	for _, v := range streamsVectors {
		f.Add(v.record.key, v.record.value)
	}
	// The shortest form of what takes most memory.
	many := kmsg.GroupMetadataValue{Version: 3, Protocol: kmsg.StringPtr(""), Members: make([]kmsg.GroupMetadataValueMember, 4000)}
	for i := range many.Members {
		many.Members[i].MemberID = strconv.Itoa(i)
	}
	f.Add(groupKey("g"), many.AppendTo(nil))
	cfg := testConfig()
	f.Fuzz(func(t *testing.T, key, value []byte) {
		var core *core
		var err error
		fuzztest.Within(t, replayFactor*(len(key)+len(value))+fuzztest.Floor, func() {
			core = newCore(&cfg, 0)
			err = core.replay(noProducer, key, value)
		})
		if err != nil {
			if len(core.groups) != 0 {
				t.Fatal("a record that was refused has changed the state")
			}
			return
		}
		core.loaded(0)
		// What was read is written the same way again, but for the version.
		for id, g := range core.groups {
			again := newCore(&cfg, 0)
			for topic, of := range g.offsets {
				for p, o := range of {
					r := offsetRecord(id, topic, p, o)
					if err := again.replay(noProducer, r.key, r.value); err != nil {
						t.Fatal(err)
					}
					if got := again.groups[id].offsets[topic][p]; got.offset != o.offset || got.metadata != o.metadata {
						t.Fatalf("%+v is read back as %+v", o, got)
					}
				}
			}
			if g.persisted {
				r := groupRecord(g)
				if err := again.replay(noProducer, r.key, r.value); err != nil {
					t.Fatal(err)
				}
				if h := again.groups[id]; h.state != g.state || len(h.members) != len(g.members) || h.generation != g.generation {
					t.Fatalf("%+v is read back as %+v", g, h)
				}
			}
		}
		// Time passes without harm.
		core.tick(1 << 50)
	})
}

// FuzzSubscription reads what a member says it subscribes to: bytes that
// clients put into JoinGroup.
func FuzzSubscription(f *testing.F) {
	for v := range int16(4) {
		m := kmsg.ConsumerMemberMetadata{Version: v, Topics: []string{"t", "u"}, UserData: []byte{1}, Generation: 3}
		m.OwnedPartitions = []kmsg.ConsumerMemberMetadataOwnedPartition{{Topic: "t", Partitions: []int32{0, 1}}}
		f.Add(m.AppendTo(nil))
		m.Topics, m.OwnedPartitions = nil, make([]kmsg.ConsumerMemberMetadataOwnedPartition, 5000)
		f.Add(m.AppendTo(nil))
		m.OwnedPartitions = nil
		for i := range 5000 {
			m.Topics = append(m.Topics, strconv.Itoa(i))
		}
		f.Add(m.AppendTo(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		consumer, protocol := consumerProtocol, "range"
		g := newGroup("g", 0)
		g.protocolType, g.protocol = &consumer, &protocol
		g.add(&member{id: "m", protocols: []Protocol{{Name: protocol, Metadata: b}}})
		fuzztest.Bounded(t, len(b), g.readSubscriptions)
		if !g.subscribedKnown {
			if !g.reads("any") {
				t.Fatal("a subscription that cannot be read frees a topic")
			}
			return
		}
		for _, topic := range g.subscribed {
			if !bytes.Contains(b, []byte(topic)) || !g.reads(topic) {
				t.Fatalf("subscribed to %q", topic)
			}
		}
	})
}

// TestEndingALargeGroupTakesLittleMemory: members of a group that leave in the
// order in which they came hand on the lead each time. Each hand-over sorted
// all members, so that a group of 4,000 took seconds to end.
func TestEndingALargeGroupTakesLittleMemory(t *testing.T) {
	const members = 4000
	fuzztest.Within(t, members*1024, func() {
		g := newGroup("g", 0)
		for i := range members {
			g.add(&member{id: strconv.Itoa(i)})
		}
		g.leader = "0"
		for left := range members {
			if g.leader != strconv.Itoa(left) {
				t.Fatalf("%q leads when %d have left", g.leader, left)
			}
			g.remove(g.leader)
		}
		if g.leader != "" {
			t.Fatalf("%q leads an empty group", g.leader)
		}
	})
}
