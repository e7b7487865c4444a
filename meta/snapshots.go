package meta

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// takeSnapshots makes snapshots when they are due. Close stops it.
func (n *Node) takeSnapshots() {
	for {
		select {
		case <-n.full:
			start := time.Now()
			err := n.raft.Snapshot().Error()
			switch {
			case errors.Is(err, raft.ErrNothingNewToSnapshot) || errors.Is(err, raft.ErrRaftShutdown):
			case err != nil:
				// The log keeps what the snapshot would have held; the next
				// command that is applied asks again.
				n.log.Warn("metadata snapshot failed", "err", err)
			default:
				n.log.Debug("metadata snapshot", "index", n.raft.AppliedIndex(), "took", time.Since(start))
			}
		case <-n.shed.due:
			n.shedLog()
		case <-n.ctx.Done():
			return
		}
	}
}

// A feature level that was lowered lets the release before in. That one reads its
// whole log before it starts, the entries behind the newest snapshot too, and
// refuses what it does not know; so all that was written before the level was
// lowered has to go: into a snapshot as that level has it.

// shedding is whether that is due.
type shedding struct {
	due chan struct{} // has one when it is
	to  atomic.Int64  // how often it was asked for
	did atomic.Int64  // how often of those it is done
}

func (s *shedding) ask() {
	s.to.Add(1)
	select {
	case s.due <- struct{}{}:
	default:
	}
}

const (
	// shedPause is how long a node waits that could not.
	shedPause = time.Second
	// shedMax bounds how long a node that stops goes on for it.
	shedMax = 5 * time.Second
)

// shedLog takes a snapshot and keeps nothing of the log before it. It tries until
// it has, or the node is closed.
func (n *Node) shedLog() {
	for warned := false; ; warned = true {
		asked := n.shed.to.Load()
		err := n.keepTrailing(0)
		if err == nil {
			err = n.raft.Snapshot().Error()
			if errors.Is(err, raft.ErrNothingNewToSnapshot) {
				err = nil // nor anything left behind: Open has seen to that
			}
			err = errors.Join(err, n.keepTrailing(n.cfg.TrailingEntries))
		}
		if err == nil {
			n.log.Info("metadata log is written anew, as its feature level has it", "level", n.Image().level(), "index", n.raft.AppliedIndex())
			n.shed.did.Store(asked)
			return
		}
		if !warned && n.ctx.Err() == nil {
			n.log.Warn("metadata log still holds what an earlier release cannot read, will be tried again", "err", err)
		}
		select {
		case <-time.After(shedPause):
		case <-n.ctx.Done():
			return
		}
	}
}

// keepTrailing sets how many entries a snapshot leaves behind it in the log.
func (n *Node) keepTrailing(entries uint64) error {
	return n.reload(func(rc *raft.ReloadableConfig) { rc.TrailingLogs = entries })
}

// awaitShed lets a node that is about to stop finish: what starts next on its
// directory may be the release before.
func (n *Node) awaitShed(ctx context.Context) {
	limit := time.NewTimer(shedMax)
	defer limit.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for n.shed.did.Load() < n.shed.to.Load() && n.err() == nil {
		select {
		case <-tick.C:
		case <-limit.C:
			return
		case <-ctx.Done():
			return
		}
	}
}
