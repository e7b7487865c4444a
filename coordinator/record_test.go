package coordinator

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/varvelog/varve/meta/topic"
)

// annotated reads hex with comments: what follows a # is one.
func annotated(t testing.TB, text string) []byte {
	t.Helper()
	var digits strings.Builder
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		for _, word := range strings.Fields(line) {
			if quoted, ok := strings.CutPrefix(word, "'"); ok {
				digits.WriteString(hex.EncodeToString([]byte(strings.TrimSuffix(quoted, "'"))))
			} else {
				digits.WriteString(word)
			}
		}
	}
	b, err := hex.DecodeString(digits.String())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const (
	goldenOffsetKey = `
		0001            # version: an offset
		0001 'g'        # group
		0001 't'        # topic
		00000002        # partition`
	goldenOffsetValue = `
		0004                                # version
		00000000000003e8                    # offset
		00000007                            # leader epoch
		05 'note'                           # metadata, length + 1
		0000018bcfe56800                    # committed, ms
		01 00 10                            # one tagged field: 0, of 16 bytes
		000102030405060708090a0b0c0d0e0f    # topic id`
	goldenOffsetValueV1 = `
		0001                # version
		00000000000003e8    # offset
		0004 'note'         # metadata
		0000018bcfe56800    # committed, ms
		0000018bcfe56be8    # expires, ms`
	goldenGroupKey = `
		0002        # version: a group
		0001 'g'    # group`
	goldenGroupValue = `
		0003                    # version
		0008 'consumer'         # protocol type
		00000005                # generation
		0005 'range'            # protocol
		0003 'c-1'              # leader
		0000018bcfe56800        # since, ms
		00000002                # members
		  0003 'c-1'            # id
		  ffff                  # instance: none
		  0001 'c'              # client
		  000a '/127.0.0.1'     # host
		  0000ea60              # rebalance timeout, ms
		  00002710              # session timeout, ms
		  00000002 0001         # subscription
		  00000003 'one'        # assignment
		  0003 'i-2'
		  0001 'i'              # instance
		  0001 'd'
		  000a '/127.0.0.2'
		  0000ea60
		  00002710
		  00000002 0002
		  00000000              # assignment: empty`
)

func goldenID() (id topic.ID) {
	for i := range id {
		id[i] = byte(i)
	}
	return id
}

func goldenGroup() *group {
	g := newGroup("g", 1_700_000_000_000)
	consumer, protocol, instance := consumerProtocol, "range", "i"
	g.protocolType, g.protocol, g.generation, g.state = &consumer, &protocol, 5, Stable
	for i, m := range []*member{
		{id: "c-1", clientID: "c", clientHost: "/127.0.0.1", assignment: []byte("one")},
		{id: "i-2", instance: &instance, clientID: "d", clientHost: "/127.0.0.2", assignment: []byte{}},
	} {
		m.sessionMillis, m.rebalanceMillis = 10_000, 60_000
		m.protocols = []Protocol{{"other", []byte("x")}, {"range", []byte{0, byte(i + 1)}}}
		g.add(m)
	}
	return g
}

func TestRecordsAreKafkasByteForByte(t *testing.T) {
	o := offset{offset: 1000, leaderEpoch: 7, metadata: "note", committed: 1_700_000_000_000, expires: -1, id: goldenID()}
	kept := o
	kept.expires = o.committed + 1000
	for _, c := range []struct {
		name       string
		got        record
		key, value string
	}{
		{"offset", offsetRecord("g", "t", 2, &o), goldenOffsetKey, goldenOffsetValue},
		{"offset with its own retention", offsetRecord("g", "t", 2, &kept), goldenOffsetKey, goldenOffsetValueV1},
		{"offset tombstone", offsetTombstone("g", "t", 2), goldenOffsetKey, ""},
		{"group", groupRecord(goldenGroup()), goldenGroupKey, goldenGroupValue},
		{"group tombstone", groupTombstone("g"), goldenGroupKey, ""},
	} {
		if want := annotated(t, c.key); !bytes.Equal(c.got.key, want) {
			t.Errorf("%s: key\n% x, want\n% x", c.name, c.got.key, want)
		}
		if want := annotated(t, c.value); !bytes.Equal(c.got.value, want) {
			t.Errorf("%s: value\n% x, want\n% x", c.name, c.got.value, want)
		}
		if c.value == "" && c.got.value != nil {
			t.Errorf("%s: value is empty, not null", c.name)
		}
	}
}

func TestRecordsOfEveryVersionAreRead(t *testing.T) {
	for _, c := range []struct{ name, key, value, want string }{
		{"offset v0", "0000 0001 'g' 0001 't' 00000002", "0000 0000000000000005 0001 'm' 0000000000000001", "t/2=5"},
		{"offset v1", goldenOffsetKey, goldenOffsetValueV1, "t/2=1000"},
		{"offset v2", goldenOffsetKey, "0002 0000000000000006 0000 0000000000000001", "t/2=6"},
		{"offset v3", goldenOffsetKey, "0003 0000000000000007 00000001 0000 0000000000000001", "t/2=7"},
		{"offset v4", goldenOffsetKey, goldenOffsetValue, "t/2=1000"},
	} {
		cfg := testConfig()
		core := newCore(&cfg, 0)
		if err := core.replay(noProducer, annotated(t, c.key), annotated(t, c.value)); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		core.step(event{ticket: 1, body: &FetchOffsetsRequest{Group: "g", All: true}}, 0)
		if got := showReply(core.take().replies[0]); got != "ok "+c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	// Group values before 3 lack instances, the time of the state, and the rebalance timeout.
	head := "0008 'consumer' 00000005 0005 'range' 0003 'c-1' "
	for _, c := range []struct {
		name, value string
		rebalance   int64
	}{
		{"group v0", "0000" + head + "00000001 0003 'c-1' 0001 'c' 0001 'h' 00002710 00000001 00 00000001 01", 10_000},
		{"group v1", "0001" + head + "00000001 0003 'c-1' 0001 'c' 0001 'h' 0000ea60 00002710 00000001 00 00000001 01", 60_000},
		{"group v2", "0002" + head + "0000000000000001 00000001 0003 'c-1' 0001 'c' 0001 'h' 0000ea60 00002710 00000001 00 00000001 01", 60_000},
	} {
		cfg := testConfig()
		core := newCore(&cfg, 0)
		if err := core.replay(noProducer, annotated(t, goldenGroupKey), annotated(t, c.value)); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		g := core.groups["g"]
		m := g.members["c-1"]
		if g.state != Stable || g.generation != 5 || g.leader != "c-1" || m == nil || m.rebalanceMillis != c.rebalance || m.sessionMillis != 10_000 {
			t.Errorf("%s: %+v %+v", c.name, g, m)
		}
	}
}

func TestUnknownAndBrokenRecordsChangeNothing(t *testing.T) {
	cfg := testConfig()
	core := newCore(&cfg, 0)
	// Of a kind that a later release writes: passed over.
	if err := core.replay(noProducer, annotated(t, "00ff 0001 'g'"), annotated(t, "0000 00000001 00")); err != nil {
		t.Errorf("a record of another kind: %v", err)
	}
	for _, c := range [][2]string{
		{"", "0000"}, {"00", ""}, {"0001 0005 'g'", goldenOffsetValue}, {goldenOffsetKey, "0004 00"}, {goldenOffsetKey, "0009" + goldenOffsetValue},
		{goldenGroupKey, "0003 0008"}, {goldenGroupKey, "7fff" + goldenGroupValue},
		{goldenGroupKey, "0003 0008 'consumer' 00000005 ffff ffff 0000018bcfe56800 00000001 0003 'c-1' ffff 0001 'c' 0001 'h' 00000001 00000001 00000000 00000000"},
	} {
		if err := core.replay(noProducer, annotated(t, c[0]), annotated(t, c[1])); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", c[0], err)
		}
	}
	if len(core.groups) != 0 {
		t.Errorf("groups %v", core.groups)
	}
}
