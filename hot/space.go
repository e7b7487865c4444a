package hot

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
)

// space decides whether the disk has room for an append. Refusing is one
// state, full: it is entered when an append does not fit above the reserve, is
// logged, shows in Usage, and is left only when there is clearly more room
// than what was refused. The reserve itself is for what must go on with a full
// disk: the journal, checkpoints, what deleting needs.
type space struct {
	full    atomic.Bool
	usage   atomic.Pointer[Usage]
	unseen  atomic.Int64 // bytes appended or reserved since usage was measured
	refused atomic.Int64 // largest append refused since the disk became full

	mu sync.Mutex // one measurement at a time
}

// spare is how many bytes above the reserve there are, counting what was
// appended and reserved since the disk was looked at as gone.
func (s *Store) spare() int64 {
	u := s.space.usage.Load()
	if u == nil {
		return math.MaxInt64
	}
	return u.room() - s.space.unseen.Load()
}

// room is the free space above the reserve, negative when that is touched.
func (u *Usage) room() int64 {
	return int64(min(u.DiskFree, math.MaxInt64)) - int64(min(u.Reserve, math.MaxInt64))
}

// roomFor claims n bytes for an append and says whether they may be used
// without touching the reserve. It may look at the disk, so the caller holds
// no lock.
func (s *Store) roomFor(n int64) bool {
	if s.space.full.Load() {
		s.refuse(n)
		return false // the tick opens the door again
	}
	if s.claim(n) {
		return true
	}
	s.space.mu.Lock()
	defer s.space.mu.Unlock()
	if s.claim(n) {
		return true // somebody else looked meanwhile
	}
	s.measureLocked()
	if !s.space.full.Load() && s.claim(n) {
		return true
	}
	s.refuse(n)
	return false
}

func (s *Store) claim(n int64) bool {
	if s.space.unseen.Add(n); s.spare() >= 0 {
		return true
	}
	s.space.unseen.Add(-n)
	return false
}

// refuse shuts the door: n bytes do not fit.
func (s *Store) refuse(n int64) {
	for old := s.space.refused.Load(); n > old && !s.space.refused.CompareAndSwap(old, n); {
		old = s.space.refused.Load()
	}
	if s.space.full.Swap(true) {
		return
	}
	u := s.Usage()
	s.logger.Error("disk is nearly full, appends are refused until space is freed",
		"dir", s.config.Dir, "free", u.DiskFree, "reserve", u.Reserve, "append", n)
}

// reserve is the free space to be kept, in bytes.
func (s *Store) reserve(total uint64) uint64 {
	if s.config.ReserveBytes > 0 {
		return uint64(s.config.ReserveBytes)
	}
	return min(1<<30, total/20)
}

// measure looks at the disk and opens or shuts the door for appends.
func (s *Store) measure() {
	s.space.mu.Lock()
	defer s.space.mu.Unlock()
	s.measureLocked()
}

func (s *Store) measureLocked() {
	seen := s.space.unseen.Load()
	total, free, err := s.fs.Usage(s.config.Dir)
	if err != nil {
		s.logger.Warn("free space cannot be measured", "dir", s.config.Dir, "err", err)
		return
	}
	u := &Usage{DiskTotal: total, DiskFree: free, Reserve: s.reserve(total)}
	s.space.usage.Store(u)
	s.space.unseen.Add(-seen)
	if !s.space.full.Load() {
		if u.room() < 0 {
			s.refuse(0)
		}
		return
	}
	// More than what opened the door would fill it again at once.
	if need := max(2*s.space.refused.Load(), int64(u.Reserve/16)); u.room() >= need {
		s.space.refused.Store(0)
		s.space.full.Store(false)
		s.logger.Info("disk has space again, appends go on", "dir", s.config.Dir, "free", free)
	}
}

func (s *Store) diskFullError() error {
	u := s.space.usage.Load()
	if u == nil {
		return ErrDiskFull
	}
	return fmt.Errorf("%d bytes free in %s, %d are kept in reserve; free space or lower local.retention: %w", u.DiskFree, s.config.Dir, u.Reserve, ErrDiskFull)
}

// Usage is what the store holds and what the disk has left, as of the last
// look (at most a second ago).
func (s *Store) Usage() Usage {
	var u Usage
	if p := s.space.usage.Load(); p != nil {
		u = *p
	}
	u.Full = s.space.full.Load()
	u.OpenFiles = s.files.openFiles()
	s.mu.Lock()
	u.Partitions = len(s.onDisk)
	s.mu.Unlock()
	return u
}
