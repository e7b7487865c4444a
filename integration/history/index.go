package history

import "slices"

// outcome is what became of a value that was sent.
type outcome int8

const (
	unsent outcome = iota
	unknown
	acknowledged
	failed
)

// value is everything known of one value of a key.
type value struct {
	outcome outcome
	offsets []int64 // where it was seen, sorted; more than one is an anomaly
	read    bool    // by anybody
	final   bool    // in the final phase
	txn     int     // of the operation that sent it, 0 is none
	from    string  // the key of the record that it was made from, "" for none
	source  int64   // and that one's offset
	maker   string  // the group that did so
}

// keyIndex is everything known of one key.
type keyIndex struct {
	values map[int64]*value
	at     map[int64][]int64 // offset → the values seen there
	// maxRead is the highest offset any poll returned, -1 for none.
	maxRead int64
	// start is the highest log start that was seen; nothing below it is owed.
	start int64
	// finalStart and finalEnd are what the leader said in the final phase, -1
	// for nothing.
	finalStart, finalEnd int64
	finals               map[int][]int64 // process → offsets read in the final phase, in order
	txns                 bool            // markers take offsets, too
}

// op is an operation with both its ends. end is nil when it never ended.
type op struct {
	begin *Event
	end   *Event
	nth   int // from 1
}

// sent are the steps as they were sent, found those with what is known of them.
func (o *op) steps() []Step {
	if o.end != nil && len(o.end.Steps) > 0 {
		return o.end.Steps
	}
	return o.begin.Steps
}

func (o *op) outcome() Type {
	if o.end == nil {
		return Info
	}
	return o.end.Type
}

// index is a history, looked at from the side of the keys.
type index struct {
	events []Event
	ops    []op // in the order of their begins
	keys   map[string]*keyIndex
}

func (x *index) key(name string) *keyIndex {
	k := x.keys[name]
	if k == nil {
		k = &keyIndex{values: map[int64]*value{}, at: map[int64][]int64{}, maxRead: -1, finalStart: -1, finalEnd: -1, finals: map[int][]int64{}}
		x.keys[name] = k
	}
	return k
}

func (k *keyIndex) value(v int64) *value {
	val := k.values[v]
	if val == nil {
		val = &value{}
		k.values[v] = val
	}
	return val
}

// see notes that v is at offset.
func (k *keyIndex) see(offset, v int64) {
	if !slices.Contains(k.at[offset], v) {
		k.at[offset] = append(k.at[offset], v)
	}
	val := k.value(v)
	if i, found := slices.BinarySearch(val.offsets, offset); !found {
		val.offsets = slices.Insert(val.offsets, i, offset)
	}
}

func buildIndex(events []Event) *index {
	x := &index{events: events, keys: map[string]*keyIndex{}}
	x.pair()
	for i := range x.ops {
		x.addOp(&x.ops[i])
	}
	x.proveTxns()
	return x
}

// pair puts begins and ends together. A process has one operation at a time.
func (x *index) pair() {
	open := map[int]int{} // process → index in ops
	for i := range x.events {
		e := &x.events[i]
		if e.Type == Invoke {
			x.ops = append(x.ops, op{begin: e, nth: len(x.ops) + 1})
			open[e.Process] = len(x.ops) - 1
			continue
		}
		at, ok := open[e.Process]
		if !ok || x.ops[at].begin.F != e.F {
			// An end alone is an operation that took no time: faults and what
			// a replica holds are noted so.
			x.ops = append(x.ops, op{begin: e, end: e, nth: len(x.ops) + 1})
			continue
		}
		x.ops[at].end = e
		delete(open, e.Process)
	}
}

func (x *index) addOp(o *op) {
	switch o.begin.F {
	case Send, Txn:
		for _, s := range o.steps() {
			if s.F == Send {
				x.addSend(o, s)
			} else {
				x.addReads(o, s)
			}
		}
	case Poll:
		if o.end != nil {
			for _, s := range o.end.Steps {
				x.addReads(o, s)
			}
		}
	case Offsets:
		if o.end == nil || o.end.Ends == nil || o.end.Type != OK {
			return
		}
		k := x.key(o.end.Key)
		k.start = max(k.start, o.end.Ends.Start)
		if o.end.Final {
			k.finalStart, k.finalEnd = max(k.finalStart, o.end.Ends.Start), max(k.finalEnd, o.end.Ends.End)
		}
	}
}

func (x *index) addSend(o *op, s Step) {
	k := x.key(s.Key)
	v := k.value(s.Value)
	switch result := o.outcome(); {
	case result == OK, result == Info && o.begin.F == Send && s.Offset >= 0:
		v.outcome = acknowledged
	case result == Fail:
		v.outcome = failed
	default:
		v.outcome = unknown
	}
	v.from, v.source, v.maker = s.From, s.At, o.begin.GroupID
	if o.begin.F == Txn {
		v.txn, k.txns = o.nth, true
	}
	if s.Offset >= 0 && v.outcome == acknowledged {
		k.see(s.Offset, s.Value)
	}
}

func (x *index) addReads(o *op, s Step) {
	if s.F != Poll {
		return
	}
	k := x.key(s.Key)
	for _, r := range s.Reads {
		k.see(r[0], r[1])
		v := k.value(r[1])
		v.read = true
		k.maxRead = max(k.maxRead, r[0])
		if o.end != nil && o.end.Final {
			v.final = true
			k.finals[o.end.Process] = append(k.finals[o.end.Process], r[0])
		}
	}
}

// proveTxns: a transaction of which something was read has committed, all of it.
func (x *index) proveTxns() {
	proved := map[int]bool{}
	for _, k := range x.keys {
		for _, v := range k.values {
			if v.txn > 0 && v.read && v.outcome == unknown {
				proved[v.txn] = true
			}
		}
	}
	for _, k := range x.keys {
		for _, v := range k.values {
			if proved[v.txn] {
				v.outcome = acknowledged
			}
		}
	}
}
