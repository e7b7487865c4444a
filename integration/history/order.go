package history

import (
	"fmt"
	"slices"
)

// placed is a value whose send is known to have taken effect between two
// moments, and where.
type placed struct {
	begin, end int64
	offset     int64
	value      int64
	process    int
}

// sendOrder holds sends to the real order: what began after another send of
// the key had been acknowledged, whosever it was, lies behind it.
func sendOrder(x *index, _ Options, found func(Anomaly)) {
	byKey := map[string][]placed{}
	for i := range x.ops {
		o := &x.ops[i]
		if o.begin.F != Send || o.end == nil {
			continue
		}
		for _, s := range o.end.Steps {
			// Of an unknown one nobody knows when it was appended, but an
			// offset that was read says that it was, after its begin.
			p := placed{begin: o.begin.Time, end: o.end.Time, offset: s.Offset, value: s.Value, process: o.begin.Process}
			v := x.keys[s.Key].values[s.Value]
			if v.outcome != acknowledged {
				p.end = 1<<63 - 1
			}
			if p.offset < 0 && len(v.offsets) == 1 {
				p.offset = v.offsets[0]
			}
			if p.offset >= 0 && v.outcome != failed {
				byKey[s.Key] = append(byKey[s.Key], p)
			}
		}
	}
	for _, key := range sortedKeys(byKey) {
		sendOrderOf(key, byKey[key], found)
	}
}

// sendOrderOf walks along time: the largest offset of the sends that have
// ended is below every send that begins now.
func sendOrderOf(key string, sends []placed, found func(Anomaly)) {
	byBegin, byEnd := sends, slices.Clone(sends)
	slices.SortFunc(byBegin, func(a, b placed) int { return compare(a.begin, b.begin) })
	slices.SortFunc(byEnd, func(a, b placed) int { return compare(a.end, b.end) })
	highest, ended := placed{offset: -1}, 0
	for _, s := range byBegin {
		for ended < len(byEnd) && byEnd[ended].end < s.begin {
			if byEnd[ended].offset > highest.offset {
				highest = byEnd[ended]
			}
			ended++
		}
		if s.offset <= highest.offset {
			found(Anomaly{Name: "send-order", Key: key, Offset: s.offset, Detail: fmt.Sprintf(
				"value %d of process %d was sent after value %d of process %d had been acknowledged at %d", s.value, s.process, highest.value, highest.process, highest.offset)})
		}
	}
}

func compare(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// intSendOrder holds the values of one operation to the order in which a
// producer was given them.
func intSendOrder(x *index, _ Options, found func(Anomaly)) {
	for i := range x.ops {
		o := &x.ops[i]
		if o.begin.F != Send && o.begin.F != Txn {
			continue
		}
		last := map[string]Step{}
		for _, s := range o.steps() {
			if s.F != Send {
				continue
			}
			v := x.keys[s.Key].values[s.Value]
			if s.Offset < 0 && len(v.offsets) == 1 {
				s.Offset = v.offsets[0]
			}
			if s.Offset < 0 || v.outcome == failed {
				continue
			}
			if before, any := last[s.Key]; any && before.Offset >= s.Offset {
				found(Anomaly{Name: "int-send-order", Key: s.Key, Offset: s.Offset, Detail: fmt.Sprintf(
					"process %d gave value %d after %d, which is at %d", o.begin.Process, s.Value, before.Value, before.Offset)})
			}
			last[s.Key] = s
		}
	}
}
