package history

import (
	"fmt"
	"maps"
	"slices"
)

// deliveriesMax is Kafka's group.share.delivery.count.limit.
const deliveriesMax = 5

// shared is one record as a share group has handled it.
type shared struct {
	deliveries int
	final      bool  // delivered in the final phase
	accepted   int64 // when the first acknowledgement had been accepted; 0: none
	doubtful   bool  // an acknowledgement of unknown outcome, or a rejection
}

// shares holds share groups to their account: a record whose acknowledgement was
// accepted does not come again, and every other comes again until it has been
// delivered as often as is allowed. The final phase polls until nothing comes.
func shares(x *index, opts Options, found func(Anomaly)) {
	limit := opts.Deliveries
	if limit == 0 {
		limit = deliveriesMax
	}
	groups := map[string]map[string]map[int64]*shared{}
	at := func(group, key string, offset int64) *shared {
		if groups[group] == nil {
			groups[group] = map[string]map[int64]*shared{}
		}
		if groups[group][key] == nil {
			groups[group][key] = map[int64]*shared{}
		}
		r := groups[group][key][offset]
		if r == nil {
			r = &shared{}
			groups[group][key][offset] = r
		}
		return r
	}
	finals := map[string]bool{}
	for i := range x.ops {
		if o := &x.ops[i]; o.begin.F == Ack {
			for _, s := range o.steps() {
				r := at(o.begin.GroupID, s.Key, s.Offset)
				switch {
				case o.outcome() == OK && s.Verdict == "accept" && (r.accepted == 0 || o.end.Time < r.accepted):
					r.accepted = o.end.Time
				case o.outcome() != OK && o.outcome() != Fail && s.Verdict != "release", s.Verdict == "reject":
					r.doubtful = true
				}
			}
		}
	}
	for i := range x.ops {
		o := &x.ops[i]
		if o.begin.F != Share || o.end == nil {
			continue
		}
		finals[o.begin.GroupID] = finals[o.begin.GroupID] || o.end.Final
		for _, s := range o.end.Steps {
			for _, pair := range s.Reads {
				r := at(o.begin.GroupID, s.Key, pair[0])
				r.deliveries++
				r.final = r.final || o.end.Final
				if r.accepted > 0 && o.begin.Time > r.accepted {
					found(Anomaly{Name: "share-redelivered", Key: s.Key, Offset: pair[0], Detail: fmt.Sprintf("group %s: process %d was given it though it had been acknowledged", o.begin.GroupID, o.begin.Process)})
				}
			}
		}
	}
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		if !finals[group] {
			continue
		}
		for _, key := range sortedKeys(groups[group]) {
			sharesOf(x.key(key), group, key, groups[group][key], limit, found)
		}
	}
}

// sharesOf looks for records of one key that a group has never settled. The
// group begins with the first that it was given.
func sharesOf(k *keyIndex, group, key string, records map[int64]*shared, limit int, found func(Anomaly)) {
	first := slices.Min(slices.Collect(maps.Keys(records)))
	for _, o := range k.offsets() {
		if o < max(first, k.start) {
			continue
		}
		r := records[o]
		switch {
		case r == nil:
			found(Anomaly{Name: "share-lost", Key: key, Offset: o, Detail: fmt.Sprintf("group %s was never given it", group)})
		case r.accepted == 0 && !r.doubtful && !r.final && r.deliveries < limit:
			found(Anomaly{Name: "share-lost", Key: key, Offset: o, Detail: fmt.Sprintf("group %s was given it %d times, did not acknowledge it, and is not given it again", group, r.deliveries)})
		}
	}
}
