package history

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

// deliveriesMax is Kafka's group.share.delivery.count.limit.
const deliveriesMax = 5

// delivery is one record in the hands of a member of a share group.
type delivery struct {
	begin, end int64 // of the poll
	process    int
	final      bool
	count      int32 // which delivery of the record it is, as the broker says; 0: it does not
}

// answer is what a member said of a record that it was given.
type answer struct {
	begin, end int64 // end is math.MaxInt64 where nobody knows when it was over
	process    int
	outcome    Type
	verdict    string
}

// settles says whether the record is done with once this has been accepted.
func (a answer) settles() bool { return a.verdict == "accept" || a.verdict == "reject" }

// shared is one record as a share group has handled it.
type shared struct {
	deliveries []delivery
	answers    []answer
}

// settled is when the first answer had been accepted that ends the record's way; false when none was.
func (r *shared) settled() (at int64, ok bool) {
	at = math.MaxInt64
	for _, a := range r.answers {
		if a.settles() && a.outcome == OK {
			at, ok = min(at, a.end), true
		}
	}
	return at, ok
}

// doubtful says whether an answer of unknown outcome may have ended the record's way. One that was followed by a delivery to
// somebody else has not: had it been taken before, the record would not have come again, and who does not hold a record any
// more is not heard.
func (r *shared) doubtful() bool {
	for _, a := range r.answers {
		if !a.settles() || a.outcome != Info {
			continue
		}
		over := a.end
		if over == math.MaxInt64 {
			over = a.begin
		}
		if !slices.ContainsFunc(r.deliveries, func(d delivery) bool { return d.process != a.process && d.begin > over }) {
			return true
		}
	}
	return false
}

// last is the latest delivery.
func (r *shared) last() delivery {
	return slices.MaxFunc(r.deliveries, func(a, b delivery) int { return compare(a.end, b.end) })
}

// times is how often the record has been delivered: what the broker counts, where it tells, since a delivery may have been lost
// on its way.
func (r *shared) times() int {
	n := len(r.deliveries)
	if told := r.last().count; told > 0 {
		n = int(told)
	}
	return n
}

// held says whether the record is in somebody's hands who was given it in the final phase and has said nothing of it.
func (r *shared) held() bool {
	d := r.last()
	return d.final && !slices.ContainsFunc(r.answers, func(a answer) bool { return a.process == d.process && a.begin >= d.end })
}

// account is what one share group has done with all records: key → offset → record.
type account struct {
	records map[string]map[int64]*shared
	final   bool // there was a final phase, which polls until nothing comes
}

func (c *account) at(key string, offset int64) *shared {
	if c.records[key] == nil {
		c.records[key] = map[int64]*shared{}
	}
	r := c.records[key][offset]
	if r == nil {
		r = &shared{}
		c.records[key][offset] = r
	}
	return r
}

// accounts gathers what share groups were given and have said.
func (x *index) accounts() map[string]*account {
	groups := map[string]*account{}
	of := func(o *op) *account {
		c := groups[o.begin.GroupID]
		if c == nil {
			c = &account{records: map[string]map[int64]*shared{}}
			groups[o.begin.GroupID] = c
		}
		return c
	}
	for i := range x.ops {
		o := &x.ops[i]
		switch {
		case o.begin.F == Ack:
			a := answer{begin: o.begin.Time, end: math.MaxInt64, process: o.begin.Process}
			if o.end != nil {
				a.end = o.end.Time
			}
			for _, s := range o.steps() {
				a.outcome, a.verdict = o.outcome(), s.Verdict
				if s.Done {
					a.outcome = OK
				}
				r := of(o).at(s.Key, s.Offset)
				r.answers = append(r.answers, a)
			}
		case o.begin.F == Share && o.end != nil:
			c := of(o)
			c.final = c.final || o.end.Final
			for _, s := range o.end.Steps {
				for i, pair := range s.Reads {
					d := delivery{begin: o.begin.Time, end: o.end.Time, process: o.begin.Process, final: o.end.Final}
					if i < len(s.Counts) {
						d.count = s.Counts[i]
					}
					r := c.at(s.Key, pair[0])
					r.deliveries = append(r.deliveries, d)
				}
			}
		}
	}
	return groups
}

// shares holds share groups to their account: a record of which it was accepted that it is done with does not come again, and
// every other comes again until it has been delivered as often as is allowed, and not more often.
func shares(x *index, opts Options, found func(Anomaly)) {
	limit := opts.Deliveries
	if limit == 0 {
		limit = deliveriesMax
	}
	groups := x.accounts()
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		c := groups[group]
		for _, key := range sortedKeys(c.records) {
			sharesOf(x.key(key), group, key, c, limit, found)
		}
	}
}

// sharesOf looks at the records of one key. The group begins with the first that it was given.
func sharesOf(k *keyIndex, group, key string, c *account, limit int, found func(Anomaly)) {
	say := func(name string, offset int64, format string, args ...any) {
		found(Anomaly{Name: name, Key: key, Offset: offset, Detail: fmt.Sprintf("group %s ", group) + fmt.Sprintf(format, args...)})
	}
	records := c.records[key]
	for _, o := range slices.Sorted(maps.Keys(records)) {
		r := records[o]
		at, done := r.settled()
		for _, d := range r.deliveries {
			if done && d.begin > at {
				say("share-redelivered", o, "has given it to process %d though it had been acknowledged", d.process)
			}
			if int(d.count) > limit {
				say("share-overdelivered", o, "has given it to process %d for the %dth time, and gives up after %d", d.process, d.count, limit)
			}
		}
	}
	if !c.final {
		return
	}
	first := slices.Min(slices.Collect(maps.Keys(records)))
	for _, o := range k.offsets() {
		if o < max(first, k.start) {
			continue
		}
		r := records[o]
		if r == nil || len(r.deliveries) == 0 {
			say("share-lost", o, "was never given it")
			continue
		}
		if _, done := r.settled(); done || r.doubtful() || r.held() || r.times() >= limit {
			continue
		}
		say("share-lost", o, "was given it %d times, did not acknowledge it, and is not given it again", len(r.deliveries))
	}
}
