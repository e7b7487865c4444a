package replica

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/replica/peer"
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
	// Close may be called while Fetch waits.
	Close() error
}

// OverNetwork is Peers by package peer. Connections are dialled to the address that the broker registered for brokers.
func OverNetwork(cfg peer.Config) Peers { return network{cfg} }

type network struct{ cfg peer.Config }

func (n network) Dial(ctx context.Context, b meta.Broker) (Peer, error) {
	c, err := peer.Dial(ctx, peer.Address(b.Host, b.Port), n.cfg)
	if err != nil {
		return nil, err
	}
	return &networkPeer{conn: c}, nil
}

// networkPeer keeps the frame of the last answer until the next call.
type networkPeer struct {
	conn  *peer.Conn
	frame *peer.Frame
	resp  kmsg.FetchResponse
}

func (p *networkPeer) Fetch(ctx context.Context, r *kmsg.FetchRequest) (*kmsg.FetchResponse, error) {
	p.release()
	frame, err := p.conn.DoInto(ctx, r, &p.resp)
	if err != nil {
		return nil, err
	}
	p.frame = frame
	return &p.resp, nil
}

func (p *networkPeer) release() {
	if p.frame != nil {
		p.frame.Release()
		p.frame = nil
	}
}

func (p *networkPeer) Close() error {
	p.release()
	return p.conn.Close()
}
