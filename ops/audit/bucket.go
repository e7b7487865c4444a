package audit

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"time"

	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/tier/objstore"
)

// archive is a partition in the bucket.
type archive struct {
	key        logKey
	name       string
	start, end int64 // -1: nothing was ever committed
	retired    bool
	entries    []entry
	chain      []epochStart
	batches    []span // of the objects, in order; empty when they were skimmed
	unread     bool   // an object could not be read: batches are not complete
}

// entry is a segment in a manifest (tier/FORMAT.md, Segment entry).
type entry struct {
	base, end      int64
	epoch          int32
	random         uint64
	stored, raw    int64
	lookup, length uint32
	sum            uint32
	aborted        bool
}

// name is the last part of an object's key.
func objectName(base int64, epoch int32, random uint64) string {
	return fmt.Sprintf("%020d-%010d-%016x", base, epoch, random)
}

// bucketView is what a listing shows.
type bucketView struct {
	objects map[string]objstore.Object
	heads   []string
}

const (
	headBytesMax = 64 << 20
	pageBytesMax = 16 << 20
)

// readBucket reads all manifests and, unless they are skimmed, all objects.
func (a *auditor) readBucket(ctx context.Context) (map[logKey]*archive, error) {
	archives := map[logKey]*archive{}
	if a.in.Store == nil {
		return archives, nil
	}
	root := "v1/"
	if a.in.Prefix != "" {
		root = strings.TrimSuffix(a.in.Prefix, "/") + "/v1/"
	}
	view := bucketView{objects: map[string]objstore.Object{}}
	err := a.in.Store.List(ctx, root, "", func(o objstore.Object) bool {
		view.objects[o.Key] = o
		if strings.HasSuffix(o.Key, "/head") {
			view.heads = append(view.heads, o.Key)
		}
		return true
	})
	if err != nil {
		return nil, fmt.Errorf("list the bucket: %w", err)
	}
	named := map[string]bool{}  // keys that a manifest names
	broken := map[string]bool{} // prefixes whose manifest cannot be read
	for _, key := range view.heads {
		named[key] = true
		prefix := strings.TrimSuffix(key, "head")
		ar, err := a.readArchive(ctx, view, prefix, named)
		if err != nil {
			var flaw flawError
			if !errors.As(err, &flaw) {
				return nil, err
			}
			a.report.flaw(Manifest, -1, prefix, -1, "%v", err)
			broken[prefix] = true
			continue
		}
		archives[ar.key] = ar
	}
	a.orphans(view, root, named, broken)
	return archives, nil
}

// flawError is damage in the bucket; any other error means that the audit
// could not be made.
type flawError struct{ text string }

func (e flawError) Error() string { return e.text }

func flawf(format string, args ...any) error { return flawError{fmt.Sprintf(format, args...)} }

// get reads an object whole. One that is gone is a flaw.
func (a *auditor) get(ctx context.Context, key string, limit int64) ([]byte, error) {
	b, _, err := objstore.ReadAll(ctx, a.in.Store, key, limit)
	switch {
	case errors.Is(err, objstore.ErrNotFound), errors.Is(err, objstore.ErrTooLarge):
		return nil, flawf("%v", err)
	case err != nil:
		return nil, err
	}
	return b, nil
}

// reader takes numbers from the front of a buffer; what is missing makes it
// bad.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.bad, r.b = true, nil
		return make([]byte, min(max(n, 0), 16))
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) u16() uint16 { return binary.BigEndian.Uint16(r.take(2)) }
func (r *reader) u32() uint32 { return binary.BigEndian.Uint32(r.take(4)) }
func (r *reader) u64() uint64 { return binary.BigEndian.Uint64(r.take(8)) }
func (r *reader) i64() int64  { return int64(r.u64()) }
func (r *reader) i32() int32  { return int32(r.u32()) }

// count is a number of things of at least so many bytes.
func (r *reader) count(each int) int {
	n := int(r.u32())
	if n > len(r.b)/each {
		r.bad = true
		return 0
	}
	return n
}

func (r *reader) chain() (chain []epochStart) {
	for range r.count(12) {
		chain = append(chain, epochStart{r.i32(), r.i64()})
	}
	return chain
}

func (r *reader) entry() entry {
	e := entry{base: r.i64()}
	e.end = e.base + int64(r.u32())
	e.epoch, e.random = r.i32(), r.u64()
	r.take(16) // timestamps
	e.raw, e.stored = int64(r.u32()), int64(r.u32())
	e.lookup, e.length, e.sum = r.u32(), r.u32(), r.u32()
	e.aborted = r.u32()>>31 == 1
	return e
}

// opened checks magic, version and checksum of a head or a page.
func opened(b []byte, magic string) (*reader, error) {
	if len(b) < 14 || string(b[:8]) != magic {
		return nil, flawf("it does not begin with %q", strings.TrimSpace(magic))
	}
	if v := binary.BigEndian.Uint16(b[8:]); v != 1 {
		return nil, flawf("it is of version %d, this release reads 1", v)
	}
	body := b[:len(b)-4]
	if crc32.Checksum(body, castagnoli) != binary.BigEndian.Uint32(b[len(b)-4:]) {
		return nil, flawf("its checksum is wrong")
	}
	return &reader{b: body[10:]}, nil
}

// readArchive reads a head, its pages and the objects they name.
func (a *auditor) readArchive(ctx context.Context, view bucketView, prefix string, named map[string]bool) (*archive, error) {
	b, err := a.get(ctx, prefix+"head", headBytesMax)
	if err != nil {
		return nil, err
	}
	r, err := opened(b, "VARVEHD\n")
	if err != nil {
		return nil, flawf("head: %v", err)
	}
	flags := r.u16()
	ar := &archive{retired: flags&1 != 0}
	copy(ar.key.id[:], r.take(16))
	ar.key.index = r.i32()
	ar.name = fmt.Sprintf("%s-%d", ar.key.id, ar.key.index)
	if t := a.image.TopicByID(ar.key.id); t != nil {
		ar.name = fmt.Sprintf("%s-%d", t.Name, ar.key.index)
	}
	r.take(12) // leader epoch, sequence
	ar.start, ar.end = r.i64(), r.i64()
	r.take(8 * r.count(8)) // edits
	tailChain := r.chain()
	type page struct {
		base, end int64
		name      string
		dead      int
		size, sum uint32
	}
	var pages []page
	for range r.count(92) {
		p := page{base: r.i64(), end: r.i64()}
		p.name = objectName(p.base, r.i32(), r.u64())
		r.take(4)
		p.dead = int(r.u32())
		r.take(8 + 8 + 8 + 8 + 4 + 4)
		p.size, p.sum = r.u32(), r.u32()
		r.take(4)
		pages = append(pages, p)
	}
	var tail []entry
	for range r.count(64) {
		tail = append(tail, r.entry())
	}
	r.marks(prefix, named)
	if r.bad {
		return nil, flawf("head: it ends too early")
	}
	for _, p := range pages {
		key := prefix + "page/" + p.name
		named[key] = true
		entries, chain, err := a.readPage(ctx, key, p.size, p.sum)
		if err != nil {
			return nil, fmt.Errorf("page %s: %w", p.name, err)
		}
		if p.dead > len(entries) {
			return nil, flawf("page %s: %d of %d entries are dead", p.name, p.dead, len(entries))
		}
		ar.entries = append(ar.entries, entries[p.dead:]...)
		ar.chain = append(ar.chain, chain...)
	}
	ar.entries = append(ar.entries, tail...)
	ar.chain = merged(append(ar.chain, tailChain...))
	a.checkCoverage(ar)
	return ar, a.readObjects(ctx, view, prefix, ar, named)
}

// marks notes the objects that wait for deletion.
func (r *reader) marks(prefix string, named map[string]bool) {
	for range r.count(40) {
		kind, epoch, base, random := r.u32(), r.i32(), r.i64(), r.u64()
		r.take(16)
		folder := "seg/"
		if kind == 2 {
			folder = "page/"
		}
		named[prefix+folder+objectName(base, epoch, random)] = true
	}
}

// merged joins the chains of pages and tail, which overlap by an epoch.
func merged(chain []epochStart) []epochStart {
	var out []epochStart
	for _, e := range chain {
		if n := len(out); n == 0 || e.epoch > out[n-1].epoch {
			out = append(out, e)
		}
	}
	return out
}

func (a *auditor) readPage(ctx context.Context, key string, size, sum uint32) ([]entry, []epochStart, error) {
	b, err := a.get(ctx, key, pageBytesMax)
	if err != nil {
		return nil, nil, err
	}
	if uint32(len(b)) != size || crc32.Checksum(b, castagnoli) != sum {
		return nil, nil, flawf("it is not the page that the head names")
	}
	r, err := opened(b, "VARVEPG\n")
	if err != nil {
		return nil, nil, err
	}
	r.take(2 + 16 + 4)
	var entries []entry
	for range r.count(64) {
		entries = append(entries, r.entry())
	}
	chain := r.chain()
	if r.bad {
		return nil, nil, flawf("it ends too early")
	}
	return entries, chain, nil
}

// checkCoverage: the entries are one range that ends where the head says.
func (a *auditor) checkCoverage(ar *archive) {
	if len(ar.entries) == 0 {
		return
	}
	if first := ar.entries[0].base; first > ar.start && ar.start >= 0 {
		a.report.flaw(Manifest, -1, ar.name, ar.start, "the start is %d, the first segment begins at %d", ar.start, first)
	}
	for i := 1; i < len(ar.entries); i++ {
		if ar.entries[i].base != ar.entries[i-1].end {
			a.report.flaw(Manifest, -1, ar.name, ar.entries[i-1].end, "a segment at %d follows one that ends at %d", ar.entries[i].base, ar.entries[i-1].end)
		}
	}
	if last := ar.entries[len(ar.entries)-1].end; last != ar.end {
		a.report.flaw(Manifest, -1, ar.name, last, "the end is %d, the last segment ends at %d", ar.end, last)
	}
}

// orphans are objects that no manifest names.
func (a *auditor) orphans(view bucketView, root string, named, broken map[string]bool) {
	keys := make([]string, 0, len(view.objects))
	for key := range view.objects {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		o := view.objects[key]
		parts := strings.Split(strings.TrimPrefix(key, root), "/")
		if named[key] || len(parts) < 3 || broken[root+parts[0]+"/"+parts[1]+"/"] {
			continue
		}
		id, err := topic.ParseID(parts[0])
		if err != nil {
			continue // not ours
		}
		name := parts[0] + "-" + parts[1]
		if t := a.image.TopicByID(id); t != nil {
			name = t.Name + "-" + parts[1]
		}
		_, deleted := a.image.Deleted(id)
		if age := time.Since(o.Modified); age < a.in.OrphanAge || deleted {
			a.report.note(Orphan, -1, name, "%s is named by no manifest, and %v old", key, age.Round(time.Second))
			continue
		}
		a.report.flaw(Orphan, -1, name, -1, "%s (%d bytes, of %s) is named by no manifest", key, o.Size, o.Modified.UTC().Format(time.RFC3339))
	}
}
