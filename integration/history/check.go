package history

import (
	"fmt"
	"slices"
)

// Options adjust a check.
type Options struct {
	// Sparse are keys in which offsets may be missing: compacted, or written by
	// transactions.
	Sparse []string
	// Unclean says that leaders may have been elected that lacked committed
	// records, as somebody wanted it.
	Unclean bool
	// Deliveries is how often a share group delivers a record at most; 0: 5, as
	// is the default.
	Deliveries int
}

// pass looks for one kind of anomaly.
type pass struct {
	names []string
	run   func(*index, Options, func(Anomaly))
}

var passes = []pass{
	{[]string{"inconsistent-offset"}, inconsistentOffsets},
	{[]string{"duplicate"}, duplicates},
	{[]string{"aborted-read"}, abortedReads},
	{[]string{"precommitted-read"}, precommittedReads},
	{[]string{"lost", "unseen"}, missing},
	{[]string{"gap"}, gaps},
	{[]string{"poll-skip", "nonmonotonic-poll", "int-poll-skip", "int-nonmonotonic-poll"}, polls},
	{[]string{"send-order"}, sendOrder},
	{[]string{"int-send-order"}, intSendOrder},
	{[]string{"divergent-batch"}, divergentBatches},
	{[]string{"epoch-order"}, epochOrder},
	{[]string{"offset-regress"}, offsetRegress},
	{[]string{"G0", "G1c"}, cycles},
	{[]string{"zombie-commit"}, zombies},
	{[]string{"retransformed", "untransformed", "uncommitted-output"}, transforms},
	{[]string{"lost-commit", "commit-regress", "invented-commit"}, commits},
	{[]string{"owned-twice", "unowned", "assignment-changed", "epoch-regress"}, owners},
	{[]string{"share-lost", "share-redelivered", "share-overdelivered"}, shares},
	{[]string{"no-final"}, unfinished},
}

// Check runs all passes over a history.
func Check(events []Event, opts Options) *Report {
	x := buildIndex(events)
	r := &Report{Found: map[string]int{}, LegalFound: map[string]int{}}
	r.Counts = x.counts()
	add := r.add
	if opts.Unclean {
		add = func(a Anomaly) {
			a.Legal = a.Legal || slices.Contains(uncleanLegal, a.Name)
			r.add(a)
		}
	}
	for _, p := range passes {
		p.run(x, opts, add)
	}
	if opts.Unclean {
		x := buildIndex(onlyEnd(events))
		for _, p := range passes {
			p.run(x, opts, func(a Anomaly) {
				a.Legal = a.Legal || slices.Contains(uncleanEnd, a.Name)
				r.add(a)
			})
		}
	}
	return r
}

// uncleanLegal is what an unclean election may lead to.
var uncleanLegal = []string{
	"inconsistent-offset", "duplicate", "lost", "unseen", "poll-skip", "nonmonotonic-poll", "int-poll-skip", "int-nonmonotonic-poll",
	"send-order", "int-send-order", "divergent-batch", "epoch-order", "offset-regress", "gap", "untransformed", "retransformed",
	"uncommitted-output", "lost-commit", "commit-regress", "share-lost", "share-redelivered", "G1c",
}

// uncleanEnd is what may be found in the end, too: half of a transaction went with a log's end; what was made of a record that
// went stays where it was made, and stands beside what was made of the record that has its offset now.
var uncleanEnd = []string{"lost", "unseen", "retransformed", "untransformed", "uncommitted-output"}

// onlyEnd is a history in which everything but its last phase is doubtful.
func onlyEnd(events []Event) []Event {
	var out []Event
	for _, e := range events {
		switch {
		case e.F == Send || e.F == Txn:
			if e.Type == OK {
				e.Type = Info
			}
			e.Steps = slices.Clone(e.Steps)
			for i := range e.Steps {
				if e.Steps[i].F != Commit {
					e.Steps[i].Offset, e.Steps[i].Reads = -1, nil
				}
			}
		case e.F == Share || e.F == Ack:
			continue // half of an account says nothing
		case e.F == Assign || e.F == Crash || e.F == Fault || e.F == Commit || e.Final:
		default:
			continue
		}
		out = append(out, e)
	}
	return out
}

func (x *index) counts() Counts {
	c := Counts{Keys: len(x.keys)}
	for _, k := range x.keys {
		for _, v := range k.values {
			switch v.outcome {
			case acknowledged:
				c.Acknowledged++
			case failed:
				c.Failed++
			case unknown:
				c.Unknown++
				if v.read {
					c.UnknownSeen++
				}
			}
		}
	}
	sources := map[string]bool{}
	for i := range x.ops {
		o := &x.ops[i]
		switch {
		case o.begin.F == Fault:
			c.Faults++
		case o.end == nil:
		case o.begin.F == Txn && o.end.Type == OK:
			c.Txns++
		case o.begin.F == Txn && o.end.Type == Fail:
			c.Aborts++
		case o.begin.F == Commit && o.end.Type == OK:
			c.Commits++
		case o.begin.F == Group || o.begin.F == Committed:
			c.GroupLooks++
		case o.begin.F == Share:
			for _, s := range o.end.Steps {
				c.Shared += len(s.Reads)
			}
		case o.begin.F == Batches:
			c.Batches += len(o.end.Batches)
			sources[o.end.Source] = true
		case o.begin.F == Poll:
			c.Polls++
			for _, s := range o.end.Steps {
				c.Reads += len(s.Reads)
				if o.end.Final {
					c.FinalReads += len(s.Reads)
				}
			}
		}
	}
	c.Sources, c.Transformed = len(sources), x.transformed()
	return c
}

// everyKey visits the keys in order, so that reports are the same each time.
func (x *index) everyKey(visit func(name string, k *keyIndex)) {
	for _, name := range sortedKeys(x.keys) {
		visit(name, x.keys[name])
	}
}

// offsets are the offsets at which something was seen, sorted.
func (k *keyIndex) offsets() []int64 {
	all := make([]int64, 0, len(k.at))
	for o := range k.at {
		all = append(all, o)
	}
	slices.Sort(all)
	return all
}

func inconsistentOffsets(x *index, _ Options, found func(Anomaly)) {
	x.everyKey(func(name string, k *keyIndex) {
		for _, o := range k.offsets() {
			if vs := k.at[o]; len(vs) > 1 {
				found(Anomaly{Name: "inconsistent-offset", Key: name, Offset: o, Detail: fmt.Sprintf("holds the values %v", vs)})
			}
		}
	})
}

// sortedValues are the values of a key in order.
func (k *keyIndex) sortedValues() []int64 {
	all := make([]int64, 0, len(k.values))
	for v := range k.values {
		all = append(all, v)
	}
	slices.Sort(all)
	return all
}

func duplicates(x *index, _ Options, found func(Anomaly)) {
	x.everyKey(func(name string, k *keyIndex) {
		for _, v := range k.sortedValues() {
			if at := k.values[v].offsets; len(at) > 1 {
				found(Anomaly{Name: "duplicate", Key: name, Offset: at[0], Detail: fmt.Sprintf("value %d is at the offsets %v", v, at)})
			}
		}
	})
}

func abortedReads(x *index, _ Options, found func(Anomaly)) {
	x.everyKey(func(name string, k *keyIndex) {
		for _, v := range k.sortedValues() {
			val := k.values[v]
			switch {
			case val.read && val.outcome == failed:
				found(Anomaly{Name: "aborted-read", Key: name, Offset: val.offsets[0], Detail: fmt.Sprintf("value %d was refused and yet read", v)})
			case val.read && val.outcome == unsent:
				found(Anomaly{Name: "aborted-read", Key: name, Offset: val.offsets[0], Detail: fmt.Sprintf("value %d was read and nobody sent it", v)})
			}
		}
	})
}

func precommittedReads(x *index, _ Options, found func(Anomaly)) {
	for i := range x.ops {
		o := &x.ops[i]
		if o.begin.F != Txn || o.end == nil {
			continue
		}
		for _, s := range o.end.Steps {
			if s.F != Poll {
				continue
			}
			for _, r := range s.Reads {
				if x.keys[s.Key].values[r[1]].txn == o.nth {
					found(Anomaly{Name: "precommitted-read", Key: s.Key, Offset: r[0], Detail: fmt.Sprintf("a transaction of process %d read its own value %d", o.begin.Process, r[1])})
				}
			}
		}
	}
}
