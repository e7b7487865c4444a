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

// hammered is what the members of a group have seen of its records. Its time is how much they have seen.
type hammered struct {
	mu      sync.Mutex // guards the following
	now     int
	records map[string]*hammeredRecord
	wrong   []string
}

type hammeredRecord struct {
	given map[int16]string // to whom, by delivery
	top   int16            // the newest of them
	said  []acceptance
}

// acceptance is what came of one member's acknowledgement of a record. sure: it was answered with success; else nobody knows.
type acceptance struct {
	delivery       int16
	sent, answered int
	sure           bool
}

func (h *hammered) tick() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now++
	return h.now
}

func (h *hammered) recordLocked(where string) *hammeredRecord {
	if h.records[where] == nil {
		h.records[where] = &hammeredRecord{given: map[int16]string{}}
	}
	return h.records[where]
}

// gave says that a member was given a record. Each delivery has its number, and goes to one member.
func (h *hammered) gave(where, member string, delivery int16) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.recordLocked(where)
	if other, twice := r.given[delivery]; twice {
		h.wrong = append(h.wrong, fmt.Sprintf("delivery %d of %s went to %s and to %s", delivery, where, other, member))
	}
	r.given[delivery], r.top = member, max(r.top, delivery)
}

func (h *hammered) accepted(where string, a acceptance) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.recordLocked(where)
	r.said = append(r.said, a)
}

// judge says what is wrong with what happened to a record: it was lost, or it was given to somebody after it was done.
//
// Success says that a record is done and is given to nobody again; it does not say by whom. A member whose lock has run out
// is told so too once the start has passed the record (in Kafka as well). Then those who were given it later have done it: the
// last of them had said so before the one who is late got the answer.
func (r *hammeredRecord) judge(deliveriesMax int16) string {
	if len(r.said) == 0 && r.top < deliveriesMax {
		return "was lost"
	}
	for _, a := range r.said {
		done := !a.sure || a.delivery == r.top || r.top >= deliveriesMax
		for _, b := range r.said {
			done = done || b.delivery == r.top && b.sent < a.answered
		}
		if !done {
			return fmt.Sprintf("was given to %s (delivery %d) though %s was told that it is done (delivery %d)", r.given[r.top], r.top, r.given[a.delivery], a.delivery)
		}
	}
	return ""
}

// TestManyMembersLoseNoRecordAndAcknowledgeNoneTwice lets members come and go, accept, release, hold for too long and break
// off, with writes that fail, and counts.
func TestManyMembersLoseNoRecordAndAcknowledgeNoneTwice(t *testing.T) {
	const deliveriesMax = 25
	s := startShares(t, 2, map[string]string{"group.share.min.record.lock.duration.ms": "1000", "group.share.max.delivery.count.limit": fmt.Sprint(deliveriesMax)})
	s.configure("g", "share.record.lock.duration.ms", "1000")
	s.configure("g", "share.delivery.count.limit", fmt.Sprint(deliveriesMax))
	const records = 4000
	for i := range 80 {
		s.produce(int32(i%2), records/80)
	}
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
	h := &hammered{records: map[string]*hammeredRecord{}}
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(i), 7))
			deadline := time.Now().Add(6 * time.Second)
			for round := 0; ; round++ {
				done := s.state.start(shareKey("g", s.id, 0)) == records/2 && s.state.start(shareKey("g", s.id, 1)) == records/2
				if done || time.Now().After(deadline.Add(2*time.Minute)) {
					return
				}
				s.visit(t, fmt.Sprintf("member %d of %d", round, i), rnd, time.Now().After(deadline), h)
			}
		})
	}
	wg.Wait()
	for _, text := range h.wrong {
		t.Error(text)
	}
	for p := range 2 {
		for o := range records / 2 {
			where := fmt.Sprintf("%d/%d", p, o)
			if text := h.recordLocked(where).judge(deliveriesMax); text != "" {
				t.Errorf("%s %s", where, text)
			}
		}
		key := shareKey("g", s.id, int32(p))
		eventually(t, "the start is at the end", func() bool { return s.state.start(key) == records/2 })
	}
	eventually(t, "nothing is left in memory", func() bool { st := s.Stats().Shares; return st.Parts == 0 && st.AnswerBytes == 0 })
}

// visit is one member's life: a few fetches, and something done with each record.
func (s *shareStack) visit(t *testing.T, name string, rnd *rand.Rand, good bool, h *hammered) {
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
					for o := a.FirstOffset; o <= a.LastOffset; o++ {
						h.gave(fmt.Sprintf("%d/%d", p.Partition, o), name, a.DeliveryCount)
					}
				}
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
					sent := h.tick()
					y := m.ask(m.ackRequest(p.Partition, ack)).(*kmsg.ShareAcknowledgeResponse)
					if y.ErrorCode != 0 {
						return
					}
					m.epoch = nextEpoch(m.epoch)
					c := y.Topics[0].Partitions[0].ErrorCode
					if c == codeInvalidRecordState {
						continue // too late
					}
					answer := acceptance{delivery: a.DeliveryCount, sent: sent, answered: h.tick(), sure: c == 0}
					for i, kind := range ack.Types {
						if kind == share.Accept {
							h.accepted(fmt.Sprintf("%d/%d", p.Partition, a.FirstOffset+int64(i)), answer)
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
