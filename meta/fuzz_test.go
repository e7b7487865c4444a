package meta

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/varvelog/varve/integration/fuzztest"
	"github.com/varvelog/varve/meta/topic"
)

// stateFactor is how many bytes decoding commands and images may allocate per
// byte of input. It is above the 8 of the other decoders because what they decode to is the state itself, in which a partition
// is 160 bytes for 8 of encoding at least, a change of a partition 160 for 2, and
// a group with one setting a map of 400 for 8. Both come from the controller of this cluster, under a checksum and through
// raft; no client can send one.
const stateFactor = 96

// FuzzSnapshotFile reads what lies around an image in its file, raft's members
// included.
func FuzzSnapshotFile(f *testing.F) {
	quorum := raft.Configuration{Servers: []raft.Server{{Suffrage: raft.Voter, ID: "1", Address: "h:1"}}}
	e := encoder{b: []byte(snapshotFileMagic)}
	e.u8(snapshotFileVersion)
	for _, v := range []uint64{7, 2, 1} {
		e.uint(v)
	}
	e.bytes(raft.EncodeConfiguration(quorum))
	f.Add(append(e.b, newImage().EncodeSnapshot()...))
	f.Fuzz(func(t *testing.T, b []byte) {
		b = sum(b)
		id := snapshotID(7, 2)
		var m *raft.SnapshotMeta
		var image []byte
		var err error
		fuzztest.Bounded(t, len(b), func() { m, image, err = decodeSnapshotFile(id, b) })
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
				t.Fatal(err)
			}
			return
		}
		if m.ID != id || m.Index != 7 || m.Term != 2 || m.Size != int64(len(image)) || len(image) > len(b) {
			t.Fatalf("%+v with %d bytes", m, len(image))
		}
	})
}

func FuzzIdentity(f *testing.F) {
	f.Add([]byte("version=1\nnode.id=3\ncluster.id=abc\n"))
	f.Add([]byte("version=1\nnode.id=3\ndirectory.id=AQAAAAAAAAAAAAAAAAAAAA\nfounders=1@AQAAAAAAAAAAAAAAAAAAAA,3@AgAAAAAAAAAAAAAAAAAAAA\nformed=true\n"))
	f.Add([]byte("# a comment\n version = 1\nnode.id=-9999999999\ncluster.id=\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var i identity
		var err error
		fuzztest.Bounded(t, len(b), func() { i, err = parseIdentity(b) })
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
				t.Fatal(err)
			}
			return
		}
		if i.clusterID == "" && i.directory.IsZero() || strings.ContainsAny(i.clusterID, "\n") {
			t.Fatalf("%+v", i)
		}
		again, err := parseIdentity([]byte(i.text()))
		if i.directory.IsZero() {
			return // it gets one before it is written
		}
		if err != nil || again.text() != i.text() {
			t.Fatalf("%q becomes %q, %v", i.text(), again.text(), err)
		}
	})
}

func FuzzGreeting(f *testing.F) {
	g := greeting{NodeID: 7, Directory: idA, Formed: true, ClusterID: "c", Founders: map[int32]topic.ID{1: idA, 7: idB}, Voters: []int32{1, 7}, Brokers: []string{"h:9092"}}
	for v := range uint8(greetVersion) {
		b := g.encodeAs(v + 1)
		f.Add(b[4 : len(b)-4])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		b = sum(b)
		var g greeting
		var err error
		fuzztest.Within(t, stateFactor*len(b)+fuzztest.Floor, func() { g, err = decodeGreeting(b) })
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
				t.Fatal(err)
			}
			return
		}
		if again := g.encodeAs(g.version); !bytes.Equal(again[4:], b) {
			t.Fatalf("%x becomes %x", b, again[4:])
		}
	})
}
