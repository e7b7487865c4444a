package history

import "fmt"

// happened says whether a transaction has committed: somebody was told, or has
// seen some of it.
func (x *index) happened(o *op) bool {
	if o.begin.F != Txn {
		return false
	}
	if o.outcome() == OK {
		return true
	}
	for _, s := range o.steps() {
		if s.F == Send && x.keys[s.Key].values[s.Value].outcome == acknowledged {
			return true
		}
	}
	return false
}

// graph is who must be before whom: from operation to operations.
type graph map[int]map[int]bool

func (g graph) edge(from, to int) {
	if from == to {
		return
	}
	if g[from] == nil {
		g[from] = map[int]bool{}
	}
	g[from][to] = true
}

// cycles looks for transactions that are before and after each other. One that
// reads what another wrote is after it: a circle of these alone is forbidden
// (G1c). The order of writes in a log is no order of transactions, since theirs
// may be interleaved, so that circles with it (G0, and G1c of both) are legal.
func cycles(x *index, _ Options, found func(Anomaly)) {
	reads, writes, both := graph{}, graph{}, graph{}
	for i := range x.ops {
		o := &x.ops[i]
		if !x.happened(o) {
			continue
		}
		for _, s := range o.steps() {
			for _, r := range s.Reads {
				if w := x.keys[s.Key].values[r[1]].txn; w > 0 {
					reads.edge(w, o.nth)
					both.edge(w, o.nth)
				}
			}
		}
	}
	x.everyKey(func(_ string, k *keyIndex) {
		last := 0
		for _, o := range k.offsets() {
			w := k.values[k.at[o][0]].txn
			if last > 0 && w > 0 {
				writes.edge(last, w)
				both.edge(last, w)
			}
			last = w
		}
	})
	inReads := map[int]bool{}
	tell := func(name string, g graph, legal bool) {
		for _, c := range g.circles() {
			if legal && name == "G1c" && inReads[c[0]] {
				continue
			}
			if !legal {
				for _, n := range c {
					inReads[n] = true
				}
			}
			o := &x.ops[c[0]-1]
			a := Anomaly{Name: name, Offset: -1, Legal: legal, Detail: fmt.Sprintf("%d transactions are each before the other, among them one of process %d", len(c), o.begin.Process)}
			if steps := o.steps(); len(steps) > 0 {
				a.Key, a.Offset = steps[0].Key, steps[0].Offset
			}
			found(a)
		}
	}
	tell("G1c", reads, false)
	tell("G0", writes, true)
	tell("G1c", both, true)
}

// circles are the strongly connected components of more than one node (Tarjan).
func (g graph) circles() [][]int {
	t := &tarjan{g: g, index: map[int]int{}, low: map[int]int{}, on: map[int]bool{}}
	for _, n := range sortedNodes(g) {
		if t.index[n] == 0 {
			t.visit(n)
		}
	}
	return t.found
}

type tarjan struct {
	g          graph
	next       int
	index, low map[int]int
	on         map[int]bool
	stack      []int
	found      [][]int
}

func (t *tarjan) visit(n int) {
	t.next++
	t.index[n], t.low[n] = t.next, t.next
	t.stack, t.on[n] = append(t.stack, n), true
	for _, m := range sortedNodes(t.g[n]) {
		if t.index[m] == 0 {
			t.visit(m)
			t.low[n] = min(t.low[n], t.low[m])
		} else if t.on[m] {
			t.low[n] = min(t.low[n], t.index[m])
		}
	}
	if t.low[n] != t.index[n] {
		return
	}
	var c []int
	for {
		m := t.stack[len(t.stack)-1]
		t.stack, t.on[m] = t.stack[:len(t.stack)-1], false
		if c = append(c, m); m == n {
			break
		}
	}
	if len(c) > 1 {
		t.found = append(t.found, c)
	}
}

// zombies: once a transactional id has been taken over, nobody who had it before
// commits. What counts is when he asked for it: an answer may be late.
func zombies(x *index, _ Options, found func(Anomaly)) {
	inits := map[string][]*op{}
	own := map[int]int64{} // process → when its newest init ended
	for i := range x.ops {
		o := &x.ops[i]
		if o.begin.F == Init && o.outcome() == OK {
			inits[o.begin.TxnID] = append(inits[o.begin.TxnID], o)
			own[o.begin.Process] = max(own[o.begin.Process], o.end.Time)
		}
	}
	for i := range x.ops {
		o := &x.ops[i]
		if !x.happened(o) || o.end == nil || o.end.Decided == 0 {
			continue
		}
		for _, n := range inits[o.begin.TxnID] {
			if n.begin.Process == o.begin.Process || n.begin.Time < own[o.begin.Process] || n.end.Time > o.end.Decided {
				continue
			}
			a := Anomaly{Name: "zombie-commit", Offset: -1, Detail: fmt.Sprintf(
				"process %d committed as %s, which process %d had taken over before", o.begin.Process, o.begin.TxnID, n.begin.Process)}
			if steps := o.steps(); len(steps) > 0 {
				a.Key, a.Offset = steps[0].Key, steps[0].Offset
			}
			found(a)
			break
		}
	}
}

// transforms: of a group that consumes, transforms and produces with its offsets
// in the transaction, every record that its committed offset has passed has one
// output, and none behind it has any.
func transforms(x *index, _ Options, found func(Anomaly)) {
	type input struct {
		group, key string
		offset     int64
	}
	outputs := map[input][]int64{}
	groups := map[[2]string]bool{}
	x.everyKey(func(_ string, k *keyIndex) {
		for _, id := range k.sortedValues() {
			v := k.values[id]
			if v.from == "" {
				continue
			}
			groups[[2]string{v.maker, v.from}] = true
			if v.outcome == acknowledged || v.read {
				at := input{v.maker, v.from, v.source}
				outputs[at] = append(outputs[at], id)
			}
		}
	})
	final := x.finallyCommitted()
	for _, g := range sortedPairs(groups) {
		end, told := final[g]
		k := x.key(g[1])
		for _, o := range k.offsets() {
			out := outputs[input{g[0], g[1], o}]
			switch {
			case len(out) > 1:
				found(Anomaly{Name: "retransformed", Key: g[1], Offset: o, Detail: fmt.Sprintf("group %s has made the values %v of it", g[0], out)})
			case !told || o < k.start:
			case len(out) == 0 && o < end:
				found(Anomaly{Name: "untransformed", Key: g[1], Offset: o, Detail: fmt.Sprintf("group %s has committed %d, and nothing was made of it", g[0], end)})
			case len(out) == 1 && o >= end:
				found(Anomaly{Name: "uncommitted-output", Key: g[1], Offset: o, Detail: fmt.Sprintf("group %s has made value %d of it and has committed %d", g[0], out[0], end)})
			}
		}
	}
}

// finallyCommitted gives each group's committed offsets of the final phase; 0
// where there is none.
func (x *index) finallyCommitted() map[[2]string]int64 {
	final := map[[2]string]int64{}
	for i := range x.ops {
		o := &x.ops[i]
		if o.begin.F != Committed || o.outcome() != OK || !o.end.Final {
			continue
		}
		for _, s := range o.end.Steps {
			at := [2]string{o.end.GroupID, s.Key}
			final[at] = max(final[at], s.Offset, 0)
		}
	}
	return final
}

func (x *index) transformed() (n int) {
	for _, k := range x.keys {
		for _, v := range k.values {
			if v.from != "" && v.outcome == acknowledged {
				n++
			}
		}
	}
	return n
}
