package tier

import (
	"testing"
	"time"

	"github.com/varvelog/varve/hot/lineage"
)

// cutBack loses everything from an offset on.
func (g *rigLog) cutBack(to int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.l.truncate(to)
}

// TestLogOfAnotherHistoryIsNotJoinedToTheArchive: by their ends the two would fit.
// What tells them apart is who wrote what is below.
func TestLogOfAnotherHistoryIsNotJoinedToTheArchive(t *testing.T) {
	for name, more := range map[string]int{"as long as the archive": 0, "longer": 3} {
		t.Run(name, func(t *testing.T) {
			inRig(t, nil, func(r *rig) {
				cfg := defaultTopic()
				cfg.RetentionMillis = 3_600_000
				old := r.leadWith(r.newLog(0, cfg), 6)
				r.pass(time.Second)
				end := old.end()
				r.wantEnd(old, end)

				// Elected from outside the in-sync set, and what it lacked it wrote itself.
				g := old.again(2)
				cut := old.segments()[3].base
				g.cutBack(cut)
				g.fill(3+more, 3)
				g.lead = r.m.Lead(g)
				if more == 0 && g.end() != end {
					t.Fatalf("the log ends at %d, the archive at %d", g.end(), end)
				}
				r.pass(10 * time.Minute)
				st := r.status(g)
				if st.Phase != "diverged" || !st.Stuck || st.LastError == nil || st.LastError.Op != "compare" {
					t.Errorf("status %+v, %v", st, st.LastError)
				}
				g.fill(2, 3)
				r.pass(24 * time.Hour) // past the retention of everything
				if s := r.state(g.p); s.End != end || s.Start != 0 || s.LeaderEpoch != 1 {
					t.Errorf("archive %+v: it was joined to another history, or gave up records", s)
				}
				if g.remoteEnd() != -1 || g.Offsets().LogStart != 0 {
					t.Errorf("the log was told a remote end of %d and starts at %d", g.remoteEnd(), g.Offsets().LogStart)
				}
			})
		})
	}
}

// A log that no longer knows who wrote the archive's last offset, as it begins above
// it, is not suspected for that.
func TestLogThatBeginsAboveTheArchiveIsNotSuspected(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		g := r.leadWith(r.newLog(0, defaultTopic()), 3)
		r.pass(time.Second)
		g.set(func(c *TopicConfig) { c.CopyDisabled = true })
		next := g.again(2)
		next.fill(3, 3)
		if err := next.AdvanceLogStart(g.segments()[4].base); err != nil {
			t.Fatal(err)
		}
		if _, below := next.EpochAt(r.state(g.p).End - 1); !below {
			t.Fatal("the log knows still")
		}
		next.lead = r.m.Lead(next)
		next.set(func(c *TopicConfig) { c.CopyDisabled = false })
		r.pass(time.Hour)
		if st := r.status(next); st.Phase != "led" || st.LastError != nil {
			t.Errorf("status %+v, %v", st, st.LastError)
		}
		if got := r.state(g.p).End; got != next.end() {
			t.Errorf("archive ends at %d, want %d", got, next.end())
		}
	})
}

// TestWhatSeemedAnotherHistoryIsJudgedAgain has a leader's epochs be wrong, or not known, until its damage is mended.
// The archive's end does not move meanwhile.
func TestWhatSeemedAnotherHistoryIsJudgedAgain(t *testing.T) {
	for _, hidden := range []bool{true, false} {
		inRig(t, nil, func(r *rig) {
			old := r.leadWith(r.newLog(0, defaultTopic()), 6)
			r.pass(time.Second)
			end := old.end()
			r.wantEnd(old, end)
			g := old.again(2)
			g.mu.Lock()
			right := g.l.chain
			g.mu.Unlock()
			g.fill(2, 3)
			lineageIs := func(c lineage.Chain) {
				g.mu.Lock()
				defer g.mu.Unlock()
				g.l.chain = c
			}
			if g.hidden.Store(hidden); !hidden {
				lineageIs(lineage.Chain{{Epoch: 0, Start: 0}, {Epoch: 2, Start: end}})
			}
			g.lead = r.m.Lead(g)
			r.pass(10 * time.Minute)
			if st := r.status(g); st.Phase != "diverged" || st.LastError == nil || st.LastError.Op != "compare" || g.remoteEnd() >= 0 {
				t.Errorf("hidden %t: status %+v, %v, remote end %d", hidden, st, st.LastError, g.remoteEnd())
			}
			if got := r.state(g.p).End; got != end {
				t.Errorf("hidden %t: archive ends at %d, it was %d", hidden, got, end)
			}
			g.hidden.Store(false)
			lineageIs(right.Assign(2, end))
			r.pass(time.Minute)
			r.wantEnd(g, g.end())
			if st := r.status(g); st.Phase != "led" || st.LastError != nil || g.remoteEnd() != g.end() {
				t.Errorf("hidden %t: status %+v, %v, remote end %d", hidden, st, st.LastError, g.remoteEnd())
			}
		})
	}
}
