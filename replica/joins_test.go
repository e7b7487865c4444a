package replica

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/conf"
)

// joinFollowed has the node follow one more partition of a topic, at once.
func (n *node) joinFollowed(t *meta.Topic) {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	t.Partitions = append(t.Partitions, meta.Partition{Leader: 2, LeaderEpoch: 1, PartitionEpoch: 1, Replicas: []int32{1, 2}, ISR: []int32{1, 2}})
	n.m.topicLocked(t)
}

// TestPartitionsThatJoinOneAfterTheOtherCostOneSession opens a hundred, as the creation of a topic does.
func TestPartitionsThatJoinOneAfterTheOtherCostOneSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const more = 100
		x, n, events := followClosing(t, 1)
		defer n.stop()
		<-time.After(time.Minute)
		before := x.closed.Load()
		want := x.sent(0)
		for i := range int32(more) {
			x.mu.Lock()
			x.ends[1+i] = 10
			x.mu.Unlock()
			n.joinFollowed(events)
			<-time.After(50 * time.Millisecond)
			if i > 0 && x.sent(i) != want { // the one before has been there for a while
				t.Errorf("partition %d has got %d bytes of %d", i, x.sent(i), want)
			}
		}
		if got := x.closed.Load() - before; got > 1 {
			t.Errorf("%d connections were given up", got)
		}
		<-time.After(time.Second)
		if x.sent(more) != want {
			t.Errorf("the last has got %d bytes of %d", x.sent(more), want)
		}
	})
}

// asked is a spring that notes how long fetches may wait.
type asked struct {
	*spring
	mu    sync.Mutex // guards the following
	waits []int32
}

type askedPeer struct {
	*springPeer
	x *asked
}

func (x *asked) Dial(context.Context, meta.Broker) (Peer, error) {
	return &askedPeer{&springPeer{x.spring, make(map[replicaKey]kmsg.FetchRequestTopicPartition)}, x}, nil
}

func (p *askedPeer) Fetch(ctx context.Context, r *kmsg.FetchRequest) (*kmsg.FetchResponse, error) {
	p.x.mu.Lock()
	p.x.waits = append(p.x.waits, r.MaxWaitMillis)
	p.x.mu.Unlock()
	return p.springPeer.Fetch(ctx, r)
}

// TestAQuietLeaderIsAskedSeldom counts the fetches of a minute in which nothing happens: the leader holds each for 4 s, and for
// as long as an operator has said where one has.
func TestAQuietLeaderIsAskedSeldom(t *testing.T) {
	for _, test := range []struct {
		setting  string
		fetches  int
		longest  int32
		fetchLag string
	}{
		{"500", 16, 4000, "30000"},
		{"500", 25, 2500, "15000"}, // never for more than a sixth of the time after which it would lag
		{"250", 241, 250, "30000"},
		{"2000", 31, 2000, "30000"},
	} {
		synctest.Test(t, func(t *testing.T) {
			closing, n, events := followClosing(t, 0)
			defer n.stop()
			x := &asked{spring: closing.spring}
			n.m.deps.Peers = x
			n.broker = map[string]string{"replica.fetch.wait.max.ms": test.setting, "replica.lag.time.max.ms": test.fetchLag}
			b, err := conf.ParseBroker(n.broker)
			n.must(err)
			n.m.broker.Store(&b)
			n.joinFollowed(events)
			<-time.After(time.Minute)
			x.mu.Lock()
			before := len(x.waits)
			x.mu.Unlock()
			<-time.After(time.Minute)
			x.mu.Lock()
			defer x.mu.Unlock()
			if got := len(x.waits) - before; got > test.fetches {
				t.Errorf("wait %s, lag %s: %d fetches in a minute", test.setting, test.fetchLag, got)
			}
			if got := x.waits[len(x.waits)-1]; got != test.longest {
				t.Errorf("wait %s, lag %s: the last may wait for %d ms", test.setting, test.fetchLag, got)
			}
		})
	}
}
