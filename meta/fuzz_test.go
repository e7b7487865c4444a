package meta

import (
	"errors"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/varvelog/varve/integration/fuzztest"
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
		if i.clusterID == "" || strings.ContainsAny(i.clusterID, "\n") {
			t.Fatalf("%+v", i)
		}
	})
}
