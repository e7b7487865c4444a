package broker

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/varvelog/varve/coordinator"
)

var (
	// errShareLoading is returned while a share-partition is being loaded: whoever wants something of it waits.
	errShareLoading = errors.New("broker: the share-partition is being loaded")
	// errShareBusy is returned when there is nothing to hand out right now: another fetch reads, or everything is held.
	errShareBusy = errors.New("broker: the share-partition has nothing to hand out")
)

// shares are the share-partitions that this broker works on, and the sessions of the members that fetch from them. There is a
// share-partition here only as long as a session names it, so the bound on sessions bounds them too.
type shares struct {
	srv   *Server
	slots int          // group.share.max.share.sessions
	held  atomic.Int64 // bytes of answers on their way
	stats shareCounters

	mu       sync.Mutex // guards the following
	byKey    map[coordinator.ShareKey]*sharePart
	refs     map[coordinator.ShareKey]int // sessions that name it
	sessions map[shareSessionKey]*shareSession
	ending   map[shareSessionKey]chan struct{} // sessions that are over and give back what they hold; closed when they have
	parts    int                               // of all sessions together
}

// shareCounters are what ops shows, under Kafka's names.
type shareCounters struct {
	expired                  atomic.Int64 // records whose locks ran out
	loads, loadNanos         atomic.Int64
	acknowledged             [5]atomic.Int64 // by type
	evicted                  atomic.Int64    // sessions whose connections ended
	letters, lettersFailed   atomic.Int64    // dead-letter requests
	letterRecords            atomic.Int64
	fetched, fetchedAcquired atomic.Int64 // partitions asked for, and of those the ones with records
}

func newShares(s *Server, slots int) *shares {
	return &shares{
		srv: s, slots: slots, byKey: map[coordinator.ShareKey]*sharePart{}, refs: map[coordinator.ShareKey]int{},
		sessions: map[shareSessionKey]*shareSession{}, ending: map[shareSessionKey]chan struct{}{},
	}
}

// start runs fn beside, unless the server is closing.
func (x *shares) start(fn func()) bool {
	s := x.srv
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.wg.Go(fn)
	return true
}

// get is the share-partition of a group on a partition that this broker holds, which may have to be loaded first.
func (x *shares) get(group string, part Partition) *sharePart {
	id := part.ID()
	key := coordinator.ShareKey{Group: group, Topic: id.ID, Partition: id.Index}
	x.mu.Lock()
	p := x.byKey[key]
	if p != nil && p.part == part && !p.dropped.Load() {
		x.mu.Unlock()
		return p
	}
	p = &sharePart{srv: x.srv, key: key, part: part}
	x.byKey[key] = p
	x.mu.Unlock()
	if !x.start(p.load) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.dropLocked(coordinator.ErrClosed)
	}
	return p
}

// known is the share-partition if there is one.
func (x *shares) known(key coordinator.ShareKey) *sharePart {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.byKey[key]
}

// forget takes a share-partition that was dropped out of the table.
func (x *shares) forget(p *sharePart) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.byKey[p.key] == p {
		delete(x.byKey, p.key)
	}
}

// errShareUnused is why a share-partition is dropped that nobody needs.
var errShareUnused = errors.New("broker: no session needs the share-partition")

// release drops a share-partition that no session names and that has nothing to do.
func (x *shares) release(p *sharePart) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.core == nil || p.reading || p.writing || p.burying || len(p.polls) > 0 || !p.core.Idle() {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.refs[p.key] > 0 || x.byKey[p.key] != p {
		return
	}
	delete(x.byKey, p.key)
	p.dropLocked(errShareUnused)
}
