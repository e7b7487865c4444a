package tier

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/tier/objstore"
)

// deleteBelow is DeleteRecords.
func (g *rigLog) deleteBelow(t *testing.T, offset int64) {
	t.Helper()
	if err := g.AdvanceLogStart(offset); err != nil {
		t.Fatal(err)
	}
	g.lead.LogStartMoved()
}

// wantIdle: everything that is wanted is archived, and nothing is complained about.
func (r *rig) wantIdle(g *rigLog) {
	r.t.Helper()
	r.wantEnd(g, g.end())
	s := r.status(g)
	if s.Stuck || s.LastError != nil || s.Uploading != 0 || s.LagSegments != 0 {
		r.t.Errorf("not at rest: %+v, last error %+v", s, s.LastError)
	}
	if st := r.state(g.p); st.Start > g.Offsets().LogStart && !st.Dropped {
		r.t.Errorf("archive starts at %d, above the log's start %d", st.Start, g.Offsets().LogStart)
	}
}

// Whatever made an upload in line, running or waiting for its commit pointless,
// the line goes on with what is left: after the store is back everything that is
// still wanted is archived.
func TestUploadsThatBecamePointlessDoNotStopTiering(t *testing.T) {
	seg := func(fault objstore.Fault) objstore.Rule {
		return objstore.Rule{Op: objstore.OpPut, Key: "*/seg/*", Fault: fault}
	}
	head := func(fault objstore.Fault) objstore.Rule {
		return objstore.Rule{Op: objstore.OpPut, Key: "*/head", Fault: fault}
	}
	first := seg(objstore.FaultSlowDown)
	first.Nth = 1
	slow := seg(objstore.FaultNone)
	slow.Delay = 5 * time.Second
	faults := []struct {
		name  string
		rules []objstore.Rule
	}{
		{"uploads fail", []objstore.Rule{seg(objstore.FaultSlowDown)}},
		{"the first upload fails", []objstore.Rule{first}},
		{"uploads hang", []objstore.Rule{seg(objstore.FaultStall)}},
		{"uploads are slow", []objstore.Rule{slow}},
		{"answers of uploads are lost", []objstore.Rule{seg(objstore.FaultLostAnswer), {Op: objstore.OpGet, Fault: objstore.FaultSlowDown}}},
		{"commits fail", []objstore.Rule{head(objstore.FaultSlowDown)}},
		{"answers of commits are lost", []objstore.Rule{head(objstore.FaultLostAnswer), {Op: objstore.OpGet, Fault: objstore.FaultSlowDown}}},
		{"the store is away", []objstore.Rule{{Fault: objstore.FaultSlowDown}}},
	}
	changes := []struct {
		name string
		do   func(r *rig, g *rigLog)
	}{
		{"records deleted inside the line", func(r *rig, g *rigLog) { g.deleteBelow(r.t, g.segments()[3].base+2) }},
		{"records deleted at a boundary", func(r *rig, g *rigLog) { g.deleteBelow(r.t, g.segments()[3].base) }},
		{"all records deleted", func(r *rig, g *rigLog) { g.deleteBelow(r.t, g.end()) }},
		{"records deleted twice", func(r *rig, g *rigLog) {
			g.deleteBelow(r.t, g.segments()[2].base+2)
			r.pass(3 * time.Second)
			g.fill(2, 2)
			g.deleteBelow(r.t, g.segments()[2].base+2)
		}},
		{"retention", func(r *rig, g *rigLog) {
			g.set(func(c *TopicConfig) { c.RetentionMillis = 60_000 })
			r.pass(3 * time.Minute)
		}},
		{"copying disabled for a while", func(r *rig, g *rigLog) {
			g.set(func(c *TopicConfig) { c.CopyDisabled = true })
			r.pass(time.Second)
			g.deleteBelow(r.t, g.segments()[2].base)
			g.set(func(c *TopicConfig) { c.CopyDisabled = false })
		}},
		{"tiering off and on", func(r *rig, g *rigLog) {
			g.set(func(c *TopicConfig) { c.Enabled, c.DeleteOnDisable = false, true })
			r.pass(time.Second)
			g.deleteBelow(r.t, g.segments()[2].base)
			g.set(func(c *TopicConfig) { c.Enabled = true })
		}},
		{"not tiered for a while", func(r *rig, g *rigLog) {
			g.set(func(c *TopicConfig) { c.Enabled, c.DeleteOnDisable = false, false })
			r.pass(20 * time.Minute)
			if s := r.status(g); s.Stuck || s.Uploading != 0 {
				r.t.Errorf("work is left although the topic is not tiered: %+v", s)
			}
			g.deleteBelow(r.t, g.segments()[2].base)
			g.set(func(c *TopicConfig) { c.Enabled = true })
		}},
	}
	for _, archived := range []int{0, 1} {
		for _, f := range faults {
			for _, c := range changes {
				t.Run(fmt.Sprintf("%d archived/%s/%s", archived, f.name, c.name), func(t *testing.T) {
					inRig(t, nil, func(r *rig) {
						g := r.leadWith(r.newLog(0, defaultTopic()), archived)
						r.pass(time.Second)
						r.faulty.Set(f.rules...)
						g.fill(6, 2)
						r.pass(2 * time.Second)
						c.do(r, g)
						r.pass(3 * time.Second)
						g.fill(1, 2) // holds the start when all was deleted
						r.pass(3 * time.Second)
						r.faulty.Set()
						r.pass(5 * time.Minute)
						g.set(func(c *TopicConfig) { c.RetentionMillis = -1 })
						g.fill(1, 2)
						r.pass(time.Minute)
						r.wantIdle(g)
					})
				})
			}
		}
	}
}

// Failures of uploads that nobody wants any more must not keep the active segment
// from being sealed in time.
func TestMaxLagHoldsAfterTheFailingUploadsWereDeleted(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		cfg := defaultTopic()
		cfg.MaxLagMillis = 60_000
		g := r.leadWith(r.newLog(0, cfg), 1)
		r.pass(time.Second)
		r.faulty.Set(objstore.Rule{Fault: objstore.FaultSlowDown})
		g.fill(3, 2)
		r.pass(5 * time.Minute)
		g.deleteBelow(t, g.end())
		r.pass(time.Minute)
		r.faulty.Set()
		g.append(time.Now().UnixMilli())
		g.commit()
		r.pass(2 * time.Minute)
		r.wantIdle(g)
	})
}

// An archive that was given up is reset only after tiering is on again: the local
// segments below its old end count again then, and none may be left out.
func TestArchiveThatIsResetLateBeginsWithTheLog(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		g := r.leadWith(r.newLog(0, defaultTopic()), 6)
		r.pass(time.Second)
		puts := 0
		r.faulty.Set(objstore.Rule{Op: objstore.OpPut, Fault: objstore.FaultSlowDown, Only: func(_ objstore.Op, key string) bool {
			if !strings.HasSuffix(key, "/head") {
				return true
			}
			puts++
			return puts > 1 // the drop passes, the reset does not
		}})
		g.set(func(c *TopicConfig) { c.Enabled, c.DeleteOnDisable = false, true })
		r.pass(time.Minute)
		if st := r.state(g.p); !st.Dropped {
			t.Fatalf("state %+v: the archive is not dropped, or reset already", st)
		}
		g.set(func(c *TopicConfig) { c.Enabled = true })
		r.pass(time.Minute)
		r.faulty.Set()
		r.pass(5 * time.Minute)
		r.wantIdle(g)
		if st := r.state(g.p); st.Start != 0 || g.Offsets().LogStart != 0 {
			t.Errorf("archive starts at %d, log at %d, want 0: records were left out", st.Start, g.Offsets().LogStart)
		}
	})
}

// A log that refuses to raise its start is asked again at the back-off's pace.
func TestLogStartThatCannotBeRaisedIsNotAskedWithoutRest(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		g := r.newLog(0, defaultTopic())
		g.startErr = fmt.Errorf("disk failed")
		r.leadWith(g, 3)
		r.pass(time.Second)
		g.set(func(c *TopicConfig) { c.RetentionMillis = 1 })
		r.pass(time.Hour)
		g.mu.Lock()
		asked := g.startCalls
		g.startErr = nil
		g.mu.Unlock()
		if asked < 10 || asked > 200 {
			t.Errorf("asked %d times in an hour", asked)
		}
		r.pass(time.Minute)
		if o := g.Offsets(); o.LogStart != o.End {
			t.Errorf("log starts at %d of %d", o.LogStart, o.End)
		}
	})
}
