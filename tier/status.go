package tier

import (
	"math"
	"slices"
	"strings"

	"github.com/varvelog/varve/meta/topic"
)

// PartitionStatus says how a led partition's offload stands.
type PartitionStatus struct {
	Partition   topic.Partition
	LeaderEpoch int32
	Phase       string // "waiting", "loading", "claiming", "led", "fenced", "diverged", "disabled"

	RemoteStart int64 // −1 when unknown or nothing committed
	RemoteEnd   int64 // exclusive; −1 when unknown or nothing committed

	LagBytes    int64 // local bytes that are not in the archive, the active segment included
	LagSegments int   // sealed segments that are not in the archive
	// AtRiskSeconds is how long the oldest record that is only local has waited:
	// since the first append to its segment, or since this leader first saw the
	// segment when it was sealed before that. 0 when there is none.
	AtRiskSeconds float64

	Uploading int // uploads running or waiting for their commit
	Marked    int // objects waiting for deletion

	// Damaged are the objects that the manifest names and that are missing or are not
	// what it says, as far as anybody has noticed: at most doubtsMax.
	Damaged []DamagedObject
	// DamagedMore is the number of others: those of the last survey, or found before,
	// that there was no room to name.
	DamagedMore int

	// LastError is the last failure that has not been followed by a success of
	// the same operation; nil when all is well.
	LastError *Problem
	// Stuck is set when there is work and nothing has moved for StuckAfter.
	Stuck      bool
	StuckSince int64 // wall clock ms
}

// DamagedObject is an object that the committed manifest names and that is missing or
// is not what was put there.
type DamagedObject struct {
	Key   string
	Page  bool // a manifest page, of which this broker may have a copy; else a segment
	Base  int64
	End   int64 // exclusive
	Fault Fault
	Since int64 // wall clock ms when it was found
}

// Problem is a failed operation, with all an operator needs to look for it.
type Problem struct {
	Op    string // "claim", "upload", "commit", "delete", "collect", "load", "roll", …
	Key   string // object key, where there is one
	Err   error
	Since int64 // wall clock ms of the first failure in the row
	Count int   // failures in the row
}

// coreStatus is what the core knows for a status.
type coreStatus struct {
	gen    uint64
	status PartitionStatus
}

// Status describes every led partition, in order of topic and partition.
func (m *Manager) Status() []PartitionStatus {
	m.mu.Lock()
	led := make([]*Leadership, 0, len(m.led))
	for _, l := range m.led {
		led = append(led, l)
	}
	m.mu.Unlock()
	known := map[topic.Partition]coreStatus{}
	m.inspect(func(c *core, now instant) {
		for id, p := range c.parts {
			known[id] = coreStatus{p.gen, p.status(now)}
		}
		for id, a := range c.asleep {
			known[id] = coreStatus{a.gen, a.status(id, now)}
		}
	})
	out := make([]PartitionStatus, 0, len(led))
	for _, l := range led {
		out = append(out, m.complete(l, known))
	}
	slices.SortFunc(out, func(a, b PartitionStatus) int {
		if c := strings.Compare(a.Partition.Topic, b.Partition.Topic); c != 0 {
			return c
		}
		return int(a.Partition.Index) - int(b.Partition.Index)
	})
	return out
}

// PartitionStatus describes one led partition; false when it is not led here.
func (m *Manager) PartitionStatus(p topic.Partition) (PartitionStatus, bool) {
	m.mu.Lock()
	l := m.led[p]
	m.mu.Unlock()
	if l == nil {
		return PartitionStatus{}, false
	}
	known := map[topic.Partition]coreStatus{}
	m.inspect(func(c *core, now instant) {
		if q := c.parts[p]; q != nil {
			known[p] = coreStatus{q.gen, q.status(now)}
		} else if a, ok := c.asleep[p]; ok {
			known[p] = coreStatus{a.gen, a.status(p, now)}
		}
	})
	return m.complete(l, known), true
}

// inspect runs fn between two steps of the core; after Close it does not run.
func (m *Manager) inspect(fn func(*core, instant)) {
	if m.stepped != nil {
		fn(m.core, m.now())
		return
	}
	ev := evInspect{fn: fn, done: make(chan struct{})}
	m.post(ev)
	select {
	case <-ev.done:
	case <-m.ctx.Done():
	}
}

// complete adds what the local log says now to what the core knew at its last
// look.
func (m *Manager) complete(l *Leadership, known map[topic.Partition]coreStatus) PartitionStatus {
	s := PartitionStatus{Partition: l.log.Partition(), Phase: "waiting", RemoteStart: -1, RemoteEnd: -1}
	if k, ok := known[s.Partition]; ok && k.gen == l.gen {
		s = k.status
	}
	s.LeaderEpoch = l.log.LeaderEpoch()
	if !l.log.Config().Enabled || s.Phase == "loading" {
		return s
	}
	o := l.log.Offsets()
	s.LagBytes, s.LagSegments = o.ActiveBytes, 0
	for _, seg := range l.log.Sealed(max(s.RemoteEnd, o.LogStart), math.MaxInt64) {
		s.LagBytes += seg.SizeBytes()
		s.LagSegments++
	}
	return s
}

// status is that of a partition without tiering.
func (a asleep) status(id topic.Partition, now instant) PartitionStatus {
	return newPartition(id, a.gen, a.epoch, TopicConfig{}, now).status(now)
}

func (p *partition) status(now instant) PartitionStatus {
	s := PartitionStatus{
		Partition: p.id, LeaderEpoch: p.epoch, Phase: p.phase(),
		RemoteStart: -1, RemoteEnd: -1, Uploading: len(p.uploads),
		LastError: p.watch.worst(), Stuck: p.watch.stuck, Damaged: p.damaged(), DamagedMore: p.unnamed,
	}
	if p.watch.stuck {
		s.StuckSince = p.watch.since
	}
	if p.known {
		s.RemoteStart, s.RemoteEnd, s.Marked = p.remote.Start, p.remote.End, p.remote.Marked
	}
	if since := p.atRiskSince(); since >= 0 {
		s.AtRiskSeconds = float64(max(now.wall-since, 0)) / 1000
	}
	return s
}

func (p *partition) phase() string {
	switch {
	case p.fenced:
		return "fenced"
	case !p.cfg.Enabled:
		return "disabled"
	case p.diverged():
		return "diverged"
	case p.loading:
		return "loading"
	case p.claiming:
		return "claiming"
	case p.claimed:
		return "led"
	}
	return "waiting"
}

// atRiskSince is the wall clock since when the oldest local-only record has been
// waiting, −1 when there is none.
func (p *partition) atRiskSince() int64 {
	for _, s := range p.log.sealed {
		if s.end > p.log.LogStart {
			return s.since
		}
	}
	if p.log.ActiveBytes > 0 && p.log.ActiveSince >= 0 {
		return p.log.ActiveSince
	}
	return -1
}
