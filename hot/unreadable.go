package hot

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"
	"time"

	"github.com/varvelog/varve/hot/vfs"
)

// A read that the disk fails may have met a page that is lost, a cable, or a disk that is gone as a whole. Only the first is
// damage: pages that fail again and again, while the rest of the segment can be read. They count as bytes that are wrong, so that
// what they held is fetched from another copy and written over them: a disk gives the sector another place then. One that
// cannot be read at all is not declared damaged: reads fail, and the first write that does takes the log offline.

const (
	unreadablePage  = 4096                   // what is read on its own, at its multiples
	unreadableTries = 4                      // of a page, before it is given up
	unreadablePause = 100 * time.Millisecond // between two of them
	unreadableWaits = 12                     // pauses in one look
	unreadableMax   = 256                    // pages given up in one look: with more the disk is gone,
	unreadableMin   = 16                     // or with half of the segment's, but for so few
	unreadableLooks = int64(10_000)          // between two looks at a segment, ms
	unreadableTime  = 10 * time.Second       // that failing reads may take in one look: more, and the disk is gone
)

// unreadable says whether an error is that of a disk which cannot give what was written.
func unreadable(err error) bool {
	return errors.Is(err, syscall.EIO) || errors.Is(err, syscall.EBADMSG)
}

// unreadable looks through a segment of which a read failed, and returns the error for who read it: an ErrCorrupt if some of
// it is barred now.
func (s *segment) unreadable(cause error) error {
	last, now := s.lookedAt.Load(), s.log.store.now()
	if within(now-last, unreadableLooks) || !s.lookedAt.CompareAndSwap(last, now) {
		return cause
	}
	look, err := s.lookThrough()
	switch {
	case err != nil:
		s.log.logger().Warn("segment cannot be read", "segment", s.base, "err", err)
		return cause
	case len(look.ranges) == 0:
		s.log.logger().Warn("a read of a segment failed, and does not any more", "segment", s.base, "err", cause)
		return cause
	}
	return s.damaged(look.ranges[0].from, cause)
}

// patient is a file that reads what it can: a page that fails again and again is given up, and reads as nothing that anybody
// wrote.
type patient struct {
	vfs.File
	stop  <-chan struct{}
	lost  []int64 // pages given up, by position
	waits int
	spent time.Duration // in reads that failed, and after them
}

// ReadAt implements vfs.File.
func (f *patient) ReadAt(p []byte, off int64) (n int, err error) {
	if !f.holds(off, off+int64(len(p))) {
		if n, err = f.read(p, off); !unreadable(err) {
			return n, err
		}
	}
	for n = 0; n < len(p); {
		at := off + int64(n)
		size := min(unreadablePage-int(at%unreadablePage), len(p)-n)
		got, err := f.page(p[n:n+size], at)
		n += got
		if err == nil && got < size {
			err = io.ErrNoProgress
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// read is one read, and counts its time when it fails.
func (f *patient) read(p []byte, off int64) (n int, err error) {
	began := time.Now()
	if n, err = f.File.ReadAt(p, off); unreadable(err) {
		f.spent += time.Since(began)
	}
	return n, err
}

// holds says whether a page between two positions was given up: it is not asked for again.
func (f *patient) holds(from, to int64) bool {
	return slices.ContainsFunc(f.lost, func(page int64) bool { return page < to && from < page+unreadablePage })
}

// page reads within one page. A disk that takes its time to fail has tried again by itself: one page is given up all the
// same, and when another one fails then the disk is gone.
func (f *patient) page(p []byte, at int64) (n int, err error) {
	page := at - at%unreadablePage
	for tries := 0; tries < unreadableTries && !slices.Contains(f.lost, page); tries++ {
		if n, err = f.read(p, at); !unreadable(err) {
			return n, err
		}
		if f.spent > unreadableTime {
			if len(f.lost) > 0 {
				return 0, fmt.Errorf("reads that failed took %v: %w", f.spent, err)
			}
			break
		}
		f.pause()
	}
	size, serr := f.Size()
	if serr != nil {
		return 0, serr
	}
	if !slices.Contains(f.lost, page) {
		if limit := min(max(size/unreadablePage/2, unreadableMin), unreadableMax); int64(len(f.lost)) == limit {
			return 0, fmt.Errorf("%d pages cannot be read: %w", limit, err)
		}
		f.lost = append(f.lost, page)
	}
	n = int(min(int64(len(p)), size-at))
	for i := range p[:n] {
		p[i] = 0xdb
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// pause waits, if it has not done so often.
func (f *patient) pause() {
	if f.waits++; f.waits > unreadableWaits {
		return
	}
	f.spent += unreadablePause
	timer := time.NewTimer(unreadablePause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-f.stop:
	}
}
