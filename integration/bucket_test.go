package integration

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/integration/bucketcheck"
	"github.com/varvelog/varve/integration/nodetest"
	"github.com/varvelog/varve/tier/objstore/objstoretest"
)

// This is a reader of the bucket written from tier/FORMAT.md alone, with an S3
// client and a record decoder that are not Varve's: what a stranger would write
// to get an archive back without the product.

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// fields reads big-endian numbers one after the other.
type fields []byte

func (f *fields) take(n int) []byte {
	b := (*f)[:n]
	*f = (*f)[n:]
	return b
}
func (f *fields) u32() uint32 { return binary.BigEndian.Uint32(f.take(4)) }
func (f *fields) i64() int64  { return int64(binary.BigEndian.Uint64(f.take(8))) }

// archivedSegment is an entry of a manifest.
type archivedSegment struct {
	base, end int64
	key       string
	crc       uint32
	size      int
}

// archive is a partition's part of the bucket.
type archive struct {
	dir        string // <prefix>/v1/<topic id>/<partition>/
	start, end int64
	segments   []archivedSegment
}

func summed(t *testing.T, what, magic string, b []byte) {
	t.Helper()
	if len(b) < 12 || string(b[:8]) != magic || binary.BigEndian.Uint16(b[8:]) != 1 {
		t.Fatalf("%s: not a version 1 of %q", what, magic)
	}
	if got, want := crc32.Checksum(b[:len(b)-4], castagnoli), binary.BigEndian.Uint32(b[len(b)-4:]); got != want {
		t.Fatalf("%s: checksum %08x, want %08x", what, got, want)
	}
}

func readHead(t *testing.T, dir string, objects map[string][]byte) archive {
	t.Helper()
	head := objects[dir+"head"]
	summed(t, dir+"head", "VARVEHD\n", head)
	f := fields(head[44:])
	a := archive{dir: dir, start: f.i64(), end: f.i64()}
	f.take(8 * int(f.u32()))  // edits
	f.take(12 * int(f.u32())) // epochs
	for range f.u32() {
		ref := fields(f.take(92))
		base, _, epoch, random := ref.i64(), ref.i64(), ref.u32(), ref.i64()
		entries, dead := int(ref.u32()), int(ref.u32())
		page := objects[fmt.Sprintf("%spage/%020d-%010d-%016x", dir, base, epoch, uint64(random))]
		summed(t, "page", "VARVEPG\n", page)
		pf := fields(page[32:])
		if got := int(pf.u32()); got != entries {
			t.Fatalf("page holds %d entries, its reference says %d", got, entries)
		}
		list := a.entries(&pf, entries)
		a.segments = append(a.segments, list[dead:]...)
	}
	a.segments = append(a.segments, a.entries(&f, int(f.u32()))...)
	return a
}

func (a *archive) entries(f *fields, n int) []archivedSegment {
	var list []archivedSegment
	for range n {
		e := fields(f.take(64))
		base := e.i64()
		s := archivedSegment{base: base, end: base + int64(e.u32())}
		epoch, random := e.u32(), e.i64()
		s.key = fmt.Sprintf("%sseg/%020d-%010d-%016x", a.dir, base, epoch, uint64(random))
		e.take(20) // timestamps, raw bytes
		s.size = int(e.u32())
		e.take(8)
		s.crc = e.u32()
		list = append(list, s)
	}
	return list
}

// batches gives an object's record batches back to back.
func (s archivedSegment) batches(t *testing.T, object []byte) []byte {
	t.Helper()
	const footerBytes, magic = 148, "VARVESG\n"
	if len(object) != s.size || crc32.Checksum(object, castagnoli) != s.crc {
		t.Fatalf("%s: %d bytes with checksum %08x, the manifest says %d and %08x", s.key, len(object), crc32.Checksum(object, castagnoli), s.size, s.crc)
	}
	footer := object[len(object)-footerBytes:]
	if string(object[:8]) != magic || string(footer[140:]) != magic {
		t.Fatalf("%s is no segment object", s.key)
	}
	f := fields(footer)
	position, length := f.u32(), f.u32()
	section := object[position : position+length]
	index := fields(section[12:]) // after the section's header
	dec, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer dec.Close()
	var out []byte
	for len(index) > 0 {
		c := fields(index.take(24))
		c.take(4)
		at, stored, raw, sum, encoding := c.u32(), c.u32(), c.u32(), c.u32(), c.u32()
		chunk := object[at : at+stored]
		if crc32.Checksum(chunk, castagnoli) != sum {
			t.Fatalf("%s: chunk at %d has a wrong checksum", s.key, at)
		}
		if encoding == 1 {
			if chunk, err = dec.DecodeAll(chunk, nil); err != nil {
				t.Fatal(err)
			}
		}
		if len(chunk) != int(raw) {
			t.Fatalf("%s: chunk at %d has %d bytes, want %d", s.key, at, len(chunk), raw)
		}
		out = append(out, chunk...)
	}
	return out
}

// checkBucket reads every topic's archive out of the bucket, as a stranger
// would, and holds it against the input.
func checkBucket(t *testing.T, n *nodetest.Node, server *objstoretest.Server, bucket, prefix string, input map[string][]event) {
	t.Helper()
	b, err := bucketcheck.Open(server, bucket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	topics, err := kadm.NewClient(n.Client()).ListTopics(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for source, list := range input {
		id := topics[source].ID
		dir := prefix + "/v1/" + base64.RawURLEncoding.EncodeToString(id[:]) + "/0/"
		objects, err := b.ReadAll(ctx, dir)
		if err != nil {
			t.Fatal(err)
		}
		a := readHead(t, dir, objects)
		if a.start != 0 || len(a.segments) < 2 || a.end > int64(len(list)) {
			t.Fatalf("%s: the archive holds [%d, %d) in %d segments, of %d events", source, a.start, a.end, len(a.segments), len(list))
		}
		next := int64(0)
		for _, s := range a.segments {
			if s.base != next {
				t.Fatalf("%s: a segment begins at %d where %d comes next", source, s.base, next)
			}
			next = checkObject(t, s.batches(t, objects[s.key]), list, next)
			if next != s.end {
				t.Fatalf("%s: segment %d ends at %d, the manifest says %d", source, s.base, next, s.end)
			}
		}
		if next != a.end {
			t.Fatalf("%s: segments end at %d, the archive at %d", source, next, a.end)
		}
	}
}

// checkObject holds batches against the events from next on; it gives the
// offset after the last record.
func checkObject(t *testing.T, batches []byte, list []event, next int64) int64 {
	t.Helper()
	for len(batches) > 0 {
		var rb kmsg.RecordBatch
		size := 12 + int(binary.BigEndian.Uint32(batches[8:]))
		if err := rb.ReadFrom(batches[:size]); err != nil {
			t.Fatal(err)
		}
		if crc32.Checksum(batches[21:size], castagnoli) != uint32(rb.CRC) {
			t.Fatalf("batch at %d has a wrong checksum", rb.FirstOffset)
		}
		records := fields(rb.Records)
		for range rb.NumRecords {
			var r kmsg.Record
			length, n := binary.Varint(records)
			if err := r.ReadFrom(records[:n+int(length)]); err != nil {
				t.Fatal(err)
			}
			records.take(n + int(length))
			e := list[next]
			if rb.FirstOffset+int64(r.OffsetDelta) != next || rb.FirstTimestamp+r.TimestampDelta64 != e.TS || string(r.Key) != e.Key || !bytes.Equal(r.Value, e.line) {
				t.Fatalf("archived record %d is not the event: %s", next, r.Value)
			}
			next++
		}
		batches = batches[size:]
	}
	return next
}
