package tier

import (
	"context"
	"errors"
	"fmt"

	"github.com/varvelog/varve/tier/objstore"
)

// errSegmentGone is returned when a planned segment is no longer in the local
// log; the core looks again and plans anew.
var errSegmentGone = errors.New("tier: the segment is no longer in the local log")

// upload builds and puts one object.
func (m *Manager) upload(ctx context.Context, l *Leadership, e fxUpload, a answer) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	own := l.begin(e.id, cancel)
	type built struct {
		add AddSegment
		key string
	}
	b, err := within(m, ctx, e.timeoutMillis, func(ctx context.Context) (built, error) {
		// The key stays this process's own until the call is really over.
		defer l.finish(e.id)
		if !l.log.Leased() {
			return built{}, errNoLease
		}
		seg, err := segmentEnding(l, e.from, e.end)
		if err != nil {
			return built{}, err
		}
		obj, err := l.remote.Build(ctx, seg, BuildOptions{LeaderEpoch: e.epoch, From: e.from, Now: m.now().wall})
		if errors.Is(err, ErrCorrupt) { // the local bytes: nothing else was read
			err = errors.Join(err, seg.Suspect())
		}
		if err != nil {
			return built{}, err
		}
		defer obj.Close()
		b := built{key: obj.Key()}
		l.name(own, b.key)
		err = obj.Put(ctx, func(body objstore.Body) objstore.Body {
			return &limitedBody{Body: body, ctx: ctx, rate: &m.rate}
		})
		if err != nil {
			return b, err
		}
		b.add = obj.Add()
		return b, nil
	})
	m.counts.update(e.p.Topic, func(t *TopicCounters) {
		t.CopyRequests++
		if err != nil {
			t.CopyErrors++
			return
		}
		t.CopyBytes += b.add.Segment.StoredBytes
		t.CopyRawBytes += b.add.Segment.RawBytes
	})
	m.post(evUploaded{answer: a.with(err), id: e.id, bytes: e.bytes, key: b.key, add: b.add})
}

// segmentEnding finds the sealed segment that the core planned.
func segmentEnding(l *Leadership, from, end int64) (Segment, error) {
	if l.resigned.Load() {
		return nil, errResigned
	}
	for _, s := range l.log.Sealed(from, end) {
		if s.EndOffset() == end {
			return s, nil
		}
	}
	return nil, fmt.Errorf("[%d, %d): %w", from, end, errSegmentGone)
}
