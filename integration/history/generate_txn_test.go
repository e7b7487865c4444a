package history

import (
	"fmt"
	"math/rand/v2"
)

// deals is coordinators that keep their promises, and clients that use them: a
// transactional producer that is taken over now and then, a group that
// consumes, transforms and produces, one that only commits, and a share group.
type deals struct {
	w *world

	producers []*dealer
	read      map[int]int // process → records of out/0 that it has read
	in        int64       // records of in/0
	out       map[string][]written
	pending   map[string]int64 // group → committed offset of in/0
	epoch     int32
	owners    map[string][]string
	share     []*dealt
}

type dealer struct {
	process int
	id      string
}

type written struct {
	value     int64
	committed bool
}

// dealt is a record of the share group.
type dealt struct {
	deliveries int
	done       bool
}

const inKey = "in/0"

var outKeys = []string{"out/0", "out/1"}

// generateTxns gives a legal history.
func generateTxns(seed uint64) []Event {
	d := &deals{w: &world{rng: rand.New(rand.NewPCG(seed, 3))}, out: map[string][]written{}, pending: map[string]int64{}, read: map[int]int{}, epoch: 1}
	for i := range 3 {
		d.producers = append(d.producers, &dealer{id: fmt.Sprint("t", i%2)})
		d.takeOver(d.producers[i])
	}
	d.rebalance()
	for range 300 {
		switch d.w.rng.IntN(12) {
		case 0, 1, 2:
			d.send()
		case 3, 4:
			d.txn(false)
		case 5, 6:
			d.txn(true)
		case 7:
			d.commit()
		case 8:
			d.tell("g", false)
			d.tell("h", false)
		case 9:
			if d.w.rng.IntN(3) == 0 {
				d.rebalance()
			}
			d.look("Stable", false)
		default:
			d.hand(false)
		}
	}
	d.end()
	return d.w.events
}

func (d *deals) process() int {
	d.w.next++
	return d.w.next
}

// op is one operation from begin to end.
func (d *deals) op(begin, end Event) {
	begin.Type, end.F, end.Process, end.TxnID, end.GroupID = Invoke, begin.F, begin.Process, begin.TxnID, begin.GroupID
	d.w.add(begin)
	if end.Decided != 0 {
		end.Decided = d.w.tick()
	}
	d.w.add(end)
}

func (d *deals) takeOver(p *dealer) {
	p.process = d.process()
	d.op(Event{F: Init, Process: p.process, TxnID: p.id}, Event{Type: OK})
	for _, o := range d.producers { // whoever had the id is fenced, and starts anew when it likes
		if o != p && o.id == p.id {
			o.process = 0
		}
	}
}

func (d *deals) send() {
	d.w.values++
	s := Step{F: Send, Key: inKey, Value: d.w.values, Offset: -1}
	done := s
	done.Offset = d.in
	d.in++
	d.share = append(d.share, &dealt{})
	d.op(Event{F: Send, Process: d.process(), Steps: []Step{s}}, Event{Type: OK, Steps: []Step{done}})
}

// txn is a transaction: of one that transforms the outputs name their sources.
func (d *deals) txn(transforms bool) {
	rng := d.w.rng
	p := d.producers[rng.IntN(len(d.producers))]
	if p.process == 0 || rng.IntN(8) == 0 {
		d.takeOver(p)
		return
	}
	begin := Event{F: Txn, Process: p.process, TxnID: p.id}
	from := d.pending["g"]
	n := int64(1 + rng.IntN(3))
	if transforms {
		begin.GroupID = "g"
		if n = min(n, d.in-from); n == 0 {
			return
		}
	}
	before := d.visible("out/0")
	commits := rng.IntN(4) > 0
	end := Event{Type: OK, Decided: 1}
	switch {
	case !commits && rng.IntN(2) == 0:
		end.Type, end.Decided = Fail, 0
	case !commits || rng.IntN(4) == 0:
		end.Type = Info
	}
	for i := range n {
		d.w.values++
		s := Step{F: Send, Key: outKeys[rng.IntN(2)], Value: d.w.values, Offset: -1}
		if transforms {
			s.From, s.At = inKey, from+i
		}
		begin.Steps = append(begin.Steps, s)
		s.Offset = int64(len(d.out[s.Key]))
		d.out[s.Key] = append(d.out[s.Key], written{s.Value, commits})
		if end.Type == Info {
			s.Offset = -1
		}
		end.Steps = append(end.Steps, s)
	}
	for _, key := range outKeys {
		d.out[key] = append(d.out[key], written{-1, false}) // the marker
	}
	if transforms {
		s := Step{F: Commit, Key: inKey, Offset: from + n}
		begin.Steps, end.Steps = append(begin.Steps, s), append(end.Steps, s)
		if commits {
			d.pending["g"] = from + n
		}
	} else if reads := before; len(reads) > d.read[p.process] && end.Type == OK {
		// It goes on where it has read to.
		from := d.read[p.process]
		d.read[p.process] = min(len(reads), from+4)
		end.Steps = append(end.Steps, Step{F: Poll, Key: "out/0", Offset: -1, Reads: reads[from:d.read[p.process]]})
	}
	d.op(begin, end)
	if end.Type == Info {
		p.process = 0
	}
}

// visible is what a committed read of a key shows.
func (d *deals) visible(key string) (reads [][2]int64) {
	for o, r := range d.out[key] {
		if r.committed {
			reads = append(reads, [2]int64{int64(o), r.value})
		}
	}
	return reads
}

func (d *deals) commit() {
	to := min(d.in, d.pending["h"]+d.w.rng.Int64N(5))
	if to == 0 {
		return
	}
	end := Event{Type: OK}
	switch d.w.rng.IntN(6) {
	case 0:
		end.Type = Fail
	case 1:
		end.Type = Info
		if d.w.rng.IntN(2) == 0 {
			d.pending["h"] = to
		}
	default:
		d.pending["h"] = to
	}
	d.op(Event{F: Commit, Process: d.process(), GroupID: "h", Steps: []Step{{F: Commit, Key: inKey, Offset: to}}}, end)
}

func (d *deals) tell(group string, final bool) {
	offset := d.pending[group]
	if offset == 0 {
		offset = -1 // none
	}
	d.op(Event{F: Committed, Process: 900, GroupID: group},
		Event{Type: OK, Final: final, Steps: []Step{{F: Committed, Key: inKey, Offset: offset}}})
}

// rebalance gives the keys to others. Those who had them give them up first, or were expelled, and hear of that late; who is
// still a member is told of the next generation.
func (d *deals) rebalance() {
	before := d.owners
	d.epoch++
	a, b := fmt.Sprint("m", d.epoch), fmt.Sprint("n", d.epoch)
	d.owners = map[string][]string{a: {"out/0"}, b: {"out/1"}}
	if d.w.rng.IntN(3) == 0 {
		d.owners = map[string][]string{a: {"out/0", "out/1"}}
	}
	expelled := d.w.rng.IntN(4) == 0
	for _, m := range sortedKeys(before) {
		if !expelled {
			d.release(m, Revoked, before[m])
		}
	}
	d.look("Assigning", false)
	for _, m := range sortedKeys(d.owners) {
		d.claim(m, d.owners[m])
	}
	for _, m := range sortedKeys(before) {
		switch {
		case expelled:
			d.release(m, Lost, nil)
			d.claim(m, nil) // it joins again
		case d.w.rng.IntN(2) == 0:
			d.claim(m, nil)
		default:
			d.release(m, Left, nil)
		}
	}
}

func (d *deals) claim(member string, keys []string) {
	d.op(Event{F: Claim, Process: d.process(), GroupID: "g"}, Event{Type: OK, Member: member, Generation: d.epoch, Keys: keys})
}

func (d *deals) release(member, why string, keys []string) {
	d.op(Event{F: Release, Process: d.process(), GroupID: "g"}, Event{Type: OK, Member: member, State: why, Keys: keys})
}

func (d *deals) look(state string, final bool) {
	owners := map[string][]string{}
	if state == "Stable" {
		for m, keys := range d.owners {
			owners[m] = append([]string(nil), keys...)
		}
	}
	d.op(Event{F: Group, Process: 901, GroupID: "g"}, Event{Type: OK, Final: final, State: state, Generation: d.epoch, Owners: owners, Keys: outKeys})
}

// hand has the share group deliver and take what is said of it.
func (d *deals) hand(final bool) (any bool) {
	process := d.process()
	var reads [][2]int64
	var counts []int32
	var acks []Step
	var handed []*dealt
	for o, r := range d.share {
		if r.done || r.deliveries >= deliveriesMax || len(reads) == 3 {
			continue
		}
		r.deliveries++
		reads = append(reads, [2]int64{int64(o), int64(o)})
		counts = append(counts, int32(r.deliveries))
		acks = append(acks, Step{F: Ack, Key: inKey, Offset: int64(o), Verdict: "accept"})
		handed = append(handed, r)
	}
	for i := range reads {
		reads[i][1] = d.valueIn(reads[i][0])
	}
	e := Event{Type: OK, Final: final}
	if len(reads) > 0 {
		e.Steps = []Step{{F: Poll, Key: inKey, Offset: -1, Reads: reads, Counts: counts}}
	}
	d.op(Event{F: Share, Process: process, GroupID: "s"}, e)
	if len(reads) == 0 {
		return false
	}
	end := Event{Type: OK}
	switch n := d.w.rng.IntN(6); {
	case n == 0 && !final:
		return true // gone without a word
	case n == 1 && !final:
		for i := range acks {
			acks[i].Verdict = "release"
		}
	case n == 3 && !final:
		acks[0].Verdict = "reject"
		for _, r := range handed {
			r.done = true
		}
	case n == 2 && !final:
		end.Type = Info
		end.Steps = append([]Step(nil), acks...)
		if d.w.rng.IntN(2) == 0 {
			for _, r := range handed {
				r.done = true
			}
			end.Steps[0].Done = d.w.rng.IntN(2) == 0
		}
	default:
		for _, r := range handed {
			r.done = true
		}
	}
	d.op(Event{F: Ack, Process: process, GroupID: "s", Steps: acks}, end)
	return true
}

// valueIn finds what was sent to an offset of in/0.
func (d *deals) valueIn(offset int64) int64 {
	for _, e := range d.w.events {
		if e.F == Send && e.Type == OK && e.Steps[0].Offset == offset {
			return e.Steps[0].Value
		}
	}
	panic("nothing is there")
}

func (d *deals) end() {
	reader := d.process()
	d.op(Event{F: Assign, Process: reader, Keys: append([]string{inKey}, outKeys...)}, Event{Type: OK})
	var in [][2]int64
	for o := range d.in {
		in = append(in, [2]int64{o, d.valueIn(o)})
	}
	steps := []Step{{F: Poll, Key: inKey, Offset: -1, Reads: in}}
	for _, key := range outKeys {
		steps = append(steps, Step{F: Poll, Key: key, Offset: -1, Reads: d.visible(key)})
	}
	d.op(Event{F: Poll, Process: reader, Final: true}, Event{Type: OK, Final: true, Steps: steps})
	d.tell("g", true)
	d.tell("h", true)
	d.look("Stable", true)
	for d.hand(true) {
	}
}
