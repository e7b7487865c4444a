package history

import (
	"fmt"
	"slices"
)

// missing finds values that must be there and are not. With a final phase the
// question is what that has read; without one, what anybody ever has.
func missing(x *index, _ Options, found func(Anomaly)) {
	x.everyKey(func(name string, k *keyIndex) {
		highest := k.maxRead
		final := len(k.finals) > 0
		if final {
			highest = -1
			for _, offsets := range k.finals {
				highest = max(highest, slices.Max(offsets))
			}
		}
		for _, v := range k.sortedValues() {
			val := k.values[v]
			if val.outcome != acknowledged && !val.read {
				continue
			}
			at := int64(-1)
			if len(val.offsets) > 0 {
				at = val.offsets[len(val.offsets)-1]
			}
			seen := val.final || !final && val.read
			if seen || at >= 0 && at < k.start || at < 0 && k.start > 0 {
				continue
			}
			how := "acknowledged"
			if val.outcome != acknowledged {
				how = "read before"
			}
			kind, where := "unseen", "above"
			if at >= 0 && at <= highest {
				kind, where = "lost", "up to"
			}
			found(Anomaly{Name: kind, Key: name, Offset: at, Detail: fmt.Sprintf("value %d was %s and is missing; reading went %s %d", v, how, where, highest)})
		}
	})
}

// gaps finds offsets of a dense partition that the final phase did not show.
// Every process of the final phase has read everything by itself.
func gaps(x *index, opts Options, found func(Anomaly)) {
	x.everyKey(func(name string, k *keyIndex) {
		if k.txns || slices.Contains(opts.Sparse, name) {
			return
		}
		for _, process := range sortedProcesses(k.finals) {
			offsets := slices.Clone(k.finals[process])
			slices.Sort(offsets)
			offsets = slices.Compact(offsets)
			next := offsets[0]
			if k.finalStart >= 0 {
				next = k.finalStart
			}
			for _, o := range offsets {
				if o > next {
					found(Anomaly{Name: "gap", Key: name, Offset: next, Detail: fmt.Sprintf("process %d found nothing from %d to %d", process, next, o-1)})
				}
				next = max(next, o+1)
			}
			if k.finalEnd > next {
				found(Anomaly{Name: "gap", Key: name, Offset: next, Detail: fmt.Sprintf("process %d found nothing from %d on, and the end is %d", process, next, k.finalEnd)})
			}
		}
	})
}

func sortedProcesses(m map[int][]int64) []int {
	all := make([]int, 0, len(m))
	for p := range m {
		all = append(all, p)
	}
	slices.Sort(all)
	return all
}

// consumer is a consumer between two assignments.
type consumer struct {
	subscribed bool
	last       map[string]int64 // key → offset of the last record
}

// polls follows every consumer from poll to poll.
func polls(x *index, _ Options, found func(Anomaly)) {
	known := map[string][]int64{}
	x.everyKey(func(name string, k *keyIndex) { known[name] = k.offsets() })
	consumers := map[int]*consumer{}
	of := func(process int) *consumer {
		c := consumers[process]
		if c == nil {
			c = &consumer{last: map[string]int64{}}
			consumers[process] = c
		}
		return c
	}
	for i := range x.ops {
		o := &x.ops[i]
		switch o.begin.F {
		case Assign, Subscribe:
			consumers[o.begin.Process] = &consumer{subscribed: o.begin.F == Subscribe, last: map[string]int64{}}
		case Crash:
			delete(consumers, o.begin.Process)
		case Poll, Txn:
			if o.end == nil {
				continue
			}
			c := of(o.begin.Process)
			for _, s := range o.end.Steps {
				if s.F == Poll {
					c.poll(x.keys[s.Key], known[s.Key], o.begin.Process, s, found)
				}
			}
		}
	}
}

// poll checks the records of one poll against each other and against the last
// one of the poll before.
func (c *consumer) poll(k *keyIndex, known []int64, process int, s Step, found func(Anomaly)) {
	for i, r := range s.Reads {
		prefix, legal := "int-", false
		if i == 0 {
			prefix, legal = "", c.subscribed
		}
		last, any := c.last[s.Key]
		c.last[s.Key] = r[0]
		if !any {
			continue
		}
		if r[0] <= last {
			found(Anomaly{Name: prefix + "nonmonotonic-poll", Key: s.Key, Offset: r[0], Legal: legal, Detail: fmt.Sprintf("process %d read it after %d", process, last)})
			continue
		}
		next, _ := slices.BinarySearch(known, max(last+1, k.start))
		if next < len(known) && known[next] < r[0] {
			found(Anomaly{Name: prefix + "poll-skip", Key: s.Key, Offset: known[next], Legal: legal, Detail: fmt.Sprintf("process %d read %d after %d", process, r[0], last)})
		}
	}
}
