package replica

import (
	"errors"
	"log/slog"
	"time"

	"github.com/varvelog/varve/hot"
	"github.com/varvelog/varve/meta/conf"
	"github.com/varvelog/varve/tier"
)

// Config is how the manager behaves.
type Config struct {
	// NodeID is this broker's id.
	NodeID int32
	// Broker are the broker's settings: the defaults under every topic's own.
	Broker *conf.Broker
	// OpenParallelism bounds how many partitions are opened, or deleted, at once.
	OpenParallelism int
	// RetentionCheckInterval is how long housekeeping of a partition that was written to is put off
	// (log.retention.check.interval.ms).
	RetentionCheckInterval time.Duration
}

// DefaultConfig returns Kafka's defaults for node 1.
func DefaultConfig() Config {
	return Config{
		NodeID:                 1,
		OpenParallelism:        8,
		RetentionCheckInterval: 5 * time.Minute,
	}
}

// Validate says what is wrong with c, or nil.
func (c Config) Validate() error {
	switch {
	case c.NodeID < 0:
		return errors.New("replica: node id must not be negative")
	case c.OpenParallelism < 1:
		return errors.New("replica: open parallelism must be at least 1")
	case c.RetentionCheckInterval <= 0:
		return errors.New("replica: the retention check interval must be positive")
	case c.Broker == nil:
		return errors.New("replica: broker settings are missing")
	}
	return nil
}

// Deps are the components partitions stand on.
type Deps struct {
	Hot     *hot.Store
	Archive *tier.Archive // nil without a store
	Tier    *tier.Manager // nil without a store
	Meta    Metadata
	// BrokerEpoch is the epoch under which this broker is registered now; nil: what the newest image says.
	BrokerEpoch func() int64
	// Lease says whether the controller cannot have given up on this broker yet. Without it a leader appends nothing, and claims
	// and uploads nothing: there may be another leader. It is asked at every append. nil: a broker without others.
	Lease func() bool
	// Peers connects to the brokers that lead what this one follows; nil: a broker without others.
	Peers  Peers
	Logger *slog.Logger // nil discards
}
