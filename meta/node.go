package meta

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/varvelog/varve/meta/conf"
	"github.com/varvelog/varve/meta/topic"
)

const (
	// lockTimeout is how long Open waits for a process that still holds the log.
	lockTimeout = 3 * time.Second
	// startTimeout is how long a quorum of one may take to elect itself: far
	// longer than it ever does, for machines that are busy with other things.
	startTimeout = 30 * time.Second
	// leaderInterval is how often who leads is asked for in case that no
	// observation told.
	leaderInterval = 250 * time.Millisecond
	// commitInterval is how long, up to twice as long, followers wait to hear that
	// an entry is committed, when none follows it.
	commitInterval = 25 * time.Millisecond
	// staleRetries is how often a decision is made anew because the image
	// changed under it. Decisions are made one at a time, so once is rare.
	staleRetries = 5
)

// Node is one member of the metadata quorum.
type Node struct {
	cfg    Config
	deps   Deps
	log    *slog.Logger
	store  *logStore
	fsm    *fsm
	raft   *raft.Raft
	subs   *subscriptions
	broker atomic.Pointer[effective]

	liveness *liveness
	founding quorumFounding

	ctx       context.Context
	cancel    context.CancelFunc
	wg        sync.WaitGroup
	presides  chan struct{} // closed when this node is controller for the first time
	presiding sync.Once

	asked  atomic.Int64  // answers that raft owes
	halted chan struct{} // closed when raft has stopped; halt is its error then
	halt   error
	full   chan struct{} // a snapshot is due
	shed   shedding

	naming    sync.Mutex // held while the identity file is written; guards nothing else
	reloading sync.Mutex // held while raft's settings are changed; guards nothing else

	deciding chan struct{}   // filled from an image to the outcome of what was decided on it; guards the following
	term     uint64          // the term in which this node's image is known to be the newest
	owed     <-chan struct{} // closed when raft has answered the last proposal; nil: it has

	elections electionCounts

	closing sync.Once
	closed  error
	failure atomic.Pointer[error]
}

// effective caches this broker's settings with the dynamic ones over them.
type effective struct {
	image  *Image
	broker *conf.Broker
}

// Open starts a node on its directory. A quorum of one is ready when Open
// returns; of others, the image may still be behind.
func Open(cfg Config, deps Deps) (*Node, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := cfg.fillDefaults(); err != nil {
		return nil, err
	}
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("open metadata: %w", err)
	}
	n := &Node{cfg: cfg, deps: deps, log: deps.Logger, full: make(chan struct{}, 1), deciding: make(chan struct{}, 1), halted: make(chan struct{}), presides: make(chan struct{})}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.fsm = newFSM(&cfg)
	n.subs = newSubscriptions(n.Image)
	n.liveness = newLiveness(n)
	n.fsm.published = n.subs.notify
	n.fsm.failed = func(err error) { go n.fail(err) }
	n.fsm.rejected = func(index uint64, err error) {
		n.log.Error("metadata command rejected", "index", index, "err", err)
	}
	n.fsm.full = func() {
		select {
		case n.full <- struct{}{}:
		default:
		}
	}
	n.shed.due = make(chan struct{}, 1)
	n.fsm.lowered = n.shed.ask
	if err := n.start(); err != nil {
		n.release()
		return nil, fmt.Errorf("open metadata in %s: %w", cfg.Dir, err)
	}
	if alone, err := n.soleVoter(); err != nil || alone {
		if err == nil {
			err = n.lead()
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open metadata in %s: %w", cfg.Dir, err), n.Close(context.Background()))
		}
	}
	return n, nil
}

// start verifies what is on disk and starts raft on it.
func (n *Node) start() error {
	var err error
	if n.store, err = openLogStore(filepath.Join(n.cfg.Dir, "raft.db"), n.cfg.lockTimeout, n.fail); err != nil {
		return err
	}
	who, err := n.loadIdentity() // under the lock of the log: the directory is ours
	if err != nil {
		return err
	}
	if n.cfg.faults != nil {
		n.store.db = n.cfg.faults(n.store.db)
	}
	snapshots, err := openSnapshots(filepath.Join(n.cfg.Dir, "snapshots"))
	if err != nil {
		return err
	}
	newest, level, err := snapshots.newest()
	if err != nil {
		return err
	}
	if err := n.store.verify(newest); err != nil {
		return err
	}
	if level < levelMax { // what a stop has left behind of a higher one
		if err := n.store.trim(newest); err != nil {
			return err
		}
	}
	has, err := raft.HasExistingState(n.store, n.store, snapshots)
	if err != nil {
		return fmt.Errorf("look for existing state: %w", err)
	}
	if who.bound() && !has {
		return fmt.Errorf("%w: %s says that this node belongs to cluster %s, but its log is gone", ErrCorrupt, identityFile, who.clusterID)
	}
	n.founding.set(who, has)
	return n.startRaft(snapshots, has)
}

// startRaft starts raft. It may be called by others at once if there is a log,
// or none is needed to know that this node may vote.
func (n *Node) startRaft(snapshots raft.SnapshotStore, has bool) error {
	voters, warn := n.voters(), slog.LevelWarn
	if len(voters) == 1 {
		warn = slog.LevelDebug
	}
	if n.deps.Transport == nil {
		_, memory := raft.NewInmemTransport(voters[0].Address)
		memory.Connect(memory.LocalAddr(), memory) // lead talks to itself
		n.deps.Transport = memory
	}
	rc := n.raftConfig()
	rc.Logger = raftLogger(n.log, warn)
	t, wire := n.deps.Transport.(*transport)
	if wire {
		t.unanswered = unansweredAfter(newPulseConfig(n.cfg.Heartbeat))
	}
	ask := !has && n.isVoter() && wire && len(voters) > 1
	if !has && n.isVoter() && !ask {
		if err := raft.BootstrapCluster(rc, n.store, n.store, snapshots, n.deps.Transport, raft.Configuration{Servers: voters}); err != nil {
			return fmt.Errorf("bootstrap: %w", err)
		}
		has = true
	}
	var err error
	if n.raft, err = raft.NewRaft(rc, n.fsm, n.store, n.store, snapshots, n.deps.Transport); err != nil {
		return fmt.Errorf("start raft: %w", err)
	}
	if wire {
		n.wg.Go(func() { n.watchConnections(t.stream) })
		answer := func(greeting) greeting { return n.greeting() }
		t.stream.answer.Store(&answer)
	}
	if has {
		who, _ := n.founding.get()
		n.founding.set(who, true)
		n.openGate()
	}
	if ask {
		n.wg.Go(func() { n.form(t.stream) })
	} else if wire && len(n.cfg.Voters) > 1 && n.deps.Existing != nil {
		n.wg.Go(func() { n.findBrokers(t.stream) })
	}
	n.wg.Go(n.watchLeader)
	n.wg.Go(n.keepPulse)
	n.wg.Go(n.takeSnapshots)
	n.wg.Go(n.liveness.run)
	n.wg.Go(n.runBalancer)
	n.wg.Go(n.keepQuorum)
	n.wg.Go(n.stopRaft)
	n.subs.add(n.remember())
	return nil
}

// loadIdentity reads whose directory it is, and makes a new one this node's.
func (n *Node) loadIdentity() (identity, error) {
	who, known, err := readIdentity(n.cfg.Dir, n.cfg.NodeID)
	switch {
	case err != nil:
		return who, err
	case who.nodeID != n.cfg.NodeID:
		return who, fmt.Errorf("the directory belongs to node %d, this is node %d", who.nodeID, n.cfg.NodeID)
	case who.clusterID != "" && n.cfg.ClusterID != "" && who.clusterID != n.cfg.ClusterID:
		return who, fmt.Errorf("%w: the directory belongs to cluster %s, not %s", ErrInconsistentCluster, who.clusterID, n.cfg.ClusterID)
	case known && !who.directory.IsZero():
		return who, nil
	}
	if who.directory.IsZero() {
		who.directory = topic.NewID()
	}
	return who, who.write(n.cfg.Dir)
}

func (n *Node) voters() []raft.Server {
	if len(n.cfg.Voters) == 0 {
		address := raft.ServerAddress("node-" + brokerName(n.cfg.NodeID))
		if n.deps.Transport != nil {
			address = n.deps.Transport.LocalAddr()
		}
		return []raft.Server{{ID: raft.ServerID(brokerName(n.cfg.NodeID)), Address: address}}
	}
	list := make([]raft.Server, len(n.cfg.Voters))
	for i, v := range n.cfg.Voters {
		list[i] = raft.Server{ID: raft.ServerID(brokerName(v.NodeID)), Address: raft.ServerAddress(v.Address)}
	}
	return list
}

func (n *Node) isVoter() bool {
	for _, v := range n.cfg.Voters {
		if v.NodeID == n.cfg.NodeID {
			return true
		}
	}
	return len(n.cfg.Voters) == 0 && !n.cfg.Join
}

func (n *Node) raftConfig() *raft.Config {
	rc := raft.DefaultConfig()
	rc.LocalID = raft.ServerID(brokerName(n.cfg.NodeID))
	newPulseConfig(n.cfg.Heartbeat).raftTimeouts(rc)
	rc.CommitTimeout = commitInterval
	rc.ShutdownOnRemove = false // a node that was removed may be added again
	rc.TrailingLogs = n.cfg.TrailingEntries
	rc.SnapshotThreshold = math.MaxUint64 // takeSnapshots decides, by bytes as well
	rc.NoLegacyTelemetry = true
	return rc
}

// lead waits until a quorum of one has elected itself and its image is the
// newest. It need not wait for an election timeout: there is nobody else.
func (n *Node) lead() error {
	n.wg.Go(n.stand)
	select {
	case <-n.presides:
	case <-time.After(startTimeout):
		return errors.New("no leader elected in time")
	case <-n.ctx.Done():
		return n.err()
	}
	return n.identify(n.Image())
}

// stand makes this node stand for election now, by the call with which a leader
// hands over. It ends with the transport at the latest.
func (n *Node) stand() {
	self := n.deps.Transport.LocalAddr()
	id := raft.ServerID(brokerName(n.cfg.NodeID))
	header := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(id), Addr: n.deps.Transport.EncodePeer(id, self)}
	if err := n.deps.Transport.TimeoutNow(id, self, &raft.TimeoutNowRequest{RPCHeader: header}, &raft.TimeoutNowResponse{}); err != nil {
		n.log.Debug("an election is waited for", "err", err)
	}
}

// soleVoter reports whether this node is all of the quorum.
func (n *Node) soleVoter() (bool, error) {
	servers, err := n.servers()
	if err != nil {
		return false, err
	}
	voters := slices.DeleteFunc(slices.Clone(servers), func(s raft.Server) bool { return s.Suffrage != raft.Voter })
	return len(voters) == 1 && voters[0].ID == raft.ServerID(brokerName(n.cfg.NodeID)), nil
}

// nameCluster gives the cluster its id if it has none.
func (n *Node) nameCluster(ctx context.Context) error {
	_, err := n.change(ctx, false, func(img *Image, _ *conf.Broker) ([]Change, error) {
		if img.ClusterID != "" {
			return nil, nil
		}
		id := n.cfg.ClusterID
		if id == "" {
			id = topic.NewID().String()
		}
		return []Change{
			SetClusterID{ClusterID: id},
			SetFeature{Name: VersionFeature, Level: levelRelease},
			SetConfigs{Kind: BrokerConfig, Set: map[string]string{minISRSetting: strconv.Itoa(int(n.cfg.Broker.MinInsyncReplicas))}},
		}, nil
	})
	return err
}

// identify writes the cluster's id into the identity file, or compares it.
func (n *Node) identify(img *Image) error {
	who, _ := n.founding.get()
	switch who.clusterID {
	case img.ClusterID:
		return nil
	case "":
		who.clusterID = img.ClusterID
		return n.rewriteIdentity(who)
	}
	return fmt.Errorf("%w: %s names cluster %s, the log cluster %s", ErrInconsistentCluster, identityFile, who.clusterID, img.ClusterID)
}

// rewriteIdentity adds to the identity file: what is in it already stays.
func (n *Node) rewriteIdentity(who identity) error {
	n.naming.Lock()
	defer n.naming.Unlock()
	have, has := n.founding.get()
	if who.clusterID == "" {
		who.clusterID = have.clusterID
	}
	if who.founders == nil {
		who.founders = have.founders
	}
	who.formed = who.formed || have.formed
	if err := who.write(n.cfg.Dir); err != nil {
		return err
	}
	n.founding.set(who, has)
	return nil
}

// remember keeps the identity file for members that learn the cluster's id
// from its leader.
func (n *Node) remember() func(prev, next *Image) {
	done := false
	return func(_, next *Image) {
		if done || next.ClusterID == "" {
			return
		}
		done = true
		if err := n.identify(next); err != nil {
			n.fail(err)
		}
	}
}

// watchLeader publishes who leads the quorum, and makes this node the
// controller when it does. Close stops it.
func (n *Node) watchLeader() {
	observations := make(chan raft.Observation, 16)
	observer := raft.NewObserver(observations, false, func(o *raft.Observation) bool {
		_, ok := o.Data.(raft.LeaderObservation)
		return ok
	})
	n.raft.RegisterObserver(observer)
	defer n.raft.DeregisterObserver(observer)
	// Observations may be dropped when the channel is full; asking raft itself
	// each time and now and then makes up for it.
	tick := time.NewTicker(leaderInterval)
	defer tick.Stop()
	presided := uint64(0) // the term in which this node became controller
	for {
		_, id := n.raft.LeaderWithID()
		leader := int32(-1)
		if v, err := nodeID(id); err == nil {
			leader = v
		}
		n.fsm.setController(leader)
		term := n.raft.CurrentTerm()
		switch {
		case leader != n.cfg.NodeID:
			presided = 0
			n.liveness.end()
		case presided != term:
			if err := n.preside(); err == nil {
				presided = term
			} else if n.ctx.Err() == nil {
				n.log.Warn("become controller", "err", err)
			}
		}
		select {
		case <-observations:
		case <-tick.C:
		case <-n.ctx.Done():
			n.liveness.end()
			return
		}
	}
}

// preside begins the node's time as controller: with the newest image, a named
// cluster, and nothing known of anybody.
func (n *Node) preside() error {
	if err := n.nameCluster(n.ctx); err != nil {
		return err
	}
	n.liveness.begin()
	n.presiding.Do(func() { close(n.presides) })
	return nil
}

// fail makes the node useless after its store has failed.
func (n *Node) fail(err error) {
	err = fmt.Errorf("%w: %w", ErrFailed, err)
	if !n.failure.CompareAndSwap(nil, &err) {
		return
	}
	n.log.Error("metadata node failed", "err", err)
	if n.deps.Fatal != nil {
		n.deps.Fatal(err)
	}
	n.cancel() // stopRaft takes it from here
}

// stopRaft stops raft as soon as the node is closed or has failed. It alone
// does: only the first call of Shutdown gives a future that waits.
func (n *Node) stopRaft() {
	<-n.ctx.Done()
	n.answerAsked()
	n.halt = n.raft.Shutdown().Error()
	close(n.halted)
}

// answerMax is how long raft goes on for answers that are still owed when the node stops. Without a quorum there will be none,
// and then raft's end gives them.
const answerMax = 500 * time.Millisecond

// answerAsked waits until raft has answered what it was asked. Entries that are committed and on their way to the state machine
// when raft stops are never answered: whoever waits would wait for ever.
func (n *Node) answerAsked() {
	if n.failure.Load() != nil {
		return
	}
	limit := time.NewTimer(answerMax)
	defer limit.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for n.asked.Load() > 0 {
		select {
		case <-tick.C:
		case <-limit.C:
			return
		}
	}
}

func (n *Node) err() error {
	if err := n.failure.Load(); err != nil {
		return *err
	}
	if n.ctx.Err() != nil {
		return ErrClosed
	}
	return nil
}

// Image returns the newest image.
func (n *Node) Image() *Image { return n.fsm.current.Load() }

// Subscribe calls fn with every change of the image, in order and from one
// goroutine, until it is cancelled or the node is closed. The first call has
// prev nil. Changes that come faster than fn returns are joined into one call.
// fn must not call cancel's effect back into Close.
func (n *Node) Subscribe(fn func(prev, next *Image)) (cancel func()) { return n.subs.add(fn) }

// NodeID is this node's id.
func (n *Node) NodeID() int32 { return n.cfg.NodeID }

// IsController reports whether this node leads the quorum at the moment.
func (n *Node) IsController() bool { return n.raft.State() == raft.Leader }

// Broker returns this broker's settings with the dynamic ones over them.
func (n *Node) Broker() *conf.Broker {
	img := n.Image()
	if e := n.broker.Load(); e != nil && e.image == img {
		return e.broker
	}
	b, err := img.EffectiveBroker(&n.cfg.Broker, n.cfg.NodeID)
	if err != nil {
		// Settings are checked before they are stored, against what the static
		// ones were then; these no longer fit.
		n.log.Error("dynamic broker settings contradict the static ones and are ignored", "err", err)
		b = &n.cfg.Broker
	}
	n.broker.Store(&effective{image: img, broker: b})
	return b
}

// Close stops the node. It is safe to call again.
func (n *Node) Close(ctx context.Context) error {
	n.closing.Do(func() { n.closed = n.shutdown(ctx) })
	return n.closed
}

func (n *Node) shutdown(ctx context.Context) error {
	// In memory a peer that is gone does not refuse, it just never answers.
	if _, wire := n.deps.Transport.(*transport); wire {
		if err := n.Resign(ctx); err != nil && !errors.Is(err, ErrNotController) {
			n.log.Info("nobody takes the metadata quorum over", "err", err)
		}
	}
	n.awaitShed(ctx)
	n.cancel()
	stopped := make(chan error, 1)
	go func() {
		<-n.halted
		n.wg.Wait()
		n.subs.close()
		stopped <- n.halt
	}()
	select {
	case err := <-stopped:
		return errors.Join(err, n.release())
	case <-ctx.Done():
		// The store stays open: raft may still be writing to it.
		return fmt.Errorf("close metadata: %w", ctx.Err())
	}
}

// release closes what raft used.
func (n *Node) release() error {
	n.cancel()
	var errs []error
	if c, ok := n.deps.Transport.(raft.WithClose); ok {
		errs = append(errs, c.Close())
	}
	if n.store != nil {
		errs = append(errs, n.store.close())
	}
	return errors.Join(errs...)
}
