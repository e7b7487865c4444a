package replica

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
)

// Peers connects to other brokers. The manager has at most one connection to each broker it follows.
type Peers interface {
	// Dial opens a connection to a broker's listener for brokers. The caller closes it.
	Dial(ctx context.Context, b meta.Broker) (Peer, error)
}

// Peer is one connection to another broker, used by one goroutine.
type Peer interface {
	// Fetch sends a fetch and returns its answer, which is valid until the next call: record bytes are in the connection's
	// buffer. After an error the connection is of no more use.
	Fetch(ctx context.Context, r *kmsg.FetchRequest) (*kmsg.FetchResponse, error)
	Close() error
}
