package history

import (
	"fmt"
	"math"
	"slices"
)

// hold is a member's ownership of a key, from when it was given it until it began to give it up.
type hold struct {
	member     string
	generation int32
	from, to   int64 // to is math.MaxInt64 while it has not begun to
}

// sign is of life: the group gave the member something, or nothing new, in a generation. broken, instead, says that
// the member learned that it had been none for a while.
type sign struct {
	at         int64
	generation int32
	broken     bool
}

// membership is what the members of one group have said.
type membership struct {
	holds map[string][]hold // key → in the order of time
	signs map[string][]sign // member → in the order of time
}

// overlaps looks for keys that were given to a member in a later generation before the one that had them began to give them
// up. A member that the group has expelled in the meantime does not know it yet, and may hold on for a while: so the former
// owner has to be sign afterwards, in that generation or a later one, as the member that it was all the time.
func overlaps(x *index, found func(Anomaly)) {
	groups := x.memberships()
	for _, group := range sortedKeys(groups) {
		m := groups[group]
		for _, key := range sortedKeys(m.holds) {
			for _, a := range m.holds[key] {
				for _, b := range m.holds[key] {
					if b.member != a.member && b.generation > a.generation && a.from < b.from && b.from < a.to && m.stayed(a, b) {
						found(Anomaly{Name: "owned-twice", Key: key, Offset: -1, Detail: fmt.Sprintf(
							"group %s gave it to %s in generation %d, and %s, which has it since generation %d and is still a member, had not given it up",
							group, b.member, b.generation, a.member, a.generation)})
					}
				}
			}
		}
	}
}

// stayed says whether the owner of a was a member all the time until after b had begun.
func (m *membership) stayed(a, b hold) bool {
	for _, s := range m.signs[a.member] {
		switch {
		case s.at <= a.from:
		case s.broken:
			return false
		case s.at > b.from && s.generation >= b.generation:
			return true
		}
	}
	return false
}

func (x *index) memberships() map[string]*membership {
	groups := map[string]*membership{}
	for i := range x.ops {
		o := &x.ops[i]
		if o.outcome() != OK || o.begin.F != Claim && o.begin.F != Release {
			continue
		}
		e := o.end
		m := groups[e.GroupID]
		if m == nil {
			m = &membership{holds: map[string][]hold{}, signs: map[string][]sign{}}
			groups[e.GroupID] = m
		}
		switch {
		case e.F == Claim:
			m.signs[e.Member] = append(m.signs[e.Member], sign{at: e.Time, generation: e.Generation})
			for _, key := range e.Keys {
				m.claim(key, hold{member: e.Member, generation: e.Generation, from: e.Time, to: math.MaxInt64})
			}
		case e.State == Revoked:
			for _, key := range e.Keys {
				m.release(key, e.Member, e.Time)
			}
		default:
			m.signs[e.Member] = append(m.signs[e.Member], sign{at: e.Time, broken: true})
			for key := range m.holds {
				m.release(key, e.Member, e.Time)
			}
		}
	}
	return groups
}

// claim notes a hold, unless the member has the key already.
func (m *membership) claim(key string, h hold) {
	if !slices.ContainsFunc(m.holds[key], func(o hold) bool { return o.member == h.member && o.to == math.MaxInt64 }) {
		m.holds[key] = append(m.holds[key], h)
	}
}

func (m *membership) release(key, member string, at int64) {
	for i := range m.holds[key] {
		if h := &m.holds[key][i]; h.member == member && h.to == math.MaxInt64 {
			h.to = at
		}
	}
}
