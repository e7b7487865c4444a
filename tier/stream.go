package tier

import (
	"context"
	"time"
)

// Read-ahead. A stream is one sequential reader of one partition, known by the
// offset it will ask for next. A first read costs one chunk. A reader that goes
// on where it ended gets a window of twice what it has consumed so far, up to
// its share of half the cache: no more is ever fetched for nothing than twice
// what was wanted, and the window triples with every round trip. It is filled
// in steps of a quarter of it, so that a large one is fetched in few large
// ranges, several at a time.
const (
	streamIdle         = 15 * time.Second // without a read for this long it is forgotten
	streamSweep        = time.Second
	streamsByPartition = 32
)

// stream is guarded by reader.mu.
type stream struct {
	next     int64 // offset of the read to come
	consumed int64 // bytes read so far
	window   int64 // raw bytes to have asked for beyond next
	ahead    int64 // raw bytes asked for beyond next, about
	planned  int64 // offset after what was asked for
	planning bool  // a goroutine is at it
	used     time.Time
}

// streams is guarded by reader.mu.
type streams struct {
	bytesMax int64 // of all windows together
	rangeMax int64 // stored bytes of one range
	lists    map[partitionKey][]*stream
	active   int // streams with a window
	swept    time.Time
}

func newStreams(cfg Config) streams {
	return streams{bytesMax: cfg.CacheBytes / 2, rangeMax: cfg.ReadRangeBytes, lists: map[partitionKey][]*stream{}}
}

// at returns the stream that reads on at offset, with its window grown, or a new
// one.
func (s *streams) at(k partitionKey, offset int64, now time.Time) *stream {
	if now.Sub(s.swept) > streamSweep {
		s.sweep(now)
	}
	list := s.lists[k]
	for _, st := range list {
		if st.next != offset {
			continue
		}
		st.used = now
		if st.consumed > 0 {
			if st.window == 0 {
				s.active++
			}
			st.window = min(max(chunkBytes, 2*st.consumed), s.bytesMax/int64(max(1, s.active)))
		}
		return st
	}
	st := &stream{next: offset, used: now}
	if len(list) < streamsByPartition {
		s.lists[k] = append(list, st)
		return st
	}
	oldest := 0
	for i := range list {
		if list[i].used.Before(list[oldest].used) {
			oldest = i
		}
	}
	s.drop(list[oldest])
	list[oldest] = st
	return st
}

func (s *streams) drop(st *stream) {
	if st.window > 0 {
		s.active--
	}
	st.window = 0
}

// sweep forgets idle streams.
func (s *streams) sweep(now time.Time) {
	s.swept = now
	for k, list := range s.lists {
		live := list[:0]
		for _, st := range list {
			if now.Sub(st.used) > streamIdle {
				s.drop(st)
				continue
			}
			live = append(live, st)
		}
		clear(list[len(live):])
		s.lists[k] = live
		if len(live) == 0 {
			delete(s.lists, k)
		}
	}
}

// begin notes that a read of st takes the chunk that ends at end and has raw
// bytes, and starts to fill the window beyond it.
func (r *reader) begin(st *stream, rem *Remote, end, raw int64) {
	r.mu.Lock()
	if st.planned < end {
		st.planned, st.ahead = end, raw
	}
	start := st.window > 0 && !st.planning && st.room() > 0
	st.planning = st.planning || start
	r.mu.Unlock()
	if !start {
		return
	}
	if r.a.spawn(func(ctx context.Context) { r.plan(ctx, st, rem) }) != nil {
		r.mu.Lock()
		st.planning = false
		r.mu.Unlock()
	}
}

// end notes what a read of st returned.
func (r *reader) end(st *stream, next, n int64) {
	r.mu.Lock()
	st.next = next
	st.consumed += n
	st.ahead = max(0, st.ahead-n)
	r.mu.Unlock()
}

// room is the step to ask for next, 0 for none: steps are taken whole.
func (st *stream) room() int64 {
	step := max(chunkBytes, st.window/4)
	if st.window-st.ahead < step {
		return 0
	}
	return step
}

// plan asks for ranges until the window is full. It reads indexes of coming
// objects on the way; errors end it, and are the business of the read that gets
// there. One runs per stream at a time.
func (r *reader) plan(ctx context.Context, st *stream, rem *Remote) {
	for ctx.Err() == nil {
		r.mu.Lock()
		step, offset := st.room(), st.planned
		if step == 0 {
			st.planning = false
		}
		r.mu.Unlock()
		if step == 0 {
			return
		}
		end, raw, err := r.ask(ctx, rem, offset, step)
		if err != nil {
			break
		}
		r.mu.Lock()
		if st.planned == offset {
			st.planned = end
			st.ahead += raw
		}
		r.mu.Unlock()
	}
	r.mu.Lock()
	st.planning = false
	r.mu.Unlock()
}

// ask fetches the chunks from the one that holds offset on, up to step raw bytes
// and the largest range, within one object; it returns the offset after them
// and their raw bytes.
func (r *reader) ask(ctx context.Context, rem *Remote, offset, step int64) (end, raw int64, err error) {
	s, err := rem.Find(ctx, offset)
	if err != nil {
		return 0, 0, err
	}
	t, err := rem.target(ctx, s)
	if err != nil {
		return 0, 0, err
	}
	from := t.index.chunkFor(offset)
	to, stored := from, int64(0)
	for to < len(t.index.chunks) {
		c := &t.index.chunks[to]
		if to > from && (raw+int64(c.raw) > step || stored+int64(c.stored) > r.streams.rangeMax) {
			break
		}
		raw, stored = raw+int64(c.raw), stored+int64(c.stored)
		to++
	}
	r.want(t, from, to, true)
	return t.endOf(to - 1), raw, nil
}
