package history

import (
	"maps"
	"slices"
)

// unfinished looks for groups that were used and of which the end of the history says nothing: what they have committed, or
// still owe, is then held to nothing. A history without any end is the caller's to notice, by its counts.
func unfinished(x *index, _ Options, found func(Anomaly)) {
	if !slices.ContainsFunc(x.events, func(e Event) bool { return e.Final }) {
		return
	}
	used, final := map[string]string{}, map[string]bool{}
	for i := range x.ops {
		o := &x.ops[i]
		group := o.begin.GroupID
		switch o.begin.F {
		case Share:
			if o.end == nil {
				continue
			}
			final[group] = final[group] || o.end.Final
			if len(o.end.Steps) > 0 {
				used[group] = "it has delivered records to share, and nobody polls it until nothing comes"
			}
		case Commit, Txn:
			commits := slices.ContainsFunc(o.steps(), func(s Step) bool { return s.F == Commit })
			if commits && (o.outcome() == OK || x.happened(o)) {
				used[group] = "offsets were committed, and nobody asks what they are"
			}
		case Committed:
			final[group] = final[group] || o.outcome() == OK && o.end.Final
		}
	}
	for _, group := range slices.Sorted(maps.Keys(used)) {
		if !final[group] {
			found(Anomaly{Name: "no-final", Key: group, Offset: -1, Detail: "at the end: " + used[group]})
		}
	}
}
