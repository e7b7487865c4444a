package broker

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/varvelog/varve/meta"
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

// throttle holds the followers' share of leader.replication.throttled.rate: bytes that may go to throttled replicas which are
// not in sync. It is a bucket of one second's rate; what is sent may overdraw it, and then it waits.
type throttle struct {
	mu     sync.Mutex // guards the following
	bytes  float64
	filled time.Time
}

// wait is how long the throttle has nothing to give at this rate.
func (t *throttle) wait(rate int64, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fillLocked(rate, now)
	if t.bytes > 0 {
		return 0
	}
	if rate <= 0 {
		return time.Second
	}
	return min(time.Duration((1-t.bytes)/float64(rate)*float64(time.Second)), 10*time.Second)
}

func (t *throttle) fillLocked(rate int64, now time.Time) {
	if t.filled.IsZero() {
		t.bytes = float64(rate)
	} else {
		t.bytes += now.Sub(t.filled).Seconds() * float64(rate)
	}
	t.bytes, t.filled = min(t.bytes, float64(rate)), now
}

func (t *throttle) take(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bytes -= float64(n)
}

// throttled says for how long this partition's records are held back from this follower, and whether what it gets is
// counted.
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
	if p == nil || slices.Contains(p.ISR, op.replica) || !throttlesReplica(topic, id.Index, s.cfg.NodeID) {
		return 0, false
	}
	return s.followers.wait(b.LeaderReplicationThrottledRate, time.Now()), true
}

// throttlesReplica reads leader.replication.throttled.replicas: "*" or a list of partition:broker. The broker is the one that
// sends: kafka-reassign-partitions names those that hold a partition before it moves, and those that are to hold it in
// follower.replication.throttled.replicas.
func throttlesReplica(t *meta.Topic, index, id int32) bool {
	list := t.Configs["leader.replication.throttled.replicas"]
	if list == "" || list == "*" {
		return list == "*"
	}
	want := strconv.Itoa(int(index)) + ":" + strconv.Itoa(int(id))
	for entry := range strings.SplitSeq(list, ",") {
		if strings.TrimSpace(entry) == want {
			return true
		}
	}
	return false
}
