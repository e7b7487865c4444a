package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/varvelog/varve/tier"
	"github.com/varvelog/varve/tier/objstore"
)

// bucket is the store all brokers share, with the truth about it. It is slow,
// down, unsure of what it did, and late: a write that was given up may still
// take place.
type bucket struct {
	w             *world
	mem           *objstore.Mem
	truth         *tier.Archive // looks without faults
	down          bool
	before, after float64 // of a failure before, and after it took effect
	late          float64 // of a write that takes effect after it was given up
	slow          bool
	modified      map[string]int64
	known         map[partitionKey]*manifestSeen
	commits       int
}

// manifestSeen is a partition's manifest as the oracle last saw it.
type manifestSeen struct {
	state   tier.State
	checked map[tier.SegmentID]bool
	marked  map[tier.MarkID]int64
}

func newBucket(w *world) *bucket {
	b := &bucket{w: w, mem: objstore.NewMem(0), modified: map[string]int64{}, known: map[partitionKey]*manifestSeen{}}
	b.truth = openArchive(w, b.mem)
	return b
}

func openArchive(w *world, store objstore.Store) *tier.Archive {
	cfg := tier.DefaultConfig()
	cfg.CommitTimeout, cfg.GetTimeout = 400*time.Millisecond, time.Second
	a, err := tier.OpenArchive(cfg, tier.Deps{Store: store})
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

func (b *bucket) close() {
	for _, o := range b.w.brokers {
		o.archive.Close(context.Background())
	}
	b.truth.Close(context.Background())
}

// trouble changes what is wrong with the store.
func (b *bucket) trouble() {
	w := b.w
	b.heal()
	switch w.rng.IntN(6) {
	case 0:
		b.down = true
	case 1:
		b.before, b.after = w.rng.Float64()*0.4, w.rng.Float64()*0.4
	case 2:
		b.late = w.rng.Float64() * 0.5
	case 3:
		b.slow = true
	}
	w.tell("store: down %t, fails %.2f before and %.2f after, %.2f late, slow %t", b.down, b.before, b.after, b.late, b.slow)
}

func (b *bucket) heal() { b.down, b.slow, b.before, b.after, b.late = false, false, 0, 0, 0 }

// latency is how long a call takes on its way there, or back.
func (b *bucket) latency() int64 {
	if b.slow && b.w.one(3) {
		return b.w.rng.Int64N(400)
	}
	return 1 + b.w.rng.Int64N(15)
}

var (
	_           objstore.Store = (*bucket)(nil)
	errInjected                = errors.New("injected")
)

func (b *bucket) fails(op objstore.Op, key string, kind error) error {
	return &objstore.Error{Op: op, Place: "sim:", Key: key, Kind: kind, Err: errInjected}
}

func (b *bucket) broken() bool { return b.down || b.w.rng.Float64() < b.before }

// Put implements objstore.Store.
func (b *bucket) Put(ctx context.Context, key string, body objstore.Body, o objstore.PutOptions) (objstore.Object, error) {
	if b.broken() {
		return objstore.Object{}, b.fails(objstore.OpPut, key, objstore.ErrUnavailable)
	}
	if b.w.rng.Float64() < b.late {
		content := make([]byte, body.Size())
		if _, err := body.ReadAt(content, 0); err != nil && !errors.Is(err, io.EOF) {
			return objstore.Object{}, err
		}
		b.w.after(b.w.between(1, uploadMillisMax), func() {
			_, err := b.put(context.Background(), key, objstore.Bytes(content), o)
			b.w.tell("a write of %s that was given up arrives: %v", key, err)
		})
		return objstore.Object{}, b.fails(objstore.OpPut, key, objstore.ErrUnknownOutcome)
	}
	obj, err := b.put(ctx, key, body, o)
	if err == nil && b.w.rng.Float64() < b.after {
		return objstore.Object{}, b.fails(objstore.OpPut, key, objstore.ErrUnknownOutcome)
	}
	return obj, err
}

func (b *bucket) put(ctx context.Context, key string, body objstore.Body, o objstore.PutOptions) (objstore.Object, error) {
	obj, err := b.mem.Put(ctx, key, body, o)
	if err != nil {
		return obj, err
	}
	b.modified[key] = b.w.now
	if info, ok := b.truth.Config().ParseKey(key); ok && info.Kind == tier.KeyHead {
		b.checkManifest(partitionKey{info.Topic, info.Partition})
	}
	return obj, nil
}

// Get implements objstore.Store.
func (b *bucket) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, objstore.Object, error) {
	if b.broken() {
		return nil, objstore.Object{}, b.fails(objstore.OpGet, key, objstore.ErrUnavailable)
	}
	return b.mem.Get(ctx, key, off, n)
}

// Head implements objstore.Store.
func (b *bucket) Head(ctx context.Context, key string) (objstore.Object, error) {
	if b.broken() {
		return objstore.Object{}, b.fails(objstore.OpHead, key, objstore.ErrUnavailable)
	}
	return b.mem.Head(ctx, key)
}

// Delete implements objstore.Store.
func (b *bucket) Delete(ctx context.Context, keys ...string) error {
	if b.broken() {
		return b.fails(objstore.OpDelete, keys[0], objstore.ErrUnavailable)
	}
	b.checkDelete(keys)
	if err := b.mem.Delete(ctx, keys...); err != nil {
		return err
	}
	for _, key := range keys {
		// Another broker's removal of a deleted topic begins with a retired head anew.
		if info, ok := b.truth.Config().ParseKey(key); ok && info.Kind == tier.KeyHead {
			if err := b.truth.Forget(b.w.partition(partitionKey{info.Topic, info.Partition})); err != nil {
				return err
			}
		}
	}
	if b.w.rng.Float64() < b.after {
		return b.fails(objstore.OpDelete, keys[0], objstore.ErrUnavailable)
	}
	return nil
}

// List implements objstore.Store.
func (b *bucket) List(ctx context.Context, prefix, after string, fn func(objstore.Object) bool) error {
	if b.broken() {
		return b.fails(objstore.OpList, prefix, objstore.ErrUnavailable)
	}
	return b.mem.List(ctx, prefix, after, func(o objstore.Object) bool {
		o.Modified = time.UnixMilli(wallAtStart + b.modified[o.Key])
		return fn(o)
	})
}

// remote is the truth about one partition.
func (b *bucket) remote(k partitionKey) *tier.Remote {
	return b.truth.Partition(b.w.partition(k))
}

// look reads a manifest without faults.
func (b *bucket) look(k partitionKey) (tier.State, []tier.RemoteSegment) {
	ctx := context.Background()
	r := b.remote(k)
	st, err := r.Refresh(ctx)
	var segments []tier.RemoteSegment
	if err == nil {
		err = r.Segments(ctx, -1, func(s tier.RemoteSegment) bool {
			segments = append(segments, s)
			return true
		})
	}
	if err != nil {
		b.w.fail("bucket", "the manifest of %s cannot be read: %v", b.w.oracle.truths[k].name, err)
	}
	return st, segments
}

func (b *bucket) seen(k partitionKey) *manifestSeen {
	s := b.known[k]
	if s == nil {
		s = &manifestSeen{state: tier.State{Start: -1, End: -1, LeaderEpoch: -1}, checked: map[tier.SegmentID]bool{}, marked: map[tier.MarkID]int64{}}
		b.known[k] = s
	}
	return s
}

// checkManifest: it never goes back, is held by nobody but a leader (T8), covers
// its range without gaps (T4), and every object it names is there and holds what
// was committed (T1, T2).
func (b *bucket) checkManifest(k partitionKey) {
	w, t, seen := b.w, b.w.oracle.truths[k], b.seen(k)
	b.commits++
	if t.finished { // a removal takes the head away, and who comes later makes another: the past is over
		if err := b.truth.Forget(w.partition(k)); err != nil {
			w.t.Fatal(err)
		}
	}
	st, segments := b.look(k)
	switch {
	case t.finished:
		seen.state = st
		return
	case st.Retired:
		w.fail("bucket", "the archive of %s is retired, and the topic exists", t.name)
		return
	}
	if st.Start < seen.state.Start || st.End < seen.state.End || st.LeaderEpoch < seen.state.LeaderEpoch {
		w.fail("bucket", "the manifest of %s went back from %+v to %+v", t.name, seen.state, st)
	}
	if leader, ok := t.leaders[st.LeaderEpoch]; !ok || leader < 0 {
		w.fail("bucket", "the manifest of %s is held by epoch %d, which nobody leads", t.name, st.LeaderEpoch)
	}
	next := int64(-1)
	for _, s := range segments {
		if next >= 0 && s.ID.Base != next {
			w.fail("bucket", "%s: segment [%d, %d) follows an end of %d", t.name, s.ID.Base, s.End, next)
		}
		next = s.End
		if obj, err := b.mem.Head(context.Background(), b.remote(k).Key(s.ID)); err != nil || obj.Size != s.StoredBytes {
			w.fail("bucket", "%s: segment [%d, %d) is named and not there: %v", t.name, s.ID.Base, s.End, err)
		} else if !seen.checked[s.ID] {
			seen.checked[s.ID] = true
			b.checkSegment(k, t, s)
		}
	}
	if next >= 0 && next != st.End {
		w.fail("bucket", "%s: the segments end at %d, the manifest says %d", t.name, next, st.End)
	}
	seen.state = st
	marked, err := b.remote(k).Marked(context.Background())
	if err != nil {
		w.fail("bucket", "%s: marks cannot be read: %v", t.name, err)
	}
	for _, m := range marked {
		if _, ok := seen.marked[m.MarkID]; !ok {
			seen.marked[m.MarkID] = w.now
		}
	}
}

// checkSegment reads an archived segment and compares it with what was committed.
func (b *bucket) checkSegment(k partitionKey, t *truth, s tier.RemoteSegment) {
	w := b.w
	if s.End > int64(len(t.ghost)) && !t.finished {
		w.fail("bucket", "%s: segment [%d, %d) is archived, committed is %d", t.name, s.ID.Base, s.End, len(t.ghost))
		return
	}
	for off := max(s.ID.Base, b.seen(k).state.Start, 0); off < min(s.End, int64(len(t.ghost))); {
		chunk, err := b.remote(k).Read(context.Background(), off, 1<<20, s.End)
		if err != nil {
			w.fail("bucket", "%s: segment [%d, %d) cannot be read at %d: %v", t.name, s.ID.Base, s.End, off, err)
			return
		}
		values, err := valuesOf(chunk.Bytes())
		for i, v := range values {
			at := chunk.StartOffset() + int64(i)
			if err == nil && at < int64(len(t.ghost)) && t.ghost[at].value != v {
				w.fail("bucket", "%s: %d is archived at %d, committed is %d", t.name, v, at, t.ghost[at].value)
				return
			}
		}
		if err != nil || chunk.NextOffset() <= off {
			w.fail("bucket", "%s: archived batches at %d: %v", t.name, off, err)
			return
		}
		off = chunk.NextOffset()
		chunk.Release()
	}
}

// checkDelete: nothing goes that a manifest names, nothing that was marked before
// the grace is over (T5), and no head but that of a deleted topic (T18).
func (b *bucket) checkDelete(keys []string) {
	w := b.w
	live := map[partitionKey]map[string]bool{}
	for _, key := range keys {
		info, ok := b.truth.Config().ParseKey(key)
		if !ok {
			continue
		}
		k := partitionKey{info.Topic, info.Partition}
		t := w.oracle.truths[k]
		if t.finished {
			continue
		}
		if live[k] == nil {
			live[k] = map[string]bool{}
			_, segments := b.look(k)
			for _, s := range segments {
				live[k][b.remote(k).Key(s.ID)] = true
			}
		}
		if live[k][key] || info.Kind == tier.KeyHead {
			w.fail("bucket", "%s is deleted, and in use", key)
		}
		if at, ok := b.seen(k).marked[tier.MarkID{Kind: info.Kind, ID: info.ID}]; ok && w.now-at < graceMillis {
			w.fail("bucket", "%s is deleted %d ms after its mark", key, w.now-at)
		}
	}
}

// drops: local records go only when the bucket has them (T1).
func (o *oracle) drops(r *replica, to int64) {
	t := o.truths[r.key]
	if t.finished {
		return
	}
	st, _ := o.w.bucket.look(r.key)
	if start := max(t.start, r.log.logStart); to > start && (st.End < to || st.Start > start && r.retention < 0) {
		o.w.fail("bucket", "%s drops %s below %d, the bucket has [%d, %d), the log starts at %d", r.b.name, t.name, to, st.Start, st.End, start)
	}
}

// inOrder says that nothing of deleted topics is left, and all that is sealed is
// archived.
func (b *bucket) inOrder() bool { return len(b.leftovers()) == 0 }

func (b *bucket) leftovers() []string {
	w := b.w
	var left []string
	for _, k := range w.keyList {
		t := w.oracle.truths[k]
		if t.finished {
			b.mem.List(context.Background(), b.remote(k).Prefix(), "", func(o objstore.Object) bool {
				left = append(left, "of a deleted topic: "+o.Key)
				return true
			})
			continue
		}
		_, p := w.quorum.newest().PartitionByID(k.id, k.index)
		if p == nil || p.Leader < 0 {
			continue
		}
		l := w.brokers[p.Leader].logs[k]
		if l == nil || len(l.rolls) < 2 {
			continue
		}
		if sealed := min(l.rolls[len(l.rolls)-1], l.hw); sealed > l.logStart && b.seen(k).state.End < sealed {
			status, _ := w.brokers[p.Leader].tier.step.PartitionStatus(w.partition(k))
			left = append(left, fmt.Sprintf("%s is not archived: %s rolls %v, bucket %+v, %+v, last %+v", t.name, l, l.rolls,
				b.seen(k).state, status, status.LastError))
		}
	}
	if len(w.quorum.newest().DeletedTopics()) > 0 {
		left = append(left, "tombstones")
	}
	return left
}

func (b *bucket) settled() {
	if left := b.leftovers(); len(left) > 0 {
		slices.Sort(left)
		b.w.fail("settled", "the bucket is not in order: %s", strings.Join(left[:min(len(left), 5)], "; "))
	}
}
