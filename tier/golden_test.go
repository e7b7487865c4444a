package tier

import (
	"bytes"
	"context"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/varvelog/varve/hot/lineage"
	"github.com/varvelog/varve/tier/objstore"
)

var rewrite = flag.Bool("rewrite", false, "write the test vectors anew instead of comparing with them")

// vector is an annotated hex dump: "position  bytes  # what they are".
type vector struct {
	t   *testing.T
	b   []byte
	pos int
	out strings.Builder
}

func (v *vector) field(n int, format string, args ...any) {
	v.t.Helper()
	if v.pos+n > len(v.b) {
		v.t.Fatalf("vector: %d bytes at %d of %d", n, v.pos, len(v.b))
	}
	note := "  # " + fmt.Sprintf(format, args...)
	for first := true; n > 0 || first; first = false {
		k := min(n, 16)
		line := fmt.Sprintf("%06d  %-32x%s", v.pos, v.b[v.pos:v.pos+k], note)
		v.out.WriteString(strings.TrimRight(line, " ") + "\n")
		v.pos, n, note = v.pos+k, n-k, ""
	}
}

func (v *vector) title(s string) { fmt.Fprintf(&v.out, "# %s\n", s) }

func parseVector(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if len(fields) != 2 || fields[0] != fmt.Sprintf("%06d", len(out)) {
			t.Fatalf("%s: line %q at position %d", name, line, len(out))
		}
		b, err := hex.DecodeString(fields[1])
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		out = append(out, b...)
	}
	return out
}

// check compares the annotated dump with the file.
func (v *vector) check(name string) {
	v.t.Helper()
	if v.pos != len(v.b) {
		v.t.Fatalf("vector: %d of %d bytes described", v.pos, len(v.b))
	}
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, []byte(v.out.String()), 0o644); err != nil {
			v.t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		v.t.Fatal(err)
	}
	if string(want) != v.out.String() {
		v.t.Fatalf("%s differs from what is written now:\n%s", name, v.out.String())
	}
}

func (v *vector) entry() {
	v.field(8, "entry: base offset")
	v.field(4, "end offset less base offset")
	v.field(4, "leader epoch of the upload")
	v.field(8, "random part of the name")
	v.field(8, "smallest timestamp")
	v.field(8, "largest timestamp")
	v.field(4, "raw bytes")
	v.field(4, "stored bytes")
	v.field(4, "position of the lookup region")
	v.field(4, "length of the lookup region")
	v.field(4, "CRC-32C of the object")
	v.field(4, "bit 31 aborted transactions, bits 0-30 upload time in s")
}

func (v *vector) chain(n int) {
	v.field(4, "leader epochs: count")
	for range n {
		v.field(4, "epoch")
		v.field(8, "first offset")
	}
}

func goldenManifest() (*manifest, page, pageRef) {
	m := emptyManifest(testPartition.ID, testPartition.Index)
	m.leaderEpoch, m.sequence, m.start, m.end = 7, 42, 120, 500
	m.edits = []uint64{0x1111111111111111, 0x2222222222222222}
	first := []RemoteSegment{testSegmentEntry(100, 200, 5, 10), testSegmentEntry(200, 300, 6, 11)}
	ref, body := newPage(first, lineage.Chain{{Epoch: 5, Start: 100}, {Epoch: 6, Start: 210}}, 7, 0xabcdef)
	encoded := body.encode(m.topic, m.partition)
	ref.size, ref.crc = uint32(len(encoded)), crc32c(encoded)
	m.pages = []pageRef{ref}
	m.tail = []RemoteSegment{testSegmentEntry(300, 400, 6, 12), testSegmentEntry(400, 500, 7, 13)}
	m.chain = lineage.Chain{{Epoch: 6, Start: 300}, {Epoch: 7, Start: 400}}
	m.marked = []Marked{{MarkID: MarkID{KeySegment, SegmentID{0, 5, 9}}, At: 1_700_000_000_123, Bytes: 900}}
	m.info = TopicInfo{Name: "events", Configs: map[string]string{"retention.ms": "-1", "remote.storage.enable": "true"}}
	return m, body, ref
}

func TestHeadVector(t *testing.T) {
	m, _, _ := goldenManifest()
	v := &vector{t: t, b: m.encode()}
	v.title("Head manifest: one page, two segments, one mark. See FORMAT.md.")
	v.field(8, "magic")
	v.field(2, "version")
	v.field(2, "flags")
	v.field(16, "topic id %s", m.topic)
	v.field(4, "partition %d", m.partition)
	v.field(4, "leader epoch %d", m.leaderEpoch)
	v.field(8, "sequence %d", m.sequence)
	v.field(8, "start offset %d", m.start)
	v.field(8, "end offset %d", m.end)
	v.field(4, "edits: count")
	v.field(8, "edit")
	v.field(8, "edit")
	v.chain(2)
	v.field(4, "pages: count")
	for _, f := range []struct {
		n    int
		name string
	}{{8, "page: base offset"}, {8, "end offset"}, {4, "leader epoch of the writer"}, {8, "random part of the name"}, {4, "entries"},
		{4, "dead entries"}, {8, "raw bytes"}, {8, "stored bytes"}, {8, "smallest timestamp"}, {8, "largest timestamp"},
		{4, "first leader epoch"}, {4, "last leader epoch"}, {4, "size of the page"}, {4, "CRC-32C of the page"}, {4, "has aborted transactions"}} {
		v.field(f.n, "%s", f.name)
	}
	v.field(4, "tail: count")
	v.entry()
	v.entry()
	v.field(4, "marks: count")
	v.field(4, "mark: kind, 2 page, 3 segment")
	v.field(4, "leader epoch")
	v.field(8, "base offset")
	v.field(8, "random part of the name")
	v.field(8, "time of the mark, ms")
	v.field(8, "stored bytes")
	v.field(4, "topic: length of the name")
	v.field(6, "events")
	v.field(4, "settings: count")
	v.field(4, "length")
	v.field(21, "remote.storage.enable")
	v.field(4, "length")
	v.field(4, "true")
	v.field(4, "length")
	v.field(12, "retention.ms")
	v.field(4, "length")
	v.field(2, "-1")
	v.field(4, "CRC-32C of everything before")
	v.check("head-1.hex")

	got, err := decodeHead(parseVector(t, "head-1.hex"))
	if err != nil || !reflect.DeepEqual(got, m) {
		t.Fatalf("decoded %+v, %v; want %+v", got, err, m)
	}
}

func TestPageVector(t *testing.T) {
	m, body, ref := goldenManifest()
	v := &vector{t: t, b: body.encode(m.topic, m.partition)}
	v.title("Manifest page with two entries: the one that head-1.hex refers to. See FORMAT.md.")
	v.field(8, "magic")
	v.field(2, "version")
	v.field(2, "reserved")
	v.field(16, "topic id %s", m.topic)
	v.field(4, "partition %d", m.partition)
	v.field(4, "entries: count")
	v.entry()
	v.entry()
	v.chain(2)
	v.field(4, "CRC-32C of everything before")
	v.check("page-1.hex")

	b := parseVector(t, "page-1.hex")
	got, id, partition, err := decodePage(b)
	if err != nil || !reflect.DeepEqual(*got, body) || id != m.topic || partition != m.partition || crc32c(b) != ref.crc {
		t.Fatalf("decoded %+v, %v; want %+v", got, err, body)
	}
}

// goldenSegment has two chunks' worth of nothing special: two data batches,
// one abort marker.
func goldenSegment(t *testing.T) *memSegment {
	w := newWorld(0)
	w.epoch, w.next, w.value = 4, 1000, 8
	s := &memSegment{base: 1000, producers: []byte("producer state"), chain: lineage.Chain{{Epoch: 3, Start: 900}, {Epoch: 4, Start: 1000}}}
	s.data = append(s.data, w.batch(2)...)
	s.data = append(s.data, w.batch(1)...)
	w.abort(s, 77, 1000)
	return s
}

func TestObjectVector(t *testing.T) {
	s := goldenSegment(t)
	r := openTest(t, testConfig(t), objstore.NewMem(0), "").Partition(testPartition)
	o, err := r.build(context.Background(), s, BuildOptions{LeaderEpoch: 4, Now: 1_700_000_000_123}, 0x0123456789abcdef)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	b, err := io.ReadAll(io.NewSectionReader(o.Body(), 0, o.Size()))
	if err != nil {
		t.Fatal(err)
	}
	stored := int(o.index.chunks[0].stored)
	if o.index.chunks[0].encoding != encodingZstd {
		t.Fatalf("the vector's chunk is not compressed: %+v", o.index.chunks)
	}
	if !*rewrite {
		// A later release of the compressor may choose other bytes; the vector
		// stays, and must be read the same.
		checkObject(t, r, s, parseVector(t, "object-1.hex"))
	}
	v := &vector{t: t, b: b}
	v.title("Object: one chunk of three batches, the last an abort marker. See FORMAT.md.")
	v.field(8, "magic")
	v.field(stored, "chunk 0: one zstd frame of %d raw bytes", o.index.chunks[0].raw)
	section := func(name string, fields ...string) {
		v.field(2, "section: %s", name)
		v.field(2, "version")
		v.field(4, "length of the body")
		v.field(4, "CRC-32C of the eight bytes before and the body")
		for _, f := range fields {
			var n int
			name, _, _ := strings.Cut(f, "|")
			fmt.Sscanf(f[len(name)+1:], "%d", &n)
			v.field(n, "%s", name)
		}
	}
	section("offset index", "chunk 0: base offset less the object's|4", "position|4", "stored bytes|4", "raw bytes|4", "CRC-32C of the stored bytes|4", "encoding, 1 zstd|4")
	section("time index", "chunk 0: largest timestamp of data batches|8")
	section("transaction index", "aborted: producer id|8", "first offset|8", "last offset|8", "last stable offset|8")
	section("producer snapshot", "opaque|14")
	section("leader epochs", "count|4", "epoch|4", "first offset|8")
	for i, name := range []string{"offset index", "time index", "transaction index", "producer snapshot", "leader epochs"} {
		v.field(4, "footer: section %d, %s: position", i+1, name)
		v.field(4, "length with its header")
	}
	for _, f := range []struct {
		n    int
		name string
	}{{16, "topic id"}, {4, "partition"}, {4, "leader epoch of the upload"}, {8, "random part of the name"}, {8, "base offset"},
		{8, "end offset"}, {8, "raw bytes"}, {8, "smallest timestamp"}, {8, "largest timestamp"}, {8, "time of the upload, ms"},
		{4, "chunks"}, {4, "batches"}, {4, "flags"}, {2, "version"}, {2, "length of the footer"}, {4, "CRC-32C of the footer so far"}, {8, "magic"}} {
		v.field(f.n, "%s", f.name)
	}
	if got, err := os.ReadFile("testdata/object-1.hex"); *rewrite || (err == nil && string(got) == v.out.String()) {
		v.check("object-1.hex")
	}
	checkObject(t, r, s, parseVector(t, "object-1.hex"))
}

// checkObject reads an object as a stranger would: footer, indexes, chunks.
func checkObject(t *testing.T, r *Remote, s *memSegment, b []byte) {
	t.Helper()
	f, err := decodeFooter(b[len(b)-footerBytes:], int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	if f.topic != testPartition.ID || f.partition != 3 || f.id != (SegmentID{1000, 4, 0x0123456789abcdef}) || f.end != 1004 ||
		f.raw != int64(len(s.data)) || f.minTime != 1_001_000 || f.maxTime != 1_001_002 || f.created != 1_700_000_000_123 ||
		f.chunks != 1 || f.batches != 3 || !f.hasAborted {
		t.Fatalf("footer %+v", f)
	}
	seg := f.segment(int64(len(b)))
	x, err := decodeIndex(b[seg.lookupAt:seg.lookupAt+seg.lookupBytes], &seg)
	if err != nil {
		t.Fatal(err)
	}
	if len(x.aborted) != 1 || x.aborted[0] != s.aborted[0] || x.chunks[0].maxTime != 1_001_002 {
		t.Fatalf("index %+v", x)
	}
	c := x.chunks[0]
	raw, err := r.a.decodeChunk(&c, seg.End, &block{b: b[c.at : c.at+c.stored]})
	if err != nil || !bytes.Equal(raw.b, s.data) {
		t.Fatalf("chunk: %v", err)
	}
}
