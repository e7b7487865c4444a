package history

import "testing"

// TestDoubtIsForgivenOnlyWhereItIs tells what a share group owes of one record, from how it was handled.
func TestDoubtIsForgivenOnlyWhereItIs(t *testing.T) {
	for _, c := range []struct {
		name string
		deal func(d *dealing)
		want string // anomaly, "" for none
	}{
		{"accepted", func(d *dealing) { d.give(1).say(1, "accept", OK) }, ""},
		{"rejected", func(d *dealing) { d.give(1).say(1, "reject", OK) }, ""},
		{"released, and given no more", func(d *dealing) { d.give(1).say(1, "release", OK) }, "share-lost"},
		{"nothing was said, and it is given no more", func(d *dealing) { d.give(1) }, "share-lost"},
		{"a refused acceptance, and it is given no more", func(d *dealing) { d.give(1).say(1, "accept", Fail) }, "share-lost"},
		{"a refused rejection, and it is given no more", func(d *dealing) { d.give(1).say(1, "reject", Fail) }, "share-lost"},
		{"an acceptance in doubt", func(d *dealing) { d.give(1).say(1, "accept", Info) }, ""},
		{"a release in doubt", func(d *dealing) { d.give(1).say(1, "release", Info) }, "share-lost"},
		{"an acceptance in doubt, for this record accepted", func(d *dealing) { d.give(1).said(1, "accept", Info, true).give(2) }, "share-redelivered"},
		{"an acceptance in doubt, and then it came again", func(d *dealing) { d.give(1).say(1, "accept", Info).give(2) }, "share-lost"},
		{"the same, and accepted then", func(d *dealing) { d.give(1).say(1, "accept", Info).give(2).say(2, "accept", OK) }, ""},
		{"the same, and in doubt again", func(d *dealing) { d.give(1).say(1, "accept", Info).give(2).say(2, "accept", Info) }, ""},
		{"a doubt that a later delivery to the same member leaves", func(d *dealing) { d.give(1).say(1, "accept", Info).give(1) }, ""},
		{"given after a rejection", func(d *dealing) { d.give(1).say(1, "reject", OK).give(2) }, "share-redelivered"},
		{"given up after its last delivery", func(d *dealing) { d.count = 4; d.give(1).say(1, "release", OK) }, ""},
		{"given once too often", func(d *dealing) { d.count = 5; d.give(1).say(1, "accept", OK) }, "share-overdelivered"},
		{"in the hands of the last member", func(d *dealing) { d.final = true; d.give(1) }, ""},
		{"the last member was refused", func(d *dealing) { d.final = true; d.give(1).say(1, "accept", Fail) }, "share-lost"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := &dealing{}
			d.send(9, 10, OK, 0)
			c.deal(d)
			d.final = true
			d.op(Event{Process: 8, F: Share, GroupID: "s", Final: true}, Event{})
			d.poll(7, true, [2]int64{0, 10})
			r := Check(d.events, Options{})
			if c.want == "" && !r.Good() || c.want != "" && r.Found[c.want] != 1 {
				t.Errorf("want %q: %s", c.want, r.Summary())
			}
		})
	}
}

// dealing writes what a share group does with the record at offset 0.
type dealing struct {
	builder
	count int32
	final bool
}

func (d *dealing) op(begin, end Event) {
	begin.Type = Invoke
	d.add(begin)
	if begin.Type = OK; end.Type != "" {
		begin.Type = end.Type
	}
	if end.Steps != nil {
		begin.Steps = end.Steps
	}
	d.add(begin)
}

func (d *dealing) give(process int) *dealing {
	d.count++
	d.op(Event{Process: process, F: Share, GroupID: "s", Final: d.final},
		Event{Steps: []Step{{F: Poll, Key: key, Offset: -1, Reads: [][2]int64{{0, 10}}, Counts: []int32{d.count}}}})
	return d
}

func (d *dealing) say(process int, verdict string, outcome Type) *dealing {
	return d.said(process, verdict, outcome, false)
}

func (d *dealing) said(process int, verdict string, outcome Type, done bool) *dealing {
	s := Step{F: Ack, Key: key, Offset: 0, Verdict: verdict}
	end := s
	end.Done = done
	d.op(Event{Process: process, F: Ack, GroupID: "s", Final: d.final, Steps: []Step{s}}, Event{Type: outcome, Steps: []Step{end}})
	return d
}
