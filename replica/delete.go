package replica

import (
	"context"
	"time"

	"github.com/varvelog/varve/meta/topic"
)

// confirmEvery is how long a confirmation that was not taken waits for its next try.
const confirmEvery = time.Second

// confirm tells the controller that a deleted topic's files are gone from this broker, until it has taken that. Should the
// process end before, the tombstone is still there at the next start, and removing what is gone already is quick.
func (m *Manager) confirm(id topic.ID) {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		err := m.deps.Meta.ConfirmDeleted(ctx, id, m.config.NodeID, false)
		cancel()
		if err == nil {
			break
		}
		m.logger.Warn("deletion not confirmed yet", "topic_id", id.String(), "err", err)
		select {
		case <-m.stop:
			return
		case <-time.After(confirmEvery):
		}
	}
	m.mu.Lock()
	delete(m.follow.deleting, id)
	m.mu.Unlock()
}
