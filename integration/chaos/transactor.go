//go:build linux

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/varvelog/varve/integration/history"
)

// ledgerTopic is what transactions write: tiered, so that what is committed and
// what is not is read from both tiers.
const ledgerTopic = "ledger"

var (
	ledgerKeys = []string{"ledger/0", "ledger/1"}
	// everyKey is what is watched, and read at the end.
	everyKey = slices.Concat(allKeys, ledgerKeys)
	// sourceKeys are what transforming groups consume.
	sourceKeys = []string{"plain/0", "plain/1"}
)

// transactor is one client library with a transactional id.
type transactor interface {
	name() string
	// open takes the transactional id over; whoever had it is fenced.
	open(ctx context.Context) error
	// take gives records that have come to the group, for one transaction. It
	// may be none. Of a transactor without a group it is none.
	take(ctx context.Context) ([]input, error)
	txn(ctx context.Context, ask txnAsk) txnDone
	// crash ends the client without a word, where it can.
	crash()
}

// input is a record to be transformed.
type input struct {
	key    string
	offset int64
}

// txnAsk is a transaction to be made.
type txnAsk struct {
	steps   []history.Step   // sends and polls, in order
	offsets map[string]int64 // of the group, to be committed in it
	commit  bool
	size    int // of a record, bytes
}

// txnDone is what became of it. It is a failure only where nobody ever asked
// for a commit, or the client was told that it has aborted.
type txnDone struct {
	outcome history.Type
	steps   []history.Step
	decided time.Time // when the commit was asked for; zero: never
	err     error
}

// teller uses one transactor for one transaction after another.
type teller struct {
	rec *recorder
	rng *rand.Rand
	// ids are what it takes one of, each time it starts anew: others have the
	// same, and are fenced by it.
	ids       []string
	group     string // of one that transforms, else ""
	make      func(id string) (transactor, error)
	t         transactor
	id        string
	process   int
	born      time.Time
	life      time.Duration
	fallibles int // operations that gave nothing, in a row
}

const (
	txnLimit   = 25 * time.Second // for one transaction
	txnTimeout = 8 * time.Second  // transaction.timeout.ms: the end of one that nobody ends
)

// run works until ctx ends.
func (w *teller) run(ctx context.Context) {
	defer func() {
		if w.t != nil {
			w.t.crash()
		}
	}()
	for ctx.Err() == nil {
		switch {
		case w.t == nil:
			w.fresh(ctx)
		case time.Since(w.born) > w.life:
			w.crash("of age")
		default:
			w.deal(ctx)
		}
		pause(ctx, time.Duration(w.rng.IntN(40))*time.Millisecond)
	}
}

func (w *teller) crash(why string) {
	w.t.crash()
	w.t = nil
	w.rec.add(history.Event{Process: w.process, Type: history.Info, F: history.Crash, Note: why})
}

// fresh takes a transactional id over, as a new process.
func (w *teller) fresh(ctx context.Context) {
	w.id = w.ids[w.rng.IntN(len(w.ids))]
	t, err := w.make(w.id)
	if err != nil {
		pause(ctx, time.Second)
		return
	}
	w.t, w.process = t, int(w.rec.process.Add(1))
	w.born, w.life = time.Now(), 5*time.Second+time.Duration(w.rng.Int64N(int64(20*time.Second)))
	e := history.Event{Process: w.process, Type: history.Invoke, F: history.Init, Client: t.name(), TxnID: w.id}
	w.rec.add(e)
	limited, cancel := context.WithTimeout(ctx, assignLimit)
	defer cancel()
	err = t.open(limited)
	e.Type, e.Error = history.OK, text(err)
	if err != nil {
		e.Type = history.Info
	}
	w.rec.add(e)
	if err != nil {
		w.crash("after its transactional id was not to be had")
		pause(ctx, 500*time.Millisecond)
	}
}

// deal makes one transaction.
func (w *teller) deal(ctx context.Context) {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), txnLimit)
	defer cancel()
	ask := txnAsk{commit: w.rng.IntN(8) > 0, size: 100 + w.rng.IntN(2000)}
	if w.group == "" {
		w.write(&ask)
	} else if inputs, err := w.t.take(limited); err != nil {
		if w.fallibles++; w.fallibles > 4 {
			w.fallibles = 0
			w.crash("after nothing was to be had")
		}
		return
	} else if len(inputs) == 0 {
		return
	} else {
		w.transform(&ask, inputs)
	}
	w.fallibles = 0
	e := history.Event{Process: w.process, Type: history.Invoke, F: history.Txn, Client: w.t.name(), TxnID: w.id, GroupID: w.group}
	e.Steps = append(slices.Clone(ask.steps), offsetSteps(ask.offsets)...)
	w.rec.add(e)
	done := w.t.txn(limited, ask)
	e.Type, e.Error = done.outcome, text(done.err)
	e.Steps = append(done.steps, offsetSteps(ask.offsets)...)
	if !done.decided.IsZero() {
		e.Decided = done.decided.Sub(w.rec.began).Nanoseconds()
	}
	w.rec.add(e)
	for _, s := range done.steps {
		w.rec.saw(s.Key, s.Offset)
	}
	if done.outcome == history.Info || done.err != nil {
		w.crash("after a transaction that did not end as it should")
	}
}

// write makes up a transaction of sends and polls.
func (w *teller) write(ask *txnAsk) {
	for range 1 + w.rng.IntN(4) {
		key := ledgerKeys[w.rng.IntN(len(ledgerKeys))]
		if len(ask.steps) > 0 && w.rng.IntN(3) == 0 {
			ask.steps = append(ask.steps, history.Step{F: history.Poll, Key: key, Offset: -1})
			continue
		}
		for range 1 + w.rng.IntN(3) {
			ask.steps = append(ask.steps, history.Step{F: history.Send, Key: key, Value: w.rec.values.Add(1), Offset: -1})
		}
	}
}

// transform makes one value of every input.
func (w *teller) transform(ask *txnAsk, inputs []input) {
	ask.offsets = map[string]int64{}
	for _, in := range inputs {
		ask.steps = append(ask.steps, history.Step{F: history.Send, Key: ledgerKeys[w.rng.IntN(len(ledgerKeys))],
			Value: w.rec.values.Add(1), Offset: -1, From: in.key, At: in.offset})
		ask.offsets[in.key] = max(ask.offsets[in.key], in.offset+1)
	}
}

func offsetSteps(offsets map[string]int64) (steps []history.Step) {
	for _, key := range sorted(offsets) {
		steps = append(steps, history.Step{F: history.Commit, Key: key, Offset: offsets[key]})
	}
	return steps
}

// tellers are the workers that make transactions, by both families and, of
// groups, in both protocols.
func (o *options) tellers(c *cluster, rec *recorder) []*teller {
	bootstrap := c.bootstrap()
	ids := []string{"teller-0", "teller-1", "teller-2"}
	add := func(list []*teller, group string, ids []string, make func(id string) (transactor, error)) []*teller {
		rng := rand.New(rand.NewPCG(o.seed, uint64(1000+len(list))))
		return append(list, &teller{rec: rec, rng: rng, ids: ids, group: group, make: make})
	}
	franzTeller := func(id string) (transactor, error) { return newFranzTeller(bootstrap, id) }
	list := add(nil, "", ids, franzTeller)
	for _, group := range []string{"transform-franz-go", "transform-franz-848"} {
		list = add(list, group, []string{group + "-0", group + "-1"}, func(id string) (transactor, error) { return newFranzTransformer(bootstrap, id, group) })
	}
	if o.python() == "" {
		return add(list, "", ids, franzTeller)
	}
	confluent := func(group string) func(string) (transactor, error) {
		return func(id string) (transactor, error) {
			return &confluent{process: process{spawn: c.spawn, binary: o.python(), arguments: []string{o.pythonWorker()}, bootstrap: bootstrap, label: "confluent-kafka"}, id: id, group: group}, nil
		}
	}
	list = add(list, "", ids, confluent(""))
	group := fmt.Sprint("transform-confluent", map[bool]string{true: "-848"}[o.seed%2 == 0])
	return add(list, group, []string{group + "-0"}, confluent(group))
}

// groupsOf are all groups of the workload: name → what its members subscribe to.
func groupsOf() map[string][]string {
	return map[string][]string{
		"workers-franz-go": allKeys, "workers-franz-848": allKeys, "workers-sarama": allKeys,
		"transform-franz-go": sourceKeys, "transform-franz-848": sourceKeys,
		"transform-confluent": sourceKeys, "transform-confluent-848": sourceKeys,
	}
}
