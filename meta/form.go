package meta

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/varvelog/varve/meta/topic"
)

// formInterval is how long a voter without a log waits between two rounds of
// greetings.
const formInterval = 200 * time.Millisecond

// formation is what a voter without a log is to do. Its directory may be new
// because the cluster is, or because the one it voted with is gone: then it has
// forgotten its votes, and must not vote again, or two leaders of one term
// could come about, and records that had been committed be lost.
type formation int

const (
	formWait   formation = iota // ask again
	formFound                   // begin with the first quorum
	formJoin                    // there is a cluster in which it has no vote: join it
	formRefuse                  // there is a cluster in which another directory votes for it
)

// decideFormation decides on what the other voters answered; it is pure. With
// formFound it returns the directories of all founders, which have to be
// remembered before raft begins: they tell a founder that is late from one that
// has been replaced. Nobody founds before every voter has been heard from.
func decideFormation(self int32, directory topic.ID, voters []Voter, answers map[int32]greeting) (formation, map[int32]topic.ID) {
	found, join, formed := map[int32]topic.ID(nil), false, false
	for _, id := range sortedIDs(answers) {
		a := answers[id]
		if !a.Formed {
			continue
		}
		formed = true
		known, founder := a.Founders[self]
		switch {
		case len(a.Voters) > 0 && !slices.Contains(a.Voters, self):
			join = true
		case founder && known != directory:
			return formRefuse, nil
		case founder && found == nil:
			found = a.Founders
		}
	}
	switch {
	case join:
		return formJoin, nil
	case found != nil:
		return formFound, found
	case formed:
		return formRefuse, nil
	}
	founders := map[int32]topic.ID{self: directory}
	for _, v := range voters {
		if a, ok := answers[v.NodeID]; ok {
			founders[v.NodeID] = a.Directory
		}
	}
	if len(founders) < len(voters) {
		return formWait, nil
	}
	return formFound, founders
}

// quorumFounding is what a node knows of how its quorum began.
type quorumFounding struct {
	mu  sync.Mutex // guards the following
	who identity
	has bool // raft has a log
}

func (f *quorumFounding) get() (identity, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.who, f.has
}

func (f *quorumFounding) set(who identity, has bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.who, f.has = who, has
}

// form asks the other voters until it is known what to do. Close stops it.
func (n *Node) form(s *stream) {
	warned := make(map[int32]bool)
	for {
		who, _ := n.founding.get()
		founders := who.founders
		if founders == nil {
			var verdict formation
			answers := n.greetAll(s, warned)
			verdict, founders = decideFormation(n.cfg.NodeID, who.directory, n.cfg.Voters, answers)
			switch verdict {
			case formJoin:
				if err := n.joinThrough(brokersOf(answers)); err != nil {
					n.fail(err)
				}
				return
			case formRefuse:
				n.fail(fmt.Errorf("%w: node %d votes in a cluster that exists, but not with this directory: if the old one is lost, remove the voter (varve cluster voters remove %d, or kafka-metadata-quorum remove-controller) and start again",
					ErrDirectoryReplaced, n.cfg.NodeID, n.cfg.NodeID))
				return
			case formFound:
				who.founders = founders
				if err := n.rewriteIdentity(who); err != nil {
					n.fail(err)
					return
				}
			}
		}
		if founders != nil {
			if err := n.found(); err != nil {
				n.fail(err)
			}
			return
		}
		select {
		case <-time.After(formInterval):
		case <-n.ctx.Done():
			return
		}
	}
}

// brokersOf are the brokers that the answers name, each once.
func brokersOf(answers map[int32]greeting) []string {
	var all []string
	for _, id := range sortedIDs(answers) {
		for _, address := range answers[id].Brokers {
			if !slices.Contains(all, address) {
				all = append(all, address)
			}
		}
	}
	return all
}

// joinThrough says by which brokers this node, which has no vote, can register.
func (n *Node) joinThrough(brokers []string) error {
	if n.deps.Existing != nil && !n.deps.Existing(brokers) {
		return fmt.Errorf("%w: the cluster of controller.quorum.voters exists, node %d has no vote in it, and nobody says where its brokers listen: name some in controller.quorum.bootstrap.servers (--join) and start again",
			ErrNoWayIn, n.cfg.NodeID)
	}
	n.log.Info("the cluster exists and this node has no vote in it: it joins when its broker registers", "brokers", brokers)
	return nil
}

// findBrokers names brokers to register with while nobody leads as far as this
// node knows. One that was removed while it was down has a log in which it still
// votes: no leader ever calls it, and it has applied nothing that would say who
// the brokers are. Close stops it.
func (n *Node) findBrokers(s *stream) {
	quiet := make(map[int32]bool)
	for _, v := range n.cfg.Voters {
		quiet[v.NodeID] = true // whom it does not reach raft says
	}
	tick := time.NewTicker(findInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-n.ctx.Done():
			return
		}
		if n.IsController() || n.controller().ID >= 0 {
			continue
		}
		if brokers := brokersOf(n.greetAll(s, quiet)); len(brokers) > 0 {
			n.deps.Existing(brokers)
		}
	}
}

// findInterval is how often a node that knows no leader looks for brokers.
const findInterval = 2 * time.Second

// greetAll asks every other voter at once.
func (n *Node) greetAll(s *stream, warned map[int32]bool) map[int32]greeting {
	var mu sync.Mutex
	var wg sync.WaitGroup
	answers := make(map[int32]greeting)
	for _, v := range n.cfg.Voters {
		if v.NodeID == n.cfg.NodeID {
			continue
		}
		wg.Go(func() {
			g, err := s.greet(n.ctx, v.Address, n.greeting())
			if err == nil && g.NodeID != v.NodeID {
				err = fmt.Errorf("%s is node %d", v.Address, g.NodeID)
			}
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				answers[v.NodeID] = g
			} else if !warned[v.NodeID] && n.ctx.Err() == nil {
				warned[v.NodeID] = true
				n.log.Info("waiting for a voter before the cluster is formed", "voter", v.NodeID, "address", v.Address, "err", err)
			}
		})
	}
	wg.Wait()
	return answers
}

// greeting is what this node says of itself.
func (n *Node) greeting() greeting {
	who, has := n.founding.get()
	g := greeting{NodeID: n.cfg.NodeID, Directory: who.directory, ClusterID: who.clusterID, Founders: maps.Clone(who.founders)}
	g.Formed = has || who.founders != nil
	if !has {
		return g
	}
	img := n.Image()
	for _, id := range sortedIDs(img.Brokers) {
		if b := img.Brokers[id]; !b.Fenced && b.Host != "" && len(g.Brokers) < greetBrokersMax {
			g.Brokers = append(g.Brokers, net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port))))
		}
	}
	servers, err := n.servers()
	if err != nil {
		return g
	}
	for _, s := range servers {
		if id, err := nodeID(s.ID); err == nil && s.Suffrage == raft.Voter {
			g.Voters = append(g.Voters, id)
		}
	}
	return g
}

// found begins the log with the first quorum.
func (n *Node) found() error {
	switch err := n.raft.BootstrapCluster(raft.Configuration{Servers: n.voters()}).Error(); {
	case errors.Is(err, raft.ErrCantBootstrap):
		// Another founder was faster and has asked for this node's vote, so that
		// raft has a term already. All founders begin with the same, and its log comes.
		n.log.Info("another node has begun the quorum")
	case err != nil:
		return fmt.Errorf("bootstrap: %w", err)
	}
	who, _ := n.founding.get()
	who.formed = true
	if err := n.rewriteIdentity(who); err != nil {
		return err
	}
	n.founding.set(who, true)
	n.openGate()
	return nil
}

// openGate lets raft be called. Before a node knows that it may vote it must
// not be.
func (n *Node) openGate() {
	if t, ok := n.deps.Transport.(*transport); ok {
		t.stream.open.Store(true)
	}
}

// RegisterBroker registers a start of a broker and returns the broker with the
// epoch it got. Unless it registers fenced it may serve at once. A node that is
// not in the quorum yet and has a RaftAddress becomes an observer of it: from
// then on it receives the log.
func (n *Node) RegisterBroker(ctx context.Context, r Registration) (Broker, error) {
	if r.Incarnation.IsZero() {
		r.Incarnation = topic.NewID()
	}
	who, _ := n.founding.get()
	if r.ID == n.cfg.NodeID {
		r.Directory, r.Features = who.directory, supportedFeatures()
		if r.ClusterID == "" {
			r.ClusterID = who.clusterID
		}
	}
	b, err := forward(ctx, n,
		func(l Local) (Broker, error) { return l.RegisterBroker(ctx, r) },
		func(c Controller, to Broker) (Broker, error) {
			epoch, err := c.RegisterBroker(ctx, to, r)
			return r.broker(epoch), err
		})
	if err == nil && r.ID == n.cfg.NodeID {
		n.openGate() // the controller knows this directory, or it never had a vote
	}
	return b, err
}
