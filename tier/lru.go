package tier

import (
	"container/list"
	"context"
	"sync"
)

// lru is a map bounded by the bytes of its values: the value used longest ago
// goes first. One that alone exceeds the bound is not kept.
type lru[K comparable, V any] struct {
	bytesMax int64
	cost     func(V) int64
	evicted  func(V) // called for values that went for want of room; may be nil; must not call back
	got      func(V) // called for values that get returns, and
	gone     func(V) // called for values that are not kept any more, for whatever reason; both like evicted

	mu      sync.Mutex // guards the following
	order   list.List  // of *lruItem[K, V], most recently used first
	items   map[K]*list.Element
	bytes   int64
	flights map[K]*flight[V]
}

type lruItem[K comparable, V any] struct {
	key   K
	value V
	cost  int64
}

// flight is a load that several callers wait for. value and err are written
// before done is closed and not after.
type flight[V any] struct {
	done  chan struct{}
	value V
	err   error
}

func newLRU[K comparable, V any](bytesMax int64, cost func(V) int64) *lru[K, V] {
	return &lru[K, V]{bytesMax: bytesMax, cost: cost, items: map[K]*list.Element{}, flights: map[K]*flight[V]{}}
}

func (l *lru[K, V]) get(key K) (V, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.getLocked(key)
}

func (l *lru[K, V]) getLocked(key K) (V, bool) {
	e := l.items[key]
	if e == nil {
		var none V
		return none, false
	}
	l.order.MoveToFront(e)
	value := e.Value.(*lruItem[K, V]).value
	if l.got != nil {
		l.got(value)
	}
	return value, true
}

// has looks without touching the order.
func (l *lru[K, V]) has(key K) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.items[key] != nil
}

func (l *lru[K, V]) put(key K, value V) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.putLocked(key, value)
}

func (l *lru[K, V]) putLocked(key K, value V) {
	l.removeLocked(key)
	item := &lruItem[K, V]{key: key, value: value, cost: l.cost(value)}
	if item.cost > l.bytesMax {
		if l.gone != nil {
			l.gone(value)
		}
		return
	}
	l.items[key] = l.order.PushFront(item)
	l.bytes += item.cost
	for l.bytes > l.bytesMax {
		oldest := l.order.Back().Value.(*lruItem[K, V])
		l.removeLocked(oldest.key)
		if l.evicted != nil {
			l.evicted(oldest.value)
		}
	}
}

func (l *lru[K, V]) remove(key K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.removeLocked(key)
}

func (l *lru[K, V]) removeLocked(key K) {
	e := l.items[key]
	if e == nil {
		return
	}
	item := e.Value.(*lruItem[K, V])
	l.bytes -= item.cost
	l.order.Remove(e)
	delete(l.items, key)
	if l.gone != nil {
		l.gone(item.value)
	}
}

// removeIf drops the values whose key fn wants gone.
func (l *lru[K, V]) removeIf(fn func(K) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key := range l.items {
		if fn(key) {
			l.removeLocked(key)
		}
	}
}

// stats are the bytes and values held.
func (l *lru[K, V]) stats() (bytes int64, values int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes, len(l.items)
}

// load returns the value of key, running fn in a goroutine of its own when it
// is not there: one for all who wait, and it goes on when a waiter leaves. spawn
// starts the goroutine, or says why not.
func (l *lru[K, V]) load(ctx context.Context, key K, spawn func(func(context.Context)) error, fn func(context.Context) (V, error)) (V, error) {
	var none V
	l.mu.Lock()
	if v, ok := l.getLocked(key); ok {
		l.mu.Unlock()
		return v, nil
	}
	f := l.flights[key]
	if f == nil {
		f = &flight[V]{done: make(chan struct{})}
		l.flights[key] = f
		l.mu.Unlock()
		err := spawn(func(ctx context.Context) {
			v, err := fn(ctx)
			l.land(key, f, v, err)
		})
		if err != nil {
			l.land(key, f, none, err)
		}
	} else {
		l.mu.Unlock()
	}
	select {
	case <-f.done:
		return f.value, f.err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}

func (l *lru[K, V]) land(key K, f *flight[V], v V, err error) {
	l.mu.Lock()
	delete(l.flights, key)
	if err == nil {
		l.putLocked(key, v)
	}
	l.mu.Unlock()
	f.value, f.err = v, err
	close(f.done)
}
