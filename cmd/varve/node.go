package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/varvelog/varve/broker"
	"github.com/varvelog/varve/broker/secure"
	"github.com/varvelog/varve/coordinator"
	"github.com/varvelog/varve/hot"
	"github.com/varvelog/varve/hot/vfs"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/conf"
	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/ops"
	"github.com/varvelog/varve/replica"
	"github.com/varvelog/varve/replica/peer"
	"github.com/varvelog/varve/tier"
	"github.com/varvelog/varve/tier/objstore"
)

// node is one running broker: the rooms, wired.
//
// Rooms are opened from the inside out and closed in the order of closers,
// which is the reverse: the front door first, so that nothing new comes in,
// and the metadata last.
type node struct {
	Kafka string // address for clients
	HTTP  string // address of the console; "" when there is none

	host      string // what other brokers are told
	port      int32
	endpoints []meta.Endpoint           // what clients of each listener are told
	entrances []entrance                // the same, as they are served
	between   string                    // name of the listener between brokers
	secured   map[string]*secure.Keys   // what each listener shows, by its name
	raftAt    string                    // where other nodes reach the transport
	transport raft.Transport            // of the metadata quorum; nil in a node without a controller listener
	peers     *peer.Pool                // connections to other brokers; nil likewise
	known     atomic.Pointer[meta.Node] // meta, for whoever dials: it is asked while that opens
	control   *broker.Controller
	member    atomic.Pointer[meta.Member] // nil until the node has joined, and in one without others

	dir     string
	conf    conf.Broker
	log     *slog.Logger
	cause   atomic.Pointer[error] // the first failure the process cannot live with
	failed  chan error            // gets the same, once
	closers []closer

	meta    *meta.Node
	hot     *hot.Store
	store   *objstore.Counted     // nil without a bucket
	silent  atomic.Pointer[error] // why the bucket has not answered yet; nil once it has
	archive *tier.Archive
	tier    *tier.Manager
	replica *replica.Manager
	removed atomic.Pointer[replica.Manager] // who is told of deleted topics that have left the bucket
	groups  *coordinator.Coordinator
	txns    *coordinator.Transactions
	shares  *coordinator.Shares
	state   *broker.ShareState
	open    chan struct{}                 // closed when clients are served
	door    atomic.Pointer[broker.Server] // the broker, for those that are there before it
	broker  *broker.Server
}

type closer struct {
	what  string
	close func(context.Context) error
}

// startNode opens everything and returns when clients are served. What it
// opened is closed again when a later step fails.
func startNode(ctx context.Context, s settings, log *slog.Logger) (_ *node, err error) {
	b, err := conf.ParseBroker(s)
	if err != nil {
		return nil, err
	}
	if len(b.LogDirs) != 1 {
		return nil, fmt.Errorf("log.dirs names %d directories: Varve keeps one; name the one to use", len(b.LogDirs))
	}
	n := &node{dir: b.LogDirs[0], conf: b, log: log, failed: make(chan error, 1), open: make(chan struct{})}
	defer func() {
		if err != nil {
			stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
			defer cancel()
			err = errors.Join(err, n.Close(stop))
		}
	}()
	if err := n.listen(); err != nil {
		return nil, err
	}
	console, err := n.listenHTTP()
	if err != nil {
		return nil, err
	}
	n.openPeers()
	for _, open := range []func(context.Context) error{n.openMeta, n.openHot} {
		if err := open(ctx); err != nil {
			return nil, err
		}
	}
	held := len(n.hot.Partitions())
	for _, open := range []func(context.Context) error{n.openTier, n.openReplica, n.openGroups, n.openBroker} {
		if err := open(ctx); err != nil {
			return nil, err
		}
	}
	n.tellRecovery(held)
	if n.clustered() {
		n.serve() // other brokers, before clients: one of them may need this one to join
		if err := n.join(ctx); err != nil {
			return nil, err
		}
	}
	n.waitServed(ctx)
	if !n.clustered() {
		n.serve()
	}
	close(n.open)
	n.openHTTP(console)
	log.Info("node serves", "node", b.NodeID, "kafka", n.Kafka, "http", n.HTTP, "dir", n.dir, "store", b.VarveTierStore, "set", s.names())
	return n, nil
}

func (n *node) serve() {
	for _, e := range n.entrances {
		go func() { // ends with the front door
			if err := n.broker.Serve(e.Listener, e.door); err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, broker.ErrServerClosed) {
				n.fail(fmt.Errorf("serve Kafka clients: %w", err))
			}
		}()
	}
}

// servedLimit bounds how long clients are kept waiting in the listener's queue
// for partitions to be opened. A client that is answered too early takes
// "no leader" for an outage and stays away for seconds.
const servedLimit = 10 * time.Second

func (n *node) waitServed(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, servedLimit)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		r := n.replica.Readiness(n.meta.Image())
		if r.Waiting == 0 {
			return
		}
		select {
		case <-ctx.Done():
			n.log.Warn("some partitions are not served yet, clients are let in all the same", "waiting", r.Waiting, "led", r.Led, "first", r.First)
			return
		case <-tick.C:
		}
	}
}

// tellRecovery says what an unclean stop has made the partitions that were
// held on disk go through.
func (n *node) tellRecovery(held int) {
	if held == 0 || n.hot.Clean() {
		return
	}
	s := n.hot.Stats()
	n.log.Info("the last stop was not clean: the tails of the logs were checked",
		"partitions", held, "recovered", s.Recovered.Load(), "bytes_read", s.RecoveredBytes.Load(), "bytes_cut", s.CutBytes.Load())
}

// ignoreClosed takes a listener that somebody else has closed for closed.
func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (n *node) onClose(what string, f func(context.Context) error) {
	n.closers = append(n.closers, closer{what, f})
}

// fail reports the first failure that the process cannot live with.
func (n *node) fail(err error) {
	if n.cause.CompareAndSwap(nil, &err) {
		n.failed <- err
	}
}

// failure is what fail was told first, or nil.
func (n *node) failure() error {
	if err := n.cause.Load(); err != nil {
		return *err
	}
	return nil
}

// Close ends the node in order; what fails to close is named.
func (n *node) Close(ctx context.Context) error {
	var errs []error
	for len(n.closers) > 0 {
		c := n.closers[len(n.closers)-1]
		n.closers = n.closers[:len(n.closers)-1]
		if err := c.close(ctx); err != nil {
			errs = append(errs, fmt.Errorf("close %s: %w", c.what, err))
		}
	}
	return errors.Join(errs...)
}

func (n *node) openMeta(ctx context.Context) (err error) {
	cfg := meta.Config{
		Dir: filepath.Join(n.dir, "meta"), NodeID: n.conf.NodeID, Broker: n.conf,
		Join:      !n.conf.Votes() && len(n.conf.ControllerQuorumBootstrapServers) > 0,
		ClusterID: n.askCluster(ctx),
	}
	if !cfg.Join {
		for _, v := range n.conf.QuorumVoters {
			cfg.Voters = append(cfg.Voters, meta.Voter{NodeID: v.ID, Address: v.Address})
		}
	}
	deps := meta.Deps{Transport: n.transport, Logger: n.log.With("room", "meta"), Fatal: n.fail}
	if n.clustered() {
		deps.Controller, deps.Probe, deps.Sizes, deps.Existing = n.control, probeBroker, n.sizes, n.control.AddBootstrap
	}
	n.meta, err = meta.Open(cfg, deps)
	if err != nil {
		return fmt.Errorf("open the metadata in %s: %w%s%s", filepath.Join(n.dir, "meta"), err, directoryHint(err, n.dir), n.joinHint(err))
	}
	n.onClose("metadata", n.meta.Close)
	if n.clustered() {
		n.control.Watch(n.meta.Image)
		n.known.Store(n.meta)
		return nil // it registers when it can be reached
	}
	if _, err = n.meta.RegisterBroker(ctx, n.registration()); err != nil {
		return fmt.Errorf("register broker %d: %w", n.conf.NodeID, err)
	}
	return nil
}

func (n *node) openHot(context.Context) (err error) {
	cfg := hot.DefaultConfig(filepath.Join(n.dir, "log"))
	if n.conf.VarveDurability == hot.Replicated.String() {
		cfg.Durability = hot.Replicated
	}
	if n.conf.VarveDiskReserveBytes > 0 {
		cfg.ReserveBytes = n.conf.VarveDiskReserveBytes
	}
	cfg.VerifyInterval = time.Duration(n.conf.VarveLogVerifyIntervalMillis) * time.Millisecond
	cfg.ScrubBytesPerSecond = n.conf.VarveLogScrubBytesPerSecond
	cfg.SharedLogBytes = n.conf.VarveLogSharedBytes
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // unknown elsewhere
	n.hot, err = hot.Open(cfg, hot.Deps{FS: vfs.OS(), Boot: strings.TrimSpace(string(boot)), Logger: n.log.With("room", "hot")})
	if err != nil {
		return fmt.Errorf("open the log directory %s: %w%s", cfg.Dir, err, directoryHint(err, n.dir))
	}
	n.onClose("log directory", n.hot.Close)
	return nil
}

// directoryHint says what to do about a directory that cannot be used.
func directoryHint(err error, dir string) string {
	switch {
	case errors.Is(err, vfs.ErrLocked), errors.Is(err, berrors.ErrTimeout):
		return "; another node runs on " + dir + ": stop it, or give this one another directory with --dir or log.dirs"
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return "; make " + dir + " writable for this user, or name another directory with --dir or log.dirs"
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return "; " + dir + " cannot be made there: name another directory with --dir or log.dirs"
	case errors.Is(err, syscall.ENOSPC):
		return "; free space on its disk, or name another directory with --dir or log.dirs"
	case errors.Is(err, meta.ErrVersion):
		return "; a newer release has written what this one cannot read: start that release"
	}
	return ""
}

// storeHint says what to do about a bucket that cannot be opened. Other errors
// of the store say it themselves.
func storeHint(err error) string {
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return "; make the folder writable for this user, or name another store with --store or varve.tier.store"
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return "; the folder cannot be made there: name another store with --store or varve.tier.store"
	}
	return ""
}

// probeLimit bounds the question whether the store can do conditional writes,
// probeInterval is how long until it is asked again when nobody answered.
const (
	probeLimit    = 10 * time.Second
	probeInterval = 5 * time.Second
)

func (n *node) openTier(ctx context.Context) error {
	if !n.conf.TieringEnabled() {
		n.log.Warn("no bucket is configured: topics cannot be tiered", "setting", "varve.tier.store")
		return nil
	}
	inner, err := objstore.Open(ctx, n.conf.VarveTierStore, objstore.Options{Logger: n.log.With("room", "store")})
	if err != nil {
		return fmt.Errorf("varve.tier.store=%s: %w%s", n.conf.VarveTierStore, err, storeHint(err))
	}
	n.store = objstore.NewCounted(inner, nil)
	if err := n.probeStore(ctx); err != nil {
		return err
	}
	cfg := tier.DefaultConfig()
	cfg.Prefix = n.conf.VarveTierPrefix
	cfg.CacheBytes = n.conf.VarveTierCacheBytes
	cfg.ReadParallelism = int(n.conf.VarveTierReadParallelism)
	if err := os.MkdirAll(filepath.Join(n.dir, "tier"), 0o755); err != nil {
		return fmt.Errorf("make the tier directory: %w", err)
	}
	n.archive, err = tier.OpenArchive(cfg, tier.Deps{Store: n.store, DB: filepath.Join(n.dir, "tier", "manifests.db"), Logger: n.log.With("room", "tier")})
	if err != nil {
		return fmt.Errorf("open the archive: %w", err)
	}
	n.onClose("archive", n.archive.Close)
	n.tier, err = tier.NewManager(n.tierConfig(), n.archive, tier.ManagerDeps{
		Logger: n.log.With("room", "tier"), JournalPath: filepath.Join(n.dir, "tier", "deletions.journal"),
		Removed: func(p topic.Partition) {
			if m := n.removed.Load(); m != nil { // before that nobody asked: the partitions ask again when they open
				m.Removed(p)
			}
		}})
	if err != nil {
		return fmt.Errorf("start the tiering manager: %w", err)
	}
	n.onClose("tiering manager", n.tier.Close)
	return nil
}

// probeStore makes sure that the manifest can be replaced by compare-and-swap,
// on which everything in the bucket rests. An outage is no reason to refuse to
// start: what is local is served meanwhile, and the question is asked again
// until it is answered.
func (n *node) probeStore(ctx context.Context) error {
	err := n.probe(ctx)
	if err == nil || !unreachable(err) {
		return err
	}
	n.silent.Store(&err)
	n.log.Error("the bucket does not answer; records wait on local disk until it does", "store", n.conf.VarveTierStore, "err", err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() { // ends when the store has answered, or at Close
		defer close(done)
		n.probeUntilAnswered(ctx)
	}()
	n.onClose("probe of the bucket", func(context.Context) error {
		cancel()
		<-done
		return nil
	})
	return nil
}

func (n *node) probeUntilAnswered(ctx context.Context) {
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		switch err := n.probe(ctx); {
		case err == nil:
			n.silent.Store(nil)
			n.log.Info("the bucket answers", "store", n.conf.VarveTierStore)
			return
		case ctx.Err() == nil && !unreachable(err):
			n.fail(err)
			return
		}
	}
}

func (n *node) storeFailure() error {
	if err := n.silent.Load(); err != nil {
		return *err
	}
	return nil
}

func (n *node) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	err := objstore.CheckConditional(ctx, n.store)
	if err == nil {
		return nil
	}
	if n.conf.VarveTierFencing == "lease" {
		return fmt.Errorf("varve.tier.fencing=lease is not served: a store with conditional writes is needed (%w)", err)
	}
	return fmt.Errorf("varve.tier.store=%s: %w", n.conf.VarveTierStore, err)
}

// unreachable tells a store that gave no answer from one whose answer was no.
func unreachable(err error) bool {
	return errors.Is(err, objstore.ErrUnavailable) || errors.Is(err, objstore.ErrUnknownOutcome) || errors.Is(err, context.DeadlineExceeded)
}

func (n *node) tierConfig() tier.ManagerConfig {
	cfg := tier.DefaultManagerConfig()
	cfg.Uploads = int(n.conf.RemoteManagerCopierThreads)
	cfg.Deletes = int(n.conf.RemoteManagerExpirationThreads)
	cfg.DeleteGrace = time.Duration(n.conf.VarveTierDeleteGraceMillis) * time.Millisecond
	cfg.OrphanSearch = time.Duration(n.conf.VarveTierOrphanSearchMillis) * time.Millisecond
	cfg.Survey = time.Duration(n.conf.VarveTierScrubMillis) * time.Millisecond
	cfg.ReadEvery = time.Duration(n.conf.VarveTierScrubReadMillis) * time.Millisecond
	cfg.ScrubBytesPerSecond, cfg.ScrubRequestsPerDay = n.conf.VarveTierScrubBytesPerSecond, n.conf.VarveTierScrubRequestsPerDay
	cfg.UploadBytesPerSecond = min(n.conf.RemoteManagerCopyMaxBytesPerSecond, n.conf.VarveTierUploadMaxBytesPerSecond)
	return cfg
}

func (n *node) openReplica(context.Context) (err error) {
	cfg := replica.DefaultConfig()
	cfg.NodeID, cfg.Broker = n.conf.NodeID, &n.conf
	cfg.RetentionCheckInterval = time.Duration(n.conf.LogRetentionCheckIntervalMillis) * time.Millisecond
	deps := replica.Deps{Hot: n.hot, Archive: n.archive, Tier: n.tier, Meta: n.meta, Logger: n.log.With("room", "replica")}
	if n.clustered() {
		deps.BrokerEpoch = n.brokerEpoch
		deps.Lease = n.lease
		deps.Peers = replica.OverNetwork(n.peerConfig())
	}
	n.replica, err = replica.NewManager(cfg, deps)
	if err != nil {
		return fmt.Errorf("start the partitions: %w", err)
	}
	n.removed.Store(n.replica)
	n.onClose("partitions", n.replica.Close)
	return nil
}

// The offsets topic, as the coordinator keeps its groups in it.
var _ coordinator.ShareLog = (*replica.Journal)(nil)

func (n *node) openGroups(context.Context) (err error) {
	n.shares, err = coordinator.OpenShares(coordinator.ConfigFrom(&n.conf), coordinator.ShareDeps{
		Log: n.replica.Journal(topic.ShareGroupState), Metadata: broker.Topics{Node: n.meta, Controller: n.control}, Logger: n.log.With("room", "coordinator")})
	if err != nil {
		return fmt.Errorf("start the share coordinator: %w", err)
	}
	n.onClose("share coordinator", n.shares.Close)
	n.state = broker.NewShareState(n.conf.NodeID, n.shares, n.brokers())
	n.groups, err = coordinator.Open(coordinator.ConfigFrom(&n.conf), coordinator.Deps{
		Log: n.replica.Journal(topic.ConsumerOffsets), Metadata: broker.Topics{Node: n.meta, Controller: n.control}, Fenced: replica.Fenced, ShareState: n.state, Logger: n.log.With("room", "coordinator")})
	if err != nil {
		return fmt.Errorf("start the group coordinator: %w", err)
	}
	n.onClose("group coordinator", n.groups.Close)
	n.txns, err = coordinator.OpenTransactions(coordinator.ConfigFrom(&n.conf), coordinator.TxnDeps{
		Log: n.replica.Journal(topic.TransactionState), Metadata: broker.Topics{Node: n.meta, Controller: n.control}, Markers: lateBroker{n},
		ProducerID: lateBroker{n}.ProducerID, Logger: n.log.With("room", "coordinator")})
	if err != nil {
		return fmt.Errorf("start the transaction coordinator: %w", err)
	}
	n.onClose("transaction coordinator", n.txns.Close)
	return nil
}

// brokers reaches the other brokers; nil: there are none.
func (n *node) brokers() broker.Brokers {
	if !n.clustered() {
		return nil
	}
	return broker.NewBrokers(n.peers, n.meta.Image)
}

// lateBroker is the front door to the transaction coordinator, which is there before it.
type lateBroker struct{ n *node }

func (b lateBroker) WriteTxnMarkers(ctx context.Context, id int32, markers []coordinator.TxnMarker) ([][]error, error) {
	if s := b.n.door.Load(); s != nil {
		return s.WriteTxnMarkers(ctx, id, markers)
	}
	return nil, errNotServing
}

func (b lateBroker) ProducerID(ctx context.Context) (int64, error) {
	if s := b.n.door.Load(); s != nil {
		return s.ProducerID(ctx)
	}
	return 0, errNotServing
}

// errNotServing is returned while the front door is not there yet; it is asked again.
var errNotServing = errors.New("the broker does not serve yet")

func (n *node) openBroker(context.Context) error {
	deps := broker.Deps{
		Partitions: broker.Replicas(n.replica), Metadata: n.meta, Groups: n.groups, Transactions: n.txns, Shares: n.shares, ShareState: n.state, Settings: &n.conf,
		DiskSpace: func() (total, free uint64, err error) {
			u := n.hot.Usage()
			return u.DiskTotal, u.DiskFree, nil
		},
		Logger: n.log.With("room", "broker"),
	}
	if n.clustered() {
		deps.Controlled, deps.Controller = broker.ControllerOf(n.meta), n.control
		deps.Open = n.open
		deps.Brokers = n.brokers()
	}
	n.broker = broker.New(broker.ConfigFrom(&n.conf), deps)
	n.door.Store(n.broker)
	n.onClose("front door", n.broker.Close)
	return nil
}

// listenHTTP takes the address of the console, when one is set, before any
// data is opened too. It gives nil when none is.
func (n *node) listenHTTP() (net.Listener, error) {
	if n.conf.VarveHTTPListen == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", n.conf.VarveHTTPListen)
	if err != nil {
		return nil, fmt.Errorf("listen for the console: %w: stop what uses the address, or choose another with --http or varve.http.listen", err)
	}
	n.HTTP = l.Addr().String()
	n.onClose("console's listener", func(context.Context) error { return ignoreClosed(l.Close()) })
	return l, nil
}

// openHTTP serves operations on l; nil is no console.
func (n *node) openHTTP(l net.Listener) {
	if l == nil {
		return
	}
	server := ops.New(ops.Deps{
		NodeID: n.conf.NodeID, Version: version, StoreURL: n.conf.VarveTierStore,
		Meta: n.meta, Hot: n.hot, Replica: n.replica, Broker: n.broker, Tier: n.tier, Archive: n.archive, Store: n.store,
		Coordinators: ops.Coordinators{Groups: n.groups, Transactions: n.txns, Shares: n.shares},
		Failed:       n.failure, StoreFailed: n.storeFailure, Certificates: n.certificates, Logger: n.log.With("room", "ops"),
	})
	go func() {
		if err := server.Serve(l); err != nil {
			n.fail(fmt.Errorf("serve the console: %w", err))
		}
	}()
	n.onClose("console", server.Close)
}
