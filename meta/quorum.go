package meta

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/hashicorp/raft"

	"github.com/varvelog/varve/meta/topic"
)

// Quorum describes the quorum as the node sees it that leads it.
type Quorum struct {
	LeaderID      int32
	LeaderEpoch   int64 // raft's term
	HighWatermark int64 // the index of the newest committed entry
	Voters        []QuorumMember
	Observers     []QuorumMember
}

// QuorumMember is one node that receives the log.
type QuorumMember struct {
	NodeID    int32
	Directory topic.ID // zero if it is not known
	Address   string   // for raft's transport
	// LogEnd is the index up to which the node is known to have applied the
	// log, as of its newest heartbeat; -1 if it is not known.
	LogEnd int64
	// LastFetch is when the node was last heard from, LastCaughtUp when it last
	// had everything; zero if that is not known.
	LastFetch    time.Time
	LastCaughtUp time.Time
}

// Quorum describes the quorum. It returns ErrNotController if another node
// leads it.
func (n *Node) Quorum() (Quorum, error) {
	if err := n.err(); err != nil {
		return Quorum{}, err
	}
	if !n.IsController() {
		return Quorum{}, ErrNotController
	}
	servers, err := n.servers()
	if err != nil {
		return Quorum{}, err
	}
	now := time.Now()
	q := Quorum{LeaderID: n.cfg.NodeID, LeaderEpoch: int64(n.raft.CurrentTerm()), HighWatermark: int64(n.raft.CommitIndex())}
	for _, s := range servers {
		id, err := nodeID(s.ID)
		if err != nil {
			return Quorum{}, err
		}
		m := QuorumMember{NodeID: id, Address: string(s.Address), LogEnd: -1}
		if index, heard, caughtUp := n.liveness.member(id); !heard.IsZero() {
			m.LogEnd, m.LastFetch, m.LastCaughtUp = int64(index), heard, caughtUp
		}
		if id == n.cfg.NodeID {
			m.LogEnd, m.LastFetch, m.LastCaughtUp = int64(n.raft.LastIndex()), now, now
		}
		if s.Suffrage == raft.Voter {
			q.Voters = append(q.Voters, m)
		} else {
			q.Observers = append(q.Observers, m)
		}
	}
	return q, nil
}

func (n *Node) servers() ([]raft.Server, error) {
	future := n.raft.GetConfiguration()
	if err := future.Error(); err != nil {
		return nil, errors.Join(fmt.Errorf("read the quorum's members: %w", err), n.err())
	}
	return future.Configuration().Servers, nil
}

func nodeID(id raft.ServerID) (int32, error) {
	v, err := strconv.ParseInt(string(id), 10, 32)
	if err != nil {
		return -1, fmt.Errorf("%w: the quorum has a member %q", ErrCorrupt, id)
	}
	return int32(v), nil
}

// AddVoter gives a node a vote; it may be an observer already. address is for
// raft's transport.
func (n *Node) AddVoter(ctx context.Context, id int32, address string) error {
	return n.changeMembers(ctx, func(timeout time.Duration) raft.IndexFuture {
		return n.raft.AddVoter(raft.ServerID(brokerName(id)), raft.ServerAddress(address), 0, timeout)
	})
}

// RemoveVoter takes a voter's vote away: it goes on as an observer.
func (n *Node) RemoveVoter(ctx context.Context, id int32) error {
	return n.changeMembers(ctx, func(timeout time.Duration) raft.IndexFuture {
		return n.raft.DemoteVoter(raft.ServerID(brokerName(id)), 0, timeout)
	})
}

// admit gives the node of a registered broker its place in the quorum: one that
// has none becomes an observer, and every one is found at its new address.
func (n *Node) admit(ctx context.Context, r Registration) error {
	if r.RaftAddress == "" {
		return nil
	}
	servers, err := n.servers()
	if err != nil {
		return err
	}
	id, address := raft.ServerID(brokerName(r.ID)), raft.ServerAddress(r.RaftAddress)
	i := slices.IndexFunc(servers, func(s raft.Server) bool { return s.ID == id })
	if i >= 0 && servers[i].Address == address {
		return nil
	}
	return n.changeMembers(ctx, func(timeout time.Duration) raft.IndexFuture {
		return n.raft.AddNonvoter(id, address, 0, timeout) // a voter stays one, and gets the address
	})
}

func (n *Node) changeMembers(ctx context.Context, change func(time.Duration) raft.IndexFuture) error {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.ProposeTimeout)
	defer cancel()
	n.decide.Lock()
	defer n.decide.Unlock()
	if err := n.catchUp(); err != nil {
		return err
	}
	return n.await(ctx, change(n.cfg.ProposeTimeout))
}
