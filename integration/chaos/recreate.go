//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// fleetingTopic is deleted and made again, over and over, while it is written to
// and uploaded.
const fleetingTopic = "fleeting"

// fleeting is the topic's present incarnation and what was written.
type fleeting struct {
	stop context.CancelFunc
	done chan struct{}
	life atomic.Int64 // counts incarnations

	mu   sync.Mutex // guards the following
	sent []dispatch
}

// dispatch is a value that was acknowledged. It is of an incarnation for certain
// when that was there from before it was sent until after the answer.
type dispatch struct {
	value, offset int64
	before, after int64 // incarnation; odd: between two
}

// recreate looks whether the topic has what was written to it and nothing of
// those before it, deletes it, and makes it again.
func recreate(ctx context.Context, n *nemesis) (string, error) {
	adm := kadm.NewClient(n.eye.cl)
	if n.fleet == nil {
		n.fleet = &fleeting{done: make(chan struct{})}
		n.fleet.life.Store(1)
		if err := n.makeFleeting(ctx, adm); err != nil {
			return "", nil
		}
		n.fleet.life.Add(1)
		var working context.Context
		working, n.fleet.stop = context.WithCancel(ctx)
		go n.fleet.write(working, n) // ends with the run
		n.sleep(ctx, 2000, 4000)
	}
	if !n.calm(ctx) {
		return "", nil
	}
	n.fleet.check(ctx, n)
	n.fleet.life.Add(1)
	limited, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		resp, err := adm.DeleteTopic(limited, fleetingTopic)
		if err == nil {
			err = resp.Err
		}
		if err == nil || errors.Is(err, kerr.UnknownTopicOrPartition) {
			break
		}
		if pause(limited, 300*time.Millisecond); limited.Err() != nil {
			return "", nil
		}
	}
	if err := n.makeFleeting(limited, adm); err != nil {
		return "the topic is deleted", nil
	}
	life := n.fleet.life.Add(1)
	return fmt.Sprintf("a topic is deleted and made again, for the %dth time", life/2), nil
}

func (n *nemesis) makeFleeting(ctx context.Context, adm *kadm.Client) error {
	text := func(s string) *string { return &s }
	for {
		resp, err := adm.CreateTopic(ctx, 1, int16(min(3, len(n.c.brokers))), map[string]*string{
			"remote.storage.enable": text("true"), "local.retention.ms": text("2000"), "varve.remote.max.lag.ms": text("500"),
			"segment.bytes": text("1048576"), "min.insync.replicas": text(fmt.Sprint(min(2, len(n.c.brokers))))}, fleetingTopic)
		if err == nil {
			err = resp.Err
		}
		if err == nil || errors.Is(err, kerr.TopicAlreadyExists) && n.fleet.life.Load() == 1 {
			return nil
		}
		if pause(ctx, 300*time.Millisecond); ctx.Err() != nil {
			return errors.Join(ctx.Err(), err)
		}
	}
}

// write writes until ctx ends.
func (f *fleeting) write(ctx context.Context, n *nemesis) {
	defer close(f.done)
	for ctx.Err() == nil {
		w := &franz{bootstrap: n.c.bootstrap()}
		for range 200 {
			before, value := f.life.Load(), n.rec.values.Add(1)
			limited, cancel := context.WithTimeout(ctx, 3*time.Second)
			got := w.send(limited, joinKey(fleetingTopic, 0), []int64{value}, 2000)
			cancel()
			if got.err != nil || ctx.Err() != nil {
				break
			}
			f.mu.Lock()
			f.sent = append(f.sent, dispatch{value, got.offsets[0], before, f.life.Load()})
			f.mu.Unlock()
			pause(ctx, 5*time.Millisecond)
		}
		w.crash()
	}
}

// check reads the topic from its start and compares.
func (f *fleeting) check(ctx context.Context, n *nemesis) {
	life := f.life.Load()
	f.mu.Lock()
	sent := append([]dispatch(nil), f.sent...)
	f.mu.Unlock()
	last := int64(-1)
	mine := map[int64]int64{}
	older := map[int64]bool{}
	for _, d := range sent {
		switch {
		case d.before == life && d.after == life:
			mine[d.offset] = d.value
			last = max(last, d.offset)
		case d.after < life-1:
			older[d.value] = true
		}
	}
	key := joinKey(fleetingTopic, 0)
	r := &franz{bootstrap: n.c.bootstrap()}
	defer r.crash()
	limited, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if err := r.assign(limited, map[string]int64{key: fromEarliest}); err != nil {
		return
	}
	for at := int64(-1); at < last && limited.Err() == nil; {
		steps, _ := r.poll(limited)
		for _, s := range steps {
			for _, read := range s.Reads {
				at = read[0]
				if want, known := mine[at]; known && want != read[1] {
					n.trouble = append(n.trouble, fmt.Sprintf("%s in its life %d: value %d was acknowledged at %d, which holds %d", key, life/2, want, at, read[1]))
				}
				if older[read[1]] {
					n.trouble = append(n.trouble, fmt.Sprintf("%s in its life %d shows value %d of an earlier life at %d", key, life/2, read[1], at))
				}
				delete(mine, at)
			}
		}
	}
	if left := len(mine); left > 0 && limited.Err() == nil {
		n.trouble = append(n.trouble, fmt.Sprintf("%s in its life %d has lost %d acknowledged values", key, life/2, left))
	}
}

// end stops the writer, if there is one.
func (f *fleeting) end() {
	if f != nil && f.stop != nil {
		f.stop()
		<-f.done
	}
}
