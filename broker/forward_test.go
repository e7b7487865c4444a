package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/conf"
	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/replica/peer"
)

// clusterNode is one broker of a cluster: a real metadata node, and a server over fake partitions.
type clusterNode struct {
	*testServer
	node    *meta.Node
	control *Controller
	member  *meta.Member
	once    sync.Once
}

// startMembers starts n brokers whose quorum talks in memory and whose brokers talk over loopback.
func startMembers(t *testing.T, n int, change func(*Config)) []*clusterNode {
	t.Helper()
	var transports []*raft.InmemTransport
	var voters []meta.Voter
	for i := range n {
		_, x := raft.NewInmemTransport(raft.ServerAddress("node-" + strconv.Itoa(i+1)))
		transports = append(transports, x)
		voters = append(voters, meta.Voter{NodeID: int32(i + 1), Address: string(x.LocalAddr())})
	}
	for i := range transports {
		for j := range transports {
			if i != j {
				transports[i].Connect(transports[j].LocalAddr(), transports[j])
			}
		}
	}
	var all []*clusterNode
	for i := range n {
		all = append(all, startMember(t, int32(i+1), transports[i], voters, change))
	}
	var joins sync.WaitGroup
	for _, m := range all { // the controller's own broker first, whichever it is: the others find it by its registration
		joins.Go(func() { m.join(t) })
	}
	joins.Wait()
	if t.Failed() {
		t.FailNow()
	}
	eventually(t, "every broker is unfenced everywhere", func() bool {
		for _, m := range all {
			img := m.node.Image()
			for id := range int32(n) {
				if b, ok := img.Brokers[id+1]; !ok || b.Fenced {
					return false
				}
			}
		}
		return true
	})
	return all
}

func startMember(t *testing.T, id int32, transport raft.Transport, voters []meta.Voter, change func(*Config)) *clusterNode {
	t.Helper()
	b, err := conf.ParseBroker(map[string]string{"node.id": strconv.Itoa(int(id)), "auto.create.topics.enable": "true"})
	if err != nil {
		t.Fatal(err)
	}
	pool := peer.NewPool(peer.Config{ClientID: "broker-" + strconv.Itoa(int(id))})
	t.Cleanup(func() { pool.Close() })
	m := &clusterNode{control: NewController(pool, nil)}
	m.node, err = meta.Open(meta.Config{Dir: t.TempDir(), NodeID: id, Broker: b, Voters: voters}, meta.Deps{Transport: transport, Controller: m.control})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.stop(t) })
	m.control.Watch(m.node.Image)
	m.testServer = startServerWith(t, func(c *Config) {
		*c = ConfigFrom(&b)
		if change != nil {
			change(c)
		}
	}, Deps{Metadata: m.node, Settings: &b, Controlled: ControllerOf(m.node), Controller: m.control})
	m.node.Subscribe(func(_, next *meta.Image) {
		for _, tp := range next.Topics() {
			m.parts.follow(tp)
		}
	})
	return m
}

func (m *clusterNode) join(t *testing.T) {
	t.Helper()
	host, port, _ := net.SplitHostPort(m.addr)
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Error(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	m.member, err = meta.Join(ctx, meta.MemberConfig{
		Registration: meta.Registration{ID: m.cfg.NodeID, Host: host, Port: int32(n), Incarnation: topic.NewID()},
		Interval:     200 * time.Millisecond, Timeout: 10 * time.Second, Patience: 30 * time.Second,
	}, meta.MemberDeps{Quorum: m.node})
	if err != nil {
		t.Error(err)
	}
}

// stop ends the metadata node and the membership; the server goes on.
func (m *clusterNode) stop(t *testing.T) {
	m.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if m.member != nil {
			m.member.Close()
		}
		if err := m.node.Close(ctx); err != nil {
			t.Errorf("close metadata: %v", err)
		}
	})
}

// apart returns the controller and the others.
func apart(t *testing.T, all []*clusterNode) (controller *clusterNode, others []*clusterNode) {
	t.Helper()
	eventually(t, "there is a controller", func() bool {
		controller = nil
		for _, m := range all {
			if m.node.IsController() && m.node.Image().ControllerID == m.cfg.NodeID {
				controller = m
			}
		}
		return controller != nil
	})
	for _, m := range all {
		if m != controller {
			others = append(others, m)
		}
	}
	return controller, others
}

func TestAnyBrokerServesWhatTheControllerDecides(t *testing.T) {
	all := startMembers(t, 3, nil)
	_, others := apart(t, all)
	c := dial(t, others[0].addr)
	made := c.ask(createRequest(7, newTopic("events", 3), newTopic("bad name", 1))).(*kmsg.CreateTopicsResponse)
	if made.Topics[0].ErrorCode != 0 || made.Topics[1].ErrorCode != codeInvalidTopic {
		t.Fatalf("create: %+v", made)
	}
	if others[0].node.Image().Topic("events") == nil {
		t.Error("the broker that relayed the answer does not know the topic when its client does")
	}
	again := c.ask(createRequest(5, newTopic("events", 3))).(*kmsg.CreateTopicsResponse)
	if again.Topics[0].ErrorCode != codeTopicExists || *again.Topics[0].ErrorMessage != "Topic 'events' already exists." {
		t.Errorf("create again: %+v", again.Topics[0])
	}

	grow := kmsg.NewPtrCreatePartitionsRequest()
	grow.SetVersion(3)
	grow.TimeoutMillis = 10_000
	grow.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: "events", Count: 5}}
	if got := c.ask(grow).(*kmsg.CreatePartitionsResponse).Topics[0]; got.ErrorCode != 0 {
		t.Errorf("grow: %+v", got)
	}
	if n := len(others[0].node.Image().Topic("events").Partitions); n != 5 {
		t.Errorf("%d partitions", n)
	}

	quorum := c.ask(quorumRequest()).(*kmsg.DescribeQuorumResponse)
	if p := quorum.Topics[0].Partitions[0]; p.ErrorCode != 0 || len(p.CurrentVoters) != 3 || p.LeaderID != others[0].node.Image().ControllerID {
		t.Errorf("quorum: %+v", quorum)
	}

	remove := kmsg.NewPtrDeleteTopicsRequest()
	remove.SetVersion(5)
	remove.TimeoutMillis, remove.TopicNames = 10_000, []string{"events"}
	if got := c.ask(remove).(*kmsg.DeleteTopicsResponse).Topics[0]; got.ErrorCode != 0 {
		t.Errorf("delete: %+v", got)
	}
}

func quorumRequest() *kmsg.DescribeQuorumRequest {
	q := kmsg.NewPtrDescribeQuorumRequest()
	q.SetVersion(2)
	q.Topics = []kmsg.DescribeQuorumRequestTopic{{Topic: clusterMetadata, Partitions: []kmsg.DescribeQuorumRequestTopicPartition{{Partition: 0}}}}
	return q
}

func TestTopicsAreCreatedAutomaticallyThroughAnyBroker(t *testing.T) {
	all := startMembers(t, 2, nil)
	_, others := apart(t, all)
	c := dial(t, others[0].addr)
	q := kmsg.NewPtrMetadataRequest()
	q.SetVersion(12)
	q.AllowAutoTopicCreation = true
	q.Topics = []kmsg.MetadataRequestTopic{{Topic: kmsg.StringPtr("new")}}
	c.ask(q)
	eventually(t, "the topic is there", func() bool { return others[0].node.Image().Topic("new") != nil })

	internal := Topics{Node: others[0].node, Controller: others[0].control}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	created, err := internal.CreateTopics(ctx, []meta.NewTopic{{Name: "__consumer_offsets", Partitions: 2, ReplicationFactor: 1,
		Configs: []meta.ConfigValue{{Name: "cleanup.policy", Value: kmsg.StringPtr("compact")}}}}, false)
	if err != nil || created[0].Err != nil || created[0].Partitions != 2 || created[0].ID.IsZero() {
		t.Errorf("%+v, %v", created, err)
	}
	created, err = internal.CreateTopics(ctx, []meta.NewTopic{{Name: "__consumer_offsets", Partitions: 2, ReplicationFactor: 1}}, false)
	if err != nil || !errors.Is(created[0].Err, meta.ErrTopicExists) {
		t.Errorf("created twice: %+v, %v", created, err)
	}
}

func TestForwardedRequestOutlivesTheController(t *testing.T) {
	all := startMembers(t, 3, nil)
	controller, others := apart(t, all)
	c := dial(t, others[0].addr)
	controller.stop(t)
	resp := c.ask(createRequest(7, newTopic("after", 1))).(*kmsg.CreateTopicsResponse)
	if got := resp.Topics[0].ErrorCode; got != 0 {
		t.Errorf("created after the controller's end: error %d", got)
	}
}

func TestRequestsForTheControllerTimeOutInTheirOwnShape(t *testing.T) {
	all := startMembers(t, 3, func(c *Config) { c.RequestsTime = 300 * time.Millisecond })
	c := dial(t, all[0].addr)
	all[1].stop(t)
	all[2].stop(t)
	// One that was given the lead in the end gives it up when its lease is over.
	var since time.Time
	eventually(t, "nobody leads any more", func() bool {
		switch {
		case all[0].node.IsController():
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		}
		return !since.IsZero() && time.Since(since) > 2*time.Second
	})
	if got := c.ask(createRequest(7, newTopic("t", 1))).(*kmsg.CreateTopicsResponse).Topics[0]; got.ErrorCode != codeRequestTimedOut || got.Topic != "t" {
		t.Errorf("create: %+v", got)
	}
	elect := kmsg.NewPtrElectLeadersRequest()
	elect.SetVersion(2)
	elect.TimeoutMillis = 10_000
	elect.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: "t", Partitions: []int32{4}}}
	if got := c.ask(elect).(*kmsg.ElectLeadersResponse); got.ErrorCode != codeRequestTimedOut || got.Topics[0].Partitions[0].ErrorCode != codeRequestTimedOut {
		t.Errorf("elect: %+v", got)
	}
	move := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	move.Topics = []kmsg.AlterPartitionAssignmentsRequestTopic{{Topic: "t", Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{{Partition: 0}}}}
	if got := c.ask(move).(*kmsg.AlterPartitionAssignmentsResponse); got.ErrorCode != codeRequestTimedOut || got.Topics[0].Partitions[0].ErrorCode != codeRequestTimedOut {
		t.Errorf("reassign: %+v", got)
	}
	if got := c.ask(kmsg.NewPtrListPartitionReassignmentsRequest()).(*kmsg.ListPartitionReassignmentsResponse); got.ErrorCode != codeRequestTimedOut {
		t.Errorf("list reassignments: %+v", got)
	}
	if got := c.ask(quorumRequest()).(*kmsg.DescribeQuorumResponse); got.ErrorCode != codeRequestTimedOut {
		t.Errorf("describe quorum: %+v", got)
	}
	if got := c.ask(kmsg.NewPtrUnregisterBrokerRequest()).(*kmsg.UnregisterBrokerResponse); got.ErrorCode != codeRequestTimedOut {
		t.Errorf("unregister: %+v", got)
	}
	if got := c.ask(kmsg.NewPtrAddRaftVoterRequest()).(*kmsg.AddRaftVoterResponse); got.ErrorCode != codeRequestTimedOut {
		t.Errorf("add voter: %+v", got)
	}
	if got := c.ask(kmsg.NewPtrRemoveRaftVoterRequest()).(*kmsg.RemoveRaftVoterResponse); got.ErrorCode != codeRequestTimedOut {
		t.Errorf("remove voter: %+v", got)
	}
}

func TestSettingsOfAnotherBrokerAreRefusedBeforeForwarding(t *testing.T) {
	all := startMembers(t, 2, nil)
	_, others := apart(t, all)
	self, other := others[0].cfg.NodeID, 3-others[0].cfg.NodeID
	c := dial(t, others[0].addr)
	c.create(newTopic("events", 1))
	alter := func(version int16, names ...string) []int16 {
		q := kmsg.NewPtrIncrementalAlterConfigsRequest()
		q.SetVersion(version)
		for _, name := range names {
			r := kmsg.NewIncrementalAlterConfigsRequestResource()
			r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeBroker, name
			setting, value := "log.retention.ms", "5000"
			switch name {
			case "events":
				r.ResourceType, setting = kmsg.ConfigResourceTypeTopic, "retention.ms"
			case "drain":
				r.ResourceName, setting, value = strconv.Itoa(int(other)), meta.DrainSetting, "true"
			}
			r.Configs = []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: setting, Value: &value}}
			q.Resources = append(q.Resources, r)
		}
		var codes []int16
		for i, r := range c.ask(q).(*kmsg.IncrementalAlterConfigsResponse).Resources {
			if want := q.Resources[i].ResourceName; r.ResourceName != want {
				t.Errorf("answer %d is for %s, want %s", i, r.ResourceName, want)
			}
			codes = append(codes, r.ErrorCode)
		}
		return codes
	}
	for _, version := range []int16{0, 1} {
		got := alter(version, strconv.Itoa(int(other)), "events", strconv.Itoa(int(self)))
		if !slices.Equal(got, []int16{codeInvalidRequest, 0, 0}) {
			t.Errorf("version %d: codes %v", version, got)
		}
		if got := alter(version, strconv.Itoa(int(other))); !slices.Equal(got, []int16{codeInvalidRequest}) {
			t.Errorf("version %d: codes %v", version, got)
		}
	}
	// A broker that is to be emptied may be one that cannot be asked.
	if got := alter(1, "drain"); !slices.Equal(got, []int16{0}) || !others[0].node.Image().Draining(other) {
		t.Errorf("draining another broker: codes %v", got)
	}
	if got := others[0].node.Image().BrokerConfigs(self)["log.retention.ms"]; got != "5000" {
		t.Errorf("this broker's setting is %q", got)
	}
}

func TestBrokersOwnCallsReachTheController(t *testing.T) {
	all := startMembers(t, 3, nil)
	controller, others := apart(t, all)
	n, id := others[0].node, others[0].cfg.NodeID
	epoch := n.Image().Brokers[id].Epoch
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	// A start that takes an old registration for the newest hears of it, over the wire and here; nothing changes.
	late := meta.Registration{ID: 1 << 20, Host: "late", Port: 1, Incarnation: topic.NewID(), Fenced: true, Replaces: epoch}
	var stale *meta.StaleRegistration
	if _, err := n.RegisterBroker(ctx, late); !errors.As(err, &stale) || stale.Epoch != -1 {
		t.Errorf("a registration that replaces none there is: %v", err)
	}
	late.ID, late.Replaces = id, epoch-1
	if _, err := controller.node.RegisterBroker(ctx, late); err == nil || n.Image().Brokers[id].Epoch != epoch {
		t.Errorf("a dead start's registration took the place of epoch %d: %v", epoch, err)
	}
	first, err := n.AllocateProducerIDs(ctx, id, epoch)
	if err != nil || first.Count == 0 {
		t.Fatalf("%+v, %v", first, err)
	}
	if second, err := controller.node.AllocateProducerIDs(ctx, controller.cfg.NodeID, controller.node.Image().Brokers[controller.cfg.NodeID].Epoch); err != nil || second.First == first.First {
		t.Errorf("%+v after %+v, %v", second, first, err)
	}
	if _, err := n.AllocateProducerIDs(ctx, id, epoch+1); !errors.Is(err, meta.ErrStaleBrokerEpoch) {
		t.Errorf("another start's epoch: %v", err)
	}

	c := dial(t, others[0].addr)
	wide := newTopic("wide", 1)
	wide.ReplicationFactor = 3
	tid := c.create(wide)
	_, p := n.Image().Partition("wide", 0)
	leader := all[p.Leader-1]
	wish := meta.AlterPartition{ID: tid, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch, ISR: []meta.BrokerState{{ID: p.Leader, Epoch: -1}}}
	unknown := meta.AlterPartition{ID: topic.NewID(), ISR: wish.ISR}
	got, err := leader.node.AlterPartitions(ctx, p.Leader, n.Image().Brokers[p.Leader].Epoch, []meta.AlterPartition{unknown, wish})
	if err != nil {
		t.Fatal(err)
	}
	if !errors.Is(got[0].Err, meta.ErrUnknownTopicID) || got[1].Err != nil || !slices.Equal(got[1].Partition.ISR, []int32{p.Leader}) || got[1].Partition.PartitionEpoch <= p.PartitionEpoch {
		t.Errorf("%+v", got)
	}
	if err := n.ConfirmDeleted(ctx, topic.NewID(), id, true); err != nil {
		t.Errorf("confirm: %v", err)
	}
}

func TestControllerIsFoundThroughAnyBroker(t *testing.T) {
	all := startMembers(t, 3, nil)
	_, others := apart(t, all)
	pool := peer.NewPool(peer.Config{})
	defer pool.Close()
	c := NewController(pool, []string{"127.0.0.1:1", others[0].addr}) // the first answers nothing
	id := others[0].cfg.NodeID
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	got, err := c.AllocateProducerIDs(ctx, meta.Broker{ID: -1}, id, others[0].node.Image().Brokers[id].Epoch)
	if err != nil || got.Count == 0 {
		t.Errorf("%+v, %v", got, err)
	}
	none := NewController(pool, []string{"127.0.0.1:1"})
	if _, err := none.AllocateProducerIDs(ctx, meta.Broker{ID: -1}, id, 0); !errors.Is(err, meta.ErrNotController) {
		t.Errorf("with nobody there: %v", err)
	}
}

func TestKeysBetweenBrokersAreNotAdvertised(t *testing.T) {
	all := startMembers(t, 1, nil)
	q := kmsg.NewPtrApiVersionsRequest()
	q.SetVersion(3)
	q.ClientSoftwareName, q.ClientSoftwareVersion = "kgo", "1"
	resp := dial(t, all[0].addr).ask(q).(*kmsg.ApiVersionsResponse)
	for _, k := range resp.ApiKeys {
		if slices.Contains([]int16{56, 58, 62, 63, 67}, k.ApiKey) {
			t.Errorf("key %d is advertised", k.ApiKey)
		}
	}
	if resp.UnknownTags.Len() != 0 {
		t.Error("a client is told of the keys between brokers")
	}
	q.ClientSoftwareName = peer.SoftwareName
	resp = dial(t, all[0].addr).ask(q).(*kmsg.ApiVersionsResponse)
	if b, ok := peer.Raw(&resp.UnknownTags, peer.TagServed); !ok || len(b) != 5*6 {
		t.Errorf("a broker is told % x", b)
	}
}

func TestEnvelopeHoldsOnlyWhatTheControllerDecides(t *testing.T) {
	all := startMembers(t, 2, nil)
	controller, others := apart(t, all)
	wrap := func(q kmsg.Request) *kmsg.EnvelopeRequest {
		env := kmsg.NewPtrEnvelopeRequest()
		env.RequestData, env.ClientHostAddress = formatter.AppendRequest(nil, q, 5)[4:], []byte("1.2.3.4")
		return env
	}
	list := kmsg.NewPtrListPartitionReassignmentsRequest()
	if got := dial(t, controller.addr).ask(wrap(list)).(*kmsg.EnvelopeResponse); got.ErrorCode != 0 || len(got.ResponseData) == 0 {
		t.Errorf("%+v", got)
	}
	got := dial(t, others[0].addr).ask(wrap(list)).(*kmsg.EnvelopeResponse)
	at, ok := peer.Controller(&got.UnknownTags)
	if got.ErrorCode != codeNotController || !ok || at.Address() != controller.addr {
		t.Errorf("at the wrong broker: %+v, controller %v", got, at)
	}
	c := dial(t, controller.addr)
	for name, env := range map[string]*kmsg.EnvelopeRequest{
		"metadata":      wrap(kmsg.NewPtrMetadataRequest()),
		"envelope":      wrap(wrap(list)),
		"torn":          {RequestData: []byte{0, 46, 0}},
		"wrong version": {RequestData: []byte{0, 46, 0, 99, 0, 0, 0, 1, 0xff, 0xff}},
	} {
		if got := c.ask(env).(*kmsg.EnvelopeResponse); got.ErrorCode != codeInvalidRequest {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// controlledFake notes what is told about heartbeats.
type controlledFake struct {
	Controlled
	beats   chan meta.Heartbeat
	ends    chan string
	refused error
}

func (f *controlledFake) Heartbeat(_ context.Context, h meta.Heartbeat) (meta.HeartbeatReply, error) {
	f.beats <- h
	return meta.HeartbeatReply{CaughtUp: true, Fenced: false, ShouldShutdown: h.WantShutdown}, f.refused
}

func (f *controlledFake) Disconnected(id int32, epoch int64) {
	f.ends <- fmt.Sprintf("%d of %d", id, epoch)
}

func TestEndOfHeartbeatsIsToldToTheController(t *testing.T) {
	f := &controlledFake{beats: make(chan meta.Heartbeat, 8), ends: make(chan string, 8)}
	s := startServerWith(t, nil, Deps{Controlled: f, Metadata: emptyMetadata{refusing{err: meta.ErrPolicyViolation}, &meta.Image{}}})
	other := dial(t, s.addr)
	c := dial(t, s.addr)
	q := kmsg.NewPtrBrokerHeartbeatRequest()
	q.SetVersion(1)
	q.BrokerID, q.BrokerEpoch, q.CurrentMetadataOffset, q.WantShutdown = 2, 77, 1234, true
	if got := c.ask(q).(*kmsg.BrokerHeartbeatResponse); got.ErrorCode != 0 || !got.IsCaughtUp || got.IsFenced || !got.ShouldShutdown {
		t.Errorf("%+v", got)
	}
	if got, want := <-f.beats, (meta.Heartbeat{ID: 2, Epoch: 77, Index: 1234, WantShutdown: true}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	other.nc.Close() // carried none
	c.nc.Close()
	if got := <-f.ends; got != "2 of 77" {
		t.Errorf("the end of %s was told", got)
	}
	f.refused = meta.ErrStaleBrokerEpoch
	c = dial(t, s.addr)
	if got := c.ask(q).(*kmsg.BrokerHeartbeatResponse); got.ErrorCode != codeStaleBrokerEpoch {
		t.Errorf("%+v", got)
	}
	c.nc.Close()
	eventually(t, "both connections are gone", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.conns) == 0
	})
	select {
	case got := <-f.ends:
		t.Errorf("a connection whose heartbeats were refused: the end of %s was told", got)
	default:
	}
}

func TestControllersErrorsComeBackAsTheyWere(t *testing.T) {
	for _, e := range metaCodes {
		if e.code == codeUnknownServerError {
			continue
		}
		back := metaError(e.code)
		if code(back) != e.code {
			t.Errorf("%v is code %d, which comes back as %v", e.err, e.code, back)
		}
	}
	for _, err := range []error{meta.ErrNotController, meta.ErrUnknownOutcome, meta.ErrStaleBrokerEpoch, meta.ErrDuplicateBroker,
		meta.ErrFencedLeaderEpoch, meta.ErrInvalidUpdateVersion, meta.ErrIneligibleReplica, meta.ErrUnknownTopicID, meta.ErrNewLeaderElected} {
		if back := metaError(code(err)); !errors.Is(back, err) {
			t.Errorf("%v comes back as %v", err, back)
		}
	}
	if metaError(codeNone) != nil || metaError(codeUnknownServerError) == nil || errors.Is(metaError(codeUnknownServerError), meta.ErrExhausted) {
		t.Error("no error, or one of any kind")
	}
}

func TestRegistrationTravelsWhole(t *testing.T) {
	want := meta.Registration{
		ID: 4, Host: "n4", Port: 9092, Rack: "b", RaftAddress: "n4:9093", Incarnation: topic.NewID(), ClusterID: "c",
		Fenced: true, MayLackRecords: true, WantVote: true, Directory: topic.NewID(), PreviousEpoch: 7, Replaces: 6,
		Features:  map[string]meta.FeatureRange{"a.version": {Min: 0, Max: 3}, "b.version": {Min: 1, Max: 2}},
		Endpoints: []meta.Endpoint{{Name: "INTERNAL", Host: "n4", Port: 9092, Protocol: meta.SSL}, {Name: "PUBLIC", Host: "out", Port: 9094}},
	}
	for _, fenced := range []bool{true, false} {
		want.Fenced = fenced
		for version := int16(0); version <= 4; version++ {
			q := kmsg.NewPtrBrokerRegistrationRequest()
			q.SetVersion(version)
			encodeRegistration(q, want)
			var back kmsg.BrokerRegistrationRequest
			back.SetVersion(version)
			if err := back.ReadFrom(q.AppendTo(nil)); err != nil {
				t.Fatal(err)
			}
			expected := want
			if version < 2 {
				expected.Directory = topic.ID{}
			}
			if version < 3 {
				expected.PreviousEpoch = -1
			}
			if got := decodeRegistration(&back); !reflect.DeepEqual(got, expected) {
				t.Errorf("version %d: %+v, want %+v", version, got, expected)
			}
		}
	}
	plain := kmsg.NewPtrBrokerRegistrationRequest()
	plain.Listeners = []kmsg.BrokerRegistrationRequestListener{{Name: "PLAINTEXT", Host: "k", Port: 1}}
	if got := decodeRegistration(plain); !got.Fenced || got.MayLackRecords || got.Host != "k" || got.RaftAddress != "" {
		t.Errorf("one without our tag: %+v", got)
	}
}
