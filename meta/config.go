package meta

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/hashicorp/raft"

	"github.com/varvelog/varve/meta/conf"
	"github.com/varvelog/varve/meta/topic"
)

// Config says who this node is and how its quorum behaves.
type Config struct {
	// Dir holds the log, the vote, the snapshots and the node's identity.
	Dir string
	// NodeID is this node's id, which is also its broker's.
	NodeID int32
	// Broker holds the static broker settings: defaults for topics and rules
	// for their settings. The zero value means Kafka's defaults.
	Broker conf.Broker
	// ClusterID is given to a cluster that has none; "" makes up one.
	ClusterID string
	// Voters are the quorum's first members; empty means this node alone.
	Voters []Voter
	// Join makes a node without data wait until the controller of a running
	// cluster adds it, which it does when the node registers, instead of
	// forming a quorum of its own.
	Join bool

	// Heartbeat is the quorum's measure of time: a voter that knows of no leader
	// stands for election after once to twice this, one whose leader is silent
	// after 1.6 times this, and a leader is heard from every 0.28 to 0.56 times
	// this (pulse.go). Zero means 500 ms. A quorum of one has nobody to wait for.
	Heartbeat time.Duration
	// SnapshotEntries and SnapshotBytes bound what the log may hold beyond the
	// newest snapshot: the first to be passed makes a new one. Zero means 8192
	// and Broker's metadata.log.max.record.bytes.between.snapshots.
	SnapshotEntries uint64
	SnapshotBytes   int64
	// TrailingEntries is how many entries stay in the log after a snapshot,
	// for followers that are a little behind. Zero means 256.
	TrailingEntries uint64
	// ProposeTimeout bounds how long a change may wait for the quorum. Zero
	// means 10 s.
	ProposeTimeout time.Duration

	// For tests.
	faults      func(store) store
	lockTimeout time.Duration
}

// Voter is one member of the quorum.
type Voter struct {
	NodeID  int32
	Address string // for raft's transport
}

// Deps are the components a Node works with.
type Deps struct {
	// Transport connects the quorum; nil means none, which a quorum of one
	// needs not. The Node closes it.
	Transport raft.Transport
	// Controller reaches the node that leads the quorum when this one does not;
	// nil means that calls are then refused with ErrNotController. The Node
	// does not close it.
	Controller Controller
	// Probe looks whether the process behind a broker is known to be gone:
	// nothing listens at its address. Anything else, silence above all, is
	// false. nil means that silence alone fences brokers.
	Probe func(ctx context.Context, b Broker) bool
	// Sizes tells how many bytes a replica of each partition takes, for the
	// balancer; what it does not know counts as 0. nil means that replicas are
	// only counted.
	Sizes func(ctx context.Context) (map[topic.Partition]int64, error)
	// Existing is told where brokers of a cluster listen in which this node turns
	// out to have no vote though its settings say so; it reports whether the
	// Controller has anybody to ask now. nil: whoever it has must do.
	Existing func(brokers []string) bool
	// Logger; nil discards.
	Logger *slog.Logger
	// Fatal is called once, from a goroutine of its own, when the log store has
	// failed: the process must exit without writing anything further. nil
	// means that the Node only stops.
	Fatal func(error)
}

// Validate reports what makes the Config unusable.
func (c *Config) Validate() error {
	if c.Dir == "" {
		return errors.New("meta: no directory")
	}
	if c.NodeID < 0 {
		return fmt.Errorf("meta: node id %d is negative", c.NodeID)
	}
	if len(c.Voters) == 0 {
		return nil
	}
	seen := make(map[int32]bool)
	for _, v := range c.Voters {
		if seen[v.NodeID] {
			return fmt.Errorf("meta: voter %d is there twice", v.NodeID)
		}
		seen[v.NodeID] = true
	}
	return nil
}

func (c *Config) fillDefaults() error {
	if c.Broker.NumPartitions == 0 { // the zero Broker: Kafka's defaults
		b, err := conf.ParseBroker(nil)
		if err != nil {
			return err
		}
		c.Broker = b
	}
	if c.Heartbeat == 0 {
		c.Heartbeat = 500 * time.Millisecond
	}
	if c.SnapshotEntries == 0 {
		c.SnapshotEntries = 8192
	}
	if c.SnapshotBytes == 0 {
		c.SnapshotBytes = max(c.Broker.MetadataSnapshotBytes, 1<<20)
	}
	if c.TrailingEntries == 0 {
		c.TrailingEntries = 256
	}
	if c.ProposeTimeout == 0 {
		c.ProposeTimeout = 10 * time.Second
	}
	if c.lockTimeout == 0 {
		c.lockTimeout = lockTimeout
	}
	return nil
}
