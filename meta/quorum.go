package meta

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/hashicorp/raft"

	"github.com/varvelog/varve/meta/conf"
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
		m := QuorumMember{NodeID: id, Directory: n.Image().Brokers[id].Directory, Address: string(s.Address), LogEnd: -1}
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
	check := func(servers []raft.Server) error {
		if _, votes := member(servers, id); votes {
			return refuse(ErrDuplicateVoter, "The voter id for ReplicaKey(id=%d) is already part of the set of voters.", id)
		}
		return nil
	}
	return n.changeVote(ctx, id, check, (*Image).voteRestored, func(timeout time.Duration) raft.Future {
		return n.raft.AddVoter(raft.ServerID(brokerName(id)), raft.ServerAddress(address), 0, timeout)
	})
}

// RemoveVoter takes a voter's vote away: it goes on as an observer, and gets no
// vote by itself.
func (n *Node) RemoveVoter(ctx context.Context, id int32) error {
	check := func(servers []raft.Server) error {
		switch _, votes := member(servers, id); {
		case !votes:
			return refuse(ErrVoterNotFound, "Cannot remove voter ReplicaKey(id=%d) from the set of voters.", id)
		case voters(servers) == 1:
			return refuse(ErrInvalidRequest, "Voter %d is the only one.", id)
		}
		return nil
	}
	return n.changeVote(ctx, id, check, (*Image).voteRemoved, func(timeout time.Duration) raft.Future {
		return n.raft.DemoteVoter(raft.ServerID(brokerName(id)), 0, timeout)
	})
}

// changeVote notes in the metadata what is meant to be, and then makes it so:
// in this order, or the next look at the quorum would undo a vote's removal.
func (n *Node) changeVote(ctx context.Context, id int32, check func([]raft.Server) error, note func(*Image, int32) []Change, do func(time.Duration) raft.Future) error {
	if _, err := n.change(ctx, false, func(img *Image, _ *conf.Broker) ([]Change, error) {
		servers, err := n.servers()
		if err == nil {
			err = check(servers)
		}
		if err != nil {
			return nil, err
		}
		return note(img, id), nil
	}); err != nil {
		return err
	}
	return n.changeMembers(ctx, func(servers []raft.Server) (func(time.Duration) raft.Future, error) {
		if err := check(servers); err != nil {
			return nil, err
		}
		return do, nil
	})
}

// member finds a node among raft's.
func member(servers []raft.Server, id int32) (known, votes bool) {
	i := slices.IndexFunc(servers, func(s raft.Server) bool { return s.ID == raft.ServerID(brokerName(id)) })
	return i >= 0, i >= 0 && servers[i].Suffrage == raft.Voter
}

func voters(servers []raft.Server) int {
	n := 0
	for _, s := range servers {
		if s.Suffrage == raft.Voter {
			n++
		}
	}
	return n
}

// votersMax is how many nodes vote at most by themselves: more make every
// change dearer and hardly any loss less likely.
const votersMax = 5

// decidePromotion names the observer that gets a vote next, if any: an odd
// number of voters up to votersMax, of the brokers that serve and want one, and
// whose vote nobody took away.
// Racks that have no voter yet come first. It is pure.
func decidePromotion(img *Image, servers []raft.Server) (Broker, bool) {
	var candidates []Broker
	racks := make(map[string]int)
	for _, s := range servers {
		id, err := nodeID(s.ID)
		if err != nil {
			return Broker{}, false
		}
		b, ok := img.Brokers[id]
		switch {
		case s.Suffrage == raft.Voter:
			racks[b.Rack]++
		case ok && b.WantVote && !img.VoteRemoved(b) && b.Active() && b.RaftAddress == string(s.Address):
			candidates = append(candidates, b)
		}
	}
	have := voters(servers)
	want := min(votersMax, have+len(candidates))
	if want%2 == 0 {
		want--
	}
	if have >= want {
		return Broker{}, false
	}
	return slices.MinFunc(candidates, func(a, b Broker) int {
		return cmp.Or(cmp.Compare(racks[a.Rack], racks[b.Rack]), cmp.Compare(a.ID, b.ID))
	}), true
}

// promoteInterval is how often it is looked whether there should be more voters.
const promoteInterval = time.Second

// keepQuorum gives votes to joined nodes while this node leads. Close stops it.
func (n *Node) keepQuorum() {
	tick := time.NewTicker(promoteInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-n.ctx.Done():
			return
		}
		if !n.IsController() {
			continue
		}
		if err := n.promote(n.ctx); err != nil && n.ctx.Err() == nil {
			n.log.Warn("give a node a vote", "err", err)
		}
	}
}

// promote gives one more node a vote, if there should be one. It decides on
// everything that was committed before this node led: its image may be behind
// for a while after an election, long so after a restart, and a vote that was
// taken meanwhile must not be given back. For the same reason it leaves the
// settings alone that say whose vote was taken.
func (n *Node) promote(ctx context.Context) error {
	servers, err := n.servers()
	if err != nil {
		return nil // it is stopping
	}
	if _, ok := decidePromotion(n.Image(), servers); !ok {
		return nil // nor is there anything to catch up with for that; the next look sees more
	}
	return n.changeMembers(ctx, func(servers []raft.Server) (func(time.Duration) raft.Future, error) {
		b, ok := decidePromotion(n.Image(), servers)
		if !ok {
			return nil, nil
		}
		n.log.Info("node gets a vote in the metadata quorum", "node", b.ID, "address", b.RaftAddress)
		return func(timeout time.Duration) raft.Future {
			return n.raft.AddVoter(raft.ServerID(brokerName(b.ID)), raft.ServerAddress(b.RaftAddress), 0, timeout)
		}, nil
	})
}

// UnregisterBroker forgets a broker for good, and its node in the quorum; should
// it come back with the same directory, it gets no vote by itself. A
// controller that is to forget itself hands over first, and refuses with
// ErrNotController: the next one can.
func (n *Node) UnregisterBroker(ctx context.Context, id int32) error {
	return n.forget(ctx, id, func(*Image) error { return nil })
}

// RemoveBroker forgets a broker that holds no replica any more; one that still
// does is refused with ErrBrokerNotEmpty, for its data would be lost with it.
func (n *Node) RemoveBroker(ctx context.Context, id int32) error {
	return n.forget(ctx, id, func(img *Image) error {
		if held := img.load[id].holds; held > 0 {
			return refuse(ErrBrokerNotEmpty, "Broker %d still holds %d replica(s): drain it first.", id, held)
		}
		return nil
	})
}

func (n *Node) forget(ctx context.Context, id int32, check func(*Image) error) error {
	if id == n.cfg.NodeID && n.Resign(ctx) == nil {
		return ErrNotController
	}
	if _, err := n.change(ctx, false, func(img *Image, b *conf.Broker) ([]Change, error) {
		if err := check(img); err != nil {
			return nil, err
		}
		changes, err := decideUnregister(img, b, id)
		if !img.Brokers[id].Directory.IsZero() { // nothing is known of a node that is yet to come
			changes = append(changes, img.voteRemoved(id)...)
		}
		return changes, err
	}); err != nil {
		return err
	}
	return n.expel(ctx, id)
}

// expel takes a node out of the quorum, unless it is all of it.
func (n *Node) expel(ctx context.Context, id int32) error {
	return n.changeMembers(ctx, func(servers []raft.Server) (func(time.Duration) raft.Future, error) {
		known, votes := member(servers, id)
		if !known || votes && voters(servers) == 1 {
			return nil, nil
		}
		return func(timeout time.Duration) raft.Future {
			return n.raft.RemoveServer(raft.ServerID(brokerName(id)), 0, timeout)
		}, nil
	})
}

// Resign hands the quorum's leadership over to another voter, if this node has
// it; the error says that there is none who could take it. A node that is about
// to stop should: it saves the others an election timeout.
func (n *Node) Resign(ctx context.Context) error {
	if n.raft.State() != raft.Leader {
		return nil
	}
	if servers, err := n.servers(); err != nil || voters(servers) < 2 {
		return errors.Join(ErrNotController, err)
	}
	_, _, err := n.await(ctx, func(time.Duration) raft.Future { return n.raft.LeadershipTransfer() })
	return err
}

// admit gives the node of a registered broker its place in the quorum: one that
// has none becomes an observer, and every one is found at its new address.
func (n *Node) admit(ctx context.Context, r Registration) error {
	if r.RaftAddress == "" {
		return nil
	}
	id, address := raft.ServerID(brokerName(r.ID)), raft.ServerAddress(r.RaftAddress)
	return n.changeMembers(ctx, func(servers []raft.Server) (func(time.Duration) raft.Future, error) {
		if slices.ContainsFunc(servers, func(s raft.Server) bool { return s.ID == id && s.Address == address }) {
			return nil, nil
		}
		return func(timeout time.Duration) raft.Future {
			return n.raft.AddNonvoter(id, address, 0, timeout) // a voter stays one, and gets the address
		}, nil
	})
}

// checkDirectory refuses a voter's registration from another directory than it
// voted with: it may have voted what it does not remember.
func (n *Node) checkDirectory(img *Image, r Registration) error {
	old, ok := img.Brokers[r.ID]
	if !ok || old.Directory.IsZero() || r.Directory.IsZero() || old.Directory == r.Directory {
		return nil
	}
	servers, err := n.servers()
	if err != nil {
		return err
	}
	if _, votes := member(servers, r.ID); votes {
		return refuse(ErrDirectoryReplaced, "Node %d votes with directory %s and cannot with %s: remove its vote first.", r.ID, old.Directory, r.Directory)
	}
	return nil
}

// changeMembers changes the quorum's members. change says how raft is asked; nil:
// nothing is to be done.
func (n *Node) changeMembers(ctx context.Context, change func([]raft.Server) (func(time.Duration) raft.Future, error)) error {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.ProposeTimeout)
	defer cancel()
	if err := n.enter(ctx); err != nil {
		return err
	}
	defer n.leave()
	if err := n.catchUp(ctx); err != nil {
		return err
	}
	servers, err := n.servers()
	if err != nil {
		return err
	}
	ask, err := change(servers)
	if err != nil || ask == nil {
		return err
	}
	_, n.owed, err = n.await(ctx, ask)
	return err
}
