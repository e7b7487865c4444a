package meta

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// standInStep is how long each follower leaves to the one before it: two
	// candidates at a time would take the votes from each other.
	standInStep = 250 * time.Millisecond
	// A process that is ending may still listen when its connections are gone
	// already: it is looked at goneLooks times, goneInterval apart.
	goneLooks    = 10
	goneInterval = 20 * time.Millisecond
	// goneTimeout bounds one look: who does not answer is not known to be gone.
	goneTimeout = 200 * time.Millisecond
)

// watchConnections has the node stand for election as soon as the leader's
// process is gone, rather than when the leader has been silent for an election
// timeout. A leader's connections to its followers never end while it leads and
// lives; if one has, and nothing listens at the leader's address any more, there
// is no leader. A mistake would cost an election, and nothing else. Close stops
// it.
func (n *Node) watchConnections(s *stream) {
	for {
		select {
		case <-s.lost:
			n.standIn(s)
		case <-n.ctx.Done():
			return
		}
	}
}

func (n *Node) standIn(s *stream) {
	term := n.raft.CurrentTerm()
	address, leader := n.raft.LeaderWithID()
	turn, votes := n.turn(leader)
	if leader == "" || !votes || n.raft.State() != raft.Follower || !n.gone(s, string(address)) || !n.wait(time.Duration(turn)*standInStep) {
		return
	}
	if _, now := n.raft.LeaderWithID(); now != leader || n.raft.CurrentTerm() != term || n.raft.State() != raft.Follower {
		return // another was first, or stands at least
	}
	n.log.Info("the quorum's leader is gone: standing for election", "leader", string(leader))
	n.stand()
}

// turn is how many voters stand before this one when leader is gone; "" is
// nobody.
func (n *Node) turn(leader raft.ServerID) (before int, votes bool) {
	old := int32(-1)
	if leader != "" {
		var err error
		if old, err = nodeID(leader); err != nil || old == n.cfg.NodeID {
			return 0, false
		}
	}
	servers, err := n.servers()
	if err != nil {
		return 0, false
	}
	for _, s := range servers {
		id, err := nodeID(s.ID)
		if err != nil || s.Suffrage != raft.Voter {
			continue
		}
		votes = votes || id == n.cfg.NodeID
		if id < n.cfg.NodeID && id != old {
			before++
		}
	}
	return before, votes
}

// gone reports whether nothing listens at an address.
func (n *Node) gone(s *stream, address string) bool {
	for range goneLooks {
		ctx, cancel := context.WithTimeout(n.ctx, goneTimeout)
		c, err := s.dial(ctx, address)
		cancel()
		switch {
		case errors.Is(err, syscall.ECONNREFUSED):
			return true
		case err != nil:
			return false
		}
		_ = c.Close() // nothing was sent
		if !n.wait(goneInterval) {
			return false
		}
	}
	return false
}

// wait returns false if the node is closed meanwhile.
func (n *Node) wait(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-n.ctx.Done():
		return false
	}
}
