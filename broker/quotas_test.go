package broker

import (
	"context"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/broker/secure"
	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/replica/peer"
)

func quotaOf(user, client string, key string, value float64) meta.Quota {
	name := func(text string) meta.QuotaName {
		switch text {
		case "":
			return meta.QuotaName{}
		case "-":
			return meta.QuotaName{Kind: meta.DefaultQuota}
		}
		return meta.QuotaName{Kind: meta.NamedQuota, Name: text}
	}
	return meta.Quota{Entity: meta.QuotaEntity{User: name(user), ClientID: name(client)}, Values: []meta.QuotaValue{{Key: key, Value: value}}}
}

func addressQuota(ip string, value float64) meta.Quota {
	q := meta.Quota{Entity: meta.QuotaEntity{IP: meta.QuotaName{Kind: meta.DefaultQuota}}, Values: []meta.QuotaValue{{Key: meta.ConnectionCreationRate, Value: value}}}
	if ip != "" {
		q.Entity.IP = meta.QuotaName{Kind: meta.NamedQuota, Name: ip}
	}
	return q
}

// TestMostSpecificQuotaCounts goes through Kafka's order of precedence, from the least on.
func TestMostSpecificQuotaCounts(t *testing.T) {
	var list []meta.Quota
	for i, level := range []struct {
		user, client, byUser, byClient string
	}{
		{"", "-", "", "app"}, {"", "app", "", "app"}, {"-", "", "alice", ""}, {"-", "-", "alice", "app"}, {"-", "app", "alice", "app"},
		{"alice", "", "alice", ""}, {"alice", "-", "alice", "app"}, {"alice", "app", "alice", "app"},
	} {
		list = append(list, quotaOf(level.user, level.client, meta.ProducerByteRate, float64(i+1)), quotaOf("bob", "other", meta.ProducerByteRate, 99))
		bound, key, ok := newQuotaTable(list).find(quotaProduce, "alice", "app")
		if want := (quotaKey{kind: quotaProduce, user: level.byUser, client: level.byClient}); !ok || bound != float64(i+1) || key != want {
			t.Errorf("%s/%s: %v of %+v, want %d of %+v", level.user, level.client, bound, key, i+1, want)
		}
	}
	// Each kind for itself: what says nothing of a kind decides nothing of it.
	list = append(list, quotaOf("alice", "app", meta.ConsumerByteRate, 5))
	if _, _, ok := newQuotaTable(list).find(quotaRequest, "alice", "app"); ok {
		t.Error("a quota where there is none")
	}
	addresses := newQuotaTable([]meta.Quota{addressQuota("::ffff:10.0.0.1", 3), addressQuota("", 7)})
	for ip, want := range map[string]float64{"10.0.0.1": 3, "10.0.0.2": 7} {
		if bound, _, ok := addresses.findAddress(ip); !ok || bound != want {
			t.Errorf("%s: %v", ip, bound)
		}
	}
	if newQuotaTable(nil) != nil {
		t.Error("no quotas are a table")
	}
}

// pipe is a client of a server without a network, for bubbles of fake time.
func pipe(t *testing.T, s *Server) *client {
	here, there := net.Pipe()
	t.Cleanup(func() { here.Close() })
	s.admit(there, &Door{})
	return &client{t: t, nc: here}
}

// inBubble runs fn on a server over fake partitions in fake time.
func inBubble(t *testing.T, list []meta.Quota, fn func(t *testing.T, s *Server, parts *fakePartitions)) {
	synctest.Test(t, func(t *testing.T) {
		parts := newFakePartitions()
		s := New(DefaultConfig(), Deps{Partitions: parts})
		s.quotas.table.Store(newQuotaTable(list))
		fn(t, s, parts)
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// within says that a rate is the quota's, when what an idle client may have at once is left out.
func within(t *testing.T, what string, bytes, free, bound float64, took time.Duration) {
	t.Helper()
	if r := (bytes - free) / took.Seconds(); r < 0.8*bound || r > 1.2*bound {
		t.Errorf("%s: %.0f bytes a second, the quota is %.0f", what, r, bound)
	}
}

func TestProducersStayWithinTheirQuota(t *testing.T) {
	const bound = 10_000
	inBubble(t, []meta.Quota{quotaOf("", "test", meta.ProducerByteRate, bound)}, func(t *testing.T, s *Server, parts *fakePartitions) {
		id := parts.add("events", 1)
		c := pipe(t, s)
		q := produceRequest(13, -1, "", id, map[int32][]byte{0: oneBatch(t, string(make([]byte, 2000)))})
		size := len(formatter.AppendRequest(nil, q, 1)) - 4
		began, sent, throttled := time.Now(), 0, 0
		var told time.Duration
		for time.Since(began) < 5*time.Minute {
			asked := time.Now()
			resp := c.ask(q).(*kmsg.ProduceResponse)
			if at := time.Since(asked); at < told-time.Second { // the mute before this answer
				t.Fatalf("told to wait for %v, answered after %v", told, at)
			}
			told = time.Duration(resp.ThrottleMillis) * time.Millisecond
			if sent += size; told > 0 {
				throttled++
			}
		}
		within(t, "produced", float64(sent), 10*bound, bound, time.Since(began))
		if x := s.Stats().Throttled["produce"]; x.Requests != int64(throttled) || throttled == 0 || x.Waits < time.Minute {
			t.Errorf("%d answers told to wait, the statistics are %+v", throttled, x)
		}
	})
}

func TestConsumersStayWithinTheirQuotaAndGetEveryRecordOnce(t *testing.T) {
	const bound = 10_000
	for _, sessions := range []bool{false, true} {
		inBubble(t, []meta.Quota{quotaOf(secure.Anonymous, "", meta.ConsumerByteRate, bound)}, func(t *testing.T, s *Server, parts *fakePartitions) {
			id := parts.add("events", 1)
			p := parts.byID[id][0]
			for range 2000 {
				b := batch.Batch(oneBatch(t, string(make([]byte, 2000))))
				b.SetBaseOffset(p.end)
				p.batches, p.end = append(p.batches, b), p.end+1
			}
			c := pipe(t, s)
			began, got, empty, offset := time.Now(), 0, 0, int64(0)
			session, epoch := int32(0), int32(0)
			for time.Since(began) < 5*time.Minute && offset < 2000 {
				q := fetchRequest(13, "", id, wanted{offset: offset, maxBytes: 20_000})
				q.SessionEpoch = -1
				if sessions {
					q.SessionID, q.SessionEpoch = session, epoch
				}
				resp := c.ask(q).(*kmsg.FetchResponse)
				if resp.ErrorCode != 0 {
					t.Fatalf("error %d", resp.ErrorCode)
				}
				if session, epoch = resp.SessionID, epoch+1; session == 0 {
					epoch = 0
				}
				if resp.ThrottleMillis > 0 {
					if len(resp.Topics) != 0 {
						t.Fatal("a throttled answer has records")
					}
					empty++
					continue
				}
				for _, b := range resp.Topics {
					got += len(b.Partitions[0].RecordBatches)
					offset += int64(len(b.Partitions[0].RecordBatches) / len(p.batches[0]))
				}
			}
			within(t, fmt.Sprint("fetched, sessions=", sessions), float64(got), 10*bound, bound, time.Since(began))
			if empty == 0 || offset == 0 || p.handed == 0 || p.released != p.handed {
				t.Errorf("%d empty answers, offset %d; %d of %d runs of records were given back", empty, offset, p.released, p.handed)
			}
		})
	}
}

// TestFollowersAndDialsAreNotThrottled: what brokers ask is exempt, and so is what begins a connection.
func TestFollowersAndDialsAreNotThrottled(t *testing.T) {
	list := []meta.Quota{quotaOf("-", "", meta.ConsumerByteRate, 1), quotaOf("-", "-", meta.RequestPercentage, 1e-9)}
	inBubble(t, list, func(t *testing.T, s *Server, parts *fakePartitions) {
		id := parts.add("events", 1)
		p := parts.byID[id][0]
		for range 3 {
			b := batch.Batch(oneBatch(t, string(make([]byte, 2000))))
			b.SetBaseOffset(p.end)
			p.batches, p.end = append(p.batches, b), p.end+1
		}
		c := pipe(t, s)
		began := time.Now()
		for range 3 {
			c.ask(kmsg.NewPtrApiVersionsRequest())
			q := fetchRequest(17, "", id, wanted{})
			q.ReplicaState.ID, q.SessionEpoch = 2, -1
			if resp := c.ask(q).(*kmsg.FetchResponse); resp.ThrottleMillis != 0 || len(resp.Topics) != 1 {
				t.Errorf("a follower's fetch: %+v", resp)
			}
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("it took %v", d)
		}
	})
}

// TestWorkCountsAndWaitingDoesNot is request_percentage: of one thread's time, without what was waited for.
func TestWorkCountsAndWaitingDoesNot(t *testing.T) {
	s := New(DefaultConfig(), Deps{Partitions: newFakePartitions()})
	defer s.Close(context.Background())
	table := newQuotaTable([]meta.Quota{quotaOf("", "-", meta.RequestPercentage, 50)})
	ask := func(client string, took, parked time.Duration) time.Duration {
		c := newConn(s, nullConn{}, "127.0.0.1", &Door{})
		r := &request{c: c, client: client, since: time.Now().Add(-took), parked: parked}
		return s.requestTime(r, table, time.Hour)
	}
	if d := ask("waits", time.Hour, time.Hour-time.Millisecond); d != 0 {
		t.Errorf("who has waited waits for %v", d)
	}
	if d := ask("works", 4*time.Second, 0); d != 0 {
		t.Errorf("four seconds in ten are no half of them: %v", d)
	}
	if d := ask("works", 4*time.Second, 0); d != s.quotas.size {
		t.Errorf("eight are, and the wait is %v", d)
	}
	if d := ask("another", time.Second, 0); d != 0 {
		t.Errorf("the default is each client's own: %v", d)
	}
}

// alterQuota sets a quota of the user of every client here, or removes it with 0.
func (c *client) alterQuota(key string, value float64) {
	c.t.Helper()
	q := kmsg.NewPtrAlterClientQuotasRequest()
	q.SetVersion(1)
	e := kmsg.NewAlterClientQuotasRequestEntry()
	e.Entity = []kmsg.AlterClientQuotasRequestEntryEntity{{Type: "user", Name: kmsg.StringPtr(secure.Anonymous)}}
	e.Ops = []kmsg.AlterClientQuotasRequestEntryOp{{Key: key, Value: value, Remove: value == 0}}
	q.Entries = append(q.Entries, e)
	if resp := c.ask(q).(*kmsg.AlterClientQuotasResponse); resp.Entries[0].ErrorCode != 0 {
		c.t.Fatalf("%s=%v: %+v", key, value, resp.Entries[0])
	}
}

// TestLiftedQuotaEndsTheWait also shows that quotas are taken from the metadata and that an acknowledgement does not wait.
func TestLiftedQuotaEndsTheWait(t *testing.T) {
	s := startCluster(t, nil, nil)
	admin := dial(t, s.addr)
	id := admin.create(newTopic("events", 1))
	eventually(t, "the partition is there", func() bool { return s.parts.following(id) })
	admin.alterQuota(meta.ProducerByteRate, 1)
	eventually(t, "the quota is known", func() bool { return s.quotas.table.Load() != nil })
	c := dial(t, s.addr)
	q := produceRequest(13, -1, "", id, map[int32][]byte{0: oneBatch(t, string(make([]byte, 5000)))})
	if resp := c.ask(q).(*kmsg.ProduceResponse); resp.ThrottleMillis < 60_000 || resp.Topics[0].Partitions[0].ErrorCode != 0 {
		t.Fatalf("%+v", resp)
	}
	corr := c.send(q)
	c.nc.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, _ := c.nc.Read(make([]byte, 1)); n != 0 {
		t.Fatal("a client that is to wait is answered")
	}
	admin.alterQuota(meta.ProducerByteRate, 0)
	if resp := c.response(q, corr).(*kmsg.ProduceResponse); resp.ThrottleMillis != 0 {
		t.Errorf("without a quota a client is told to wait for %d ms", resp.ThrottleMillis)
	}
}

func (f *fakePartitions) following(id topic.ID) bool {
	_, err := f.PartitionByID(id, 0)
	return err == nil
}

// TestPartitionsAreCreatedAndDeletedAtARate is KIP-599, by the version of the request.
func TestPartitionsAreCreatedAndDeletedAtARate(t *testing.T) {
	s := startCluster(t, nil, nil)
	dial(t, s.addr).alterQuota(meta.ControllerMutationRate, 0.01) // a burst of 0.11
	eventually(t, "the quota is known", func() bool { return s.quotas.table.Load() != nil })
	create := func(version int16, validateOnly bool, topics ...kmsg.CreateTopicsRequestTopic) *kmsg.CreateTopicsResponse {
		q := createRequest(version, topics...)
		q.ValidateOnly = validateOnly
		return dial(t, s.addr).ask(q).(*kmsg.CreateTopicsResponse) // each on its own connection: the others are muted
	}
	first := create(7, false, newTopic("bad name", 1), newTopic("a", 3), newTopic("b", 1))
	codes := map[string]int16{}
	for _, x := range first.Topics {
		codes[x.Topic] = x.ErrorCode
	}
	// What is refused for itself costs nothing; the first may be more than there is, and the next waits.
	if codes["bad name"] != codeInvalidTopic || codes["a"] != 0 || codes["b"] != codeThrottlingQuotaExceeded || first.ThrottleMillis < 200_000 {
		t.Errorf("%v, %d ms", codes, first.ThrottleMillis)
	}
	if img := s.deps.Metadata.Image(); img.Topic("a") == nil || img.Topic("b") != nil {
		t.Error("not what was answered")
	}
	if x := create(7, true, newTopic("c", 1)); x.Topics[0].ErrorCode != codeThrottlingQuotaExceeded {
		t.Errorf("a dry run: %+v", x.Topics[0])
	}
	if x := create(5, false, newTopic("old", 1)); x.Topics[0].ErrorCode != 0 || x.ThrottleMillis < 300_000 {
		t.Errorf("before version 6: %+v, %d ms", x.Topics[0], x.ThrottleMillis)
	}
	grow := kmsg.NewPtrCreatePartitionsRequest()
	grow.SetVersion(3)
	grow.TimeoutMillis = 5000
	more := kmsg.NewCreatePartitionsRequestTopic()
	more.Topic, more.Count = "a", 4
	grow.Topics = append(grow.Topics, more)
	if x := dial(t, s.addr).ask(grow).(*kmsg.CreatePartitionsResponse); x.Topics[0].ErrorCode != codeThrottlingQuotaExceeded || x.ThrottleMillis == 0 {
		t.Errorf("partitions: %+v", x)
	}
	remove := kmsg.NewPtrDeleteTopicsRequest()
	remove.SetVersion(5)
	remove.TimeoutMillis, remove.TopicNames = 5000, []string{"a", "none"}
	x := dial(t, s.addr).ask(remove).(*kmsg.DeleteTopicsResponse)
	for _, d := range x.Topics {
		want := codeThrottlingQuotaExceeded
		if *d.Topic == "none" {
			want = codeUnknownTopicOrPartition
		}
		if d.ErrorCode != want || x.ThrottleMillis == 0 {
			t.Errorf("delete %s: %d", *d.Topic, d.ErrorCode)
		}
	}
	if s.Stats().Throttled["controller_mutation"].Requests < 5 {
		t.Errorf("%+v", s.Stats().Throttled)
	}
}

// limitedMember starts two brokers under a quota of partitions that is used up by the first, and gives the one that is not the
// controller.
func limitedMember(t *testing.T) (other *clusterNode) {
	t.Helper()
	all := startMembers(t, 2, nil)
	for _, m := range all {
		if m.node.NodeID() != m.node.Image().ControllerID {
			other = m
		}
	}
	if other == nil {
		t.Fatal("every node is the controller")
	}
	dial(t, other.addr).alterQuota(meta.ControllerMutationRate, 0.01)
	eventually(t, "the quota is known", func() bool {
		return all[0].quotas.table.Load() != nil && all[1].quotas.table.Load() != nil
	})
	return other
}

// TestControllersQuotaIsTheClientsWhoseBrokerForwards: the controller counts for whoever asked, and the broker that was asked
// has its client wait.
func TestControllersQuotaIsTheClientsWhoseBrokerForwards(t *testing.T) {
	other := limitedMember(t)
	c := dial(t, other.addr)
	resp := c.ask(createRequest(7, newTopic("a", 1), newTopic("b", 1))).(*kmsg.CreateTopicsResponse)
	if resp.ThrottleMillis < 50_000 {
		t.Errorf("%+v", resp)
	}
	c.send(kmsg.NewPtrApiVersionsRequest())
	c.nc.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, _ := c.nc.Read(make([]byte, 1)); n != 0 {
		t.Error("a client that is to wait is answered")
	}
	if x := other.Stats().Throttled["controller_mutation"]; x.Requests != 1 {
		t.Errorf("%+v", x)
	}
}

// TestBrokersOwnTopicsAreNotHeldBack: __consumer_offsets and the like, and topics that Metadata creates, are no client's. What the
// users have used up of their quotas does not keep a broker from them.
func TestBrokersOwnTopicsAreNotHeldBack(t *testing.T) {
	other := limitedMember(t)
	if x := dial(t, other.addr).ask(createRequest(7, newTopic("a", 3))).(*kmsg.CreateTopicsResponse); x.Topics[0].ErrorCode != 0 {
		t.Fatalf("error %d", x.Topics[0].ErrorCode)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	made, err := createTopicsAnywhere(ctx, other.deps.Metadata, other.deps.Controller, []meta.NewTopic{{Name: "__own", Partitions: 3, ReplicationFactor: 1}}, false)
	if err != nil || len(made) != 1 || made[0].Err != nil {
		t.Errorf("a broker's own topic: %+v, %v", made, err)
	}
	if x := dial(t, other.addr).ask(createRequest(7, newTopic("b", 1))).(*kmsg.CreateTopicsResponse); x.Topics[0].ErrorCode != codeThrottlingQuotaExceeded {
		t.Errorf("a client's topic: error %d", x.Topics[0].ErrorCode)
	}
}

// TestMetadataNamesNoQuota: clients would take that for final.
func TestMetadataNamesNoQuota(t *testing.T) {
	resp := kmsg.NewPtrCreateTopicsResponse()
	topic := kmsg.NewCreateTopicsResponseTopic()
	topic.Topic, topic.ErrorCode, topic.ErrorMessage = "a", codeThrottlingQuotaExceeded, kmsg.StringPtr("too much")
	resp.Topics = append(resp.Topics, topic)
	s := startServer(t, nil)
	if c := s.autoCreateCode(&request{api: &apiMetadata}, createdTopics(resp)[0].Err); c != codeUnknownTopicOrPartition {
		t.Errorf("error %d", c)
	}
}

// TestBrokersAreNotThrottledAtTheListenerOfAll: what brokers produce and fetch as clients do is exempt, where brokers come in.
func TestBrokersAreNotThrottledAtTheListenerOfAll(t *testing.T) {
	s := startServer(t, nil)
	public := s.openDoor(t, Door{Name: "PUBLIC", ClientsOnly: true})
	id := s.parts.add("events", 1)
	s.quotas.table.Store(newQuotaTable([]meta.Quota{quotaOf("-", "", meta.ProducerByteRate, 1)}))
	q := produceRequest(9, -1, "events", id, map[int32][]byte{0: oneBatch(t, string(make([]byte, 1000)))})
	for _, x := range []struct {
		address, software string
		throttled         bool
	}{{s.addr, peer.SoftwareName, false}, {s.addr, "kgo", true}, {public, peer.SoftwareName, true}} {
		c := dial(t, x.address)
		greet := kmsg.NewPtrApiVersionsRequest()
		greet.SetVersion(3)
		greet.ClientSoftwareName, greet.ClientSoftwareVersion = x.software, "1"
		c.ask(greet)
		if resp := c.ask(q).(*kmsg.ProduceResponse); (resp.ThrottleMillis > 0) != x.throttled {
			t.Errorf("%s: told to wait for %d ms", x.software, resp.ThrottleMillis)
		}
	}
}

// TestMutedConnectionsEndWithTheirClients: a wait may be weeks long. What the client sent before it left is not handled then.
func TestMutedConnectionsEndWithTheirClients(t *testing.T) {
	s := startServer(t, nil)
	id := s.parts.add("events", 1)
	s.quotas.table.Store(newQuotaTable([]meta.Quota{quotaOf("-", "", meta.ProducerByteRate, 0.001)}))
	q := produceRequest(9, -1, "events", id, map[int32][]byte{0: oneBatch(t, string(make([]byte, 1000)))})
	gone, stays := dial(t, s.addr), dial(t, s.addr)
	for _, c := range []*client{gone, stays} {
		if resp := c.ask(q).(*kmsg.ProduceResponse); resp.ThrottleMillis < 100_000 {
			t.Fatalf("told to wait for %d ms", resp.ThrottleMillis)
		}
		c.send(q) // nobody reads it
	}
	gone.nc.Close()
	eventually(t, "the client is missed", func() bool {
		s.mu.Lock()
		for c := range s.conns {
			if c.handleMillis.Load() != 0 {
				c.handleMillis.Store(1) // as if they had waited for long
			}
		}
		s.mu.Unlock()
		return s.Stats().Connections == 1
	})
	if _, err := stays.nc.Write([]byte{0}); err != nil {
		t.Errorf("who is there still: %v", err)
	}
	if end := s.parts.byName["events"][0].end; end != 2 {
		t.Errorf("%d records", end)
	}
}

func TestConnectionsBeyondTheirAddressesRateEnd(t *testing.T) {
	s := startServer(t, nil)
	s.quotas.table.Store(newQuotaTable([]meta.Quota{addressQuota("127.0.0.1", 0.05)}))
	first := dial(t, s.addr)
	first.ask(kmsg.NewPtrApiVersionsRequest())
	dial(t, s.addr).closed() // the next is due in twenty seconds
	first.ask(kmsg.NewPtrApiVersionsRequest())
	if st := s.Stats(); st.Throttled["connection"].Requests != 1 || st.Accepted != 1 {
		t.Errorf("%+v", st)
	}
	s.quotas.table.Store(newQuotaTable([]meta.Quota{addressQuota("127.0.0.2", 0.05)}))
	dial(t, s.addr).ask(kmsg.NewPtrApiVersionsRequest())
}

// TestAccountsAreBoundedAndIdleOnesForgotten: clients choose their client ids.
func TestAccountsAreBoundedAndIdleOnesForgotten(t *testing.T) {
	cfg := DefaultConfig()
	q := newQuotas(&cfg)
	spend := func(client string, now time.Duration) *grant {
		key := quotaKey{kind: quotaProduce, client: client}
		g := &grant{bound: 1, key: key, acct: q.account(key, now)}
		q.spend(g, now, 100, false)
		return g
	}
	for i := range accountsMax + 10 {
		spend(fmt.Sprint(i), time.Second)
	}
	if n := len(q.accounts); n > accountsMax+1 {
		t.Errorf("%d accounts", n)
	}
	held := spend("0", time.Second)
	spend("another", time.Minute)
	if n := len(q.accounts); n > 3 {
		t.Errorf("%d accounts after all were idle", n)
	}
	// Who holds one that was forgotten does not go on with it.
	q.spend(held, time.Minute, 100, false)
	if d := q.spend(spend("0", time.Minute), time.Minute, 0, false); d < 100*time.Second {
		t.Errorf("two accounts of one client: a wait of %v", d)
	}
}

func TestUsersTravelInEnvelopes(t *testing.T) {
	for _, user := range []string{"CN=a,O=b", secure.Anonymous} {
		if got := principalOf(principalData(user)); got != user {
			t.Errorf("%q becomes %q", user, got)
		}
	}
	for _, b := range [][]byte{nil, {}, {0, 0, 1}, {9, 9, 9, 9}} {
		if got := principalOf(b); got != secure.Anonymous {
			t.Errorf("%x is %q", b, got)
		}
	}
}
