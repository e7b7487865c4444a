package tier

import "testing"

// TestNewLeaderAsksTheBucketWhenItsCacheLeavesAGap: it led before, others led
// since, and its local log was released by what they had committed. Its cached
// manifest ends below the local log; the bucket's does not.
func TestNewLeaderAsksTheBucketWhenItsCacheLeavesAGap(t *testing.T) {
	cfg := DefaultManagerConfig().core()
	c := newCore(cfg)
	p := rigPartition(0)
	at := instant{wall: simEpoch, steady: 1}
	topicConfig := defaultTopic()
	topicConfig.LocalRetentionMillis, topicConfig.LocalRetentionBytes = -1, -1 // nothing local is due

	a := answer{p: p, gen: 1}
	cached := State{Start: 0, End: 272, LeaderEpoch: 0, Segments: 30, Sequence: 30}
	view := logView{LogOffsets: LogOffsets{LocalStart: 313, Durable: 400, HighWatermark: 400, LastStable: 400, End: 400, ActiveBase: 395, ActiveSince: -1}}
	view.add(localSegment{base: 313, end: 395, bytes: 1000, maxTimestamp: simEpoch, modified: simEpoch}, 0)

	// answers plays the shell until the core claims, and says what became of it.
	claimed := false
	queue := []event{evLead{p: p, gen: 1, epoch: 2, cfg: topicConfig}}
	for n := 0; len(queue) > 0 && n < 50; n++ {
		ev := queue[0]
		queue = queue[1:]
		for _, fx := range c.step(ev, at) {
			switch fx := fx.(type) {
			case fxLoad:
				queue = append(queue, evLoaded{answer: a, state: cached})
			case fxLook:
				view.judged = judgement{offset: fx.judge}
				queue = append(queue, evLooked{answer: a, view: view})
			case fxClaim:
				claimed = true
			}
		}
	}
	if !claimed {
		t.Fatal("the leader takes its old cache for the truth, and waits for offsets that are in the bucket")
	}
}
