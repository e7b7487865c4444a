package replica

import (
	"context"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/varvelog/varve/hot"
	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/meta/topic"
)

// heard is a log that remembers its lines.
type heard struct {
	mu    sync.Mutex // guards the following
	lines []string
}

func (h *heard) logger() *slog.Logger { return slog.New(h) }

// Enabled implements slog.Handler.
func (h *heard) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (h *heard) Handle(_ context.Context, r slog.Record) error {
	line := r.Message
	r.Attrs(func(a slog.Attr) bool {
		line += " " + a.String()
		return true
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, line)
	return nil
}

// WithAttrs implements slog.Handler.
func (h *heard) WithAttrs([]slog.Attr) slog.Handler { return h }

// WithGroup implements slog.Handler.
func (h *heard) WithGroup(string) slog.Handler { return h }

// of are the lines that begin so.
func (h *heard) of(message string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(h.lines), func(line string) bool { return !strings.HasPrefix(line, message) })
}

// hurryMending ends a pause between two rounds.
func (p *Partition) hurryMending() {
	if wake := p.damage.wake.Load(); wake != nil {
		select {
		case *wake <- struct{}{}:
		default:
		}
	}
}

// rounds has a leader ask so many more times, without the pauses between.
func (c *cluster) rounds(p *Partition, n int) {
	c.t.Helper()
	for range n {
		last := p.damage.asked.Load()
		c.wait("another round", func() bool {
			p.hurryMending()
			q := p.damage.asked.Load()
			return q != nil && q != last && q.epoch != NoEpoch
		})
	}
}

// TestWhoIsWaitedForIsTold has a leader be damaged while both others are down. They come back one after the other.
func TestWhoIsWaitedForIsTold(t *testing.T) {
	c := startCluster(t, 3, hot.Fsync, nil)
	c.topic("events", []int32{1, 2, 3}, "min.insync.replicas", "1")
	acked := make(map[int64]string)
	c.produceAll("events", 20, acked)
	c.inSync("events", 3)
	a := c.nodes[0]
	// The first to come back has it damaged, too.
	c.nodes[1].rot(c.held(2, "events"), 5)
	for _, m := range c.nodes[1:] {
		m.kill(false, 0)
	}
	c.wait("1 to be in sync alone", func() bool { return slices.Equal(c.state("events").ISR, []int32{1}) })
	if d := c.held(1, "events").Describe().Damage; d.Any() || d.Start != NoOffset || len(d.Waits) > 0 {
		t.Fatalf("nothing is damaged: %+v", d)
	}
	a.rot(c.held(1, "events"), 5)
	a.kill(false, 0)
	log := &heard{}
	a.logger = log.logger()
	before := now()
	a.boot(false)
	c.leader("events")
	p := c.held(1, "events")
	waits := func(sources ...string) func() bool {
		return func() bool {
			d := p.Damage()
			return slices.EqualFunc(d.Waits, sources, func(w Wait, s string) bool { return w.Source == s })
		}
	}
	const line = "damage is not mended yet"
	c.wait("both to be waited for", func() bool { return waits("broker 2", "broker 3")() || p.Damage().Lost })
	c.rounds(p, 1)
	first := p.Damage()
	want := Damage{Ranges: 1, Start: 5, End: 6, Bytes: first.Bytes, Incomplete: true, HoldsProducers: true, Waits: first.Waits}
	if fmt.Sprint(first) != fmt.Sprint(want) || first.Bytes <= 0 || first.Waits[0].Since < before || first.Waits[0].Since > now() {
		t.Fatalf("it says %+v, want %+v", first, want)
	}
	c.rounds(p, 4)
	if d := p.Damage(); !slices.Equal(d.Waits, first.Waits) {
		t.Fatalf("waits are %+v, they were %+v", d.Waits, first.Waits)
	}
	if got := log.of(line); len(got) != 1 || !strings.Contains(got[0], "waits_for=broker 2, broker 3") || !strings.Contains(got[0], "producers_wait=true") || !strings.Contains(got[0], "start=5 end=6") {
		t.Fatalf("after several rounds the log says\n%s", strings.Join(got, "\n"))
	}
	c.nodes[1].boot(false)
	c.wait("the other to be waited for alone", func() bool { c.rounds(p, 1); return waits("broker 3")() })
	c.rounds(p, 3)
	if d := p.Damage(); !slices.Equal(d.Waits, first.Waits[1:]) || !d.HoldsProducers || d.Lost {
		t.Fatalf("it says %+v, waits were %+v", d, first.Waits)
	}
	if got := log.of(line); len(got) != 2 || !strings.Contains(got[1], "waits_for=broker 3") {
		t.Fatalf("the log says\n%s", strings.Join(got, "\n"))
	}
	c.nodes[2].boot(false)
	c.wait("the damage to be mended", func() bool {
		p.hurryMending()
		return !p.Damage().Any() && p.damage.waits.Load() == nil
	})
	if len(log.of("damage was mended")) != 1 || len(log.of("nobody has what is damaged")) != 0 {
		t.Fatalf("the log says\n%s", strings.Join(log.of(""), "\n"))
	}
}

// TestRecordsThatNobodyHasAreTold has the only copy be damaged: there is nobody to wait for.
func TestRecordsThatNobodyHasAreTold(t *testing.T) {
	n := newNode(t)
	log := &heard{}
	n.logger = log.logger()
	n.start()
	defer n.stop()
	p := n.want("events", topic.NewID(), 3, nil)
	for range 10 {
		n.produce(p, batch.None, record{ts: now(), value: "a value of some length, so that there is something to damage"})
	}
	n.must(p.log.Roll(now()))
	n.wait("the watermark", func() bool { return p.log.HighWatermark() == 10 })
	(&member{node: n}).rot(p, 5)
	if bad, err := p.log.CheckAt(5); !bad || err != nil {
		t.Fatalf("%t, %v", bad, err)
	}
	n.wait("it to be sure", func() bool { d := p.Damage(); return d.Lost && !d.HoldsProducers && len(d.Waits) == 0 && d.Start == 5 })
	n.wait("the log to say so", func() bool { return len(log.of("nobody has what is damaged")) == 1 })
	n.must(judged(p, 7))
	// Who deletes the records has no damage any more.
	if _, err := p.DeleteRecords(t.Context(), 6); err != nil {
		t.Fatal(err)
	}
	n.wait("nothing to be damaged", func() bool { d := p.Damage(); return !d.Any() && !d.Lost })
	if _, err := n.disk.Stat(path.Join(p.log.Dir(), fmt.Sprintf("%020d.log", 0))); err != nil {
		t.Fatalf("the segment is there for what lies above: %v", err)
	}
}
