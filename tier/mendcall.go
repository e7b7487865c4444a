package tier

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	"github.com/varvelog/varve/hot/lineage"
	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/tier/objstore"
)

var (
	// errSound is returned when an object that was to be mended is what it should be.
	errSound = errors.New("tier: the object is sound")
	// errOtherRecords is returned when the local log has other records than the
	// manifest says of the same offsets.
	errOtherRecords = errors.New("tier: the local log has other records in that range")
	// errLocalDamage is returned when the local log is damaged in the range. It is not
	// for ever: replicas mend one another.
	errLocalDamage = errors.New("tier: the local log is damaged in that range")
	// errUnsound is returned when an object does not read back as it was put.
	errUnsound = errors.New("tier: the store does not give back what was put")
)

// scrub reads the next piece of an archive. Who has no lease may have been deposed,
// and leaves it to the next leader.
func (m *Manager) scrub(ctx context.Context, l *Leadership, e fxScrub, a answer) {
	got, err := within(m, ctx, e.timeoutMillis, func(ctx context.Context) (scrubbed, error) {
		if !l.log.Leased() {
			return scrubbed{}, errNoLease
		}
		got, err := l.remote.scrub(ctx, e.place, m.now().wall)
		if err == nil && got.next.at == 0 { // an object is done
			if err := m.archive.db.putScrub(l.remote.key, got.next); err != nil {
				m.archive.complaints.warn(m.log, "keep how far the archive was read", "topic", e.p.Topic, "partition", e.p.Index, "err", err)
			}
		}
		return got, err
	})
	m.countRead(e.p, got.read)
	if got.next.done {
		m.counts.update(e.p.Topic, func(t *TopicCounters) { t.ScrubPasses++ })
	}
	m.post(evScrubbed{a.with(err), got})
}

func (m *Manager) examine(ctx context.Context, l *Leadership, e fxExamine, a answer) {
	var meter readMeter
	found, err := within(m, ctx, e.timeoutMillis, func(ctx context.Context) (examined, error) {
		if !l.log.Leased() {
			return examined{}, errNoLease
		}
		return l.remote.examine(ctx, e.object, e.before, &meter)
	})
	m.post(evExamined{a.with(err), e.object, found, m.countRead(e.p, meter.tally())})
}

// countRead counts what was read to compare checksums.
func (m *Manager) countRead(p topic.Partition, t readTally) readTally {
	m.counts.update(p.Topic, func(c *TopicCounters) {
		c.ScrubRequests += t.requests
		c.ScrubBytes += t.bytes
	})
	return t
}

// mend puts the records of a damaged object anew, from the local log.
func (m *Manager) mend(ctx context.Context, l *Leadership, e fxMend, a answer) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	own := l.begin(e.id, cancel)
	job := &mending{
		remote: l.remote, id: e.object, epoch: e.epoch, now: m.now().wall,
		sealed: func(from int64) []Segment { return l.log.Sealed(from, math.MaxInt64) },
		named:  func(key string) { l.name(own, key) },
		wrap:   func(body objstore.Body) objstore.Body { return &limitedBody{Body: body, ctx: ctx, rate: &m.rate} },
		random: randomUint64(),
	}
	add, err := within(m, ctx, e.timeoutMillis, func(ctx context.Context) (AddSegment, error) {
		defer l.finish(e.id)
		if !l.log.Leased() {
			return AddSegment{}, errNoLease
		}
		return job.run(ctx)
	})
	// What did not end in time may put an object still.
	put := job.put.Load() || errors.Is(err, errNotEnded)
	m.post(evMended{answer: a.with(err), id: e.id, object: e.object, bytes: e.bytes, add: add, put: put, read: m.countRead(e.p, job.meter.tally())})
}

// mending puts one object anew. Nothing of the damaged object is read before the local
// log is known to have what it held. What it puts is of the same range, of the same
// leader epochs by the lineages of both tiers, and passes the checksums of its
// batches; and it reads back as it was put.
type mending struct {
	remote *Remote
	id     MarkID
	epoch  int32
	now    int64
	random uint64
	sealed func(from int64) []Segment
	named  func(key string)
	wrap   func(objstore.Body) objstore.Body

	put    atomic.Bool // an object may be in the store
	meter  readMeter
	broken mutant
}

func (j *mending) run(ctx context.Context) (AddSegment, error) {
	x, _, _, err := j.remote.namedNow(ctx, j.id)
	switch {
	case err != nil:
		return AddSegment{}, err
	case !x.named:
		return AddSegment{}, errSound
	case j.id.Kind == KeyPage:
		if err := j.remote.pageAtHand(ctx, j.id.ID); err != nil {
			return AddSegment{}, err
		}
		return AddSegment{}, j.damaged(ctx)
	}
	old := &x.segment
	seg, err := spanOf(j.sealed(old.ID.Base), old.ID.Base, old.End)
	if errors.Is(err, ErrCorrupt) {
		err = fmt.Errorf("%w: %w", errLocalDamage, err)
	}
	if err != nil {
		return AddSegment{}, err
	}
	obj, err := j.remote.build(ctx, seg, BuildOptions{LeaderEpoch: j.epoch, From: old.ID.Base, Now: j.now, ExactEpochs: true}, j.random)
	if errors.Is(err, ErrCorrupt) { // the local bytes: nothing else was read
		err = errors.Join(fmt.Errorf("%w: %w", errLocalDamage, err), seg.Suspect())
	}
	if err != nil {
		return AddSegment{}, err
	}
	defer obj.Close()
	add := obj.Add()
	if err := j.same(ctx, old, &add); err != nil {
		return AddSegment{}, err
	}
	if err := j.damaged(ctx); err != nil {
		return AddSegment{}, err
	}
	j.named(obj.Key())
	j.put.Store(true)
	if err := obj.Put(ctx, j.wrap); err != nil {
		return AddSegment{}, err
	}
	fault, _, err := j.remote.soundness(ctx, obj.Key(), add.Segment.StoredBytes, add.Segment.ObjectCRC, examined{}, &j.meter)
	if err == nil && fault != FaultNone {
		err = fmt.Errorf("%s: %s: %w", obj.Key(), fault, errUnsound)
	}
	return add, err
}

// damaged is errSound when the object is not missing or damaged any more.
func (j *mending) damaged(ctx context.Context) error {
	x, err := j.remote.examine(ctx, j.id, examined{}, &j.meter)
	if err == nil && (!x.named || x.fault == FaultNone && j.broken != mutantMendSound) {
		err = errSound
	}
	return err
}

// same says whether what is to take an object's place has the same records, as far as
// the manifest tells.
func (j *mending) same(ctx context.Context, old *RemoteSegment, add *AddSegment) error {
	s := &add.Segment
	if s.ID.Base != old.ID.Base || s.End != old.End || s.RawBytes != old.RawBytes ||
		s.MinTimestamp != old.MinTimestamp || s.MaxTimestamp != old.MaxTimestamp || s.HasAborted != old.HasAborted {
		return fmt.Errorf("[%d, %d) of %d bytes, times %d to %d, for [%d, %d) of %d bytes, times %d to %d: %w",
			s.ID.Base, s.End, s.RawBytes, s.MinTimestamp, s.MaxTimestamp,
			old.ID.Base, old.End, old.RawBytes, old.MinTimestamp, old.MaxTimestamp, errOtherRecords)
	}
	chain, err := j.remote.chainOf(ctx, old)
	if err != nil {
		return err
	}
	if !slices.Equal(chain, add.Lineage) {
		return fmt.Errorf("leader epochs %v for %v: %w", add.Lineage, chain, errOtherRecords)
	}
	return nil
}

// chainOf is what the manifest has of the leader epochs of a segment.
func (r *Remote) chainOf(ctx context.Context, s *RemoteSegment) (lineage.Chain, error) {
	return secondLook(ctx, r, func(m *manifest) (lineage.Chain, error) {
		i := m.pageFor(s.ID.Base)
		if i == len(m.pages) {
			return m.chain.Slice(s.ID.Base, s.End), nil
		}
		p, err := r.loadPage(ctx, m.pages[i])
		if err != nil {
			return nil, err
		}
		return p.chain.Slice(s.ID.Base, s.End), nil
	})
}

// pageAtHand says that this broker has what a manifest page has to hold.
func (r *Remote) pageAtHand(ctx context.Context, id SegmentID) error {
	m, err := r.load(ctx)
	if err != nil {
		return err
	}
	i := m.pageNamed(id)
	if i < 0 {
		return errSound
	}
	_, err = r.loadPage(ctx, m.pages[i])
	if errors.Is(err, ErrMissing) || errors.Is(err, ErrCorrupt) {
		return fmt.Errorf("%w: %w", errNotLocal, err)
	}
	return err
}

// tale is something that is said of an object.
type tale uint8

const (
	taleFound  tale = iota // it is missing or damaged
	taleStays              // it cannot be mended from here
	taleMended             // it was replaced
	taleSound              // it is what it should be again
	taleGone               // the manifest does not name it any more
)

// tell puts what is known of an object into the log, once for each news.
func (m *Manager) tell(e fxTell) {
	log := m.log.With("topic", e.p.Topic, "partition", e.p.Index, "object", e.found.key, "base", e.found.base, "end", e.found.end)
	count := func(fn func(*TopicCounters)) { m.counts.update(e.p.Topic, fn) }
	switch e.tale {
	case taleFound:
		count(func(t *TopicCounters) { t.FoundDamaged++ })
		log.Error("an object of the archive is not what the manifest says: its offsets are refused, all others are served", "fault", e.found.fault.String())
	case taleStays:
		log.Error("an object of the archive cannot be mended from the local log: put it back from a version or a copy of the bucket, and it is read again",
			"fault", e.found.fault.String(), "err", e.err)
	case taleMended:
		count(func(t *TopicCounters) { t.Mended++ })
		log.Info("an object of the archive was put anew from the local log")
	case taleSound:
		log.Info("an object of the archive is sound again")
	case taleGone:
		log.Info("a damaged object of the archive is not needed any more")
	}
}
