package meta

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// TestThePulseOfEachState goes through what a node may be.
func TestThePulseOfEachState(t *testing.T) {
	cfg, now := newPulseConfig(500*time.Millisecond), time.Now()
	ago := func(millis int) time.Time { return now.Add(time.Duration(-millis) * time.Millisecond) }
	follower := func(contact time.Time, turn int) pulseView {
		return pulseView{State: raft.Follower, Leader: "1", Contact: contact, Turn: turn, Votes: true}
	}
	for _, test := range []struct {
		name    string
		view    pulseView
		timeout time.Duration
		look    bool
		next    time.Duration
	}{
		{"a leader", pulseView{State: raft.Leader, Leader: "1", Votes: true}, cfg.Leading, false, cfg.Silence},
		{"a leader whose heartbeat failed", pulseView{State: raft.Leader, Leader: "1", Votes: true, Troubled: ago(500)}, cfg.Lease, false, 1500 * time.Millisecond},
		{"a leader whose heartbeat failed a while ago", pulseView{State: raft.Leader, Leader: "1", Votes: true, Troubled: ago(2000)}, cfg.Leading, false, cfg.Silence},
		{"a candidate", pulseView{State: raft.Candidate, Votes: true}, cfg.Silence, false, cfg.Silence},
		{"an observer whose leader is silent", pulseView{State: raft.Follower, Leader: "1", Contact: ago(5000)}, cfg.Silence, false, cfg.Silence},
		{"a follower", follower(ago(200), 0), cfg.Silence, false, 600 * time.Millisecond},
		{"the first whose leader is silent", follower(ago(800), 0), cfg.Silence, true, cfg.Silence},
		{"the second whose leader is silent", follower(ago(800), 1), cfg.Silence, false, 100 * time.Millisecond},
		{"the second in its turn", follower(ago(900), 1), cfg.Silence, true, cfg.Silence},
	} {
		p := pulse{cfg: cfg}
		timeout, look, next := p.step(test.view, now)
		if timeout != test.timeout || look != test.look || next.Sub(now) != test.next {
			t.Errorf("%s: timeout %v, look %t, next in %v", test.name, timeout, look, next.Sub(now))
		}
	}
}

// TestAFollowerThatStoodStillWaitsForWhatWasSent has a node that was paused find
// its leader's silence too long, which is its own.
func TestAFollowerThatStoodStillWaitsForWhatWasSent(t *testing.T) {
	p, now := pulse{cfg: newPulseConfig(500 * time.Millisecond)}, time.Now()
	v := pulseView{State: raft.Follower, Leader: "1", Contact: now, Votes: true}
	_, _, next := p.step(v, now)
	now = next.Add(10 * time.Second)
	_, look, next := p.step(v, now)
	if look || next.Sub(now) != 200*time.Millisecond {
		t.Fatalf("after a pause: look %t, next in %v", look, next.Sub(now))
	}
	if _, look, _ = p.step(v, next); !look {
		t.Error("the leader is silent and not looked at")
	}
}

// TestAVoterWithoutALeaderStandsInTime has it wait between once and twice its
// time, anew each time.
func TestAVoterWithoutALeaderStandsInTime(t *testing.T) {
	cfg := newPulseConfig(500 * time.Millisecond)
	p, now := pulse{cfg: cfg}, time.Now()
	v := pulseView{State: raft.Follower, Votes: true}
	for range 50 {
		began := now
		for looked := false; !looked; {
			var next time.Time
			if _, looked, next = p.step(v, now); looked {
				if waited := now.Sub(began); waited < cfg.Alone || waited >= 2*cfg.Alone {
					t.Fatalf("looked after %v", waited)
				}
				p.alone = time.Time{}
				break
			}
			now = next
		}
	}
	if _, look, _ := p.step(pulseView{State: raft.Follower}, now.Add(time.Minute)); look {
		t.Error("who has no vote stands")
	}
}

// TestAVoterThatStartsAloneStandsInTime has a node's two fellows not be there.
func TestAVoterThatStartsAloneStandsInTime(t *testing.T) {
	for range 10 {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			_, alone := raft.NewInmemTransport("node-1")
			voters := []Voter{{1, "node-1"}, {2, "node-2"}, {3, "node-3"}}
			began := time.Now()
			n, err := Open(Config{Dir: dir, NodeID: 1, Voters: voters, Heartbeat: 500 * time.Millisecond}, Deps{Transport: alone})
			if err != nil {
				t.Fatal(err)
			}
			defer closeNode(t, n)
			waitFor(t, func() bool { return n.raft.State() == raft.Candidate })
			if took := time.Since(began); took < 500*time.Millisecond || took > 1010*time.Millisecond {
				t.Errorf("stands after %v", took)
			}
		})
	}
}
