package meta

import (
	"context"
)

// Heartbeat is what a broker tells the controller every
// broker.heartbeat.interval.ms.
type Heartbeat struct {
	ID    int32
	Epoch int64
	// Index is the Index of the broker's newest image.
	Index uint64
	// WantFence says that the broker is not ready to serve, and is to be fenced
	// if it is not.
	WantFence bool
	// WantShutdown says that the broker is to stop as soon as ShouldShutdown
	// answers it.
	WantShutdown bool
}

// HeartbeatReply is the controller's answer.
type HeartbeatReply struct {
	// CaughtUp is true once the broker has applied its own registration.
	CaughtUp bool
	// Fenced is true while the broker may not serve.
	Fenced bool
	// ShouldShutdown is true once nobody counts on the broker any more.
	ShouldShutdown bool
}

// Disconnected says that the connection has ended over which broker id, as of
// epoch, sent its heartbeats. The controller then looks whether the broker's
// process is gone.
func (n *Node) Disconnected(id int32, epoch int64) {}

// Heartbeat decides on a heartbeat.
func (l Local) Heartbeat(ctx context.Context, h Heartbeat) (HeartbeatReply, error) {
	n := l.n
	if !n.IsController() {
		return HeartbeatReply{}, ErrNotController
	}
	b, err := n.Image().checkBrokerEpoch(h.ID, h.Epoch)
	if err != nil {
		return HeartbeatReply{}, err
	}
	want := ChangeBroker{ID: h.ID, Epoch: h.Epoch, Fenced: b.Fenced, ShuttingDown: b.ShuttingDown}
	caughtUp := h.Index >= uint64(b.Epoch)
	switch {
	case h.WantShutdown:
		want.ShuttingDown = true
	case h.WantFence:
		want.Fenced = true
	case caughtUp:
		want.Fenced = false
	}
	if err := n.changeBroker(ctx, want); err != nil {
		return HeartbeatReply{}, err
	}
	return HeartbeatReply{CaughtUp: caughtUp, Fenced: want.Fenced, ShouldShutdown: want.ShuttingDown}, nil
}
