package meta

import (
	"sync"
)

// subscriptions tells subscribers of new images. Each has a goroutine of its
// own, so a slow one delays nobody, and no queue: it is always given the
// newest image.
type subscriptions struct {
	image func() *Image
	wg    sync.WaitGroup
	done  chan struct{}

	mu   sync.Mutex // guards the following
	next int
	wake map[int]chan struct{}
}

func newSubscriptions(image func() *Image) *subscriptions {
	return &subscriptions{image: image, done: make(chan struct{}), wake: make(map[int]chan struct{})}
}

// add starts a subscription: its goroutine ends when it is cancelled or the
// subscriptions are closed.
func (s *subscriptions) add(fn func(prev, next *Image)) (cancel func()) {
	wake := make(chan struct{}, 1)
	wake <- struct{}{}
	stop := make(chan struct{})
	s.mu.Lock()
	id := s.next
	s.next++
	s.wake[id] = wake
	s.mu.Unlock()
	s.wg.Go(func() {
		var prev *Image
		for {
			select {
			case <-s.done:
				return
			case <-stop:
				return
			case <-wake:
			}
			if next := s.image(); next != prev {
				fn(prev, next)
				prev = next
			}
		}
	})
	return sync.OnceFunc(func() {
		s.mu.Lock()
		delete(s.wake, id)
		s.mu.Unlock()
		close(stop)
	})
}

// notify wakes every subscriber. A wake-up that is already pending is enough.
func (s *subscriptions) notify() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, wake := range s.wake {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

// close ends all subscriptions and waits for calls under way.
func (s *subscriptions) close() {
	close(s.done)
	s.wg.Wait()
}
