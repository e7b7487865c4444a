//go:build linux

package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/integration/history"
)

// topics of the workload, two partitions each: one local, one tiered with
// small segments and next to no local retention, so that reads cross the seam.
const (
	plainTopic  = "plain"
	tieredTopic = "tiered"
	partitions  = 2
)

var allKeys = []string{"plain/0", "plain/1", "tiered/0", "tiered/1"}

// recorder numbers processes, hands out values and writes the history.
type recorder struct {
	out     *history.Writer
	began   time.Time
	process atomic.Int64
	values  atomic.Int64

	mu   sync.Mutex       // guards the following
	seen map[string]int64 // key → the highest offset known
	// settled is, of each record, from when on the share group is done with it.
	settled map[string]map[int64]time.Time
	last    map[string]int64 // key → the offset of the last record that was written, once everything has ended
}

func (r *recorder) add(e history.Event) {
	e.Time = time.Since(r.began).Nanoseconds()
	r.out.Add(e)
}

// addAt is add for what began earlier.
func (r *recorder) addAt(at time.Duration, e history.Event) {
	e.Time = at.Nanoseconds()
	r.out.Add(e)
}

func (r *recorder) saw(key string, offset int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen[key] = max(r.seen[key], offset)
}

func (r *recorder) highest(key string) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen[key]
}

// worker uses one client for one operation after another.
type worker struct {
	rec     *recorder
	rng     *rand.Rand
	make    func() (client, error)
	sends   bool
	reads   bool
	c       client
	process int
	born    time.Time
	life    time.Duration
	group   bool
	name    string // of the group
}

const (
	sendLimit   = 20 * time.Second
	assignLimit = 10 * time.Second
)

// run works until ctx ends.
func (w *worker) run(ctx context.Context) {
	defer func() {
		if w.c != nil {
			w.c.crash()
		}
	}()
	for ctx.Err() == nil {
		if w.c == nil && !w.fresh(ctx) {
			continue
		}
		switch n := w.rng.IntN(64); {
		case time.Since(w.born) > w.life:
			w.crash("of age")
		case n == 0 && w.reads:
			w.consume(ctx)
		case w.sends && (n < 24 || !w.reads):
			w.send(ctx)
		default:
			w.poll(ctx)
		}
		pause(ctx, time.Duration(w.rng.IntN(25))*time.Millisecond)
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// fresh makes a client, as a new process.
func (w *worker) fresh(ctx context.Context) bool {
	c, err := w.make()
	if err != nil {
		pause(ctx, time.Second)
		return false
	}
	w.c, w.process = c, int(w.rec.process.Add(1))
	w.born, w.life = time.Now(), 15*time.Second+time.Duration(w.rng.Int64N(int64(30*time.Second)))
	if w.reads {
		w.consume(ctx)
	}
	return w.c != nil // the assignment may have failed
}

// crash gives the client up, and with it the process number.
func (w *worker) crash(why string) {
	if w.c == nil {
		return
	}
	w.c.crash()
	w.c = nil
	w.rec.add(history.Event{Process: w.process, Type: history.Info, F: history.Crash, Note: why})
}

func (w *worker) send(ctx context.Context) {
	key := allKeys[w.rng.IntN(len(allKeys))]
	values := make([]int64, 1+w.rng.IntN(8))
	steps := make([]history.Step, len(values))
	for i := range values {
		values[i] = w.rec.values.Add(1)
		steps[i] = history.Step{F: history.Send, Key: key, Value: values[i], Offset: -1}
	}
	size := 100 + w.rng.IntN(3000)
	if w.c.name() == "raw" && w.rng.IntN(64) == 0 {
		size = oversize
	}
	w.rec.add(history.Event{Process: w.process, Type: history.Invoke, F: history.Send, Client: w.c.name(), Steps: steps})
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), sendLimit)
	defer cancel()
	result := w.c.send(limited, key, values, size)
	done := slices.Clone(steps)
	for i, o := range result.offsets {
		done[i].Offset = o
		w.rec.saw(key, o)
	}
	w.rec.add(history.Event{Process: w.process, Type: result.outcome, F: history.Send, Steps: done, Error: text(result.err)})
	switch result.outcome {
	case history.Info:
		w.crash("after an unknown outcome")
	case history.Fail:
		pause(ctx, 200*time.Millisecond)
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// consume makes a new assignment, or joins the group.
func (w *worker) consume(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, assignLimit)
	defer cancel()
	w.group = w.rng.IntN(3) == 0
	e := history.Event{Process: w.process, Type: history.Invoke, F: history.Assign, Client: w.c.name()}
	var err error
	if w.group {
		e.F, e.Keys = history.Subscribe, []string{plainTopic, tieredTopic}
		w.rec.add(e)
		// Families agree on no protocol, so each has a group of its own; those of
		// franz-go that are in a rack speak the newer protocol.
		w.name = "workers-" + strings.Fields(w.c.name())[0]
		if strings.Contains(w.c.name(), "rack") {
			w.name = "workers-franz-848"
		}
		err = w.c.subscribe(limited, e.Keys, w.name)
	} else {
		from := map[string]int64{}
		for _, key := range allKeys {
			if w.rng.IntN(2) == 0 || len(from) == 0 && key == allKeys[len(allKeys)-1] {
				e.Keys = append(e.Keys, key)
				from[key] = w.start(key)
			}
		}
		w.rec.add(e)
		err = w.c.assign(limited, from)
	}
	e.Type, e.Error = history.OK, text(err)
	if err != nil {
		e.Type = history.Info
	}
	w.rec.add(e)
	if err != nil {
		w.crash("after an assignment failed")
	}
}

// start is where to begin reading: mostly somewhere in what is known to be
// there.
func (w *worker) start(key string) int64 {
	switch w.rng.IntN(6) {
	case 0:
		return fromLatest
	case 1:
		return fromEarliest
	}
	return w.rng.Int64N(w.rec.highest(key) + 1)
}

func (w *worker) poll(ctx context.Context) {
	w.rec.add(history.Event{Process: w.process, Type: history.Invoke, F: history.Poll, Client: w.c.name()})
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), sendLimit)
	defer cancel()
	steps, err := w.c.poll(limited)
	for _, s := range steps {
		w.rec.saw(s.Key, s.Reads[len(s.Reads)-1][0])
	}
	w.rec.add(history.Event{Process: w.process, Type: history.OK, F: history.Poll, Steps: steps, Error: text(err)})
	if w.group {
		w.commit(limited, len(steps) > 0 && w.rng.IntN(4) == 0)
	}
	if err != nil && w.rng.IntN(8) == 0 {
		w.crash("after an error of a poll")
	}
}

// commit commits what was read, and notes what is known of that.
func (w *worker) commit(ctx context.Context, really bool) {
	began := time.Since(w.rec.began)
	done, err := w.c.commit(ctx, really)
	for outcome, offsets := range map[history.Type]map[string]int64{history.OK: done.ok, history.Info: done.unknown} {
		if len(offsets) == 0 {
			continue
		}
		// A process of its own: the two outcomes are two operations.
		e := history.Event{Process: int(w.rec.process.Add(1)), Type: history.Invoke, F: history.Commit, GroupID: w.name, Steps: offsetSteps(offsets)}
		w.rec.addAt(began, e)
		e.Type, e.Error = outcome, text(err)
		w.rec.add(e)
	}
}

// watch asks the leaders for their offsets and all brokers for batches, over
// and over.
func watch(ctx context.Context, rec *recorder, bootstrap []string, brokers int, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 77))
	for ctx.Err() == nil {
		r, err := newRaw(bootstrap)
		if err != nil {
			return
		}
		process := int(rec.process.Add(1))
		for range 200 {
			if ctx.Err() != nil {
				break
			}
			key := everyKey[rng.IntN(len(everyKey))]
			noteEnds(ctx, rec, r, process, key, false)
			if high := rec.highest(key); high > 0 {
				id := 1 + rng.IntN(brokers)
				limited, cancel := context.WithTimeout(ctx, 3*time.Second)
				if found, _, err := r.batches(limited, id, key, rng.Int64N(high)); err == nil && len(found) > 0 {
					rec.add(history.Event{Process: process, Type: history.OK, F: history.Batches, Key: key, Source: endName(id), Batches: found})
				}
				cancel()
			}
			pause(ctx, 100*time.Millisecond)
		}
		r.crash()
	}
}

func noteEnds(ctx context.Context, rec *recorder, r *raw, process int, key string, final bool) bool {
	limited, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	e := history.Event{Process: process, Type: history.Invoke, F: history.Offsets, Key: key, Final: final}
	rec.add(e)
	ends, broker, err := r.ends(limited, key)
	e.Type, e.Source = history.OK, endName(int(broker))
	if err != nil {
		e.Type, e.Error = history.Info, err.Error()
	} else {
		e.Ends = &ends
		rec.saw(key, ends.End-1)
	}
	rec.add(e)
	return err == nil
}

// makeTopics makes the workload's topics.
func makeTopics(ctx context.Context, bootstrap []string, replicas int16, minISR string, more map[string]string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(bootstrap...))
	if err != nil {
		return err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	text := func(s string) *string { return &s }
	common := map[string]*string{"min.insync.replicas": text(minISR), "max.message.bytes": text("262144"), "segment.bytes": text("1048576"), "retention.ms": text("-1")}
	for name, value := range more {
		common[name] = text(value)
	}
	tiered := map[string]*string{"remote.storage.enable": text("true"), "local.retention.ms": text("2000"), "varve.remote.max.lag.ms": text("1000")}
	for name, value := range common {
		tiered[name] = value
	}
	for topic, settings := range map[string]map[string]*string{plainTopic: common, tieredTopic: tiered, ledgerTopic: tiered} {
		var err error
		for range 30 { // brokers that have just started may not be unfenced yet
			if _, err = adm.CreateTopic(ctx, partitions, replicas, settings, topic); err == nil {
				break
			}
			pause(ctx, time.Second)
		}
		if err != nil {
			return err
		}
	}
	return makeShareGroup(ctx, cl)
}
