package meta

import (
	"math/rand/v2"
	"time"

	"github.com/hashicorp/raft"
)

// A leader's heartbeats are most of what an idle quorum sends, and raft ties
// their interval to the timeout after which a follower stands for election. Here
// the two go apart. While a node leads, its raft has a longer timeout, from which
// nothing but its heartbeats' interval derives; and a follower has raft look
// whether the leader is silent as soon as it has been for long enough, rather
// than at random up to three times as late. So there are a third of the
// heartbeats, a leader that lives may stand still for as long as before, and one
// that is silent is replaced sooner. Raft alone decides; the clock that it goes by
// does not change.

// pulseConfig has its times, which derive from Config.Heartbeat.
type pulseConfig struct {
	// Silence is how long a leader may be silent.
	Silence time.Duration
	// Lease is for how long a leader may have heard from no majority. It is less
	// than Silence: who is cut off gives up before another is elected.
	Lease time.Duration
	// Leading is raft's heartbeat timeout while a node leads without trouble:
	// there is a heartbeat after a tenth of it to a fifth.
	Leading time.Duration
	// Alone is how long a voter waits that knows no leader: between once and
	// twice this.
	Alone time.Duration
	// Turn is what each voter leaves to those before it: two candidates at a time
	// would take the votes from each other, and while a majority believes in the
	// leader nobody is elected.
	Turn time.Duration
	// Trouble is how long a leader sends more heartbeats after one that failed: a
	// follower that comes back is to know soon who leads.
	Trouble time.Duration
}

func newPulseConfig(heartbeat time.Duration) pulseConfig {
	return pulseConfig{
		Silence: heartbeat * 8 / 5,
		Lease:   heartbeat * 7 / 5,
		Leading: heartbeat * 14 / 5,
		Alone:   heartbeat,
		Turn:    heartbeat / 5,
		Trouble: 4 * heartbeat,
	}
}

// raftTimeouts are what raft is started with: those of a node that does not lead.
func (c pulseConfig) raftTimeouts(rc *raft.Config) {
	rc.HeartbeatTimeout = c.Silence
	rc.ElectionTimeout = c.Silence + nudge
	rc.LeaderLeaseTimeout = c.Lease // nothing is decided on it alone
}

// nudge is by how much raft's heartbeat timeout is raised and lowered again: when
// it is lowered raft looks at once whether it has passed.
const nudge = time.Millisecond

// pulseView is what a node knows when its pulse is taken.
type pulseView struct {
	State    raft.RaftState
	Leader   raft.ServerID // "" if none is known
	Contact  time.Time     // when the leader was heard from last
	Turn     int           // how many voters stand before this one
	Votes    bool
	Troubled time.Time // the newest heartbeat that failed
}

// pulse is the state machine behind keepPulse.
type pulse struct {
	cfg   pulseConfig
	alone time.Time // when a voter without a leader looks; zero if it has one
	due   time.Time // when the next step was to be
}

// step says which heartbeat timeout raft is to have, whether it is to look now
// whether the leader is silent, and when the next step is due, unless the state
// or the leader changes before.
func (p *pulse) step(v pulseView, now time.Time) (timeout time.Duration, look bool, next time.Time) {
	late := !p.due.IsZero() && now.Sub(p.due) > p.cfg.Turn
	if v.State != raft.Follower || v.Leader != "" || !v.Votes {
		p.alone = time.Time{}
	}
	timeout, next = p.cfg.Silence, now.Add(p.cfg.Silence)
	switch {
	case v.State == raft.Leader:
		if trouble := v.Troubled.Add(p.cfg.Trouble); v.Troubled.IsZero() || !now.Before(trouble) {
			timeout = p.cfg.Leading
		} else {
			timeout, next = p.cfg.Lease, trouble // the least that raft takes
		}
	case v.State != raft.Follower || !v.Votes:
	case v.Leader == "":
		if p.alone.IsZero() {
			p.alone = now.Add(p.cfg.Alone + rand.N(p.cfg.Alone))
		}
		if next = p.alone; !now.Before(next) {
			look, p.alone, next = true, time.Time{}, now.Add(p.cfg.Turn)
		}
	default:
		silent := v.Contact.Add(p.cfg.Silence + time.Duration(v.Turn)*p.cfg.Turn)
		switch {
		case now.Before(silent):
			next = silent
		case late:
			next = now.Add(2 * p.cfg.Turn) // this node stood still itself: what the leader sent meanwhile is on its way
		default:
			look = true
		}
	}
	p.due = next
	return timeout, look, next
}

// keepPulse has raft go by the pulse. Close stops it.
func (n *Node) keepPulse() {
	observations := make(chan raft.Observation, 64)
	observer := raft.NewObserver(observations, false, func(o *raft.Observation) bool {
		switch o.Data.(type) {
		case raft.RaftState, raft.LeaderObservation, raft.FailedHeartbeatObservation:
			return true
		}
		return false
	})
	n.raft.RegisterObserver(observer)
	defer n.raft.DeregisterObserver(observer)
	p := pulse{cfg: newPulseConfig(n.cfg.Heartbeat)}
	has := p.cfg.Silence
	var troubled time.Time
	for {
		_, leader := n.raft.LeaderWithID()
		turn, votes := n.turn(leader)
		v := pulseView{State: n.raft.State(), Leader: leader, Contact: n.raft.LastContact(), Turn: turn, Votes: votes, Troubled: troubled}
		timeout, look, next := p.step(v, time.Now())
		if look {
			n.setPulse(timeout + nudge)
		}
		if look || timeout != has {
			n.setPulse(timeout)
			has = timeout
		}
		select {
		case o := <-observations:
			if _, failed := o.Data.(raft.FailedHeartbeatObservation); failed {
				troubled = time.Now()
			}
		case <-time.After(time.Until(next)):
		case <-n.ctx.Done():
			return
		}
	}
}

func (n *Node) setPulse(heartbeat time.Duration) {
	err := n.reload(func(rc *raft.ReloadableConfig) {
		rc.HeartbeatTimeout = heartbeat
		rc.ElectionTimeout = max(heartbeat, newPulseConfig(n.cfg.Heartbeat).Silence+nudge)
	})
	if err != nil {
		n.log.Error("raft refuses its timeouts", "err", err)
	}
}

// reload changes raft's settings, each change on top of the one before.
func (n *Node) reload(change func(*raft.ReloadableConfig)) error {
	n.reloading.Lock()
	defer n.reloading.Unlock()
	rc := n.raft.ReloadableConfig()
	change(&rc)
	return n.raft.ReloadConfig(rc)
}
