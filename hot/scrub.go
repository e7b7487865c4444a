package hot

import (
	"cmp"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"time"
)

// Scrubbing reads sealed segments slowly, all of them in turn, and checks every batch as a reader would. Segments live for years,
// and most are read by nobody for months: a bit that flips there must be found while a good copy is still to be had. What is found
// is barred and told like what a reader finds.
//
// It sees what the kernel gives: of pages that are cached, the memory and not the disk. Those are of what is read often anyway.

const (
	scrubDelay   = time.Minute    // from the start to the first pass, and between passes that found nothing to read
	scrubPassMin = 24 * time.Hour // between the starts of two passes: small logs need not be read all day
)

// scrubbed is what one pass has done.
type scrubbed struct {
	segments, damaged int
	bytes             int64
}

// scrub passes over the store until stop closes. The first pass begins anywhere, so that a node that is restarted often comes to
// everything, too.
func (s *Store) scrub(stop <-chan struct{}) {
	pause := time.NewTimer(scrubDelay)
	defer pause.Stop()
	for {
		select {
		case <-stop:
			return
		case <-pause.C:
		}
		began := time.Now()
		r, done := s.scrubPass(stop)
		if !done {
			return
		}
		next := scrubDelay
		if r.bytes > 0 {
			next = max(next, scrubPassMin-time.Since(began))
			s.stats.ScrubPasses.Add(1)
			s.logger.Info("all sealed segments were checked", "segments", r.segments, "bytes", r.bytes, "damaged", r.damaged, "seconds", int64(time.Since(began).Seconds()))
		}
		pause.Reset(next)
	}
}

// scrubPass checks what is sealed now; done is false when it was stopped.
func (s *Store) scrubPass(stop <-chan struct{}) (r scrubbed, done bool) {
	logs := s.opened()
	if len(logs) == 0 {
		return r, true
	}
	slices.SortFunc(logs, func(a, b *Log) int {
		return cmp.Or(slices.Compare(a.part.ID[:], b.part.ID[:]), cmp.Compare(a.part.Index, b.part.Index))
	})
	first := rand.IntN(len(logs))
	for i := range logs {
		l := logs[(first+i)%len(logs)]
		for _, seg := range l.list() {
			if !seg.is(segSealed) || !seg.is(segSynced) || seg.is(segGone) || seg.bad.Load() != nil {
				continue
			}
			n, err := s.scrubSegment(seg, stop)
			r.bytes += n
			switch {
			case errors.Is(err, ErrClosed):
				return r, false
			case errors.Is(err, ErrCorrupt):
				r.damaged++
			case err != nil && !seg.is(segGone):
				l.logger().Warn("segment could not be checked", "segment", seg.base, "err", err)
				continue
			}
			r.segments++
		}
	}
	return r, true
}

// scrubSegment checks every batch of a segment at the store's pace. ErrCorrupt says that some of it is barred now.
func (s *Store) scrubSegment(seg *segment, stop <-chan struct{}) (read int64, err error) {
	size, err := seg.bytes()
	if err != nil {
		return 0, err
	}
	h, err := s.files.acquire(seg, false)
	if err != nil {
		return 0, err
	}
	defer s.files.release(h)
	limit, next := seg.endAfter(), seg.base
	sc := newScanner(h.file, 0, size)
	for {
		at := sc.pos
		b, err := sc.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = seg.log.inPlace(b, sc.have, next, limit)
		}
		if err != nil {
			s.stats.ScrubBytes.Add(at - read)
			if isDamage(err) || errors.Is(err, ErrNotContiguous) {
				err = seg.damaged(at, err)
			}
			return at, err
		}
		next = b.NextOffset()
		if sc.pos-read < scanBytes && sc.pos < size {
			continue
		}
		n := sc.pos - read
		read = sc.pos
		s.stats.ScrubBytes.Add(n)
		if !s.pace(n, stop) {
			return read, ErrClosed
		}
		if seg.is(segGone) {
			return read, ErrSegmentGone
		}
	}
	return read, nil
}

// pace waits as long as n bytes may take; false when stop closes.
func (s *Store) pace(n int64, stop <-chan struct{}) bool {
	wait := time.NewTimer(time.Duration(float64(n) / float64(s.config.ScrubBytesPerSecond) * float64(time.Second)))
	defer wait.Stop()
	select {
	case <-wait.C:
		return true
	case <-stop:
		return false
	}
}
