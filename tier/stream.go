package tier

import (
	"context"
	"time"
)

// Read-ahead. A stream is one sequential reader of one partition, known by the
// offset it will ask for next. Its window starts at nothing, so a single read
// costs one chunk; each further read that goes on where the last one ended
// doubles it. The window is filled in steps of a quarter of it, so that a large
// one is fetched in few large ranges, several at a time.
const (
	streamIdle = 15 * time.Second // without a read for this long it is forgotten
	streamsMax = 1024
)

// stream is guarded by reader.mu.
type stream struct {
	partition partitionKey
	next      int64 // offset of the read to come
	window    int64 // raw bytes to hold or fetch beyond next
	used      time.Time

	planned  int64 // end offset of what was asked for so far
	planning bool  // a goroutine is at it
}

type streams struct {
	bytesMax int64 // of all windows together
	rangeMax int64
	list     []*stream
}

func newStreams(cfg Config) streams {
	return streams{bytesMax: cfg.CacheBytes / 2, rangeMax: cfg.ReadRangeBytes}
}

// at returns the stream that reads on at offset, with its window grown, or a new
// one.
func (s *streams) at(k partitionKey, offset int64, now time.Time) *stream {
	live := s.list[:0]
	var found *stream
	for _, st := range s.list {
		if now.Sub(st.used) > streamIdle && !st.planning {
			continue
		}
		live = append(live, st)
		if st.partition == k && st.next == offset {
			found = st
		}
	}
	clear(s.list[len(live):])
	s.list = live
	share := s.bytesMax / int64(max(1, len(live)))
	if found != nil {
		found.window = min(max(chunkBytes, 2*found.window), share)
		found.used = now
		return found
	}
	if len(s.list) >= streamsMax {
		return nil
	}
	st := &stream{partition: k, next: offset, used: now}
	s.list = append(s.list, st)
	return st
}

// advance notes that a read of st ended at next, and fills the window beyond.
func (r *reader) advance(st *stream, rem *Remote, next int64) {
	if st == nil {
		return
	}
	r.mu.Lock()
	st.next = next
	st.planned = max(st.planned, next)
	start := st.window > 0 && !st.planning
	st.planning = st.planning || start
	r.mu.Unlock()
	if !start {
		return
	}
	err := r.a.spawn(func(ctx context.Context) { r.plan(ctx, st, rem) })
	if err != nil {
		r.mu.Lock()
		st.planning = false
		r.mu.Unlock()
	}
}

// plan asks for ranges until the window is full. It reads indexes of coming
// objects on the way; errors end it, and are the business of the read that gets
// there.
func (r *reader) plan(ctx context.Context, st *stream, rem *Remote) {
	p := planner{r: r, st: st, rem: rem}
	for ctx.Err() == nil && p.step(ctx) {
	}
	r.mu.Lock()
	st.planning = false
	r.mu.Unlock()
}

// planner walks the archive ahead of a stream.
type planner struct {
	r   *reader
	st  *stream
	rem *Remote
}

// step asks for one range, when the part of the window not yet asked for is at
// least that large; false when there is nothing to do.
func (p *planner) step(ctx context.Context) bool {
	p.r.mu.Lock()
	next, planned, window := p.st.next, p.st.planned, p.st.window
	p.r.mu.Unlock()
	held, ok := p.held(ctx, next, planned)
	if !ok {
		return false
	}
	step := max(chunkBytes, window/4)
	if window-held < step {
		return false
	}
	end, ok := p.ask(ctx, planned, step)
	if !ok {
		return false
	}
	p.r.mu.Lock()
	p.st.planned = max(p.st.planned, end)
	p.r.mu.Unlock()
	return true
}

// held estimates the raw bytes between two offsets from the manifest: exact for
// whole segments, in proportion inside one.
func (p *planner) held(ctx context.Context, from, to int64) (int64, bool) {
	var sum int64
	err := p.rem.Segments(ctx, from, func(s RemoteSegment) bool {
		if s.ID.Base >= to {
			return false
		}
		a, b := max(from, s.ID.Base), min(to, s.End)
		sum += int64(float64(s.RawBytes) * float64(b-a) / float64(s.End-s.ID.Base))
		return true
	})
	return sum, err == nil
}

// ask fetches the chunks from the one that holds offset on, up to step raw bytes
// and the largest range, within one object; the offset after them.
func (p *planner) ask(ctx context.Context, offset, step int64) (int64, bool) {
	s, err := p.rem.Find(ctx, offset)
	if err != nil {
		return 0, false
	}
	t, err := p.rem.target(ctx, s)
	if err != nil {
		return 0, false
	}
	from := t.index.chunkFor(offset)
	to, raw, stored := from, int64(0), int64(0)
	for to < len(t.index.chunks) {
		c := &t.index.chunks[to]
		if to > from && (raw+int64(c.raw) > step || stored+int64(c.stored) > p.r.streams.rangeMax) {
			break
		}
		raw, stored = raw+int64(c.raw), stored+int64(c.stored)
		to++
	}
	p.r.want(t, from, to, true)
	if to == len(t.index.chunks) {
		return s.End, true
	}
	return t.index.chunks[to].base, true
}
