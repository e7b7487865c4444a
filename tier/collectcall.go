package tier

import (
	"context"
	"fmt"
	"math"

	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/tier/objstore"
)

// listBatch is the number of listed objects that are judged at once.
const listBatch = 1000

// collection is one run of the orphan collector over a partition.
type collection struct {
	archive        *Archive
	remote         *Remote
	epoch          int32
	lifetimeMillis int64
	search         bool                   // remove nothing, say whether there is anything
	own            func() map[string]bool // keys of this process's unsettled uploads
	wall           func() int64
	removed        func(keys []string)
	broken         mutant
	orphans        bool    // a search looks for orphans
	survey         *survey // what a search compares the listing with, nil for nothing
}

func (m *Manager) collect(ctx context.Context, l *Leadership, e fxCollect, a answer) {
	run := collection{
		archive: m.archive, remote: l.remote, epoch: e.epoch, search: e.search, orphans: e.orphans, lifetimeMillis: e.lifetimeMillis,
		own: l.ownKeys, wall: func() int64 { return m.now().wall },
		removed: func(keys []string) {
			m.log.Info("removed orphaned objects", "topic", e.p.Topic, "partition", e.p.Index,
				"objects", len(keys), "first", keys[0])
			m.counts.update(e.p.Topic, func(t *TopicCounters) { t.Orphans += int64(len(keys)) })
		},
	}
	if e.survey {
		run.survey = &survey{}
	}
	left, err := within(m, ctx, e.timeoutMillis, run.run)
	m.post(collected(e, a.with(err), left, run.survey))
}

// run removes objects under the partition's prefix that the manifest does not
// name: what failed uploads, lost answers and earlier leaders left behind. left
// tells that some are too young yet.
//
// Listing comes first, the manifest second: an object listed and not named was
// unreferenced after it had been listed. It is too old to be committed still
// (T7), its epoch is not above ours, and it is none of this process's own.
//
// A search removes nothing, and asks the manifest as it is known here: left tells
// that there is something to be looked into under a claim.
func (r collection) run(ctx context.Context) (left bool, err error) {
	known := map[SegmentID]bool{}
	if !r.search || r.orphans {
		if known, err = r.known(ctx); err != nil {
			return false, err
		}
	}
	if r.search {
		return r.find(ctx, known)
	}
	err = listInBatches(ctx, r.archive.deps.Store, r.remote.Prefix(), func(batch []objstore.Object) error {
		keys, young := orphanCandidates(r.archive.Config(), batch, r.own(), known, r.epoch,
			r.wall(), r.lifetimeMillis, r.broken)
		left = left || young
		return r.remove(ctx, keys)
	})
	return left, err
}

// find says whether the partition has objects that the manifest as it is known here
// does not name, of whatever age, and shows the survey the listing.
func (r collection) find(ctx context.Context, known map[SegmentID]bool) (found bool, err error) {
	m, err := r.remote.load(ctx)
	if err != nil {
		return false, err
	}
	if r.survey != nil {
		if err := r.survey.expect(ctx, r.remote, m); err != nil {
			return false, err
		}
	}
	err = listInBatches(ctx, r.archive.deps.Store, r.remote.Prefix(), func(batch []objstore.Object) error {
		if r.survey != nil {
			r.survey.see(r.archive.Config(), batch)
		}
		if !r.orphans || found {
			return nil
		}
		keys, _ := orphanCandidates(r.archive.Config(), batch, r.own(), known, r.epoch, 1<<60, -1, r.broken)
		if len(keys) == 0 {
			return nil
		}
		named, err := r.remote.namedBy(ctx, m, keys)
		found = len(named) < len(keys)
		return err
	})
	return found, err
}

// known are the objects that the manifest as cached here names. They need no
// question to the bucket.
func (r collection) known(ctx context.Context) (map[SegmentID]bool, error) {
	known := map[SegmentID]bool{}
	err := r.remote.Segments(ctx, math.MinInt64, func(s RemoteSegment) bool {
		known[s.ID] = true
		return true
	})
	return known, err
}

// remove asks the manifest, read from the bucket now, and deletes what it does
// not name. Any doubt ends it.
func (r collection) remove(ctx context.Context, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	state, err := r.remote.Refresh(ctx)
	if err != nil {
		return err
	}
	if state.LeaderEpoch != r.epoch {
		return fmt.Errorf("collect under epoch %d, manifest held by %d: %w", r.epoch, state.LeaderEpoch, ErrFenced)
	}
	named, err := r.remote.Referenced(ctx, keys)
	if err != nil {
		return err
	}
	orphans := keys[:0:0]
	for _, k := range keys {
		if !named[k] {
			orphans = append(orphans, k)
		}
	}
	if len(orphans) == 0 {
		return nil
	}
	if err := r.archive.deps.Store.Delete(ctx, orphans...); err != nil {
		return err
	}
	r.removed(orphans)
	return nil
}

func listInBatches(ctx context.Context, store objstore.Store, prefix string, judge func([]objstore.Object) error) error {
	after := ""
	for {
		batch := make([]objstore.Object, 0, listBatch)
		err := store.List(ctx, prefix, after, func(o objstore.Object) bool {
			batch = append(batch, o)
			return len(batch) < listBatch
		})
		if err != nil {
			return err
		}
		if err := judge(batch); err != nil {
			return err
		}
		if len(batch) < listBatch {
			return nil
		}
		after = batch[len(batch)-1].Key
	}
}

// bury does one step of the removal of a deleted topic's partition.
func (m *Manager) bury(e fxBury) {
	_, err := within(m, m.ctx, e.timeoutMillis, func(ctx context.Context) (struct{}, error) {
		var err error
		switch e.step {
		case graveRetire:
			err = m.retire(ctx, e.p)
		case graveSweep:
			err = m.sweep(ctx, m.archive.Partition(e.p), false)
		case graveSweepAgain:
			err = m.sweep(ctx, m.archive.Partition(e.p), true)
		default:
			err = m.forget(e.p)
		}
		return struct{}{}, err
	})
	switch {
	case err == nil || m.ctx.Err() != nil:
	case unreadable(err):
		m.log.Error("removal of a deleted partition waits: its manifest cannot be read, and nothing that it may name is deleted; "+
			"put back an earlier version of the object, or delete that one object by hand, and the removal goes on by itself",
			"topic", e.p.Topic, "partition", e.p.Index, "object", m.archive.Partition(e.p).headKey(), "err", err)
	default:
		m.archive.complaints.warn(m.log, "removal of a deleted partition is delayed", "topic", e.p.Topic, "partition", e.p.Index, "err", err)
	}
	m.post(evBuried{e.p, e.step, err})
}

func (m *Manager) forget(p topic.Partition) error {
	if err := m.archive.Forget(p); err != nil {
		return err
	}
	if err := m.journal.done(p); err != nil {
		return fmt.Errorf("note the end of the removal of %s: %w", p, err)
	}
	m.log.Info("removed a deleted partition from the bucket", "topic", p.Topic, "partition", p.Index)
	m.counts.drop(p.Topic)
	if m.removed != nil {
		m.removed(p)
	}
	return nil
}

// retire fences every leader for good, also where there is no manifest: nobody has
// claimed it, or another broker has swept already, and a claim may be on its way. The
// deletion is committed, so a head that was there and is gone, or began anew, is no
// damage: what is remembered does not count.
func (m *Manager) retire(ctx context.Context, p topic.Partition) error {
	if err := m.archive.Forget(p); err != nil {
		return err
	}
	r := m.archive.Partition(p)
	state, err := r.Refresh(ctx)
	if err != nil || state.Retired {
		return err
	}
	return r.Commit(ctx, Edit{LeaderEpoch: math.MaxInt32, Retire: true})
}

// sweep deletes everything under the prefix; the head only when last: until then
// the retired head fences late leaders.
func (m *Manager) sweep(ctx context.Context, r *Remote, last bool) error {
	head := ""
	err := listInBatches(ctx, m.archive.deps.Store, r.Prefix(), func(batch []objstore.Object) error {
		keys := make([]string, 0, len(batch))
		for _, o := range batch {
			info, ok := m.archive.Config().ParseKey(o.Key)
			switch {
			case ok && info.Kind == KeyHead:
				head = o.Key
			case ok:
				keys = append(keys, o.Key)
			}
		}
		return m.deleteSwept(ctx, r, keys)
	})
	if err != nil || head == "" || !last {
		return err
	}
	return m.deleteSwept(ctx, r, []string{head})
}

func (m *Manager) deleteSwept(ctx context.Context, r *Remote, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	err := m.archive.deps.Store.Delete(ctx, keys...)
	m.counts.update(r.Partition().Topic, func(t *TopicCounters) {
		t.DeleteRequests++
		if err != nil {
			t.DeleteErrors++
		} else {
			t.DeletedObjects += int64(len(keys))
		}
	})
	return err
}
