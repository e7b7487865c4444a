package tier

import (
	"fmt"
	"strings"
)

// Stepped is a Manager without goroutines and without a clock, for simulators:
// the calls the manager wants are handed to the owner, who carries them out when
// and in the order it likes, and delivers their answers as late as it likes, or
// never. Everything else is the Manager's own code. Not safe for concurrent use.
type Stepped struct {
	*Manager
	clock   func() (wall, steady int64)
	calls   []Call
	capture *[]event // where answers go while a call is carried out
}

// Call is something the manager wants done.
type Call struct {
	// Kind is what is asked for: Load, Claim, Upload, Commit, Oldest, Marked,
	// Delete, Collect, Scrub, Examine, Mend and Bury go to the store, Look, Roll and AdvanceStart to the
	// local log.
	Kind string
	// TimeoutMillis is the call's deadline; 0 for those to the local log.
	TimeoutMillis int64

	s  *Stepped
	fn func()
}

// NewStepped makes a manager to be stepped. clock gives wall and steady
// milliseconds; steady time begins above zero.
func NewStepped(cfg ManagerConfig, archive *Archive, deps ManagerDeps, clock func() (wall, steady int64)) (*Stepped, error) {
	m, err := newManager(cfg, archive, deps)
	if err != nil {
		return nil, err
	}
	s := &Stepped{Manager: m, clock: clock}
	m.stepped = s
	m.rate.now = func() int64 { _, steady := clock(); return steady }
	return s, nil
}

func (s *Stepped) ask(fx effect, timeoutMillis int64, fn func()) {
	kind := strings.TrimPrefix(fmt.Sprintf("%T", fx), "tier.fx")
	s.calls = append(s.calls, Call{Kind: kind, TimeoutMillis: timeoutMillis, s: s, fn: fn})
}

// Do carries the call out. The manager hears of its outcome when deliver is
// called; Run then lets it decide.
func (c Call) Do() (deliver func()) {
	var answers []event
	outer := c.s.capture
	c.s.capture = &answers
	c.fn()
	c.s.capture = outer
	return func() {
		for _, ev := range answers {
			c.s.post(ev)
		}
	}
}

// Run lets the manager decide on everything it has been told since the last Run,
// and on what is due, and returns the calls it wants.
func (s *Stepped) Run() []Call {
	s.mu.Lock()
	events := s.inbox
	s.inbox = nil
	s.mu.Unlock()
	for _, ev := range append(events, evTick{}) {
		s.handle(ev)
	}
	calls := s.calls
	s.calls = nil
	return calls
}

// Next is the steady time at which something will be due.
func (s *Stepped) Next() (steady int64, ok bool) { return s.core.next() }
