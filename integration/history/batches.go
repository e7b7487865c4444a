package history

import (
	"fmt"
	"slices"
)

// sourced is a batch and who showed it.
type sourced struct {
	Batch
	source string
}

// batchesOf gives each key's distinct batches, sorted by base and last offset.
func (x *index) batchesOf() map[string][]sourced {
	type id struct {
		key string
		Batch
	}
	seen := map[id]bool{}
	byKey := map[string][]sourced{}
	for i := range x.ops {
		o := &x.ops[i]
		if o.begin.F != Batches || o.end == nil {
			continue
		}
		for _, b := range o.end.Batches {
			if at := (id{o.end.Key, b}); !seen[at] {
				seen[at] = true
				byKey[o.end.Key] = append(byKey[o.end.Key], sourced{b, o.end.Source})
			}
		}
	}
	for _, list := range byKey {
		slices.SortStableFunc(list, func(a, b sourced) int {
			if a.Base != b.Base {
				return compare(a.Base, b.Base)
			}
			return compare(a.Last, b.Last)
		})
	}
	return byKey
}

// divergentBatches: an offset is in one batch, whoever is asked and whenever.
func divergentBatches(x *index, _ Options, found func(Anomaly)) {
	byKey := x.batchesOf()
	for _, key := range sortedKeys(byKey) {
		list := byKey[key]
		widest := list[0]
		for _, b := range list[1:] {
			if b.Base <= widest.Last {
				found(Anomaly{Name: "divergent-batch", Key: key, Offset: b.Base, Detail: fmt.Sprintf(
					"%s has [%d,%d] of epoch %d, hash %x; %s has [%d,%d] of epoch %d, hash %x",
					widest.source, widest.Base, widest.Last, widest.Epoch, widest.Hash, b.source, b.Base, b.Last, b.Epoch, b.Hash)})
			}
			if b.Last > widest.Last {
				widest = b
			}
		}
	}
}

// epochOrder: leader epochs never fall along the offsets. Batches that claim
// the same offset are compared with those before them, not with each other.
func epochOrder(x *index, _ Options, found func(Anomaly)) {
	byKey := x.batchesOf()
	for _, key := range sortedKeys(byKey) {
		list := byKey[key]
		before, here := list[0], list[0] // the highest epoch at smaller bases, and up to this one
		for i, b := range list {
			if i > 0 && b.Base > list[i-1].Base {
				before = here
			}
			if b.Epoch < before.Epoch && b.Base > before.Base {
				found(Anomaly{Name: "epoch-order", Key: key, Offset: b.Base, Detail: fmt.Sprintf("epoch %d follows epoch %d at %d", b.Epoch, before.Epoch, before.Base)})
			}
			if b.Epoch > here.Epoch {
				here = b
			}
		}
	}
}

// heard is the most that was heard of a key.
type heard struct{ start, end, tiered int64 }

func (h heard) with(e *Ends) heard {
	return heard{max(h.start, e.Start), max(h.end, e.End), max(h.tiered, e.Tiered)}
}

// asked is an answer of a leader and what had been heard when it was asked for:
// by the same process, and by anybody.
type asked struct {
	op       *op
	own, all heard
}

// offsetRegress: a process never hears of a smaller start or end than before,
// since it believes no older leader than the newest it has heard of. Another
// process may know of that older leader alone, while it has not heard that it
// is deposed: this is legal until everything has healed.
//
// What is tiered a new leader learns from the bucket, a moment after it has
// begun: until then it may name less (KIP-1005 promises nothing else), and
// nothing rests on it.
func offsetRegress(x *index, _ Options, found func(Anomaly)) {
	for _, a := range x.asked() {
		now := a.op.end.Ends
		say := func(what string, value, own, all int64, legal bool) {
			if value < 0 || value >= max(own, all) {
				return
			}
			legal = legal || value >= own && !a.op.end.Final
			found(Anomaly{Name: "offset-regress", Key: a.op.end.Key, Offset: value, Legal: legal,
				Detail: fmt.Sprintf("the %s was %d and is %d (process %d asked %s)", what, max(own, all), value, a.op.begin.Process, a.op.end.Source)})
		}
		say("log start", now.Start, a.own.start, a.all.start, false)
		say("high watermark", now.End, a.own.end, a.all.end, false)
		say("last tiered offset", now.Tiered, a.own.tiered, a.all.tiered, true)
	}
}

// asked lists the answers of leaders with what had been heard before.
func (x *index) asked() []*asked {
	type moment struct {
		time int64
		end  bool
		of   *asked
	}
	var list []*asked
	var moments []moment
	for i := range x.ops {
		o := &x.ops[i]
		if o.begin.F == Offsets && o.end != nil && o.end.Type == OK && o.end.Ends != nil {
			a := &asked{op: o}
			list = append(list, a)
			moments = append(moments, moment{o.begin.Time, false, a}, moment{o.end.Time, true, a})
		}
	}
	slices.SortStableFunc(moments, func(a, b moment) int { return compare(a.time, b.time) })
	type who struct {
		key     string
		process int
	}
	own, anybody := map[who]heard{}, map[string]heard{}
	for _, m := range moments {
		key := m.of.op.end.Key
		w := who{key, m.of.op.begin.Process}
		if !m.end {
			m.of.own, m.of.all = own[w], anybody[key]
			continue
		}
		own[w], anybody[key] = own[w].with(m.of.op.end.Ends), anybody[key].with(m.of.op.end.Ends)
	}
	return list
}
