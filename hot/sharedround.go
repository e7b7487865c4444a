package hot

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// A round puts a log's bytes into the shared log when they go on where the last
// round ended, in the same segment, and nothing else of the log is to be synced:
// no name, no sealed segment. The log is behind from then on: its own file is
// synced with the next round that is in place, for the log or for all. A round is
// in place for all when somebody waits for it (checkpoint, close) and when the
// shared log is full.

const (
	// sharedLogsMin is how many logs make the shared log worth its second write.
	sharedLogsMin = 2
	// sharedAfter is how many rounds within sharedWindow make it worth its file:
	// where less is written a round more or less is not felt, and nobody is to
	// pay with start-up time and disk for what is not used.
	sharedAfter  = 1000
	sharedWindow = 10 * time.Second
	// sharedRetry is how long a disk without space for the file is left alone.
	sharedRetry = time.Minute
	// confirmMax is how many files are asked at once by confirmBehind.
	confirmMax = 16
	// hintsEnd is the part of the file at whose beginning hints end.
	hintsEnd = 32
)

// sharing is what the shared log needs to know of a log.
type sharing struct {
	at     syncPlace // owned by the syncer's goroutine
	behind unsynced  // its bytes are durable, some by the shared log alone; guarded by Log.queueMu

	syncing syncing
}

// syncPlace is up to where a log is durable, in its own files or by the shared
// log.
type syncPlace struct {
	edge edge
	cuts uint64
	ok   bool   // known
	in   uint64 // the last round that the log was in
}

// goesShared says whether what a span adds can go into the shared log, and how
// many bytes that is.
func (y *syncer) goesShared(s *syncSpan) (bytes int64, ok bool) {
	at := &s.log.sharing.at
	if s.names || s.to != s.from+1 || !at.ok || at.cuts != s.cuts || at.edge.base != s.edge.base || s.log.Err() != nil {
		return 0, false
	}
	seg := y.files[s.from].seg
	bytes = s.edge.pos - at.edge.pos
	return bytes, seg.base == s.edge.base && bytes >= 0 && !seg.is(segSealed) && !seg.is(segGone)
}

// choose decides which spans go into the shared log. When it is full, and when
// it is not nearly empty while the round is in place anyway, the round is in
// place for all and the file is begun anew afterwards.
func (y *syncer) choose(inPlace *bool, began time.Time) (renew bool) {
	x := y.shared
	if y.stuck || x == nil && !y.store.sharesLog() {
		return false
	}
	if x == nil {
		y.wantShared(began)
		return false
	}
	if *inPlace {
		return x.at > x.size/4
	}
	logs, others, bytes := 0, 0, int64(0)
	for i := range y.spans {
		s := &y.spans[i]
		if n, ok := y.goesShared(s); ok {
			logs++
			bytes += n
			continue
		}
		if others += s.to - s.from; s.names {
			others++
		}
	}
	if int64(logs) < y.sharedMin.Load() || others > y.store.config.SyncFilesMax || bytes+int64(logs)*sharedEntryHead > sharedRoundMax {
		return false
	}
	if !x.fits(logs, bytes) {
		*inPlace = true
		return true
	}
	for i := range y.spans {
		_, y.spans[i].shared = y.goesShared(&y.spans[i])
	}
	y.hint(x)
	return false
}

// hint has the kernel write back what is behind while rounds go on, so that the
// round that must wait for it is short: when half of the file is full, half of what
// was left then, and so on. Nothing counts as synced by it.
func (y *syncer) hint(x *sharedLog) {
	left := x.size - x.at
	if y.hinted == 0 {
		y.hinted = x.size
	}
	if left > y.hinted/2 || left < x.size/hintsEnd || y.hinting.Swap(true) {
		return
	}
	y.hinted = left
	s := y.store
	s.wg.Go(func() {
		defer y.hinting.Store(false)
		if err := s.syncFS(); err != nil {
			s.failAll("sync", err)
		}
	})
}

// wantShared counts the rounds that the shared log could take, and has it made,
// in the background, when there are many. Until it is there, rounds go on as
// without it.
func (y *syncer) wantShared(now time.Time) {
	logs := 0
	for i := range y.spans {
		if s := &y.spans[i]; !s.names && s.to == s.from+1 && !y.files[s.from].seg.is(segSealed) {
			logs++
		}
	}
	appended := y.store.stats.AppendBytes.Load()
	bytes := appended - y.appended
	y.appended = appended
	if int64(logs) < y.sharedMin.Load() || bytes > sharedRoundMax {
		return
	}
	if now.Sub(y.wantSince) > sharedWindow {
		y.wanted, y.wantSince = 0, now
	}
	if y.wanted++; y.wanted < y.sharedAfter || now.UnixNano() < y.retryAt.Load() || y.making.Swap(true) {
		return
	}
	y.wanted = 0
	y.store.wg.Go(func() {
		x, err := y.store.makeShared()
		switch {
		case err == nil:
			y.made.Store(x) // making stays set
		case errors.Is(err, ErrClosed):
		case isDiskEnd(err):
			y.retryAt.Store(time.Now().Add(sharedRetry).UnixNano())
			y.making.Store(false)
			y.store.logger.Warn("no space for the shared log: every log is synced in its own files", "bytes", y.store.sharedSize(), "err", err)
		default:
			y.store.logger.Error("the shared log cannot be made: every log is synced in its own files", "err", err)
		}
	})
}

// adoptShared takes the shared log into use once it is made.
func (y *syncer) adoptShared() {
	if x := y.made.Swap(nil); x != nil {
		y.shared = x
	}
}

// takeAllBehind adds every log to the round that is behind and not in it.
func (y *syncer) takeAllBehind() {
	for _, l := range y.behind {
		if l.sharing.at.in != y.number {
			y.take(l)
		}
	}
}

// syncShared writes the round's part of the shared log.
func (y *syncer) syncShared() error {
	x, slots := y.shared, 0
	for i := range y.spans {
		if y.spans[i].shared {
			slots++
		}
	}
	if x == nil || slots == 0 {
		return nil
	}
	x.beginRound(slots)
	for i := range y.spans {
		if s := &y.spans[i]; s.shared {
			y.addShared(x, s)
		}
	}
	if x.entries == 0 {
		return nil
	}
	err := x.commit()
	if isDiskEnd(err) {
		// Blocks that are there need no space, but on some file systems they do.
		// Nothing follows this round in the shared log.
		y.stuck = true
		y.store.logger.Error("no space for the shared log: every log is synced in its own files", "err", err)
		for i := range y.spans {
			y.spans[i].shared = false
		}
		return y.syncFiles()
	}
	if err != nil {
		return err
	}
	y.store.stats.SharedRounds.Add(1)
	y.store.stats.SharedBytes.Add(int64(len(x.buf)))
	return nil
}

// addShared puts a span's bytes into the round. The cut is looked at after they
// were read: if it is the same, they are what it stands for.
func (y *syncer) addShared(x *sharedLog, s *syncSpan) {
	from := s.log.sharing.at.edge.pos
	n := int(s.edge.pos - from)
	if n == 0 {
		return
	}
	u := y.files[s.from]
	err := x.add(sharedEntry{key: keyOf(s.log.part), cut: s.cuts, base: u.seg.base, pos: uint32(from)}, u.h.file, n)
	_, cuts := s.log.offsets.capture()
	s.void = cuts != s.cuts
	switch {
	case s.void && err == nil:
		x.drop(n)
	case err != nil && !s.void:
		s.err = fmt.Errorf("segment %d: %w", u.seg.base, err)
	}
}

// confirmBehind asks for the errors of files whose bytes the kernel may have
// written long before this round began.
func (y *syncer) confirmBehind() {
	var wg sync.WaitGroup
	room := make(chan struct{}, confirmMax)
	for i := range y.spans {
		s := &y.spans[i]
		if s.shared || !s.log.isBehind() {
			continue
		}
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			for _, u := range y.files[s.from:s.to] {
				if err := s.log.confirmSegment(u.h); err != nil {
					s.err = fmt.Errorf("segment %d: %w", u.seg.base, err)
				}
			}
		})
	}
	wg.Wait()
}

// keepBehind keeps a file pinned until it is synced in place; false when the
// log has it already, or does not need it.
func (y *syncer) keepBehind(l *Log, u unsynced) bool {
	l.queueMu.Lock()
	defer l.queueMu.Unlock()
	if l.isDeleted() || l.sharing.behind.h != nil {
		return false
	}
	l.sharing.behind = u
	y.behind = append(y.behind, l)
	return true
}

// caughtUp lets go of what is not behind any more.
func (y *syncer) caughtUp() {
	y.behind = slices.DeleteFunc(y.behind, func(l *Log) bool { return !l.isBehind() })
}

// renewShared begins the file anew, after a round that was in place for all.
func (y *syncer) renewShared() {
	if len(y.behind) > 0 {
		y.stuck = true
		y.store.logger.Error("shared log is not used any more: it has the only copy of what could not be synced elsewhere", "logs", len(y.behind))
		return
	}
	if err := y.shared.renew(y.store.journal.mark()); isDiskEnd(err) {
		// What it has is synced in place, so either header will do: what is void by
		// now has another cut, or lies below a recovery point.
		y.stuck = true
		y.store.logger.Error("no space for the shared log: every log is synced in its own files", "err", err)
		return
	} else if err != nil {
		y.store.failAll("sync", err)
		y.stuck = true
		return
	}
	y.hinted = 0
	y.store.stats.SharedRenewed.Add(1)
}

func (l *Log) isBehind() bool {
	l.queueMu.Lock()
	defer l.queueMu.Unlock()
	return l.sharing != nil && l.sharing.behind.h != nil
}

// takeBehind takes the file that is behind; the caller releases it.
func (l *Log) takeBehind(to []unsynced) []unsynced {
	l.queueMu.Lock()
	defer l.queueMu.Unlock()
	if x := l.sharing; x != nil && x.behind.h != nil {
		to = append(to, x.behind)
		x.behind = unsynced{}
	}
	return to
}

// withBehind notes that the log is in a round of the syncer and adds the file
// that is behind, pinned once more, unless it is among those from a place on.
func (l *Log) withBehind(to []unsynced, from int, round uint64) []unsynced {
	if l.store.syncer.shared == nil {
		return to
	}
	l.queueMu.Lock()
	defer l.queueMu.Unlock()
	if l.sharing == nil {
		l.sharing = new(sharing)
	}
	l.sharing.at.in = round
	u := l.sharing.behind
	if u.h == nil || slices.ContainsFunc(to[from:], func(o unsynced) bool { return o.seg == u.seg }) {
		return to
	}
	l.store.files.repin(u.h)
	return append(to, u)
}
