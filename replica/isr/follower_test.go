package isr

import (
	"testing"

	"github.com/varvelog/varve/hot/lineage"
)

// chain makes a lineage of epoch, start pairs.
func chain(pairs ...int64) lineage.Chain {
	var c lineage.Chain
	for i := 0; i < len(pairs); i += 2 {
		c = append(c, lineage.Entry{Epoch: int32(pairs[i]), Start: pairs[i+1]})
	}
	return c
}

func TestLeaderJudgesByLineage(t *testing.T) {
	v := View{LogStart: 10, End: 100, Lineage: chain(2, 10, 5, 60)}
	for _, c := range []struct {
		name    string
		at      Position
		verdict Verdict
		where   Divergence
	}{
		{"the same log", Position{Offset: 100, LastEpoch: 5}, InLine, Divergence{}},
		{"behind", Position{Offset: 40, LastEpoch: 2}, InLine, Divergence{}},
		{"an empty log", Position{Offset: 50, LastEpoch: lineage.NoEpoch}, InLine, Divergence{}},
		{"a longer epoch", Position{Offset: 70, LastEpoch: 2}, Diverges, Divergence{2, 60}},
		{"a longer log", Position{Offset: 101, LastEpoch: 5}, Diverges, Divergence{5, 100}},
		{"an epoch that is not here", Position{Offset: 50, LastEpoch: 4}, Diverges, Divergence{2, 60}},
		{"a later epoch", Position{Offset: 50, LastEpoch: 6}, OutOfRange, Divergence{}},
		{"below the log start", Position{Offset: 9, LastEpoch: 2}, OutOfRange, Divergence{}},
	} {
		if d, verdict := Judge(v, c.at); verdict != c.verdict || d != c.where {
			t.Errorf("%s: %v %+v, want %v %+v", c.name, verdict, d, c.verdict, c.where)
		}
	}
}

func TestFollowerActsOnAnswers(t *testing.T) {
	v := View{LogStart: 10, LocalStart: 20, End: 100, Counted: 100, HighWatermark: 50, Lineage: chain(2, 10, 4, 60)}
	f := Follower{Epoch: 7, UncleanEpoch: lineage.NoEpoch}
	at, ok := f.Position(v)
	if !ok || at != (Position{100, 7, 4}) {
		t.Fatalf("position %+v, %t", at, ok)
	}
	for _, c := range []struct {
		name  string
		f     Follower
		reply Reply
		want  Action
	}{
		{"records", f, Reply{First: 100, Next: 120, HighWatermark: 110, LogStart: 15}, Action{Kind: Append, HighWatermark: 110, LogStart: 15}},
		{"a watermark ahead of the records", f, Reply{First: 100, Next: 120, HighWatermark: 500}, Action{Kind: Append, HighWatermark: 120}},
		{"a watermark that is behind", f, Reply{HighWatermark: 40}, Action{Kind: Append, HighWatermark: 50}},
		{"records from elsewhere", f, Reply{First: 99, Next: 120}, Action{}},
		{"diverging: the leader's end is lower", f, Reply{Diverging: &Divergence{2, 55}, HighWatermark: 99}, Action{Kind: Truncate, To: 55}},
		{"diverging: the own end is lower", f, Reply{Diverging: &Divergence{3, 90}}, Action{Kind: Truncate, To: 60}},
		{"diverging below the watermark", f, Reply{Diverging: &Divergence{2, 49}}, Action{Kind: Halt, To: 49}},
		{"the same after an unclean election", Follower{Epoch: 7, UncleanEpoch: 5}, Reply{Diverging: &Divergence{2, 49}}, Action{Kind: Truncate, To: 49}},
		{"an unclean election that the log is a part of", Follower{Epoch: 7, UncleanEpoch: 4}, Reply{Diverging: &Divergence{2, 49}}, Action{Kind: Halt, To: 49}},
		{"diverging below the local log", Follower{Epoch: 7, UncleanEpoch: 5}, Reply{Diverging: &Divergence{2, 15}}, Action{Kind: Reset, To: 15}},
		{"behind the leader's log", f, Reply{Refused: NotInRange, LogStart: 130}, Action{Kind: Reset, To: 130}},
		{"ahead of the leader's log", f, Reply{Refused: NotInRange, LogStart: 10}, Action{}},
		{"only in the bucket", f, Reply{Refused: MovedToTiered}, Action{Kind: Rebuild}},
		{"refused", f, Reply{Refused: NotNow, HighWatermark: 90}, Action{}},
	} {
		if got := c.f.Answer(v, at, c.reply); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	moved := v
	moved.End, moved.Counted = 101, 101
	if got := f.Answer(moved, at, Reply{First: 100, Next: 120, HighWatermark: 110}); got.Kind != Ignore {
		t.Errorf("an answer to another position: %+v", got)
	}
	v.Counted = 99
	if _, ok := f.Position(v); ok {
		t.Error("a fetch would say that there is what is not durable")
	}
}

func TestEmptyFollowerOfATieredPartitionStartsInTheBucket(t *testing.T) {
	v := View{Tiered: true}
	f := Follower{Epoch: 7, UncleanEpoch: lineage.NoEpoch}
	at, _ := f.Position(v)
	if a := f.Answer(v, at, Reply{First: 0, Next: 10, HighWatermark: 10, RemoteEnd: 8}); a.Kind != Rebuild {
		t.Fatalf("%+v: the bucket has up to 8", a)
	}
	if a := f.Answer(v, at, Reply{First: 0, Next: 10, HighWatermark: 10, RemoteEnd: -1}); a.Kind != Append {
		t.Fatalf("%+v: nothing is in the bucket", a)
	}
	if a := f.Answer(v, at, Reply{Refused: NotInRange, LogStart: 5, RemoteEnd: -1}); a.Kind != Rebuild {
		t.Fatalf("%+v: the leader's log starts above, the bucket may have more", a)
	}
}

// TestEmptyFollowerFindsBackAfterAnUncleanElection: it was begun anew at a log start of a history that was given up, and the
// leader's log ends below.
func TestEmptyFollowerFindsBackAfterAnUncleanElection(t *testing.T) {
	v := View{LogStart: 71, LocalStart: 71, End: 71, Counted: 71, HighWatermark: 71}
	for unclean, want := range map[int32]Action{lineage.NoEpoch: {}, 3: {Kind: Reset, To: 5}} {
		f := Follower{Epoch: 7, UncleanEpoch: unclean}
		at, _ := f.Position(v)
		if got := f.Answer(v, at, Reply{Refused: NotInRange, LogStart: 5}); got != want {
			t.Errorf("unclean epoch %d: %+v, want %+v", unclean, got, want)
		}
	}
}
