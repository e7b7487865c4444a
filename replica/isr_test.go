package replica

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func led(minISR int, replicas, set []int32) isr {
	return newISR(1, leadership{Epoch: 5, PartitionEpoch: 1, Replicas: replicas, ISR: set, MinISR: minISR}, 100, 100)
}

func TestOneReplicaAdvancesWithItsOwnDurableEnd(t *testing.T) {
	s := led(1, []int32{1}, []int32{1})
	if !s.progressed(120) || s.hw != 120 {
		t.Fatalf("hw %d, want 120", s.hw)
	}
	if s.progressed(110) || s.hw != 120 {
		t.Fatalf("moved back to %d", s.hw)
	}
}

func TestMinimumIsNeverMoreThanTheReplicas(t *testing.T) {
	s := led(3, []int32{1}, []int32{1})
	if !s.enough() || !s.progressed(101) {
		t.Fatal("one replica of one must satisfy any min.insync.replicas")
	}
}

func TestWatermarkStandsWhileTheSetIsBelowTheMinimum(t *testing.T) {
	s := led(2, []int32{1, 2, 3}, []int32{1})
	if s.enough() || s.progressed(200) || s.hw != 100 {
		t.Fatalf("hw moved to %d with one of two required", s.hw)
	}
	s.fetched(2, 9, 5, 200)
	if !s.accepted([]int32{1, 2}, 2) {
		t.Fatal("an accepted expansion must recompute the watermark")
	}
	// Forgotten progress of outsiders must not count: 2 was outside when it fetched, and joined with what it had.
	if s.hw != 200 {
		t.Fatalf("hw %d, want 200", s.hw)
	}
}

func TestProposedMemberHoldsTheWatermarkUntilTheAnswer(t *testing.T) {
	s := led(1, []int32{1, 2}, []int32{1})
	s.fetched(2, 9, 5, 100)
	if !s.mayJoin(2, 9) {
		t.Fatal("caught-up follower may join")
	}
	if !s.propose([]int32{1, 2}) || s.propose([]int32{1}) {
		t.Fatal("one change at a time")
	}
	if s.progressed(150) {
		t.Fatal("the proposed member has not fetched 150")
	}
	if !s.rejected() || s.hw != 150 {
		t.Fatalf("hw %d after the rejection, want 150", s.hw)
	}
}

func TestShrinkingSetCountsBothUntilTheAnswer(t *testing.T) {
	s := led(1, []int32{1, 2}, []int32{1, 2})
	s.progressed(150)
	s.propose([]int32{1})
	if s.advance() || s.hw != 100 {
		t.Fatal("the member to be removed still counts")
	}
	if !s.accepted([]int32{1}, 2) || s.hw != 150 {
		t.Fatalf("hw %d, want 150", s.hw)
	}
}

func TestStaleFetchesCountForNothing(t *testing.T) {
	s := led(1, []int32{1, 2}, []int32{1, 2})
	s.progressed(150)
	if s.fetched(2, 9, 4, 150) {
		t.Fatal("fetch of an older leader epoch counted")
	}
	if s.fetched(3, 9, 5, 150) {
		t.Fatal("fetch of a stranger counted")
	}
	s.fetched(2, 9, 5, 120)
	if s.fetched(2, 8, 5, 150) || s.hw != 120 {
		t.Fatal("fetch of an older incarnation counted")
	}
}

func TestJoinNeedsTheEpochStartTheWatermarkAndTheBrokerEpoch(t *testing.T) {
	s := led(1, []int32{1, 2}, []int32{1})
	s.progressed(150)
	if s.mayJoin(2, 9) {
		t.Fatal("never fetched in this epoch")
	}
	s.fetched(2, 9, 5, 149)
	if s.mayJoin(2, 9) {
		t.Fatal("below the watermark")
	}
	s.fetched(2, 9, 5, 150)
	if s.mayJoin(2, 10) || !s.mayJoin(2, 9) {
		t.Fatal("broker epoch must match")
	}
}

func TestOlderAnswerThanTheImageIsIgnored(t *testing.T) {
	s := led(1, []int32{1, 2}, []int32{1, 2})
	s.propose([]int32{1})
	s.update(leadership{Epoch: 5, PartitionEpoch: 7, Replicas: []int32{1, 2}, ISR: []int32{1, 2}, MinISR: 1})
	if s.proposed != nil {
		t.Fatal("a newer image decides what was on its way")
	}
	s.accepted([]int32{1}, 3)
	if !slices.Equal(s.committed, []int32{1, 2}) {
		t.Fatal("a late answer must not roll the set back")
	}
}

// TestWatermarkInvariants drives the state with random events and checks after each that the watermark never moves back and
// is never above what a member of the committed or proposed set has fetched in this epoch.
func TestWatermarkInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		replicas := []int32{1, 2, 3}
		set := func() []int32 {
			s := []int32{1}
			for _, id := range replicas[1:] {
				if rapid.Bool().Draw(t, "in") {
					s = append(s, id)
				}
			}
			return s
		}
		first := set()
		s := led(rapid.IntRange(1, 3).Draw(t, "min"), replicas, first)
		ends := map[int32]int64{1: -1, 2: -1, 3: -1}
		partitionEpoch := int32(1)
		for range 60 {
			before, enough := s.hw, s.enough()
			switch rapid.IntRange(0, 5).Draw(t, "event") {
			case 0:
				end := rapid.Int64Range(90, 300).Draw(t, "end")
				s.progressed(end)
				ends[1] = max(ends[1], end)
			case 1, 2:
				id := rapid.SampledFrom(replicas[1:]).Draw(t, "follower")
				end := rapid.Int64Range(90, 300).Draw(t, "end")
				s.fetched(id, 9, 5, end)
				ends[id] = end
			case 3:
				s.propose(set())
			case 4:
				if s.proposed != nil {
					partitionEpoch++
					s.accepted(s.proposed, partitionEpoch)
				}
			case 5:
				s.rejected()
			}
			if s.hw < before {
				t.Fatalf("watermark moved back from %d to %d", before, s.hw)
			}
			if s.hw == before {
				continue
			}
			if !enough && !s.enough() {
				t.Fatalf("watermark moved below the minimum in-sync set")
			}
			for _, id := range slices.Concat(s.committed, s.proposed) {
				if ends[id] < s.hw {
					t.Fatalf("watermark %d above member %d's end %d", s.hw, id, ends[id])
				}
			}
		}
	})
}
