package tier

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
)

// Leadership is the led partition's line to the manager. Its methods never
// block and are cheap enough for the append path; after Resign they do nothing.
type Leadership struct {
	m      *Manager
	log    Log
	remote *Remote
	gen    uint64

	ctx    context.Context // ends with the leadership
	cancel context.CancelFunc

	resigned atomic.Bool
	waking   atomic.Bool  // a wake is on its way already
	watched  atomic.Int64 // stable offset that wakes the partition

	mu  sync.Mutex // guards the following
	own map[uint64]*ownUpload
}

// ownUpload is an object this process may have put and not settled yet. A
// collection leaves its key alone.
type ownUpload struct {
	key     string
	running bool
	settled bool
	cancel  context.CancelFunc
}

// Rolled says that a segment was sealed.
func (l *Leadership) Rolled() { l.wake() }

// Advanced says that min(high watermark, last stable offset, durable end) is now
// stable. It costs one atomic load when nothing waits for that offset.
func (l *Leadership) Advanced(stable int64) {
	if stable >= l.watched.Load() {
		l.watched.Store(math.MaxInt64)
		l.wake()
	}
}

// ConfigChanged says that Log.Config answers differently now.
func (l *Leadership) ConfigChanged() {
	if l.m != nil && !l.resigned.Load() {
		l.m.post(evConfig{l.log.Partition(), l.log.Config()})
	}
}

// LogStartMoved says that the log start offset was raised (DeleteRecords).
func (l *Leadership) LogStartMoved() { l.wake() }

func (l *Leadership) wake() {
	if l.m == nil || l.resigned.Load() || l.waking.Swap(true) {
		return
	}
	l.m.post(evWake{l.log.Partition()})
}

// watch arms Advanced. The offset may have been passed before that, so it is
// compared once more afterwards.
func (l *Leadership) watch(stable int64) {
	l.watched.Store(stable)
	if stable != math.MaxInt64 && l.log.Offsets().stable() >= stable {
		l.Advanced(stable)
	}
}

func (l *Leadership) begin(id uint64, cancel context.CancelFunc) *ownUpload {
	u := &ownUpload{running: true, cancel: cancel}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.own == nil {
		l.own = map[uint64]*ownUpload{}
	}
	l.own[id] = u
	return u
}

func (l *Leadership) name(u *ownUpload, key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	u.key = key
}

// finish says that the upload's worker is done with the store.
func (l *Leadership) finish(id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	u := l.own[id]
	u.running = false
	if u.settled {
		delete(l.own, id)
	}
}

// settle says that the core is done with the uploads: committed or given up.
func (l *Leadership) settle(ids []uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		u := l.own[id]
		if u == nil {
			continue
		}
		u.settled = true
		if !u.running {
			delete(l.own, id)
			continue
		}
		u.cancel()
	}
}

// ownKeys are the keys a collection must leave alone.
func (l *Leadership) ownKeys() map[string]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	keys := make(map[string]bool, len(l.own))
	for _, u := range l.own {
		if u.key != "" {
			keys[u.key] = true
		}
	}
	return keys
}
