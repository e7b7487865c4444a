package isr

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func led(minISR int, replicas, set []int32) Leader {
	return Lead(1, Leadership{Epoch: 5, PartitionEpoch: 1, Replicas: replicas, ISR: set, MinISR: minISR}, 100, 100, 0)
}

// cluster has every broker in its ninth epoch, a leader's end of 400 and a lag of at most 10.
func cluster(now int64) Cluster {
	return Cluster{
		Eligible: func(int32) (int64, bool) { return 9, true }, SelfEpoch: 9, Now: now, LagMax: 10, LeaderEnd: 400,
	}
}

func TestOneReplicaAdvancesWithItsOwnDurableEnd(t *testing.T) {
	s := led(1, []int32{1}, []int32{1})
	if !s.Progressed(120) || s.hw != 120 {
		t.Fatalf("hw %d, want 120", s.hw)
	}
	if s.Progressed(110) || s.hw != 120 {
		t.Fatalf("moved back to %d", s.hw)
	}
}

func TestMinimumIsNeverMoreThanTheReplicas(t *testing.T) {
	s := led(3, []int32{1}, []int32{1})
	if !s.Enough() || !s.Progressed(101) {
		t.Fatal("one replica of one must satisfy any min.insync.replicas")
	}
}

func TestWatermarkStandsWhileTheSetIsBelowTheMinimum(t *testing.T) {
	s := led(2, []int32{1, 2, 3}, []int32{1})
	if s.Enough() || s.Progressed(200) || s.hw != 100 {
		t.Fatalf("hw moved to %d with one of two required", s.hw)
	}
	s.Fetched(Fetch{ID: 2, BrokerEpoch: 9, LeaderEpoch: 5, End: 200, LeaderEnd: 400})
	if !s.Accepted([]int32{1, 2}, 2) {
		t.Fatal("an accepted expansion must recompute the watermark")
	}
	// Forgotten progress of outsiders must not count: 2 was outside when it fetched, and joined with what it had.
	if s.hw != 200 {
		t.Fatalf("hw %d, want 200", s.hw)
	}
}

func TestProposedMemberHoldsTheWatermarkUntilTheAnswer(t *testing.T) {
	s := led(1, []int32{1, 2}, []int32{1})
	s.Fetched(Fetch{ID: 2, BrokerEpoch: 9, LeaderEpoch: 5, End: 100, LeaderEnd: 400})
	if !s.MayJoin(2, 9) {
		t.Fatal("caught-up follower may join")
	}
	if p, ok := s.Propose(cluster(0)); !ok || len(p.ISR) != 2 {
		t.Fatalf("proposal %+v", p)
	}
	if s.Progressed(150) {
		t.Fatal("the proposed member has not fetched 150")
	}
	if !s.Rejected(1) || s.hw != 150 {
		t.Fatalf("hw %d after the rejection, want 150", s.hw)
	}
}

func TestShrinkingSetCountsBothUntilTheAnswer(t *testing.T) {
	s := led(1, []int32{1, 2}, []int32{1, 2})
	s.Progressed(150)
	if p, ok := s.Propose(cluster(11)); !ok || len(p.ISR) != 1 {
		t.Fatalf("proposal %+v", p)
	}
	if s.advance() || s.hw != 100 {
		t.Fatal("the member to be removed still counts")
	}
	if !s.Accepted([]int32{1}, 2) || s.hw != 150 {
		t.Fatalf("hw %d, want 150", s.hw)
	}
}

func TestStaleFetchesCountForNothing(t *testing.T) {
	s := led(1, []int32{1, 2}, []int32{1, 2})
	s.Progressed(150)
	if _, moved := s.Fetched(Fetch{ID: 2, BrokerEpoch: 9, LeaderEpoch: 4, End: 150}); moved {
		t.Fatal("fetch of an older leader epoch counted")
	}
	if known, moved := s.Fetched(Fetch{ID: 3, BrokerEpoch: 9, LeaderEpoch: 5, End: 150}); known || moved {
		t.Fatal("fetch of a stranger counted")
	}
	s.Fetched(Fetch{ID: 2, BrokerEpoch: 9, LeaderEpoch: 5, End: 120, LeaderEnd: 400})
	if known, moved := s.Fetched(Fetch{ID: 2, BrokerEpoch: 8, LeaderEpoch: 5, End: 150}); known || moved || s.hw != 120 {
		t.Fatal("fetch of an older incarnation counted")
	}
}

func TestJoinNeedsTheEpochStartTheWatermarkAndTheBrokerEpoch(t *testing.T) {
	s := led(1, []int32{1, 2}, []int32{1})
	s.Progressed(150)
	if s.MayJoin(2, 9) {
		t.Fatal("never fetched in this epoch")
	}
	s.Fetched(Fetch{ID: 2, BrokerEpoch: 9, LeaderEpoch: 5, End: 149, LeaderEnd: 400})
	if s.MayJoin(2, 9) {
		t.Fatal("below the watermark")
	}
	s.Fetched(Fetch{ID: 2, BrokerEpoch: 9, LeaderEpoch: 5, End: 150, LeaderEnd: 400})
	if s.MayJoin(2, 10) || !s.MayJoin(2, 9) {
		t.Fatal("broker epoch must match")
	}
	behind := Lead(1, Leadership{Epoch: 5, PartitionEpoch: 1, Replicas: []int32{1, 2}, ISR: []int32{1}, MinISR: 1}, 140, 100, 0)
	behind.Fetched(Fetch{ID: 2, BrokerEpoch: 9, LeaderEpoch: 5, End: 120, LeaderEnd: 400})
	if behind.MayJoin(2, 9) {
		t.Fatal("at the watermark, and not at the start of the epoch")
	}
	behind.Fetched(Fetch{ID: 2, BrokerEpoch: 9, LeaderEpoch: 5, End: 140, LeaderEnd: 400})
	if !behind.MayJoin(2, 9) {
		t.Fatal("at the start of the epoch")
	}
}

func TestOlderAnswerThanTheImageIsIgnored(t *testing.T) {
	s := led(1, []int32{1, 2}, []int32{1, 2})
	s.Propose(cluster(11))
	s.Update(Leadership{Epoch: 5, PartitionEpoch: 7, Replicas: []int32{1, 2}, ISR: []int32{1, 2}, MinISR: 1})
	if s.proposed != nil {
		t.Fatal("a newer image decides what was on its way")
	}
	s.Accepted([]int32{1}, 3)
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
			before, enough := s.hw, s.Enough()
			switch rapid.IntRange(0, 5).Draw(t, "event") {
			case 0:
				end := rapid.Int64Range(90, 300).Draw(t, "end")
				s.Progressed(end)
				ends[1] = max(ends[1], end)
			case 1, 2:
				id := rapid.SampledFrom(replicas[1:]).Draw(t, "follower")
				end := rapid.Int64Range(90, 300).Draw(t, "end")
				s.Fetched(Fetch{ID: id, BrokerEpoch: 9, LeaderEpoch: 5, End: end, LeaderEnd: 400})
				ends[id] = end
			case 3:
				s.Propose(cluster(rapid.Int64Range(0, 20).Draw(t, "now")))
			case 4:
				if s.proposed != nil {
					partitionEpoch++
					s.Accepted(s.proposed, partitionEpoch)
				}
			case 5:
				s.Rejected(partitionEpoch)
			}
			if s.hw < before {
				t.Fatalf("watermark moved back from %d to %d", before, s.hw)
			}
			if s.hw == before {
				continue
			}
			if !enough && !s.Enough() {
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

func TestMemberThatLagsGoesAndOneThatCaughtUpComes(t *testing.T) {
	s := led(1, []int32{1, 2, 3}, []int32{1, 2})
	s.Progressed(400)
	fetched := func(id int32, end, leaderEnd, now int64) {
		s.Fetched(Fetch{ID: id, BrokerEpoch: 9, LeaderEpoch: 5, End: end, LeaderEnd: leaderEnd, Now: now})
	}
	fetched(2, 100, 200, 1)
	fetched(2, 200, 300, 8) // now it has all that there was at 1
	if s.Wants(cluster(11)) {
		t.Fatal("it was caught up at 1, 10 ago")
	}
	if !s.Wants(cluster(12)) {
		t.Fatal("11 ago is too long")
	}
	fetched(3, 400, 400, 12)
	p, ok := s.Propose(cluster(12))
	if want := []Member{{1, 9}, {3, 9}}; !ok || !slices.Equal(p.ISR, want) || p.PartitionEpoch != 1 || p.LeaderEpoch != 5 {
		t.Fatalf("proposal %+v, want %v", p, want)
	}
	if again, ok := s.Propose(cluster(0)); !ok || !slices.Equal(again.ISR, p.ISR) {
		t.Fatalf("a proposal without an answer is made again as it was, not %+v", again)
	}
}

func TestIdleFollowerNeverLags(t *testing.T) {
	s := led(1, []int32{1, 2}, []int32{1, 2})
	s.Fetched(Fetch{ID: 2, BrokerEpoch: 9, LeaderEpoch: 5, End: 400, LeaderEnd: 400, Now: 1})
	if s.Wants(cluster(1000)) {
		t.Fatal("it has everything, however long ago it asked")
	}
}

func TestMemberThatLostRecordsGoesAtOnce(t *testing.T) {
	s := led(1, []int32{1, 2}, []int32{1, 2})
	s.Fetched(Fetch{ID: 2, BrokerEpoch: 9, LeaderEpoch: 5, End: 99, LeaderEnd: 400, Now: 1})
	if p, ok := s.Propose(cluster(1)); !ok || len(p.ISR) != 1 {
		t.Fatalf("proposal %+v: a member below the watermark must not be elected", p)
	}
}

func TestWhoLostRecordsIsNamedSoThatNobodyElectsHim(t *testing.T) {
	s := Lead(1, Leadership{Epoch: 5, PartitionEpoch: 1, Replicas: []int32{1, 2, 3, 4}, ISR: []int32{1, 2, 3}, ELR: []int32{4}, MinISR: 4}, 200, 100, 0)
	fetched := func(id int32, end, now int64) {
		s.Fetched(Fetch{ID: id, BrokerEpoch: 9, LeaderEpoch: 5, End: end, LeaderEnd: 100, Now: now})
	}
	c := cluster(1)
	c.LeaderEnd = 400
	fetched(3, 100, 1)
	fetched(4, 100, 1)
	if s.Wants(c) {
		t.Fatal("one of the ELR that has everything has its place there")
	}
	fetched(4, 40, 1)
	p, ok := s.Propose(c)
	if !ok || len(p.ISR) != 3 || !slices.Equal(p.Lossy, []int32{4}) {
		t.Fatalf("proposal %+v: 4 is in the ELR and lacks what is committed", p)
	}
	s.Rejected(1)
	fetched(2, 99, 1)
	p, _ = s.Propose(c)
	if want := []Member{{1, 9}, {3, 9}}; !slices.Equal(p.ISR, want) || !slices.Equal(p.Lossy, []int32{2, 4}) {
		t.Fatalf("proposal %+v, want %v without 2 and 4", p, want)
	}
	// Whoever only lags is no loser.
	c.Now = 1000
	s.Rejected(1)
	if p, _ = s.Propose(c); len(p.ISR) != 1 || !slices.Equal(p.Lossy, []int32{2, 4}) {
		t.Fatalf("proposal %+v: 3 lags, and has everything that is committed", p)
	}
}

func TestFollowerServesWhatItsLogReachesFrom(t *testing.T) {
	s := led(1, []int32{1, 2}, []int32{1, 2})
	if s.Serves(2, 100) {
		t.Fatal("it has not fetched in this epoch")
	}
	s.Fetched(Fetch{ID: 2, BrokerEpoch: 9, LeaderEpoch: 5, End: 200, LogStart: 150, LeaderEnd: 400, Now: 1})
	for offset, want := range map[int64]bool{149: false, 150: true, 200: true, 201: false} {
		if s.Serves(2, offset) != want {
			t.Errorf("offset %d: %t", offset, !want)
		}
	}
}

func TestFencedBrokerIsNotProposed(t *testing.T) {
	s := led(1, []int32{1, 2}, []int32{1})
	s.Fetched(Fetch{ID: 2, BrokerEpoch: 9, LeaderEpoch: 5, End: 400, LeaderEnd: 400, Now: 1})
	c := cluster(1)
	c.Eligible = func(int32) (int64, bool) { return 9, false }
	if s.Wants(c) {
		t.Fatal("fenced")
	}
}

func TestRefusalAfterAnUnansweredTryKeepsBothSets(t *testing.T) {
	s := led(1, []int32{1, 2}, []int32{1})
	s.Fetched(Fetch{ID: 2, BrokerEpoch: 9, LeaderEpoch: 5, End: 100, LeaderEnd: 100, Now: 1})
	s.Propose(cluster(1))
	s.Unanswered(1)
	if s.Rejected(1); s.Progressed(150) || s.hw != 100 {
		t.Fatal("the first try may still take place: the member it adds must hold the watermark")
	}
	if p, ok := s.Propose(cluster(2)); !ok || !slices.Equal(p.ISR, []Member{{1, 9}}) {
		t.Fatalf("proposal %+v: the committed set raises the partition epoch, after which the first try cannot take place", p)
	}
	if !s.Accepted([]int32{1}, 2) || s.hw != 150 {
		t.Fatalf("hw %d, want 150", s.hw)
	}
}

func TestRecoveringLeaderSaysThatItIsWholeAndStaysAlone(t *testing.T) {
	s := Lead(1, Leadership{Epoch: 5, PartitionEpoch: 1, Replicas: []int32{1, 2}, ISR: []int32{1}, MinISR: 1, Recovering: true}, 100, 100, 0)
	s.Fetched(Fetch{ID: 2, BrokerEpoch: 9, LeaderEpoch: 5, End: 100, LeaderEnd: 100, Now: 1})
	p, ok := s.Propose(cluster(1))
	if !ok || len(p.ISR) != 1 || p.Recovering {
		t.Fatalf("proposal %+v", p)
	}
	s.Accepted([]int32{1}, 2)
	s.Fetched(Fetch{ID: 2, BrokerEpoch: 9, LeaderEpoch: 5, End: 100, LeaderEnd: 100, Now: 2})
	if p, ok := s.Propose(cluster(2)); !ok || len(p.ISR) != 2 {
		t.Fatalf("proposal %+v: now the other may join", p)
	}
}

// TestWishThatIsMadeAgainNamesTheStartThatWasJudged: a member that was wiped since, and fetches under a later broker epoch,
// is not what the wish was about; the controller has to refuse it (KIP-903, KAFKA-15221).
func TestWishThatIsMadeAgainNamesTheStartThatWasJudged(t *testing.T) {
	s := led(1, []int32{1, 2}, []int32{1})
	s.Fetched(Fetch{ID: 2, BrokerEpoch: 9, LeaderEpoch: 5, End: 100, LeaderEnd: 100, Now: 1})
	first, _ := s.Propose(cluster(1))
	s.Unanswered(1)
	s.Fetched(Fetch{ID: 2, BrokerEpoch: 12, LeaderEpoch: 5, End: 0, LeaderEnd: 100, Now: 2})
	again, ok := s.Propose(cluster(3))
	if !ok || !slices.Equal(again.ISR, first.ISR) || !slices.Contains(again.ISR, Member{2, 9}) {
		t.Fatalf("first %+v, then %+v", first, again)
	}
}

// Whatever may let the watermark move is looked at when it comes, for the next event may be long in coming: a follower's fetch, the
// controller's answer, and a newer image, which may bring another set or another minimum.
func TestWatermarkIsTakenAgainWheneverItMayMove(t *testing.T) {
	s := led(1, []int32{1, 2}, []int32{1, 2})
	s.Progressed(150)
	if known, moved := s.Fetched(Fetch{ID: 2, BrokerEpoch: 9, LeaderEpoch: 5, End: 120, LeaderEnd: 400}); !known || !moved || s.hw != 120 {
		t.Fatalf("after the last member's fetch the watermark is %d, want 120", s.hw)
	}
	if !s.Accepted([]int32{1}, 2) || s.hw != 150 {
		t.Fatalf("after the slow member has left the watermark is %d, want 150", s.hw)
	}

	s = led(1, []int32{1, 2}, []int32{1, 2})
	s.Progressed(150)
	if !s.Update(Leadership{Epoch: 5, PartitionEpoch: 2, Replicas: []int32{1, 2}, ISR: []int32{1}, MinISR: 1}) || s.hw != 150 {
		t.Fatalf("after an image without the slow member the watermark is %d, want 150", s.hw)
	}
	s = led(2, []int32{1, 2}, []int32{1})
	s.Progressed(150)
	if !s.Update(Leadership{Epoch: 5, PartitionEpoch: 1, Replicas: []int32{1, 2}, ISR: []int32{1}, MinISR: 1}) || s.hw != 150 {
		t.Fatalf("after the minimum has fallen the watermark is %d, want 150", s.hw)
	}
}

// A follower outside the set, as long as it is not asked into it, is nobody's business but its own (KAFKA-15021).
func TestWhoIsOutsideNeitherHoldsNorMovesTheWatermark(t *testing.T) {
	s := led(1, []int32{1, 2, 3}, []int32{1, 2})
	s.Progressed(150)
	s.Fetched(Fetch{ID: 3, BrokerEpoch: 9, LeaderEpoch: 5, End: 110, LeaderEnd: 400})
	if s.hw != 100 {
		t.Fatalf("an outsider moved the watermark to %d, and 2 has not fetched", s.hw)
	}
	s.Fetched(Fetch{ID: 2, BrokerEpoch: 9, LeaderEpoch: 5, End: 140, LeaderEnd: 400})
	if s.hw != 140 {
		t.Fatalf("watermark %d, want 140: an outsider with 110 does not hold it", s.hw)
	}
}

// What a follower had before it left the set says nothing of what it has when it is let in again: it may have lost its disk since.
func TestProgressOfOutsidersIsForgotten(t *testing.T) {
	s := led(1, []int32{1, 2}, []int32{1, 2})
	s.Fetched(Fetch{ID: 2, BrokerEpoch: 9, LeaderEpoch: 5, End: 150, LeaderEnd: 400})
	s.Update(Leadership{Epoch: 5, PartitionEpoch: 2, Replicas: []int32{1, 2}, ISR: []int32{1}, MinISR: 1})
	if end := s.End(2); end != NoProgress {
		t.Fatalf("a follower outside the set has %d", end)
	}
	s.Update(Leadership{Epoch: 5, PartitionEpoch: 3, Replicas: []int32{1, 2}, ISR: []int32{1, 2}, MinISR: 1})
	if s.Progressed(150) || s.hw != 100 {
		t.Fatalf("watermark %d by what the member had before it left", s.hw)
	}
	next := Lead(1, Leadership{Epoch: 6, PartitionEpoch: 4, Replicas: []int32{1, 2}, ISR: []int32{1, 2}, MinISR: 1}, 150, 100, 0)
	if next.End(2) != NoProgress || next.Progressed(150) {
		t.Fatal("a new epoch begins with what was fetched in the one before it")
	}
}
