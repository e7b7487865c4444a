package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/broker"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/replica"
	"github.com/varvelog/varve/replica/peer"
)

// clustered reports whether the node is, or may become, one of several: it has
// a listener for the metadata quorum.
func (n *node) clustered() bool { return n.transport != nil }

func (n *node) peerConfig() peer.Config {
	c := peer.Config{ClientID: fmt.Sprintf("broker-%d", n.conf.NodeID), Logger: n.log.With("room", "peer")}
	c.Dial = n.dialer(c.Logger)
	return c
}

// dialer opens connections to brokers. Each is reached at the listener that it
// has for brokers, in the way that it registered: while a cluster goes over from
// one to another they differ. Whoever is not known is spoken to as this node
// itself wants to be.
func (n *node) dialer(log *slog.Logger) peer.Dialer {
	over := map[string]peer.Dialer{} // by listener, those of TLS
	for name, keys := range n.secured {
		over[name] = keys.Dialer(log)
	}
	own := over[n.between]
	if own == nil {
		own = peer.DialTCP
	}
	return func(ctx context.Context, address string) (net.Conn, error) {
		dial := own
		if e, ok := n.endpoint(address); ok && e.Protocol != meta.SSL {
			dial = peer.DialTCP
		} else if ok && over[e.Name] != nil {
			dial = over[e.Name]
		}
		return dial(ctx, address)
	}
}

// endpoint is the listener for brokers that a broker has registered at an address.
func (n *node) endpoint(address string) (meta.Endpoint, bool) {
	known := n.known.Load()
	if known == nil {
		return meta.Endpoint{}, false
	}
	for _, b := range known.Image().Brokers {
		if len(b.Endpoints) > 0 && peer.Address(b.Host, b.Port) == address {
			return b.Endpoints[0], true
		}
	}
	return meta.Endpoint{}, false
}

// openPeers makes ready for connections to other brokers.
func (n *node) openPeers() {
	if !n.clustered() {
		return
	}
	n.peers = peer.NewPool(n.peerConfig())
	n.onClose("connections to other brokers", func(context.Context) error { return n.peers.Close() })
	n.control = broker.NewController(n.peers, n.conf.ControllerQuorumBootstrapServers)
}

// probeBroker reports whether nothing listens where a broker did.
func probeBroker(ctx context.Context, b meta.Broker) bool {
	return peer.Probe(ctx, nil, peer.Address(b.Host, b.Port)) == peer.Gone
}

// askLimit bounds the question which cluster it is that a node was told to join.
const askLimit = 2 * time.Second

// askCluster asks the brokers that the node was told to join for their
// cluster's id, so that data of another cluster is refused before it is used.
// It is "" when nobody says, or there is no data yet.
func (n *node) askCluster(ctx context.Context) string {
	servers := n.conf.ControllerQuorumBootstrapServers
	if entries, err := os.ReadDir(filepath.Join(n.dir, "meta")); err != nil || len(entries) == 0 || !n.clustered() {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	answers := make(chan string, len(servers))
	for _, address := range servers {
		go func() { // ends with ctx
			req := kmsg.NewPtrDescribeClusterRequest()
			answer, err := n.peers.Do(ctx, address, peer.LaneControl, req)
			resp, ok := answer.(*kmsg.DescribeClusterResponse)
			if err != nil || !ok {
				answers <- ""
				return
			}
			answers <- resp.ClusterID
		}()
	}
	for range servers {
		if id := <-answers; id != "" {
			return id
		}
	}
	return ""
}

// sizes asks every broker how many bytes its replicas are: of each partition
// the largest counts. A broker that does not answer is left out.
func (n *node) sizes(ctx context.Context) (map[topic.Partition]int64, error) {
	img := n.meta.Image()
	brokers := broker.NewBrokers(n.peers, n.meta.Image)
	bytes := map[topic.Partition]int64{}
	for id, b := range img.Brokers {
		if b.Fenced {
			continue
		}
		answer, err := brokers.Ask(ctx, id, kmsg.NewPtrDescribeLogDirsRequest())
		resp, ok := answer.(*kmsg.DescribeLogDirsResponse)
		if err != nil || !ok {
			n.log.Debug("sizes of a broker's partitions are not known", "broker", id, "err", err)
			continue
		}
		for _, dir := range resp.Dirs {
			for _, t := range dir.Topics {
				known := img.Topic(t.Topic)
				if known == nil {
					continue
				}
				for _, p := range t.Partitions {
					key := known.Key(p.Partition)
					bytes[key] = max(bytes[key], p.Size)
				}
			}
		}
	}
	return bytes, nil
}

// registration is how this start of the broker presents itself.
func (n *node) registration() meta.Registration {
	return meta.Registration{
		ID: n.conf.NodeID, Host: n.host, Port: n.port, Rack: n.conf.Rack, Incarnation: topic.NewID(), RaftAddress: n.raftAt, Endpoints: n.endpoints,
		ClusterID: n.meta.Image().ClusterID,
	}
}

// brokerEpoch is the epoch of the registration that holds; 0 before the first.
func (n *node) brokerEpoch() int64 {
	if m := n.member.Load(); m != nil {
		return m.Self().Epoch
	}
	return 0
}

// lease says whether the controller cannot have given up on this node yet: a leader may append only then.
func (n *node) lease() bool {
	m := n.member.Load()
	return m != nil && m.Lease()
}

// unfencedNews is how often a node that is not let in yet says so.
const unfencedNews = 10 * time.Second

// join registers the broker and returns when the cluster counts on it.
func (n *node) join(ctx context.Context) error {
	r := n.registration()
	r.WantVote = n.conf.Votes()
	r.PreviousEpoch = replica.PreviousEpoch(n.hot)
	m, err := meta.Join(ctx, meta.MemberConfig{
		Registration: r,
		Interval:     time.Duration(n.conf.BrokerHeartbeatIntervalMillis) * time.Millisecond,
		Timeout:      time.Duration(n.conf.BrokerSessionTimeoutMillis) * time.Millisecond,
		Patience:     time.Duration(n.conf.InitialRegistrationTimeoutMillis) * time.Millisecond,
	}, meta.MemberDeps{
		Quorum: n.meta, Logger: n.log.With("room", "meta"),
		// Partitions are opened when brokerEpoch names the same, which is after this.
		Registered: func(b meta.Broker) {
			if err := n.hot.SetBrokerEpoch(b.Epoch); err != nil {
				n.fail(err)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("%w%s", err, n.joinHint(err))
	}
	n.member.Store(m)
	n.onClose("membership", n.leave)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	news := time.NewTicker(unfencedNews)
	defer news.Stop()
	for m.Fenced() {
		select {
		case <-tick.C:
		case <-news.C:
			n.log.Warn("the cluster does not let this broker serve yet", "node", n.conf.NodeID, "metadata_index", n.meta.Image().Index, "epoch", m.Self().Epoch)
		case err := <-n.failed:
			n.failed <- err
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// joinHint says what to do about a registration that was refused or not answered.
func (n *node) joinHint(err error) string {
	switch {
	case errors.Is(err, meta.ErrInconsistentCluster):
		return fmt.Sprintf("; the data in %s belongs to another cluster: name that cluster's brokers, or another directory in log.dirs", n.dir)
	case errors.Is(err, meta.ErrDuplicateBroker):
		return fmt.Sprintf("; another node with node.id=%d runs: give this one an id of its own", n.conf.NodeID)
	case !errors.Is(err, meta.ErrNotController) && !errors.Is(err, context.DeadlineExceeded):
		return ""
	}
	if servers := n.conf.ControllerQuorumBootstrapServers; len(servers) > 0 {
		return fmt.Sprintf("; none of controller.quorum.bootstrap.servers=%s (--join) led to the cluster's controller: they are Kafka addresses of running brokers, of the listener that brokers use among themselves (inter.broker.listener.name)", strings.Join(servers, ","))
	}
	return fmt.Sprintf("; a majority of controller.quorum.voters=%s must run and reach each other at these addresses", strings.Join(n.conf.ControllerQuorumVoters, ","))
}

const (
	// leaveLimit bounds a controlled shutdown: then the node ends, and the
	// controller finds out for itself.
	leaveLimit = 30 * time.Second
	// leaveCheck is how often a node that is leaving looks whether the
	// controller has given it up.
	leaveCheck = 100 * time.Millisecond
)

// leave hands the leaderships over and ends the membership. When no controller
// answers for a session's time, nobody counts on this broker any more.
func (n *node) leave(ctx context.Context) error {
	m := n.member.Load()
	defer m.Close()
	if !n.conf.ControlledShutdownEnable {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, leaveLimit)
	defer cancel()
	began := time.Now()
	done := make(chan error, 1)
	go func() { done <- m.Shutdown(ctx) }()
	tick := time.NewTicker(leaveCheck)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			if err != nil {
				n.log.Warn("leaderships were not handed over", "node", n.conf.NodeID, "err", err)
				return nil
			}
			n.log.Info("leaderships handed over", "node", n.conf.NodeID, "took", time.Since(began).Round(time.Millisecond))
			return nil
		case <-tick.C:
			if !m.Lease() || time.Since(began) > aloneAfter && n.alone(ctx) {
				cancel()
			}
		}
	}
}

// aloneAfter is how long a node that is leaving waits before it looks whether
// there is anybody left to hand over to.
const aloneAfter = time.Second

// alone reports whether every other broker's process is known to be gone, as
// when a whole cluster is stopped at once.
func (n *node) alone(ctx context.Context) bool {
	if n.meta.IsController() {
		return false // it answers itself
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for id, b := range n.meta.Image().Brokers {
		if id != n.conf.NodeID && !probeBroker(ctx, b) {
			return false
		}
	}
	return true
}
