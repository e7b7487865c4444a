package peer

import (
	"bytes"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestTagsHaveTheirDocumentedBytes(t *testing.T) {
	var tags kmsg.Tags
	SetInt64(&tags, TagRemoteEnd, 123456)
	want := []byte{0x91, 0x4e, 0x08, 0, 0, 0, 0, 0, 1, 0xe2, 0x40}
	if got := tags.AppendEach(nil); !bytes.Equal(got, want) {
		t.Errorf("kmsg writes % x, want % x", got, want)
	}
	if got := AppendInt64(nil, TagRemoteEnd, 123456); !bytes.Equal(got, want) {
		t.Errorf("AppendInt64 writes % x, want % x", got, want)
	}
	if v, ok := Int64(&tags, TagRemoteEnd); !ok || v != 123456 {
		t.Errorf("read back %d, %v", v, ok)
	}
	if _, ok := Int64(&tags, TagMetadataIndex); ok {
		t.Error("a tag that is not there was read")
	}
	tags.Set(TagMetadataIndex, []byte{1})
	if _, ok := Int64(&tags, TagMetadataIndex); ok {
		t.Error("a torn number was read")
	}

	ids := [][16]byte{{1}, {2}}
	for tag, want := range map[uint32][]byte{TagMissing: {0x9c, 0x4e}, TagAbsent: {0x9d, 0x4e}} {
		if got := AppendInt64(nil, tag, 1010); !bytes.Equal(got[:2], want) || !bytes.Equal(got[2:], []byte{8, 0, 0, 0, 0, 0, 0, 3, 0xf2}) {
			t.Errorf("tag %d is % x", tag, got)
		}
	}
	var of kmsg.Tags
	SetIDs(&of, TagFilesGone, ids)
	if got := IDs(&of, TagFilesGone); !slices.Equal(got, ids) {
		t.Errorf("ids read back as %v", got)
	}
	of.Set(TagFilesGone, make([]byte, 17))
	if got := IDs(&of, TagFilesGone); got != nil {
		t.Errorf("torn ids read as %v", got)
	}

	var lossy kmsg.Tags
	SetInt32s(&lossy, TagLossy, []int32{3})
	if want, got := []byte{0x99, 0x4e, 0x04, 0, 0, 0, 3}, lossy.AppendEach(nil); !bytes.Equal(got, want) {
		t.Errorf("lossy replicas are % x, want % x", got, want)
	}
	SetInt32s(&lossy, TagLossy, []int32{3, 1 << 20})
	if got := Int32s(&lossy, TagLossy); !slices.Equal(got, []int32{3, 1 << 20}) {
		t.Errorf("read back as %v", got)
	}
	lossy.Set(TagLossy, make([]byte, 5))
	if got := Int32s(&lossy, TagLossy); got != nil {
		t.Errorf("torn numbers read as %v", got)
	}

	var at kmsg.Tags
	n2 := Broker{ID: 2, Host: "n2", Port: 9092}
	SetController(&at, n2)
	if want, got := []byte{0x95, 0x4e, 0x0a, 0, 0, 0, 2, 0, 0, 0x23, 0x84, 'n', '2'}, at.AppendEach(nil); !bytes.Equal(got, want) {
		t.Errorf("controller is % x, want % x", got, want)
	}
	if got, ok := Controller(&at); !ok || got != n2 || got.Address() != "n2:9092" {
		t.Errorf("controller read back as %v", got)
	}
	at.Set(TagController, make([]byte, 8))
	if _, ok := Controller(&at); ok {
		t.Error("a torn controller was read")
	}

	served := []Served{{62, 0, 4}, {63, 0, 1}}
	b := AppendServed(nil, served)
	if want := []byte{0, 0x3e, 0, 0, 0, 4, 0, 0x3f, 0, 0, 0, 1}; !bytes.Equal(b, want) {
		t.Errorf("served is % x, want % x", b, want)
	}
	if got := readServed(b); !slices.Equal(got, served) {
		t.Errorf("served read back as %v", got)
	}
}
