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

// offsetRegress: who asks after another has been answered hears no smaller
// start or end. What is tiered a new leader learns from the bucket, a moment
// after it has begun: until then it may name less (KIP-1005 promises nothing
// else), and nothing rests on it.
func offsetRegress(x *index, _ Options, found func(Anomaly)) {
	type heard struct{ start, end, tiered int64 }
	type moment struct {
		time int64
		end  bool // of an operation
		op   *op
	}
	var moments []moment
	for i := range x.ops {
		o := &x.ops[i]
		if o.begin.F == Offsets && o.end != nil && o.end.Type == OK && o.end.Ends != nil {
			moments = append(moments, moment{o.begin.Time, false, o}, moment{o.end.Time, true, o})
		}
	}
	slices.SortStableFunc(moments, func(a, b moment) int { return compare(a.time, b.time) })
	highest := map[string]heard{} // of operations that have ended
	atBegin := map[*op]heard{}    // highest when the operation began
	for _, m := range moments {
		key := m.op.end.Key
		h, any := highest[key]
		if !any {
			h = heard{-1, -1, -1}
		}
		if !m.end {
			atBegin[m.op] = h
			continue
		}
		now, before := m.op.end.Ends, atBegin[m.op]
		for _, c := range []struct {
			what        string
			now, before int64
			legal       bool
		}{{"log start", now.Start, before.start, false}, {"high watermark", now.End, before.end, false}, {"last tiered offset", now.Tiered, before.tiered, true}} {
			if c.now >= 0 && c.now < c.before {
				found(Anomaly{Name: "offset-regress", Key: key, Offset: c.now, Legal: c.legal, Detail: fmt.Sprintf("the %s was %d and is %d (%s)", c.what, c.before, c.now, m.op.end.Source)})
			}
		}
		highest[key] = heard{max(h.start, now.Start), max(h.end, now.End), max(h.tiered, now.Tiered)}
	}
}
