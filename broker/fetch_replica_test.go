package broker

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta/conf"
	"github.com/varvelog/varve/replica"
	"github.com/varvelog/varve/replica/peer"
)

// asReplica makes q the fetch of a follower.
func asReplica(q *kmsg.FetchRequest, id int32) *kmsg.FetchRequest {
	q.ReplicaID = id
	q.ReplicaState.ID, q.ReplicaState.Epoch = id, 77
	return q
}

func (p *fakePartition) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

func (p *fakePartition) lastRead(t *testing.T) replica.ReadRequest {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.lastFetch) == 0 {
		t.Fatal("nothing was read")
	}
	return p.lastFetch[len(p.lastFetch)-1]
}

func TestFetchSaysWhichReplicaOfWhichStartReads(t *testing.T) {
	s := startServer(t, nil)
	id := s.parts.add("events", 1)
	p := s.parts.byName["events"][0]
	c := dial(t, s.addr)
	for version, want := range map[int16]replica.ReadRequest{
		14: {ReplicaID: 2, ReplicaEpoch: replica.NoBrokerEpoch},
		15: {ReplicaID: 2, ReplicaEpoch: 77},
		18: {ReplicaID: 2, ReplicaEpoch: 77},
	} {
		c.ask(asReplica(fetchRequest(version, "events", id, wanted{}), 2))
		if got := p.lastRead(t); got.ReplicaID != want.ReplicaID || got.ReplicaEpoch != want.ReplicaEpoch {
			t.Errorf("version %d: replica %d of epoch %d, want %d of %d", version, got.ReplicaID, got.ReplicaEpoch, want.ReplicaID, want.ReplicaEpoch)
		}
	}
	for version, any := range map[int16]bool{10: false, 11: true, 16: true} {
		c.ask(fetchRequest(version, "events", id, wanted{}))
		if got := p.lastRead(t); got.ReplicaID >= 0 || got.AnyReplica != any {
			t.Errorf("version %d: replica %d, any replica %v, want %v", version, got.ReplicaID, got.AnyReplica, any)
		}
	}
}

func TestFollowerIsToldTheOffsetsWithErrorsThatMoveIt(t *testing.T) {
	s := startServer(t, nil)
	id := s.parts.add("events", 1)
	p := s.parts.byName["events"][0]
	p.set(func() { p.logStart, p.localStart, p.end, p.remoteEnd = 10, 10, 20, 15 })
	c := dial(t, s.addr)
	got := c.ask(asReplica(fetchRequest(18, "", id, wanted{offset: 3}), 2)).(*kmsg.FetchResponse).Topics[0].Partitions[0]
	if got.ErrorCode != codeOffsetOutOfRange || got.LogStartOffset != 10 || got.HighWatermark != 20 {
		t.Errorf("follower: %+v", got)
	}
	if end, ok := peer.Int64(&got.UnknownTags, peer.TagRemoteEnd); !ok || end != 15 {
		t.Errorf("remote end %d, %v", end, ok)
	}
	got = c.ask(fetchRequest(18, "", id, wanted{offset: 3})).(*kmsg.FetchResponse).Topics[0].Partitions[0]
	if got.ErrorCode != codeOffsetOutOfRange || got.LogStartOffset != -1 || got.UnknownTags.Len() != 0 {
		t.Errorf("a client is told no offsets with an error: %+v", got)
	}
}

func TestFollowerLearnsTheRemoteEndWhenItMoves(t *testing.T) {
	s := startServer(t, nil)
	id := s.parts.add("events", 1)
	p := s.parts.byName["events"][0]
	p.set(func() { p.remoteEnd = replica.NoOffset })
	c := dial(t, s.addr)
	sid := openSession(t, c, asReplica(fetchRequest(18, "", id, wanted{}), 2))
	ask := func(epoch int32) *kmsg.FetchResponse {
		return c.ask(asReplica(incremental(18, sid, epoch, "", id), 2)).(*kmsg.FetchResponse)
	}
	if got := named(ask(1)); len(got) != 0 {
		t.Errorf("nothing is new, yet %v", got)
	}
	p.set(func() { p.remoteEnd = 5 })
	resp := ask(2)
	if len(resp.Topics) != 1 {
		t.Fatalf("a remote end is news: %+v", resp)
	}
	if end, ok := peer.Int64(&resp.Topics[0].Partitions[0].UnknownTags, peer.TagRemoteEnd); !ok || end != 5 {
		t.Errorf("remote end %d, %v", end, ok)
	}
	p.append(t, "a")
	resp = ask(3)
	if got := named(resp); len(got) != 1 || resp.Topics[0].Partitions[0].UnknownTags.Len() != 0 {
		t.Errorf("the end is told once: %+v", resp)
	}
}

func TestWhoLacksWhatIsMissingElsewhereSaysSo(t *testing.T) {
	s := startServer(t, nil)
	id := s.parts.add("events", 1)
	p := s.parts.byName["events"][0]
	p.set(func() { p.end, p.lacks = 20, 10 })
	c := dial(t, s.addr)
	ask := func(missing int64) (end int64, absent bool) {
		q := fetchRequest(17, "", id, wanted{offset: 5})
		if missing != 0 {
			peer.SetInt64(&q.Topics[0].Partitions[0].UnknownTags, peer.TagMissing, missing)
		}
		got := c.ask(q).(*kmsg.FetchResponse).Topics[0].Partitions[0]
		return peer.Int64(&got.UnknownTags, peer.TagAbsent)
	}
	for _, err := range []error{nil, replica.ErrNotLeader} { // who does not lead can say so, too
		p.set(func() { p.err = err })
		for missing, want := range map[int64]bool{0: false, 8: false, 12: true} {
			if end, absent := ask(missing); absent != want || absent && end != missing {
				t.Errorf("missing up to %d, error %v: absent %t, up to %d", missing, err, absent, end)
			}
		}
	}
}

func TestFollowersLogEndWakesItsFetch(t *testing.T) {
	s := startServer(t, nil)
	id := s.parts.add("events", 1)
	p := s.parts.byName["events"][0]
	p.set(func() { p.hwLag = 1 }) // committed later than appended
	c := dial(t, s.addr)
	q := asReplica(fetchRequest(18, "", id, wanted{}), 2)
	q.MaxWaitMillis = 60_000
	corr := c.send(q)
	eventually(t, "the fetch waits", func() bool { return p.watched() == 1 })
	if got := p.watchedAs(); got != isolationLogEnd {
		t.Errorf("a follower waits with isolation %d, want the log's end", got)
	}
	p.append(t, "a")
	c.response(q, corr)
}

func TestClientsNeverEvictFollowersSessions(t *testing.T) {
	cache := newSessions(2, 1000)
	add := func(broker int32, size int, now int64) *session {
		x := newSession(true)
		x.replica = broker
		if !cache.add(x, size, now) {
			return nil
		}
		return x
	}
	follower := add(2, 100_000, 0) // more than all clients may have
	if follower == nil || cache.get(follower.id) != follower {
		t.Fatal("a follower finds no room")
	}
	for i := range 5 {
		add(replica.NoReplica, 10, int64(i*10_000))
	}
	if cache.get(follower.id) != follower {
		t.Error("clients evicted a follower's session")
	}
	if n := cache.clientsLocked(); n != 2 {
		t.Errorf("%d sessions of clients beside it, want 2", n)
	}
	for range 3 * replicaSessionsMax {
		add(2, 1, 0)
	}
	if n := len(cache.replicas[2]); n != replicaSessionsMax {
		t.Errorf("one follower holds %d sessions", n)
	}
	cache.remove(cache.replicas[2][0].id)
	if len(cache.replicas[2]) != replicaSessionsMax-1 || cache.len() != replicaSessionsMax-1+2 {
		t.Error("a removed session is still on the books")
	}
}

func TestOnlyBrokersSessionsAreFollowers(t *testing.T) {
	s := startCluster(t, nil, func(c *Config) { c.FetchSessionSlots = 0 })
	c := dial(t, s.addr)
	id := c.create(newTopic("events", 1))
	open := func(broker int32) int32 {
		q := asReplica(fetchRequest(18, "", id, wanted{}), broker)
		q.SessionEpoch = epochInitial
		return c.ask(q).(*kmsg.FetchResponse).SessionID
	}
	if open(1) == 0 {
		t.Error("a broker's follower has no session although only clients' are bounded")
	}
	if open(99) != 0 {
		t.Error("somebody who is no broker got a follower's session")
	}
}

func TestConsumerIsSentToTheReplicaInItsRack(t *testing.T) {
	s := startCluster(t, map[string]string{"replica.selector.class": "rack-aware"}, nil)
	c := dial(t, s.addr)
	id := c.create(newTopic("events", 1))
	p := s.parts.byName["events"][0]
	p.append(t, "a")
	p.set(func() { p.preferred = map[string]int32{"b": 7} })
	ask := func(version int16, rack string, change func(*kmsg.FetchRequest)) kmsg.FetchResponseTopicPartition {
		q := fetchRequest(version, "events", id, wanted{})
		q.Rack, q.MaxWaitMillis = rack, 60_000
		change(q)
		return c.ask(q).(*kmsg.FetchResponse).Topics[0].Partitions[0]
	}
	none := func(*kmsg.FetchRequest) {}
	if got := ask(11, "b", none); got.PreferredReadReplica != 7 || len(got.RecordBatches) != 0 || got.HighWatermark != 1 {
		t.Errorf("a consumer in rack b: %+v", got)
	}
	if got := ask(11, "a", none); got.PreferredReadReplica != -1 || len(got.RecordBatches) == 0 {
		t.Errorf("a consumer in rack a: %+v", got)
	}
	if got := ask(16, "b", func(q *kmsg.FetchRequest) { asReplica(q, 3) }); got.PreferredReadReplica != -1 || len(got.RecordBatches) == 0 {
		t.Errorf("a follower: %+v", got)
	}
}

func TestWithoutSelectorConsumersStay(t *testing.T) {
	s := startCluster(t, nil, nil)
	c := dial(t, s.addr)
	id := c.create(newTopic("events", 1))
	p := s.parts.byName["events"][0]
	p.append(t, "a")
	p.set(func() { p.preferred = map[string]int32{"b": 7} })
	q := fetchRequest(11, "events", id, wanted{})
	q.Rack = "b"
	got := c.ask(q).(*kmsg.FetchResponse).Topics[0].Partitions[0]
	if got.PreferredReadReplica != -1 || len(got.RecordBatches) == 0 {
		t.Errorf("%+v", got)
	}
}

func TestThrottledFollowerIsHeldBack(t *testing.T) {
	s := startCluster(t, map[string]string{"leader.replication.throttled.rate": "1"}, nil)
	c := dial(t, s.addr)
	id := c.create(newTopic("events", 1, "leader.replication.throttled.replicas", "0:1"))
	p := s.parts.byName["events"][0]
	p.append(t, "a", "b", "c")
	read := func(broker int32) int {
		resp := c.ask(asReplica(fetchRequest(18, "", id, wanted{}), broker)).(*kmsg.FetchResponse)
		return len(resp.Topics[0].Partitions[0].RecordBatches)
	}
	if read(2) == 0 {
		t.Error("the first answer is held back")
	}
	if n := read(2); n != 0 {
		t.Errorf("%d bytes beyond the rate", n)
	}
	if n := read(3); n != 0 {
		t.Errorf("%d bytes beyond the rate, for another follower: the leader's replica is what is throttled", n)
	}
	if read(1) == 0 {
		t.Error("a replica that is in sync is held back")
	}
}

func TestCapsFollowTheDynamicSettings(t *testing.T) {
	s := startCluster(t, nil, nil)
	if got := s.now(); got.ConnectionsPerIPMax != 1<<31-1 || got.RemoteFetchWaitMax != 500*time.Millisecond {
		t.Fatalf("%+v", got)
	}
	c := dial(t, s.addr)
	q := kmsg.NewPtrIncrementalAlterConfigsRequest()
	q.SetVersion(1)
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeBroker, ""
	for name, value := range map[string]string{"max.connections.per.ip": "1", "remote.fetch.max.wait.ms": "900"} {
		e := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		e.Name, e.Value = name, kmsg.StringPtr(value)
		r.Configs = append(r.Configs, e)
	}
	q.Resources = append(q.Resources, r)
	if got := c.ask(q).(*kmsg.IncrementalAlterConfigsResponse).Resources[0]; got.ErrorCode != 0 {
		t.Fatalf("%+v", got)
	}
	if got := s.now(); got.ConnectionsPerIPMax != 1 || got.RemoteFetchWaitMax != 900*time.Millisecond || got.FetchBytesMax != s.cfg.FetchBytesMax {
		t.Errorf("%+v", got)
	}
	dial(t, s.addr).closed() // a second connection of this address
}

func TestSelectorsAreKnownByName(t *testing.T) {
	for given, want := range map[string]string{"rack-aware": conf.RackAwareSelector, conf.RackAwareSelector: conf.RackAwareSelector, conf.LeaderSelector: conf.LeaderSelector} {
		b, err := conf.ParseBroker(map[string]string{"replica.selector.class": given})
		if err != nil || b.ReplicaSelectorClass != want {
			t.Errorf("%s is %s, %v", given, b.ReplicaSelectorClass, err)
		}
	}
	if _, err := conf.ParseBroker(map[string]string{"replica.selector.class": "com.example.Mine"}); err == nil {
		t.Error("a class that nobody has is accepted")
	}
}
