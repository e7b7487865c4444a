package hot

import (
	"errors"
	"io"
	"slices"
	"time"
)

// Scrubbing reads sealed segments slowly, all of them in turn, and checks every batch as a reader would. Segments live for years,
// and most are read by nobody for months: a bit that flips there must be found while a good copy is still to be had. What is found
// is barred and told like what a reader finds.
//
// It sees what the kernel gives: of pages that are cached, the memory and not the disk. Those are of what is read often anyway.

const (
	scrubDelay   = time.Minute    // from the start to the first pass, between passes that found nothing to read, and between two notes of the place
	scrubPassMin = 24 * time.Hour // between the starts of two passes: small logs need not be read all day
)

// scrubbed is what one pass has done.
type scrubbed struct {
	segments, damaged int
	bytes             int64
}

// scrub passes over the store until stop closes. A pass goes on where the last start's was, so that a node that is restarted
// often comes to everything, too.
func (s *Store) scrub(stop <-chan struct{}) {
	at := s.scrubPlace()
	pause := time.NewTimer(s.scrubPause(at))
	defer pause.Stop()
	for {
		select {
		case <-stop:
			return
		case <-pause.C:
		}
		resumed := !at.done && at.began > 0
		if !resumed {
			at = scrubPlace{began: s.now()}
		}
		began := time.Now()
		r, done := s.scrubPass(&at, stop)
		if !done {
			return
		}
		if r.bytes == 0 && !resumed {
			at = scrubPlace{}
			pause.Reset(scrubDelay)
			continue
		}
		at = scrubPlace{began: at.began, done: true}
		s.saveScrubPlace(at)
		s.stats.ScrubPasses.Add(1)
		s.logger.Info("all sealed segments were checked", "segments", r.segments, "bytes", r.bytes, "damaged", r.damaged, "seconds", int64(time.Since(began).Seconds()))
		pause.Reset(s.scrubPause(at))
	}
}

// scrubPause is how long to wait for the next pass.
func (s *Store) scrubPause(at scrubPlace) time.Duration {
	if !at.done {
		return scrubDelay
	}
	next := time.UnixMilli(at.began).Add(scrubPassMin).Sub(time.UnixMilli(s.now()))
	return min(max(next, scrubDelay), scrubPassMin)
}

// scrubPass checks what is sealed now, from a place on; done is false when it was stopped.
func (s *Store) scrubPass(at *scrubPlace, stop <-chan struct{}) (r scrubbed, done bool) {
	logs := s.opened()
	slices.SortFunc(logs, func(a, b *Log) int { return compareKeys(keyOf(a.part), keyOf(b.part)) })
	noted := time.Now()
	for _, l := range logs {
		k := keyOf(l.part)
		for _, seg := range l.list() {
			if !at.reached(k, seg.base) || !seg.is(segSealed) || !seg.is(segSynced) || seg.is(segGone) || seg.bad.Load() != nil {
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
			if at.key, at.from = k, seg.base+1; time.Since(noted) >= scrubDelay {
				s.saveScrubPlace(*at)
				noted = time.Now()
			}
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
			switch {
			case unreadable(err):
				err = seg.unreadable(err)
			case isDamage(err) || errors.Is(err, ErrNotContiguous):
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
