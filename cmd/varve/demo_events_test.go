package main

import (
	"encoding/json"
	"testing"
	"time"
)

func TestDemoEventsAreAFunctionOfTheirPlace(t *testing.T) {
	last := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	d := demoEvents{count: 10_001, partitions: 4, first: last.AddDate(-3, 0, 0), last: last}
	var total int64
	for p := range int32(4) {
		total += d.end(p)
	}
	if total != d.count {
		t.Fatalf("partitions hold %d events of %d", total, d.count)
	}
	for i := range d.count {
		p, o := d.place(i)
		if d.at(p, o) != i || o >= d.end(p) {
			t.Fatalf("event %d is placed at %d/%d, which is %d", i, p, o, d.at(p, o))
		}
		var v struct{ N, TS int64 }
		if err := json.Unmarshal(d.appendValue(nil, i), &v); err != nil || v.N != i || v.TS != d.timestamp(i) {
			t.Fatalf("event %d reads %+v, %v", i, v, err)
		}
	}
}

func TestDemoSeekAnswerIsTheFirstSuchEvent(t *testing.T) {
	last := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	d := demoEvents{count: 2_000_000, partitions: 4, first: last.AddDate(-3, 0, 0), last: last}
	target := last.AddDate(-2, 0, 0).UnixMilli()
	got := d.firstAtOrAfter(2, target)
	if got <= 0 || d.timestamp(d.at(2, got)) < target || d.timestamp(d.at(2, got-1)) >= target {
		t.Fatalf("offset %d is not the first at or after the target", got)
	}
	if none := d.firstAtOrAfter(0, last.AddDate(1, 0, 0).UnixMilli()); none != -1 {
		t.Fatalf("a time after the last event is at %d, want -1", none)
	}
}
