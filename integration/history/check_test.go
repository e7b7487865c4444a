package history

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
)

// builder writes small histories by hand. Time goes on by one with each event.
type builder struct {
	events []Event
	now    int64
}

func (b *builder) add(e Event) {
	b.now++
	e.Time = b.now
	b.events = append(b.events, e)
}

const key = "t/0"

func sendStep(v, offset int64) Step { return Step{F: Send, Key: key, Value: v, Offset: offset} }

func readStep(reads ...[2]int64) Step { return Step{F: Poll, Key: key, Offset: -1, Reads: reads} }

// send is a send of one value from begin to end.
func (b *builder) send(process int, v int64, end Type, offset int64) {
	b.add(Event{Process: process, Type: Invoke, F: Send, Steps: []Step{sendStep(v, -1)}})
	b.add(Event{Process: process, Type: end, F: Send, Steps: []Step{sendStep(v, offset)}})
}

func (b *builder) poll(process int, final bool, reads ...[2]int64) {
	b.add(Event{Process: process, Type: Invoke, F: Poll, Final: final})
	b.add(Event{Process: process, Type: OK, F: Poll, Final: final, Steps: []Step{readStep(reads...)}})
}

func (b *builder) assign(process int, f Func) {
	b.add(Event{Process: process, Type: Invoke, F: f, Keys: []string{key}})
	b.add(Event{Process: process, Type: OK, F: f})
}

func (b *builder) ends(final bool, e Ends) {
	b.add(Event{Process: 99, Type: Invoke, F: Offsets, Final: final})
	b.add(Event{Process: 99, Type: OK, F: Offsets, Key: key, Final: final, Ends: &e})
}

func (b *builder) batches(source string, list ...Batch) {
	b.add(Event{Process: 98, Type: OK, F: Batches, Key: key, Source: source, Batches: list})
}

func TestHandWrittenHistories(t *testing.T) {
	for _, c := range []struct {
		name  string
		write func(b *builder)
		found []string // illegal
		legal []string
	}{
		{"acknowledged and read", func(b *builder) {
			b.send(1, 10, OK, 0)
			b.send(1, 11, OK, 1)
			b.poll(2, true, [2]int64{0, 10}, [2]int64{1, 11})
		}, nil, nil},
		{"two values at an offset", func(b *builder) {
			b.send(1, 10, OK, 0)
			b.send(2, 11, Info, -1)
			b.poll(3, false, [2]int64{0, 11})
			b.poll(4, true, [2]int64{0, 10})
		}, []string{"inconsistent-offset", "lost", "send-order"}, nil},
		{"acknowledged where another value is", func(b *builder) { b.send(1, 10, OK, 0); b.send(2, 11, OK, 0); b.poll(3, true, [2]int64{0, 10}) },
			[]string{"inconsistent-offset", "lost", "send-order"}, nil},
		{"one value twice", func(b *builder) { b.send(1, 10, OK, 0); b.poll(2, true, [2]int64{0, 10}, [2]int64{1, 10}) }, []string{"duplicate"}, nil},
		{"a refused value read", func(b *builder) { b.send(1, 10, Fail, -1); b.poll(2, true, [2]int64{0, 10}) }, []string{"aborted-read"}, nil},
		{"a value nobody sent", func(b *builder) { b.poll(2, true, [2]int64{0, 10}) }, []string{"aborted-read"}, nil},
		{"a refused value not read", func(b *builder) { b.send(1, 10, Fail, -1); b.send(1, 11, OK, 0); b.poll(2, true, [2]int64{0, 11}) }, nil, nil},
		{"an unknown value read", func(b *builder) { b.send(1, 10, Info, -1); b.poll(2, true, [2]int64{0, 10}) }, nil, nil},
		{"an unknown value not read", func(b *builder) { b.send(1, 10, Info, -1); b.send(3, 11, OK, 0); b.poll(2, true, [2]int64{0, 11}) }, nil, nil},
		{"a send without an end", func(b *builder) {
			b.add(Event{Process: 1, Type: Invoke, F: Send, Steps: []Step{sendStep(10, -1)}})
			b.poll(2, true, [2]int64{0, 10})
		}, nil, nil},
		{"part of an unknown send acknowledged, then lost", func(b *builder) {
			b.add(Event{Process: 1, Type: Invoke, F: Send, Steps: []Step{sendStep(10, -1), sendStep(11, -1)}})
			b.add(Event{Process: 1, Type: Info, F: Send, Steps: []Step{sendStep(10, 0), sendStep(11, -1)}})
			b.poll(2, true, [2]int64{1, 11})
		}, []string{"lost"}, nil},
		{"lost", func(b *builder) { b.send(1, 10, OK, 0); b.send(1, 11, OK, 1); b.poll(2, true, [2]int64{1, 11}) }, []string{"lost"}, nil},
		{"lost of an offset the client was not told", func(b *builder) { b.send(1, 10, OK, -1); b.send(1, 11, OK, 0); b.poll(2, true, [2]int64{0, 11}) }, []string{"unseen"}, nil},
		{"read once and gone", func(b *builder) {
			b.send(1, 10, Info, -1)
			b.poll(2, false, [2]int64{0, 10})
			b.send(3, 11, OK, 1)
			b.poll(4, true, [2]int64{1, 11})
		}, []string{"lost"}, nil},
		{"lost, but trimmed", func(b *builder) {
			b.send(1, 10, OK, 0)
			b.send(1, 11, OK, 1)
			b.ends(true, Ends{Start: 1, End: 2, Tiered: -1})
			b.poll(2, true, [2]int64{1, 11})
		}, nil, nil},
		{"unseen", func(b *builder) { b.send(1, 10, OK, 0); b.send(1, 11, OK, 1); b.poll(2, true, [2]int64{0, 10}) }, []string{"unseen"}, nil},
		{"unseen without a final phase", func(b *builder) { b.send(1, 10, OK, 0); b.send(1, 11, OK, 1); b.poll(2, false, [2]int64{0, 10}) }, []string{"unseen"}, nil},
		{"a gap in the middle", func(b *builder) {
			b.send(1, 10, OK, 0)
			b.send(1, 11, OK, 2)
			b.poll(2, true, [2]int64{0, 10}, [2]int64{2, 11})
		}, []string{"gap"}, nil},
		{"a gap at the start", func(b *builder) {
			b.send(1, 11, OK, 2)
			b.ends(true, Ends{Start: 0, End: 3, Tiered: -1})
			b.poll(2, true, [2]int64{2, 11})
		}, []string{"gap"}, nil},
		{"a gap at the end", func(b *builder) {
			b.send(1, 11, OK, 0)
			b.ends(true, Ends{Start: 0, End: 3, Tiered: -1})
			b.poll(2, true, [2]int64{0, 11})
		}, []string{"gap"}, nil},
		{"a poll skips", func(b *builder) {
			b.send(1, 10, OK, 0)
			b.send(1, 11, OK, 1)
			b.send(1, 12, OK, 2)
			b.assign(2, Assign)
			b.poll(2, false, [2]int64{0, 10})
			b.poll(2, false, [2]int64{2, 12})
			b.poll(3, true, [2]int64{0, 10}, [2]int64{1, 11}, [2]int64{2, 12})
		}, []string{"poll-skip"}, nil},
		{"a poll skips after an assignment", func(b *builder) {
			b.send(1, 10, OK, 0)
			b.send(1, 11, OK, 1)
			b.send(1, 12, OK, 2)
			b.assign(2, Assign)
			b.poll(2, false, [2]int64{0, 10})
			b.assign(2, Assign)
			b.poll(2, false, [2]int64{2, 12})
			b.poll(3, true, [2]int64{0, 10}, [2]int64{1, 11}, [2]int64{2, 12})
		}, nil, nil},
		{"a group's poll skips and repeats", func(b *builder) {
			b.send(1, 10, OK, 0)
			b.send(1, 11, OK, 1)
			b.send(1, 12, OK, 2)
			b.assign(2, Subscribe)
			b.poll(2, false, [2]int64{0, 10})
			b.poll(2, false, [2]int64{2, 12})
			b.poll(2, false, [2]int64{1, 11})
			b.poll(3, true, [2]int64{0, 10}, [2]int64{1, 11}, [2]int64{2, 12})
		}, nil, []string{"poll-skip", "nonmonotonic-poll"}},
		{"a poll goes back", func(b *builder) {
			b.send(1, 10, OK, 0)
			b.assign(2, Assign)
			b.poll(2, false, [2]int64{0, 10})
			b.poll(2, false, [2]int64{0, 10})
			b.poll(3, true, [2]int64{0, 10})
		}, []string{"nonmonotonic-poll"}, nil},
		{"within a poll, also of a group", func(b *builder) {
			b.send(1, 10, OK, 0)
			b.send(1, 11, OK, 1)
			b.send(1, 12, OK, 2)
			b.assign(2, Subscribe)
			b.poll(2, false, [2]int64{0, 10}, [2]int64{2, 12}, [2]int64{1, 11})
			b.poll(3, true, [2]int64{0, 10}, [2]int64{1, 11}, [2]int64{2, 12})
		}, []string{"int-poll-skip", "int-nonmonotonic-poll"}, nil},
		{"a later send of another process in front", func(b *builder) {
			b.send(1, 10, OK, 1)
			b.send(2, 11, OK, 0)
			b.poll(3, true, [2]int64{0, 11}, [2]int64{1, 10})
		}, []string{"send-order"}, nil},
		{"an unknown send in front of one that was acknowledged before it", func(b *builder) {
			b.send(1, 10, OK, 1)
			b.send(2, 11, Info, -1)
			b.poll(3, true, [2]int64{0, 11}, [2]int64{1, 10})
		}, []string{"send-order"}, nil},
		{"an unknown send that took effect later", func(b *builder) {
			b.send(2, 11, Info, -1)
			b.send(1, 10, OK, 0)
			b.poll(3, true, [2]int64{0, 10}, [2]int64{1, 11})
		}, nil, nil},
		{"one send out of order in itself", func(b *builder) {
			b.add(Event{Process: 1, Type: Invoke, F: Send, Steps: []Step{sendStep(10, -1), sendStep(11, -1)}})
			b.add(Event{Process: 1, Type: OK, F: Send, Steps: []Step{sendStep(10, 1), sendStep(11, 0)}})
			b.poll(3, true, [2]int64{0, 11}, [2]int64{1, 10})
		}, []string{"int-send-order"}, nil},
		{"replicas agree", func(b *builder) {
			b.batches("1", Batch{0, 4, 1, 7}, Batch{5, 5, 2, 8})
			b.batches("2", Batch{0, 4, 1, 7}, Batch{5, 5, 2, 8})
		}, nil, nil},
		{"replicas differ", func(b *builder) { b.batches("1", Batch{0, 4, 1, 7}); b.batches("2", Batch{0, 4, 1, 9}) }, []string{"divergent-batch"}, nil},
		{"replicas cut batches differently", func(b *builder) { b.batches("1", Batch{0, 4, 1, 7}); b.batches("2", Batch{3, 6, 1, 9}) }, []string{"divergent-batch"}, nil},
		{"epochs fall", func(b *builder) { b.batches("1", Batch{0, 4, 2, 7}, Batch{5, 5, 1, 8}) }, []string{"epoch-order"}, nil},
		{"the high watermark goes back", func(b *builder) { b.ends(false, Ends{0, 10, -1}); b.ends(false, Ends{0, 9, -1}) }, []string{"offset-regress"}, nil},
		{"the start goes back", func(b *builder) { b.ends(false, Ends{5, 10, -1}); b.ends(false, Ends{4, 10, -1}) }, []string{"offset-regress"}, nil},
		{"the bucket's end goes back", func(b *builder) { b.ends(false, Ends{0, 10, 8}); b.ends(false, Ends{0, 10, 7}) }, nil, []string{"offset-regress"}},
		{"a deposed leader tells another process", func(b *builder) {
			b.ends(false, Ends{0, 10, -1})
			b.add(Event{Process: 5, Type: Invoke, F: Offsets})
			b.add(Event{Process: 5, Type: OK, F: Offsets, Key: key, Ends: &Ends{0, 9, -1}})
		}, nil, []string{"offset-regress"}},
		{"a deposed leader answers after everything has healed", func(b *builder) {
			b.ends(false, Ends{0, 10, -1})
			b.add(Event{Process: 5, Type: Invoke, F: Offsets})
			b.add(Event{Process: 5, Type: OK, F: Offsets, Key: key, Final: true, Ends: &Ends{0, 9, -1}})
		}, []string{"offset-regress"}, nil},
		{"answers that cross", func(b *builder) {
			b.add(Event{Process: 1, Type: Invoke, F: Offsets})
			b.add(Event{Process: 2, Type: Invoke, F: Offsets})
			b.add(Event{Process: 2, Type: OK, F: Offsets, Key: key, Ends: &Ends{0, 10, -1}})
			b.add(Event{Process: 1, Type: OK, F: Offsets, Key: key, Ends: &Ends{0, 9, -1}})
		}, nil, nil},
		{"a transaction reads itself", func(b *builder) {
			b.add(Event{Process: 1, Type: Invoke, F: Txn, Steps: []Step{sendStep(10, -1)}})
			b.add(Event{Process: 1, Type: OK, F: Txn, Steps: []Step{sendStep(10, 0), readStep([2]int64{0, 10})}})
			b.poll(2, true, [2]int64{0, 10})
		}, []string{"precommitted-read"}, nil},
		{"part of an unknown transaction proves the rest", func(b *builder) {
			b.add(Event{Process: 1, Type: Invoke, F: Txn, Steps: []Step{sendStep(10, -1), sendStep(11, -1)}})
			b.add(Event{Process: 1, Type: Info, F: Txn, Steps: []Step{sendStep(10, -1), sendStep(11, -1)}})
			b.poll(2, true, [2]int64{0, 10})
		}, []string{"unseen"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := &builder{}
			c.write(b)
			r := Check(b.events, Options{})
			want := map[string]bool{}
			for _, name := range c.found {
				want[name] = true
			}
			got := map[string]bool{}
			for name := range r.Found {
				got[name] = true
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("found %v, want %v\n%s", r.Found, c.found, r.Summary())
			}
			if len(r.LegalFound) != len(c.legal) {
				t.Errorf("found as legal %v, want %v", r.LegalFound, c.legal)
			}
			for _, name := range c.legal {
				if r.LegalFound[name] == 0 {
					t.Errorf("%s is not among the legal findings %v", name, r.LegalFound)
				}
			}
		})
	}
}

func TestHistoriesSurviveAFile(t *testing.T) {
	events, _ := generate(7)
	var file bytes.Buffer
	w := NewWriter(&file)
	for _, e := range events {
		w.Add(e)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	back, err := Read(&file)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(back, events) {
		t.Error("what was read is not what was written")
	}
	if _, err := Read(strings.NewReader("{\"t\":1}\nnot json\n")); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("a broken line gives %v", err)
	}
}
