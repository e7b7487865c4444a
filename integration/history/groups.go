package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// attempt is a commit of one offset, or an answer that tells one.
type attempt struct {
	begin, end int64
	offset     int64
	outcome    Type
	process    int
}

// commits holds coordinators to the offsets that they have acknowledged: what
// they tell later is not less, unless somebody has reset the group or a commit
// of unknown outcome arrived late, and is something that was committed.
func commits(x *index, _ Options, found func(Anomaly)) {
	made, told := map[[2]string][]attempt{}, map[[2]string][]attempt{}
	resets := map[string]int64{} // group → when the newest reset began
	add := func(to map[[2]string][]attempt, o *op, s Step, outcome Type) {
		a := attempt{o.begin.Time, 1<<63 - 1, s.Offset, outcome, o.begin.Process}
		if o.end != nil {
			a.end = o.end.Time
		}
		at := [2]string{o.begin.GroupID, s.Key}
		to[at] = append(to[at], a)
	}
	for i := range x.ops {
		o := &x.ops[i]
		switch o.begin.F {
		case Reset:
			resets[o.begin.GroupID] = max(resets[o.begin.GroupID], o.begin.Time)
		case Committed:
			if o.outcome() == OK {
				for _, s := range o.end.Steps {
					add(told, o, s, OK)
				}
			}
		case Commit, Txn:
			outcome := o.outcome()
			if x.happened(o) {
				outcome = OK
			}
			for _, s := range o.steps() {
				if s.F == Commit && outcome != Fail {
					add(made, o, s, outcome)
				}
			}
		}
	}
	for _, at := range sortedPairs(told) {
		since := resets[at[0]]
		fits := func(list []attempt) []attempt {
			return slices.DeleteFunc(slices.Clone(list), func(a attempt) bool { return a.begin <= since })
		}
		commitsOf(at, fits(made[at]), fits(told[at]), since > 0, found)
	}
}

func commitsOf(at [2]string, made, told []attempt, reset bool, found func(Anomaly)) {
	say := func(name string, t attempt, legal bool, format string, args ...any) {
		found(Anomaly{Name: name, Key: at[1], Offset: t.offset, Legal: legal, Detail: fmt.Sprintf("group %s: process %d was told %d; ", at[0], t.process, t.offset) + fmt.Sprintf(format, args...)})
	}
	for i, t := range told {
		late, highest := false, int64(-1)
		acknowledged := attempt{offset: -1}
		for _, m := range made {
			late = late || m.outcome == Info && m.offset == t.offset
			if m.begin < t.end {
				highest = max(highest, m.offset)
			}
			if m.outcome == OK && m.end < t.begin && m.offset > acknowledged.offset {
				acknowledged = m
			}
		}
		heard := int64(-1)
		for j, o := range told {
			if j != i && o.end < t.begin {
				heard = max(heard, o.offset)
			}
		}
		switch {
		case t.offset < acknowledged.offset:
			say("lost-commit", t, late, "process %d had committed %d", acknowledged.process, acknowledged.offset)
		case t.offset < heard:
			say("commit-regress", t, late, "it was %d before", heard)
		case len(made) > 0 && t.offset > highest && !reset:
			say("invented-commit", t, false, "no more than %d was ever committed", highest)
		}
	}
}

// owners holds groups to one owner of each partition: in every answer of their
// coordinators, in one epoch over all answers, and in what the members were told,
// in one generation and from one to the next.
func owners(x *index, _ Options, found func(Anomaly)) {
	overlaps(x, found)
	type place struct {
		group, key string
		generation int32
	}
	claims := map[place]string{}
	stable := map[place]string{} // key "" → a stable assignment, in words
	newest := map[string]*op{}   // group → the answer with the highest epoch that had ended
	for i := range x.ops {
		o := &x.ops[i]
		if o.outcome() != OK {
			continue
		}
		e := o.end
		switch o.begin.F {
		case Claim:
			for _, key := range e.Keys {
				at := place{e.GroupID, key, e.Generation}
				if other := claims[at]; other != "" && other != e.Member {
					found(Anomaly{Name: "owned-twice", Key: key, Offset: -1, Detail: fmt.Sprintf("in generation %d of group %s both %s and %s were given it", e.Generation, e.GroupID, other, e.Member)})
				}
				claims[at] = e.Member
			}
		case Group:
			ownersIn(e, found)
			if e.Generation == 0 || e.State != "Stable" {
				continue
			}
			at, words := place{e.GroupID, "", e.Generation}, inWords(e.Owners)
			if was, any := stable[at]; any && was != words {
				found(Anomaly{Name: "assignment-changed", Key: e.GroupID, Offset: -1, Detail: fmt.Sprintf("in epoch %d it was %s and is %s", e.Generation, was, words)})
			}
			stable[at] = words
			if n := newest[e.GroupID]; n != nil && n.end.Time < o.begin.Time && n.end.Generation > e.Generation {
				found(Anomaly{Name: "epoch-regress", Key: e.GroupID, Offset: -1, Detail: fmt.Sprintf("the epoch was %d and is %d", n.end.Generation, e.Generation)})
			}
			if n := newest[e.GroupID]; n == nil || n.end.Generation < e.Generation {
				newest[e.GroupID] = o
			}
		}
	}
}

// ownersIn looks at one answer of a coordinator. Keys is what the members
// subscribe to. Of a classic group, whose assignment a member makes by what it
// knows of the topics, a partition without owner counts once all is healed.
func ownersIn(e *Event, found func(Anomaly)) {
	owner := map[string]string{}
	for _, m := range slices.Sorted(maps.Keys(e.Owners)) {
		for _, key := range e.Owners[m] {
			if owner[key] != "" {
				found(Anomaly{Name: "owned-twice", Key: key, Offset: -1, Detail: fmt.Sprintf("group %s in state %s: both %s and %s own it", e.GroupID, e.State, owner[key], m)})
			}
			owner[key] = m
		}
	}
	if e.State != "Stable" || len(e.Owners) == 0 {
		return
	}
	for _, key := range e.Keys {
		if owner[key] == "" {
			found(Anomaly{Name: "unowned", Key: key, Offset: -1, Legal: !e.Final && e.Generation == 0, Detail: fmt.Sprintf("group %s is stable with %d members and nobody owns it", e.GroupID, len(e.Owners))})
		}
	}
}

func inWords(owners map[string][]string) string {
	text := ""
	for _, m := range slices.Sorted(maps.Keys(owners)) {
		text += fmt.Sprint(m, ":", slices.Sorted(slices.Values(owners[m])), " ")
	}
	return text
}

func sortedPairs[V any](m map[[2]string]V) [][2]string {
	return slices.SortedFunc(maps.Keys(m), func(a, b [2]string) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
}

func sortedNodes[V any](m map[int]V) []int { return slices.Sorted(maps.Keys(m)) }
