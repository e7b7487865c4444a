package replica

import (
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/topic"
)

// Readiness says how far this broker has come with serving what it leads.
type Readiness struct {
	Led     int             // partitions that the image gives to this broker
	Waiting int             // of those, the ones it does not serve yet
	First   topic.Partition // one that waits; zero when none does
}

// settled reports whether the partition is served and its high watermark has
// reached what an earlier leader may have told: before that, "latest" is not
// known (KIP-207). After a kill the recovered tail has to be synced for it.
func (m *Manager) settled(name string, index int32) bool {
	p, err := m.Partition(name, index)
	if err != nil {
		return false
	}
	role := p.role.Load()
	return role.err == nil && p.log.HighWatermark() >= role.start
}

// Readiness holds the image against what is served. It walks all partitions:
// ask at start-up and for health, not per request.
func (m *Manager) Readiness(img *meta.Image) Readiness {
	var r Readiness
	for _, t := range img.Topics() {
		for i, p := range t.Partitions {
			if p.Leader != m.config.NodeID {
				continue
			}
			r.Led++
			if m.settled(t.Name, int32(i)) {
				continue
			}
			if r.Waiting == 0 {
				r.First = topic.Partition{Topic: t.Name, ID: t.ID, Index: int32(i)}
			}
			r.Waiting++
		}
	}
	return r
}
