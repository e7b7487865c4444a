package broker

import (
	"slices"
	"time"

	"github.com/varvelog/varve/meta/conf"
	"github.com/varvelog/varve/replica"
)

// tells says whether an answer to a replica carries the partition's offsets although it is an error: an empty or outdated
// follower needs the log start to begin anew. Kafka answers -1 here and has its followers ask ListOffsets.
func (op *fetchOp) tells(code int16) bool {
	return op.replica >= 0 && (code == codeOffsetOutOfRange || code == codeOffsetMovedToTieredStorage)
}

// prefer looks whether a consumer that says where it is should rather read from a follower there (KIP-392).
func (s *Server) prefer(op *fetchOp, t *fetchTarget) bool {
	if op.req.Rack == "" || op.replica >= 0 || !s.rackAware() {
		return false
	}
	t.preferred = t.part.PreferredReplica(op.req.Rack, t.offset)
	return t.preferred != replica.NoReplica
}

// rackAware says whether replica.selector.class is Kafka's rack-aware one.
func (s *Server) rackAware() bool {
	b := s.settings()
	return b != nil && b.ReplicaSelectorClass == conf.RackAwareSelector
}

// behind says whether a follower has yet to hear of a high watermark that its consumers wait for. As in Kafka
// (KAFKA-9731) that is worth an answer of its own only where consumers are sent to followers.
func (s *Server) behind(op *fetchOp, t *fetchTarget) bool {
	return op.replica >= 0 && t.inSession != nil && t.known && t.told < t.res.HighWatermark && s.rackAware()
}

// throttled says for how long this partition's records are held back from this follower, and whether what it gets is counted
// for leader.replication.throttled.rate. The list of throttled replicas names the broker that sends:
// kafka-reassign-partitions has those that hold a partition before it moves in it, and those that are to hold it in
// follower.replication.throttled.replicas. Who is in sync is never held back.
func (s *Server) throttled(op *fetchOp, t *fetchTarget) (wait time.Duration, counts bool) {
	if op.replica < 0 {
		return 0, false
	}
	b := s.settings()
	if b == nil || b.LeaderReplicationThrottledRate == conf.Unlimited || s.deps.Metadata == nil {
		return 0, false
	}
	id := t.part.ID()
	topic, p := s.deps.Metadata.Image().PartitionByID(id.ID, id.Index)
	if p == nil || slices.Contains(p.ISR, op.replica) || !conf.Throttles(topic.Configs["leader.replication.throttled.replicas"], id.Index, s.cfg.NodeID) {
		return 0, false
	}
	return min(s.followers.Wait(b.LeaderReplicationThrottledRate, time.Now()), throttleLook), true
}

// throttleLook is how often a fetch that is held back looks whether the throttle is there still.
const throttleLook = time.Second
