package broker

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/coordinator"
	"github.com/varvelog/varve/coordinator/share"
)

// TestManyMembersLoseNoRecordAndAcknowledgeNoneTwice lets members come and go, accept, release, hold for too long and break
// off, with writes that fail, and counts.
func TestManyMembersLoseNoRecordAndAcknowledgeNoneTwice(t *testing.T) {
	s := startShares(t, 2, map[string]string{"group.share.min.record.lock.duration.ms": "1000", "group.share.max.delivery.count.limit": "25"})
	s.configure("g", "share.record.lock.duration.ms", "1000")
	s.configure("g", "share.delivery.count.limit", "25")
	const records = 4000
	for i := range 80 {
		s.produce(int32(i%2), records/80)
	}
	var mu sync.Mutex
	fails := rand.New(rand.NewPCG(1, 2))
	s.state.mu.Lock()
	s.state.fail = func(coordinator.ShareWrite) (error, bool) {
		switch fails.IntN(12) {
		case 0:
			return coordinator.ErrNotAvailable, false
		case 1:
			return coordinator.ErrNotAvailable, true // written, but nobody knows
		}
		return nil, true
	}
	s.state.mu.Unlock()
	accepted, unknown := map[string]int{}, map[string]int{}
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(i), 7))
			deadline := time.Now().Add(6 * time.Second)
			for round := 0; ; round++ {
				done := s.state.start(shareKey("g", s.id, 0)) == records/2 && s.state.start(shareKey("g", s.id, 1)) == records/2
				if done || time.Now().After(deadline.Add(30*time.Second)) {
					return
				}
				s.visit(t, fmt.Sprintf("member %d of %d", round, i), rnd, time.Now().After(deadline), func(where string, sure bool) {
					mu.Lock()
					defer mu.Unlock()
					if sure {
						accepted[where]++
					} else {
						unknown[where]++
					}
				})
			}
		})
	}
	wg.Wait()
	for where, n := range accepted {
		if n > 1 {
			t.Errorf("%s was acknowledged %d times", where, n)
		}
	}
	for p := range 2 {
		for o := range records / 2 {
			where := fmt.Sprintf("%d/%d", p, o)
			if accepted[where] == 0 && unknown[where] == 0 {
				t.Errorf("%s was lost", where)
			}
		}
		key := shareKey("g", s.id, int32(p))
		eventually(t, "the start is at the end", func() bool { return s.state.start(key) == records/2 })
	}
	eventually(t, "nothing is left in memory", func() bool { st := s.Stats().Shares; return st.Parts == 0 && st.AnswerBytes == 0 })
}

// visit is one member's life: a few fetches, and something done with each record.
func (s *shareStack) visit(t *testing.T, name string, rnd *rand.Rand, good bool, said func(where string, sure bool)) {
	m := s.member(name)
	defer m.nc.Close()
	m.max, m.size, m.wait, m.mode = int32(rnd.IntN(200)+1), int32(rnd.IntN(50)+1), 200, int8(rnd.IntN(2))
	for range rnd.IntN(8) + 1 {
		var r *kmsg.ShareFetchResponse
		if m.epoch == 0 {
			r = m.fetch(0, 1)
		} else {
			r = m.fetch()
		}
		if r.ErrorCode != 0 {
			return
		}
		for _, x := range r.Topics {
			for _, p := range x.Partitions {
				for _, a := range p.AcquiredRecords {
					if !good && rnd.IntN(10) == 0 {
						continue // held until the lock runs out, or the connection ends
					}
					ack := share.Ack{First: a.FirstOffset, Last: a.LastOffset}
					for range a.LastOffset - a.FirstOffset + 1 {
						kind := share.Accept
						if !good && rnd.IntN(6) == 0 {
							kind = share.Release
						}
						ack.Types = append(ack.Types, kind)
					}
					y := m.ask(m.ackRequest(p.Partition, ack)).(*kmsg.ShareAcknowledgeResponse)
					if y.ErrorCode != 0 {
						return
					}
					m.epoch = nextEpoch(m.epoch)
					c := y.Topics[0].Partitions[0].ErrorCode
					if c == codeInvalidRecordState {
						continue // too late
					}
					for i, kind := range ack.Types {
						if kind == share.Accept {
							said(fmt.Sprintf("%d/%d", p.Partition, a.FirstOffset+int64(i)), c == 0)
						}
					}
				}
			}
		}
	}
	if rnd.IntN(2) == 0 {
		m.leave()
	}
}
