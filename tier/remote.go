package tier

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/varvelog/varve/hot/lineage"
	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/tier/objstore"
)

// Remote is one partition's archive. All methods are safe for concurrent use.
type Remote struct {
	a   *Archive
	p   topic.Partition
	key partitionKey

	committing lateSemaphore // one edit at a time; guards no state
	trusted    atomic.Bool   // this process holds the claim: what it knows is what is committed
	current    atomic.Pointer[manifest]
	summary    atomic.Pointer[State] // of the latest manifest; stays when current goes

	mu      sync.Mutex // guards the following, and writes of current
	latest  uint64     // sequence of the latest manifest known
	saved   uint64     // sequence of the local database's copy
	refused string     // why the head in the bucket is not used; "" it is
}

func newRemote(a *Archive, p topic.Partition, key partitionKey) *Remote {
	return &Remote{a: a, p: p, key: key}
}

// semaphore is a lock that waits no longer than its caller's context.
type semaphore chan struct{}

func (s semaphore) lock(ctx context.Context) error {
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s semaphore) unlock() { <-s }

// lateSemaphore is a semaphore for one, made when it is wanted first: most
// partitions of a node never commit anything.
type lateSemaphore struct{ made atomic.Pointer[semaphore] }

func (l *lateSemaphore) lock(ctx context.Context) error {
	s := l.made.Load()
	if s == nil {
		fresh := make(semaphore, 1)
		l.made.CompareAndSwap(nil, &fresh)
		s = l.made.Load()
	}
	return s.lock(ctx)
}

func (l *lateSemaphore) unlock() { l.made.Load().unlock() }

// Partition names the partition.
func (r *Remote) Partition() topic.Partition { return r.p }

// Prefix is the prefix of all of the partition's keys.
func (r *Remote) Prefix() string { return r.a.cfg.PartitionPrefix(r.p.ID, r.p.Index) }

// Key is the object key of a segment of this partition.
func (r *Remote) Key(id SegmentID) string { return r.Prefix() + "seg/" + id.name() }

func (r *Remote) pageKey(id SegmentID) string { return r.Prefix() + "page/" + id.name() }

func (r *Remote) headKey() string { return r.Prefix() + "head" }

func (r *Remote) objectKey(id SegmentID) objectKey { return objectKey{r.key, id} }

// load returns the manifest as this process knows it: from memory, from the
// local database, or from the bucket when neither has it.
func (r *Remote) load(ctx context.Context) (*manifest, error) {
	if m := r.known(); m != nil {
		return m, nil
	}
	return r.refresh(ctx)
}

// known returns the manifest if this process has it, in memory or on disk.
func (r *Remote) known() *manifest {
	if m := r.current.Load(); m != nil {
		r.a.manifests.get(r.key) // now it is the one used last
		return m
	}
	body, etag, ok := r.a.db.head(r.key)
	if !ok {
		return nil
	}
	m, err := r.decode(body, etag)
	if err != nil {
		r.a.log.Warn("local copy of a manifest is unusable", "partition", r.p.String(), "err", err)
		return nil
	}
	m = r.adopt(m)
	r.keep(m)
	return m
}

// keep notes that the local database has m, so that memory may let go of it.
func (r *Remote) keep(m *manifest) {
	r.mu.Lock()
	r.saved = max(r.saved, m.sequence)
	r.mu.Unlock()
	r.a.manifests.put(r.key, resident{r, m})
}

// resident is a manifest in memory that the local database has too.
type resident struct {
	r *Remote
	m *manifest
}

// release lets memory go of a manifest, unless it has moved on.
func (x resident) release() {
	x.r.mu.Lock()
	defer x.r.mu.Unlock()
	if x.r.saved >= x.m.sequence {
		x.r.current.CompareAndSwap(x.m, nil)
	}
}

func (r *Remote) decode(body []byte, etag string) (*manifest, error) {
	if len(body) == 0 && etag == "" {
		return emptyManifest(r.p.ID, r.p.Index), nil
	}
	m, err := decodeHead(body)
	if err != nil {
		return nil, named(err, r.headKey())
	}
	if m.topic != r.p.ID || m.partition != r.p.Index {
		return nil, &CorruptError{Key: r.headKey(), Offset: -1, Reason: fmt.Sprintf("head of %s-%d", m.topic, m.partition)}
	}
	m.etag = etag
	return m, nil
}

// named puts the key into a decoder's error.
func named(err error, key string) error {
	var c *CorruptError
	if errors.As(err, &c) && c.Key == "" {
		return &CorruptError{Key: key, Offset: c.Offset, Reason: c.Reason}
	}
	return fmt.Errorf("%s: %w", key, err)
}

// refresh reads the head from the bucket. A head that was there and is gone, or
// that went back, is never taken for an empty archive: an operator must look.
func (r *Remote) refresh(ctx context.Context) (*manifest, error) {
	before := r.known()
	body, obj, err := objstore.ReadAll(ctx, r.a.deps.Store, r.headKey(), headBytesMax)
	if errors.Is(err, objstore.ErrNotFound) {
		body, obj, err = nil, objstore.Object{}, nil
	}
	if err != nil {
		return nil, storeError("read head", err)
	}
	m, err := r.decode(body, obj.ETag)
	if err == nil {
		err = r.contradicts(before, m)
	}
	r.complain(err)
	if err != nil {
		return nil, err
	}
	if before != nil && m.leaderEpoch > before.leaderEpoch {
		r.trusted.Store(false)
	}
	if m = r.adopt(m); m.etag == obj.ETag {
		r.store(m, body, nil)
	}
	return m, nil
}

// contradicts says why a head cannot follow the one that is known.
func (r *Remote) contradicts(before, m *manifest) error {
	switch {
	case before == nil:
	case m.etag == "" && before.etag != "":
		return fmt.Errorf("head manifest %s is gone: %w", r.headKey(), ErrMissing)
	case m.sequence < before.sequence:
		return &CorruptError{Key: r.headKey(), Offset: -1,
			Reason: fmt.Sprintf("went back from sequence %d to %d", before.sequence, m.sequence)}
	}
	return nil
}

// complain logs that the head in the bucket cannot be right, once for as long as that stays so, and that it is right again.
func (r *Remote) complain(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	r.mu.Lock()
	before := r.refused
	r.refused = text
	r.mu.Unlock()
	switch {
	case text == before:
	case err != nil:
		r.a.log.Error("manifest in the bucket is refused, its partition is not archived until somebody puts it right", "partition", r.p.String(), "err", err)
	default:
		r.a.log.Info("manifest in the bucket is right again", "partition", r.p.String())
	}
}

// adopt makes m the current manifest unless a later one is known already, and
// returns the one that is. Of two with one sequence the newcomer is the store's:
// the same head may have another ETag after a bucket was copied.
func (r *Remote) adopt(m *manifest) *manifest {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.sequence < r.latest {
		if known := r.current.Load(); known != nil {
			return known
		}
		// The later one is on disk only; who needs it loads it.
		return m
	}
	r.latest = m.sequence
	r.current.Store(m)
	s := m.state()
	r.summary.Store(&s)
	return m
}

// publish makes a committed manifest the current one.
func (r *Remote) publish(m *manifest, body []byte, pages map[pageKey][]byte) {
	if r.adopt(m) != m {
		return
	}
	r.store(m, body, pages)
	if !m.pagesGone {
		return
	}
	err := r.a.db.dropPages(r.key, func(id SegmentID) bool { return m.pageNamed(id) >= 0 })
	if err != nil {
		r.a.log.Warn("drop old manifest pages locally", "partition", r.p.String(), "err", err)
	}
}

// store keeps the local copy. When it fails the manifest stays in memory and is
// read from the bucket after the next restart, so the failure is only logged.
func (r *Remote) store(m *manifest, body []byte, pages map[pageKey][]byte) {
	if r.a.db.db == nil {
		return
	}
	if err := r.a.db.putHead(r.key, m.etag, body, pages); err != nil {
		r.a.log.Warn("keep manifest locally", "partition", r.p.String(), "err", err)
		return
	}
	r.keep(m)
}

// loadPage returns the page that ref names: from memory, from the local
// database, or from the bucket.
func (r *Remote) loadPage(ctx context.Context, ref pageRef) (*page, error) {
	k := pageKey{r.key, ref.id}
	return r.a.pages.load(ctx, k, r.a.spawn, func(ctx context.Context) (*page, error) {
		if body, ok := r.a.db.page(k); ok {
			if p, err := r.decodePage(ref, body); err == nil {
				return p, nil
			}
		}
		ctx, cancel := context.WithTimeout(ctx, r.a.cfg.GetTimeout)
		defer cancel()
		body, _, err := objstore.ReadAll(ctx, r.a.deps.Store, r.pageKey(ref.id), pageBytesMax)
		if errors.Is(err, objstore.ErrNotFound) {
			r.suspect(MarkID{KeyPage, ref.id})
			return nil, fmt.Errorf("manifest page %s: %w", r.pageKey(ref.id), ErrMissing)
		}
		if err != nil {
			return nil, storeError("read manifest page", err)
		}
		p, err := r.decodePage(ref, body)
		if err != nil {
			r.suspect(MarkID{KeyPage, ref.id})
			return nil, err
		}
		if err := r.a.db.putPage(k, body); err != nil {
			r.a.log.Warn("keep manifest page locally", "partition", r.p.String(), "err", err)
		}
		return p, nil
	})
}

func (r *Remote) decodePage(ref pageRef, body []byte) (*page, error) {
	key := r.pageKey(ref.id)
	if len(body) != int(ref.size) || crc32c(body) != ref.crc {
		return nil, &CorruptError{Key: key, Offset: -1, Reason: "not the page that the head names"}
	}
	p, id, partition, err := decodePage(body)
	if err != nil {
		return nil, named(err, key)
	}
	if id != r.p.ID || partition != r.p.Index || len(p.entries) != int(ref.count) ||
		p.entries[0].ID.Base != ref.id.Base || p.entries[len(p.entries)-1].End != ref.end {
		return nil, &CorruptError{Key: key, Offset: -1, Reason: "page of another range"}
	}
	return p, nil
}

// State returns the archive in numbers from what this process knows, reading the
// bucket only when it knows nothing yet.
func (r *Remote) State(ctx context.Context) (State, error) {
	if s := r.summary.Load(); s != nil {
		return *s, nil
	}
	m, err := r.load(ctx)
	if err != nil {
		return State{}, err
	}
	return m.state(), nil
}

// Cached returns the state if this process holds it in memory; no I/O.
func (r *Remote) Cached() (State, bool) {
	if s := r.summary.Load(); s != nil {
		return *s, true
	}
	return State{}, false
}

// Refresh reads the head from the bucket and returns the state it gives: a
// linearizable answer.
func (r *Remote) Refresh(ctx context.Context) (State, error) {
	m, err := r.refresh(ctx)
	if err != nil {
		return State{}, err
	}
	return m.state(), nil
}

// Topic returns the topic's name and settings as the head remembers them; an
// empty name when it was never told.
func (r *Remote) Topic(ctx context.Context) (TopicInfo, error) {
	m, err := r.load(ctx)
	if err != nil {
		return TopicInfo{}, err
	}
	return m.info.clone(), nil
}

// Segments calls fn for every live segment that ends above from, in offset
// order, until fn returns false. Segments below the start that are not marked
// yet are among them.
func (r *Remote) Segments(ctx context.Context, from int64, fn func(RemoteSegment) bool) error {
	_, err := secondLook(ctx, r, func(m *manifest) (struct{}, error) {
		return struct{}{}, r.walk(ctx, m, from, nil, func(s RemoteSegment) bool {
			from = s.End // a second look goes on behind what was seen
			return fn(s)
		})
	})
	return err
}

// walk visits the live segments of m that end above from, leaving out pages that
// skip refuses.
func (r *Remote) walk(ctx context.Context, m *manifest, from int64, skip func(*pageRef) bool, fn func(RemoteSegment) bool) error {
	for i := m.pageFor(from); i < len(m.pages); i++ {
		if skip != nil && skip(&m.pages[i]) {
			continue
		}
		p, err := r.loadPage(ctx, m.pages[i])
		if err != nil {
			return err
		}
		live := p.entries[m.pages[i].dead:]
		for _, s := range live[entryFor(live, from):] {
			if !fn(s) {
				return nil
			}
		}
	}
	for _, s := range m.tail[entryFor(m.tail, from):] {
		if !fn(s) {
			return nil
		}
	}
	return nil
}

// Find returns the live segment that holds offset: ErrBelowStart, ErrNotTiered.
func (r *Remote) Find(ctx context.Context, offset int64) (RemoteSegment, error) {
	m, err := r.load(ctx)
	if err != nil {
		return RemoteSegment{}, err
	}
	if offset >= m.end && !r.trusted.Load() {
		if m, err = r.refresh(ctx); err != nil {
			return RemoteSegment{}, err
		}
	}
	return r.find(ctx, m, offset)
}

func (r *Remote) find(ctx context.Context, m *manifest, offset int64) (RemoteSegment, error) {
	switch {
	case m.retired || offset < m.start:
		return RemoteSegment{}, fmt.Errorf("offset %d of %s, start %d: %w", offset, r.p, m.start, ErrBelowStart)
	case offset >= m.end:
		return RemoteSegment{}, fmt.Errorf("offset %d of %s, end %d: %w", offset, r.p, m.end, ErrNotTiered)
	}
	entries := m.tail
	if i := m.pageFor(offset); i < len(m.pages) {
		p, err := r.loadPage(ctx, m.pages[i])
		if err != nil {
			return RemoteSegment{}, err
		}
		entries = p.entries[m.pages[i].dead:]
	}
	i := entryFor(entries, offset)
	if i == len(entries) || entries[i].ID.Base > offset {
		return RemoteSegment{}, &CorruptError{Key: r.headKey(), Offset: -1, Reason: fmt.Sprintf("no segment holds offset %d", offset)}
	}
	return entries[i], nil
}

// Marked lists the objects that wait for deletion, oldest mark first.
func (r *Remote) Marked(ctx context.Context) ([]Marked, error) {
	m, err := r.load(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]Marked, len(m.marked))
	for i, k := range m.marked {
		k.Key = r.Key(k.ID)
		if k.Kind == KeyPage {
			k.Key = r.pageKey(k.ID)
		}
		out[i] = k
	}
	return out, nil
}

// Referenced says which of the keys the committed manifest, read from the bucket
// now, names: live, marked, or the head itself. Collectors ask it before they
// delete an object found by listing. Any error means "all of them".
func (r *Remote) Referenced(ctx context.Context, keys []string) (map[string]bool, error) {
	m, err := r.refresh(ctx)
	if err != nil {
		return nil, err
	}
	return r.namedBy(ctx, m, keys)
}

// namedBy says which of the keys a manifest names.
func (r *Remote) namedBy(ctx context.Context, m *manifest, keys []string) (map[string]bool, error) {
	named := map[string]bool{}
	want := make(map[string]bool, len(keys))
	for _, k := range keys {
		want[k] = true
	}
	note := func(key string) {
		if want[key] {
			named[key] = true
		}
	}
	note(r.headKey())
	for _, p := range m.pages {
		note(r.pageKey(p.id))
	}
	for _, k := range m.marked {
		note(r.Key(k.ID))
		note(r.pageKey(k.ID))
	}
	err := r.walk(ctx, m, -1, nil, func(s RemoteSegment) bool {
		note(r.Key(s.ID))
		return true
	})
	if err != nil {
		return nil, err
	}
	return named, nil
}

// Lineage returns the leader epochs of the archive's offsets.
func (r *Remote) Lineage(ctx context.Context) (lineage.Chain, error) {
	return secondLook(ctx, r, func(m *manifest) (lineage.Chain, error) {
		var all lineage.Chain
		for _, ref := range m.pages {
			p, err := r.loadPage(ctx, ref)
			if err != nil {
				return nil, err
			}
			all = appendChain(all, p.chain)
		}
		return appendChain(all, m.chain).TruncateStart(m.start), nil
	})
}

// appendChain appends what chain adds to the epochs of all.
func appendChain(all, chain lineage.Chain) lineage.Chain {
	for _, e := range chain {
		if e.Epoch > all.Latest() {
			all = append(all, e)
		}
	}
	return all
}

// EpochAt returns the leader epoch of the batch that holds offset.
func (r *Remote) EpochAt(ctx context.Context, offset int64) (int32, error) {
	return secondLook(ctx, r, func(m *manifest) (int32, error) { return r.epochAt(ctx, m, offset) })
}

func (r *Remote) epochAt(ctx context.Context, m *manifest, offset int64) (int32, error) {
	if m.retired || offset < m.start {
		return lineage.NoEpoch, ErrBelowStart
	}
	if offset >= m.end {
		return lineage.NoEpoch, ErrNotTiered
	}
	i := m.pageFor(offset)
	if i == len(m.pages) {
		return m.chain.EpochAt(offset), nil
	}
	if ref := m.pages[i]; ref.firstEpoch == ref.lastEpoch {
		return ref.firstEpoch, nil
	}
	p, err := r.loadPage(ctx, m.pages[i])
	if err != nil {
		return lineage.NoEpoch, err
	}
	return p.chain.EpochAt(offset), nil
}
