package tier

import "sync"

// TopicCounters are a topic's totals since the start, for the metrics that Kafka
// calls RemoteCopy…PerSec and RemoteDelete…PerSec.
type TopicCounters struct {
	CopyRequests, CopyErrors, CopyBytes int64 // RemoteCopyRequests, RemoteCopyErrors, RemoteCopyBytes (stored bytes)
	CopyRawBytes                        int64 // log bytes that were copied
	DeleteRequests, DeleteErrors        int64 // RemoteDeleteRequests, RemoteDeleteErrors
	DeletedObjects                      int64
	Commits, CommitErrors               int64
	Orphans                             int64 // objects removed by collections
	ScrubRequests, ScrubBytes           int64 // of objects that were read for their checksums
	ScrubPasses                         int64 // partitions of which every object was read
	FoundDamaged, Mended                int64 // objects found missing or damaged, and put anew
}

type counters struct {
	mu     sync.Mutex // guards the following
	topics map[string]*TopicCounters
}

func newCounters() *counters { return &counters{topics: map[string]*TopicCounters{}} }

func (c *counters) update(topic string, fn func(*TopicCounters)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.topics[topic]
	if t == nil {
		t = &TopicCounters{}
		c.topics[topic] = t
	}
	fn(t)
}

// Counters returns the totals of every topic.
func (m *Manager) Counters() map[string]TopicCounters {
	m.counts.mu.Lock()
	defer m.counts.mu.Unlock()
	out := make(map[string]TopicCounters, len(m.counts.topics))
	for name, t := range m.counts.topics {
		out[name] = *t
	}
	return out
}

// drop forgets a deleted topic's totals.
func (c *counters) drop(topic string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.topics, topic)
}
