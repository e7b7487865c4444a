package replica

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/conf"
	"github.com/varvelog/varve/meta/topic"
)

func TestThrottleGivesItsRate(t *testing.T) {
	var x Throttle
	now := time.Unix(1000, 0)
	if d := x.Wait(1000, now); d != 0 {
		t.Fatalf("a fresh throttle waits %v", d)
	}
	x.Take(3000) // one answer may overdraw it
	if d := x.Wait(1000, now); d < 2*time.Second || d > 2100*time.Millisecond {
		t.Errorf("2000 bytes over: %v", d)
	}
	if d := x.Wait(1000, now.Add(time.Second)); d < time.Second || d > 1100*time.Millisecond {
		t.Errorf("a second later: %v", d)
	}
	if d := x.Wait(1000, now.Add(3*time.Second)); d != 0 {
		t.Errorf("paid back: %v", d)
	}
	if d := x.Wait(0, now); d <= 0 {
		t.Errorf("a rate of nothing gives at once: %v", d)
	}
}

// spring is a leader of endless logs: each fetch brings a batch for every partition that has not got all of its records.
type spring struct {
	meta.Image
	batch batch.Batch

	mu   sync.Mutex
	ends map[int32]int64 // of the leader's logs, by partition
	got  map[int32]int64 // bytes sent
	no   map[int32]int   // how often a partition is still refused: its follower's registration is not known here
}

// springMeta is the metadata of a broker whose only leader is a spring.
type springMeta struct {
	fakeMeta
	img *meta.Image
}

func (x *springMeta) Image() *meta.Image { return x.img }

func (x *spring) Dial(context.Context, meta.Broker) (Peer, error) {
	return &springPeer{x, make(map[replicaKey]kmsg.FetchRequestTopicPartition)}, nil
}

func (x *spring) sent(partition int32) int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.got[partition]
}

type springPeer struct {
	*spring
	asked map[replicaKey]kmsg.FetchRequestTopicPartition
}

func (x *springPeer) Close() error { return nil }

func (x *springPeer) Fetch(ctx context.Context, r *kmsg.FetchRequest) (*kmsg.FetchResponse, error) {
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			x.asked[replicaKey{t.TopicID, p.Partition}] = p
		}
	}
	for _, t := range r.ForgottenTopics {
		for _, i := range t.Partitions {
			delete(x.asked, replicaKey{t.TopicID, i})
		}
	}
	resp := &kmsg.FetchResponse{SessionID: 7}
	x.mu.Lock()
	for key, a := range x.asked {
		if a.FetchOffset >= x.ends[key.index] {
			continue
		}
		out := kmsg.NewFetchResponseTopicPartition()
		if x.no[key.index] > 0 {
			x.no[key.index]--
			out.Partition, out.ErrorCode = key.index, 6
			resp.Topics = append(resp.Topics, kmsg.FetchResponseTopic{TopicID: key.id, Partitions: []kmsg.FetchResponseTopicPartition{out}})
			continue
		}
		b := append(batch.Batch(nil), x.batch...)
		b.SetBaseOffset(a.FetchOffset)
		b.SetLeaderEpoch(a.CurrentLeaderEpoch)
		out.Partition, out.RecordBatches = key.index, b
		x.got[key.index] += int64(len(b))
		resp.Topics = append(resp.Topics, kmsg.FetchResponseTopic{TopicID: key.id, Partitions: []kmsg.FetchResponseTopicPartition{out}})
	}
	x.mu.Unlock()
	wait := time.Millisecond // what an answer takes
	if len(resp.Topics) == 0 {
		wait = time.Duration(r.MaxWaitMillis) * time.Millisecond
	}
	select {
	case <-time.After(wait):
		return resp, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestThrottledFollowerCopiesAtTheRate has three partitions of a reassignment, and one that is in sync, on one connection.
func TestThrottledFollowerCopiesAtTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate, inSync, batches = 100_000, 3, 400
		record := record{ts: 1, value: string(make([]byte, 9_000))}
		x := &spring{batch: build(t, batch.None, record), ends: map[int32]int64{inSync: batches}, got: make(map[int32]int64)}
		size := int64(len(x.batch))
		n := newNode(t)
		n.bucket, n.peers = nil, x
		n.broker = map[string]string{"follower.replication.throttled.rate": "100000", "replica.fetch.wait.max.ms": "500"}
		n.deaf = &springMeta{img: &meta.Image{Brokers: map[int32]meta.Broker{2: {ID: 2}}}}
		n.start()
		defer n.stop()
		b, err := conf.ParseBroker(n.broker)
		n.must(err)
		n.m.mu.Lock()
		n.m.follow.broker = &b
		moved := meta.Topic{Name: "moved", ID: topic.NewID(), Configs: map[string]string{"follower.replication.throttled.replicas": "0:1,1:1,2:1,3:1"}}
		for i := range int32(4) {
			p := meta.Partition{Leader: 2, LeaderEpoch: 1, PartitionEpoch: 1, Replicas: []int32{1, 2}, ISR: []int32{2}}
			if i == inSync {
				p.ISR = []int32{1, 2}
			} else {
				x.ends[i] = 1 << 40
			}
			moved.Partitions = append(moved.Partitions, p)
		}
		n.m.topicLocked(&moved)
		n.m.mu.Unlock()
		throttled := func() (bytes int64) { return x.sent(0) + x.sent(1) + x.sent(2) }
		<-time.After(2 * time.Second)
		if got := x.sent(inSync); got != batches*size {
			t.Errorf("the replica that is in sync has got %d bytes of %d", got, batches*size)
		}
		before := throttled()
		<-time.After(60 * time.Second)
		if got, slack := throttled()-before, int64(rate+4*size); got < 60*rate-slack || got > 60*rate+slack {
			t.Errorf("%d bytes within a minute, and the rate is %d a second", got, rate)
		}
		// In sync it is held back no more.
		before, other := x.sent(0), x.sent(1)
		n.m.mu.Lock()
		moved.Partitions[0].ISR, moved.Partitions[0].PartitionEpoch = []int32{1, 2}, 2
		n.m.topicLocked(&moved)
		n.m.mu.Unlock()
		<-time.After(100 * time.Millisecond)
		if got := x.sent(0) - before; got < 2*rate {
			t.Errorf("%d bytes within 100 ms of having come in sync", got)
		}
		if got := x.sent(1) - other; got > rate {
			t.Errorf("%d bytes within 100 ms of one that is not in sync", got)
		}
		// Without the throttle everybody goes on at once.
		before = x.sent(2)
		n.m.mu.Lock()
		free := b
		free.FollowerReplicationThrottledRate = conf.Unlimited
		n.m.broker.Store(&free)
		n.m.throttleChangedLocked()
		n.m.mu.Unlock()
		<-time.After(100 * time.Millisecond)
		if got := x.sent(2) - before; got < 2*rate {
			t.Errorf("%d bytes within 100 ms of the throttle's end", got)
		}
	})
}

// closing is a spring that counts the connections that were closed.
type closing struct {
	*spring
	closed atomic.Int64
}

type closingPeer struct {
	*springPeer
	closed *atomic.Int64
}

func (x *closing) Dial(context.Context, meta.Broker) (Peer, error) {
	return &closingPeer{&springPeer{x.spring, make(map[replicaKey]kmsg.FetchRequestTopicPartition)}, &x.closed}, nil
}

func (x *closingPeer) Close() error {
	x.closed.Add(1)
	return nil
}

// followClosing starts a node that follows a topic of so many partitions on a leader that counts connections. The caller stops it.
func followClosing(t *testing.T, partitions int) (*closing, *node, *meta.Topic) {
	x := &closing{spring: &spring{batch: build(t, batch.None, record{ts: 1, value: "value"}), ends: make(map[int32]int64), got: make(map[int32]int64), no: make(map[int32]int)}}
	n := newNode(t)
	n.bucket, n.peers = nil, x
	n.deaf = &springMeta{img: &meta.Image{Brokers: map[int32]meta.Broker{2: {ID: 2}}}}
	n.start()
	b, err := conf.ParseBroker(n.broker)
	n.must(err)
	events := &meta.Topic{Name: "events", ID: topic.NewID()}
	for i := range partitions {
		x.ends[int32(i)] = 10
		events.Partitions = append(events.Partitions, meta.Partition{Leader: 2, LeaderEpoch: 1, PartitionEpoch: 1, Replicas: []int32{1, 2}, ISR: []int32{1, 2}})
	}
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	n.m.follow.broker = &b
	n.m.topicLocked(events)
	return x, n, events
}

// A leader that has yet to hear of a follower's registration refuses its fetches, some partitions or all. The connection stays, and with
// it the fetches of the others; once the leader knows, nothing is missing.
func TestAnUnknownRegistrationBreaksNoConnection(t *testing.T) {
	for _, refused := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			x, n, _ := followClosing(t, 2)
			defer n.stop()
			<-time.After(2 * time.Second)
			want := x.sent(0)
			if want == 0 || x.sent(1) != want {
				t.Fatalf("fetched %d and %d bytes", want, x.sent(1))
			}
			before := x.closed.Load()
			x.mu.Lock()
			for i := range int32(refused) {
				x.no[i] = 7
			}
			for i := range int32(2) {
				x.ends[i] = 20
			}
			x.mu.Unlock()
			<-time.After(20 * time.Second)
			for i := range int32(2) {
				if got := x.sent(i); got != 2*want {
					t.Errorf("%d refused: partition %d has got %d bytes, want %d", refused, i, got, 2*want)
				}
			}
			if got := x.closed.Load() - before; got != 0 {
				t.Errorf("%d refused: %d connections were broken", refused, got)
			}
		})
	}
}

// TestInSyncSetBreaksNoConnection has a replica leave the in-sync set and come back, while nobody is throttled.
func TestInSyncSetBreaksNoConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, n, events := followClosing(t, 1)
		defer n.stop()
		<-time.After(2 * time.Second)
		if x.sent(0) == 0 {
			t.Fatal("nothing was fetched")
		}
		before := x.closed.Load()
		for i, isr := range [][]int32{{2}, {1, 2}, {2}, {1, 2}} {
			n.m.mu.Lock()
			p := &events.Partitions[0]
			p.ISR, p.PartitionEpoch = isr, int32(2+i)
			n.m.topicLocked(events)
			n.m.mu.Unlock()
			<-time.After(time.Second)
		}
		if got := x.closed.Load() - before; got != 0 {
			t.Errorf("%d connections were broken", got)
		}
	})
}
