package hot

import "sync"

// The kernel says of bytes that it could not write once, to each descriptor, and
// takes the page for clean: another sync of the same file finds nothing to do and
// says that all is well. So the first error of a sync is every later one's, and
// no sync that could hide it runs before it is known.

// syncing is what a log knows of the syncs of its files.
type syncing struct {
	mu  sync.Mutex // guards the following, held across a sync
	err error      // the first one's that failed
}

// syncSegment syncs a segment's file. In a log that is in the rounds of a shared log
// one that failed is every later one's error.
func (l *Log) syncSegment(h *handle) error { return l.firstError(h.file.Sync) }

// confirmSegment is what syncSegment has left to do after a sync of the file system:
// it asks whether the file's bytes met an error. A sync of its own would have the
// disk empty its cache for each file, which takes longer than all the rest.
func (l *Log) confirmSegment(h *handle) error { return l.firstError(h.file.Written) }

func (l *Log) firstError(ask func() error) error {
	l.queueMu.Lock()
	s := l.sharing
	l.queueMu.Unlock()
	if s == nil {
		return ask() // nothing of it is durable elsewhere; the error takes it offline
	}
	x := &s.syncing
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.err == nil {
		x.err = ask()
	}
	return x.err
}
