package broker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/conf"
	"github.com/varvelog/varve/meta/topic"
)

// startCluster is a server over a real metadata quorum of one and fake partitions that follow it.
func startCluster(t *testing.T, settings map[string]string, change func(*Config)) *testServer {
	t.Helper()
	given := map[string]string{"node.id": "1", "auto.create.topics.enable": "false"} // tests create what they name
	for k, v := range settings {
		given[k] = v
	}
	b, err := conf.ParseBroker(given)
	if err != nil {
		t.Fatal(err)
	}
	node, err := meta.Open(meta.Config{Dir: t.TempDir(), NodeID: 1, Broker: b}, meta.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := node.Close(ctx); err != nil {
			t.Errorf("close metadata: %v", err)
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	reg := meta.Registration{ID: 1, Host: "broker.example", Port: 9092, Rack: "a", Incarnation: topic.NewID()}
	for {
		if _, err = node.RegisterBroker(ctx, reg); err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	s := startServerWith(t, func(c *Config) {
		*c = ConfigFrom(&b)
		if change != nil {
			change(c)
		}
	}, Deps{Metadata: node, Settings: &b})
	node.Subscribe(func(_, next *meta.Image) {
		for _, tp := range next.Topics() {
			s.parts.follow(tp)
		}
	})
	return s
}

// follow makes fakes of a topic's partitions.
func (f *fakePartitions) follow(t *meta.Topic) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := len(f.byID[t.ID]); i < len(t.Partitions); i++ {
		p := &fakePartition{id: t.Key(int32(i)), committed: true}
		f.byID[t.ID] = append(f.byID[t.ID], p)
	}
	f.byName[t.Name] = f.byID[t.ID]
}

func createRequest(version int16, topics ...kmsg.CreateTopicsRequestTopic) *kmsg.CreateTopicsRequest {
	q := kmsg.NewPtrCreateTopicsRequest()
	q.SetVersion(version)
	q.TimeoutMillis, q.Topics = 10_000, topics
	return q
}

func newTopic(name string, parts int32, configs ...string) kmsg.CreateTopicsRequestTopic {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, parts, 1
	for i := 0; i < len(configs); i += 2 {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = configs[i], kmsg.StringPtr(configs[i+1])
		t.Configs = append(t.Configs, c)
	}
	return t
}

// create makes a topic and fails the test when it is refused.
func (c *client) create(t kmsg.CreateTopicsRequestTopic) topic.ID {
	c.t.Helper()
	resp := c.ask(createRequest(7, t)).(*kmsg.CreateTopicsResponse)
	if resp.Topics[0].ErrorCode != 0 {
		c.t.Fatalf("create %s: %d %v", t.Topic, resp.Topics[0].ErrorCode, *resp.Topics[0].ErrorMessage)
	}
	return resp.Topics[0].TopicID
}

func TestCreateTopicsEveryVersion(t *testing.T) {
	s := startCluster(t, nil, nil)
	c := dial(t, s.addr)
	for v := int16(2); v <= 7; v++ {
		name := fmt.Sprintf("t%d", v)
		resp := c.ask(createRequest(v, newTopic(name, 3, "retention.ms", "1000"), newTopic("bad name", 1), newTopic("zero", 0))).(*kmsg.CreateTopicsResponse)
		codes := []int16{resp.Topics[0].ErrorCode, resp.Topics[1].ErrorCode, resp.Topics[2].ErrorCode}
		if !slices.Equal(codes, []int16{0, codeInvalidTopic, codeInvalidPartitions}) {
			t.Fatalf("version %d: codes %v", v, codes)
		}
		if v >= 5 && (resp.Topics[0].NumPartitions != 3 || resp.Topics[0].ReplicationFactor != 1 || len(resp.Topics[0].Configs) < 30) {
			t.Fatalf("version %d: %+v", v, resp.Topics[0])
		}
		for _, e := range resp.Topics[0].Configs {
			if e.Name == "retention.ms" && (*e.Value != "1000" || e.Source != int8(sourceTopic)) {
				t.Fatalf("version %d: %+v", v, e)
			}
		}
		if v >= 7 && resp.Topics[0].TopicID == [16]byte{} {
			t.Fatal("no topic id")
		}
		if again := c.ask(createRequest(v, newTopic(name, 3))).(*kmsg.CreateTopicsResponse).Topics[0]; again.ErrorCode != codeTopicExists {
			t.Fatalf("again: %d", again.ErrorCode)
		}
	}
	q := createRequest(7, newTopic("dry", 1))
	q.ValidateOnly = true
	if resp := c.ask(q).(*kmsg.CreateTopicsResponse); resp.Topics[0].ErrorCode != 0 || s.deps.Metadata.Image().Topic("dry") != nil {
		t.Fatalf("validate only: %+v", resp.Topics[0])
	}
	twice := c.ask(createRequest(7, newTopic("twice", 1), newTopic("twice", 1))).(*kmsg.CreateTopicsResponse)
	if len(twice.Topics) != 1 || twice.Topics[0].ErrorCode != codeInvalidRequest {
		t.Fatalf("named twice: %+v", twice.Topics)
	}
}

func metadataRequest(version int16, names ...string) *kmsg.MetadataRequest {
	q := kmsg.NewPtrMetadataRequest()
	q.SetVersion(version)
	q.Topics = []kmsg.MetadataRequestTopic{}
	for _, n := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(n)
		q.Topics = append(q.Topics, t)
	}
	return q
}

func TestMetadataEveryVersion(t *testing.T) {
	s := startCluster(t, nil, nil)
	c := dial(t, s.addr)
	id := c.create(newTopic("events", 2))
	c.create(newTopic("other", 1))
	for v := int16(0); v <= 13; v++ {
		resp := c.ask(metadataRequest(v, "events", "nosuch", "bad name")).(*kmsg.MetadataResponse)
		if len(resp.Brokers) != 1 || resp.Brokers[0].Host != "broker.example" || resp.Brokers[0].Port != 9092 {
			t.Fatalf("version %d: brokers %+v", v, resp.Brokers)
		}
		if v >= 1 && resp.ControllerID != 1 || v >= 2 && *resp.ClusterID == "" {
			t.Fatalf("version %d: %+v", v, resp)
		}
		ev := resp.Topics[0]
		if ev.ErrorCode != 0 || len(ev.Partitions) != 2 || ev.Partitions[1].Leader != 1 || ev.Partitions[1].ErrorCode != 0 {
			t.Fatalf("version %d: %+v", v, ev)
		}
		if (v >= 10) != (ev.TopicID == id) {
			t.Fatalf("version %d: topic id %v", v, ev.TopicID)
		}
		if resp.Topics[1].ErrorCode != codeUnknownTopicOrPartition || resp.Topics[2].ErrorCode != codeInvalidTopic {
			t.Fatalf("version %d: %+v", v, resp.Topics[1:])
		}
		none := c.ask(metadataRequest(v)).(*kmsg.MetadataResponse)
		want := 0
		if v == 0 {
			want = 2
		}
		if len(none.Topics) != want {
			t.Errorf("version %d: an empty list names %d topics, want %d", v, len(none.Topics), want)
		}
		if v >= 1 {
			q := metadataRequest(v)
			q.Topics = nil
			if all := c.ask(q).(*kmsg.MetadataResponse); len(all.Topics) != 2 {
				t.Errorf("version %d: null names %d topics, want all", v, len(all.Topics))
			}
		}
	}
}

func TestMetadataByTopicIDFromVersion12(t *testing.T) {
	s := startCluster(t, nil, nil)
	c := dial(t, s.addr)
	id := c.create(newTopic("events", 1))
	q := metadataRequest(12)
	for _, x := range []topic.ID{id, topic.NewID()} {
		rt := kmsg.NewMetadataRequestTopic()
		rt.TopicID = x
		q.Topics = append(q.Topics, rt)
	}
	resp := c.ask(q).(*kmsg.MetadataResponse)
	if *resp.Topics[0].Topic != "events" || resp.Topics[1].ErrorCode != codeUnknownTopicID || resp.Topics[1].Topic != nil {
		t.Fatalf("%+v", resp.Topics)
	}
	none := metadataRequest(12)
	none.Topics = append(none.Topics, kmsg.NewMetadataRequestTopic())
	if x := c.ask(none).(*kmsg.MetadataResponse); x.Topics[0].ErrorCode != codeUnknownServerError || len(x.Brokers) != 0 {
		t.Fatalf("neither id nor name: %+v", x)
	}
	q.SetVersion(10)
	for i := range q.Topics {
		q.Topics[i].Topic = kmsg.StringPtr("x")
	}
	for _, x := range c.ask(q).(*kmsg.MetadataResponse).Topics {
		if x.ErrorCode != codeInvalidRequest {
			t.Fatalf("ids in version 10: %+v", x)
		}
	}
}

func TestMetadataNamesOnlyLeadersThatAreReady(t *testing.T) {
	s := startCluster(t, nil, nil)
	c := dial(t, s.addr)
	c.create(newTopic("events", 2))
	p := s.parts.byName["events"][0]
	p.mu.Lock()
	p.err = fmt.Errorf("still recovering")
	p.mu.Unlock()
	got := c.ask(metadataRequest(12, "events")).(*kmsg.MetadataResponse).Topics[0].Partitions
	if got[0].ErrorCode != codeLeaderNotAvailable || got[0].Leader != -1 || got[1].Leader != 1 {
		t.Fatalf("%+v", got)
	}
}

func TestMetadataAutoCreate(t *testing.T) {
	s := startCluster(t, map[string]string{"auto.create.topics.enable": "true", "num.partitions": "3"}, nil)
	c := dial(t, s.addr)
	q := metadataRequest(9, "no-thanks")
	q.AllowAutoTopicCreation = false
	if got := c.ask(q).(*kmsg.MetadataResponse).Topics[0]; got.ErrorCode != codeUnknownTopicOrPartition || s.deps.Metadata.Image().Topic("no-thanks") != nil {
		t.Fatalf("not allowed by the client: %+v", got)
	}
	for v, name := range map[int16]string{3: "old-client", 9: "new-client"} {
		q := metadataRequest(v, name)
		q.AllowAutoTopicCreation = true
		if got := c.ask(q).(*kmsg.MetadataResponse).Topics[0]; got.ErrorCode != codeUnknownTopicOrPartition {
			t.Fatalf("the first answer says unknown: %+v", got)
		}
		if got := c.ask(q).(*kmsg.MetadataResponse).Topics[0]; got.ErrorCode != 0 || len(got.Partitions) != 3 {
			t.Fatalf("the second names it: %+v", got)
		}
	}
	q = metadataRequest(9)
	q.Topics, q.AllowAutoTopicCreation = nil, true
	if got := c.ask(q).(*kmsg.MetadataResponse); len(got.Topics) != 2 {
		t.Fatalf("%+v", got)
	}
}

func TestDeleteTopicsByNameAndByID(t *testing.T) {
	s := startCluster(t, nil, nil)
	c := dial(t, s.addr)
	for v := int16(1); v <= 6; v++ {
		id := c.create(newTopic("events", 1))
		q := kmsg.NewPtrDeleteTopicsRequest()
		q.SetVersion(v)
		q.TimeoutMillis = 5000
		if v < 6 {
			q.TopicNames = []string{"events", "nosuch"}
		} else {
			a, b := kmsg.NewDeleteTopicsRequestTopic(), kmsg.NewDeleteTopicsRequestTopic()
			a.TopicID, b.TopicID = id, topic.NewID()
			q.Topics = append(q.Topics, a, b)
		}
		resp := c.ask(q).(*kmsg.DeleteTopicsResponse)
		want := codeUnknownTopicOrPartition
		if v == 6 {
			want = codeUnknownTopicID
		}
		if resp.Topics[0].ErrorCode != 0 || resp.Topics[1].ErrorCode != want {
			t.Fatalf("version %d: %+v", v, resp.Topics)
		}
		if s.deps.Metadata.Image().Topic("events") != nil {
			t.Fatal("still there")
		}
	}
}

func TestCreatePartitions(t *testing.T) {
	s := startCluster(t, nil, nil)
	c := dial(t, s.addr)
	c.create(newTopic("events", 1))
	for v := int16(0); v <= 3; v++ {
		q := kmsg.NewPtrCreatePartitionsRequest()
		q.SetVersion(v)
		q.TimeoutMillis = 5000
		for name, n := range map[string]int32{"events": int32(v) + 2, "nosuch": 5} {
			rt := kmsg.NewCreatePartitionsRequestTopic()
			rt.Topic, rt.Count = name, n
			q.Topics = append(q.Topics, rt)
		}
		for _, x := range c.ask(q).(*kmsg.CreatePartitionsResponse).Topics {
			if want := map[string]int16{"events": 0, "nosuch": codeUnknownTopicOrPartition}[x.Topic]; x.ErrorCode != want || x.ErrorMessage != nil {
				t.Fatalf("version %d: %+v", v, x)
			}
		}
		if n := len(s.deps.Metadata.Image().Topic("events").Partitions); n != int(v)+2 {
			t.Fatalf("version %d: %d partitions", v, n)
		}
	}
	q := kmsg.NewPtrCreatePartitionsRequest()
	rt := kmsg.NewCreatePartitionsRequestTopic()
	rt.Topic, rt.Count, q.TimeoutMillis = "events", 1, 5000
	q.Topics = append(q.Topics, rt)
	if x := c.ask(q).(*kmsg.CreatePartitionsResponse).Topics[0]; x.ErrorCode != codeInvalidPartitions {
		t.Fatalf("fewer: %+v", x)
	}
}

func describeRequest(version int16, kind kmsg.ConfigResourceType, name string, only ...string) *kmsg.DescribeConfigsRequest {
	q := kmsg.NewPtrDescribeConfigsRequest()
	q.SetVersion(version)
	q.IncludeSynonyms, q.IncludeDocumentation = true, true
	x := kmsg.NewDescribeConfigsRequestResource()
	x.ResourceType, x.ResourceName = kind, name
	if len(only) > 0 {
		x.ConfigNames = only
	}
	q.Resources = append(q.Resources, x)
	return q
}

// shownConfig is one setting in one line: value, source, synonyms.
func shownConfig(c kmsg.DescribeConfigsResponseResourceConfig) string {
	value := "null"
	if c.Value != nil {
		value = *c.Value
	}
	var syn []string
	for _, x := range c.ConfigSynonyms {
		syn = append(syn, fmt.Sprintf("%d:%s=%s", x.Source, x.Name, *x.Value))
	}
	return fmt.Sprintf("%s=%s source=%d {%s}", c.Name, value, c.Source, strings.Join(syn, " "))
}

func TestDescribeConfigsShowsSourcesAndSynonyms(t *testing.T) {
	s := startCluster(t, map[string]string{"log.retention.hours": "2", "log.segment.bytes": "2097152"}, nil)
	c := dial(t, s.addr)
	c.create(newTopic("events", 1, "retention.bytes", "12345"))
	for v := int16(1); v <= 4; v++ {
		resp := c.ask(describeRequest(v, kmsg.ConfigResourceTypeTopic, "events", "retention.bytes", "retention.ms", "segment.bytes", "cleanup.policy", "remote.storage.enable")).(*kmsg.DescribeConfigsResponse)
		got := map[string]string{}
		for _, e := range resp.Resources[0].Configs {
			got[e.Name] = shownConfig(e)
			if v >= 3 && (e.Documentation == nil || e.ConfigType == 0) {
				t.Errorf("version %d: %s has no documentation or type", v, e.Name)
			}
		}
		for name, want := range map[string]string{
			"retention.bytes":       "retention.bytes=12345 source=1 {1:retention.bytes=12345 5:log.retention.bytes=-1}",
			"retention.ms":          "retention.ms=7200000 source=4 {4:log.retention.hours=2}",
			"segment.bytes":         "segment.bytes=2097152 source=4 {4:log.segment.bytes=2097152 5:log.segment.bytes=1073741824}",
			"cleanup.policy":        "cleanup.policy=delete source=5 {5:log.cleanup.policy=delete}",
			"remote.storage.enable": "remote.storage.enable=false source=5 {}",
		} {
			if got[name] != want {
				t.Errorf("version %d:\n got %s\nwant %s", v, got[name], want)
			}
		}
	}
	for _, x := range []struct {
		kind kmsg.ConfigResourceType
		name string
		code int16
	}{
		{kmsg.ConfigResourceTypeTopic, "nosuch", codeUnknownTopicOrPartition},
		{kmsg.ConfigResourceTypeTopic, "bad name", codeInvalidTopic},
		{kmsg.ConfigResourceTypeBroker, "1", 0},
		{kmsg.ConfigResourceTypeBroker, "2", codeInvalidRequest},
		{kmsg.ConfigResourceTypeBroker, "", 0},
		{kmsg.ConfigResourceTypeGroupConfig, "g", 0},
		{kmsg.ConfigResourceTypeGroupConfig, "", codeInvalidRequest},
		{kmsg.ConfigResourceType(77), "x", codeInvalidRequest},
	} {
		got := c.ask(describeRequest(4, x.kind, x.name)).(*kmsg.DescribeConfigsResponse).Resources[0]
		if got.ErrorCode != x.code {
			t.Errorf("%v %q: code %d, want %d", x.kind, x.name, got.ErrorCode, x.code)
		}
		if x.code == 0 && x.name != "" && len(got.Configs) < 10 {
			t.Errorf("%v %q: %d settings", x.kind, x.name, len(got.Configs))
		}
	}
}

func TestIncrementalAlterConfigs(t *testing.T) {
	s := startCluster(t, nil, nil)
	c := dial(t, s.addr)
	c.create(newTopic("events", 1, "cleanup.policy", "compact"))
	for v := int16(0); v <= 1; v++ {
		q := kmsg.NewPtrIncrementalAlterConfigsRequest()
		q.SetVersion(v)
		add := func(kind kmsg.ConfigResourceType, name, key string, op kmsg.IncrementalAlterConfigOp, value *string) {
			x := kmsg.NewIncrementalAlterConfigsRequestResource()
			x.ResourceType, x.ResourceName = kind, name
			e := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
			e.Name, e.Op, e.Value = key, op, value
			x.Configs = append(x.Configs, e)
			q.Resources = append(q.Resources, x)
		}
		add(kmsg.ConfigResourceTypeTopic, "events", "cleanup.policy", kmsg.IncrementalAlterConfigOpAppend, kmsg.StringPtr("delete"))
		add(kmsg.ConfigResourceTypeTopic, "nosuch", "retention.ms", kmsg.IncrementalAlterConfigOpSet, kmsg.StringPtr("1"))
		add(kmsg.ConfigResourceTypeBroker, "1", "log.retention.ms", kmsg.IncrementalAlterConfigOpSet, kmsg.StringPtr("777000"))
		add(kmsg.ConfigResourceType(99), "x", "y", kmsg.IncrementalAlterConfigOpSet, kmsg.StringPtr("1"))
		add(kmsg.ConfigResourceTypeBroker, "2", "log.retention.ms", kmsg.IncrementalAlterConfigOpSet, kmsg.StringPtr("777000"))
		var codes []int16
		for _, x := range c.ask(q).(*kmsg.IncrementalAlterConfigsResponse).Resources {
			codes = append(codes, x.ErrorCode)
		}
		if !slices.Equal(codes, []int16{0, codeUnknownTopicOrPartition, 0, codeInvalidRequest, codeInvalidRequest}) {
			t.Fatalf("version %d: codes %v", v, codes)
		}
	}
	got := c.ask(describeRequest(4, kmsg.ConfigResourceTypeTopic, "events", "cleanup.policy", "retention.ms")).(*kmsg.DescribeConfigsResponse).Resources[0].Configs
	lines := map[string]string{}
	for _, e := range got {
		lines[e.Name] = shownConfig(e)
	}
	if want := "retention.ms=777000 source=2 {2:log.retention.ms=777000}"; lines["retention.ms"] != want {
		t.Errorf("\n got %s\nwant %s", lines["retention.ms"], want)
	}
	if want := "cleanup.policy=compact,delete source=1 {1:cleanup.policy=compact,delete 5:log.cleanup.policy=delete}"; lines["cleanup.policy"] != want {
		t.Errorf("\n got %s\nwant %s", lines["cleanup.policy"], want)
	}
}

func TestAlterConfigsReplacesAll(t *testing.T) {
	s := startCluster(t, nil, nil)
	c := dial(t, s.addr)
	c.create(newTopic("events", 1, "retention.ms", "1000", "retention.bytes", "5"))
	for v := int16(0); v <= 2; v++ {
		q := kmsg.NewPtrAlterConfigsRequest()
		q.SetVersion(v)
		x := kmsg.NewAlterConfigsRequestResource()
		x.ResourceType, x.ResourceName = kmsg.ConfigResourceTypeTopic, "events"
		e := kmsg.NewAlterConfigsRequestResourceConfig()
		e.Name, e.Value = "retention.ms", kmsg.StringPtr("2000")
		x.Configs = append(x.Configs, e)
		q.Resources = append(q.Resources, x)
		if got := c.ask(q).(*kmsg.AlterConfigsResponse).Resources[0]; got.ErrorCode != 0 {
			t.Fatalf("%+v", got)
		}
		if got := s.deps.Metadata.Image().Topic("events").Configs; len(got) != 1 || got["retention.ms"] != "2000" {
			t.Fatalf("version %d: %v", v, got)
		}
	}
}

func TestDescribeCluster(t *testing.T) {
	s := startCluster(t, nil, nil)
	c := dial(t, s.addr)
	for v := int16(0); v <= 2; v++ {
		q := kmsg.NewPtrDescribeClusterRequest()
		q.SetVersion(v)
		q.EndpointType = endpointBrokers
		q.IncludeClusterAuthorizedOperations = true
		resp := c.ask(q).(*kmsg.DescribeClusterResponse)
		if resp.ErrorCode != 0 || resp.ControllerID != 1 || len(resp.Brokers) != 1 || *resp.Brokers[0].Rack != "a" || resp.ClusterAuthorizedOperations != 8096 {
			t.Fatalf("version %d: %+v", v, resp)
		}
		if v >= 1 {
			q.EndpointType = endpointControllers
			if got := c.ask(q).(*kmsg.DescribeClusterResponse); got.ErrorCode != codeMismatchedEndpointType {
				t.Fatalf("%+v", got)
			}
		}
	}
}

func TestFencedBrokersOnlyWhenAsked(t *testing.T) {
	s := startCluster(t, nil, nil)
	ctx := context.Background()
	node := s.deps.Metadata.(*meta.Node)
	if _, err := node.RegisterBroker(ctx, meta.Registration{ID: 2, Host: "b2", Port: 1, Incarnation: topic.NewID(), Fenced: true}); err != nil {
		t.Fatal(err)
	}
	c := dial(t, s.addr)
	for _, want := range []bool{false, true} {
		q := kmsg.NewPtrDescribeClusterRequest()
		q.SetVersion(2)
		q.EndpointType, q.IncludeFencedBrokers = endpointBrokers, want
		n := 1
		if want {
			n = 2
		}
		if got := c.ask(q).(*kmsg.DescribeClusterResponse); len(got.Brokers) != n {
			t.Fatalf("asked %v: %+v", want, got.Brokers)
		}
	}
	if got := c.ask(metadataRequest(9)).(*kmsg.MetadataResponse); len(got.Brokers) != 1 {
		t.Fatalf("metadata: %+v", got.Brokers)
	}
}

func TestDescribeTopicPartitionsPages(t *testing.T) {
	s := startCluster(t, nil, nil)
	c := dial(t, s.addr)
	c.create(newTopic("a", 3))
	c.create(newTopic("b", 2))
	q := kmsg.NewPtrDescribeTopicPartitionsRequest()
	q.ResponsePartitionLimit = 2
	var got []string
	for {
		resp := c.ask(q).(*kmsg.DescribeTopicPartitionsResponse)
		for _, x := range resp.Topics {
			for _, p := range x.Partitions {
				got = append(got, fmt.Sprintf("%s-%d", *x.Topic, p.Partition))
			}
		}
		got = append(got, "|")
		if resp.NextCursor == nil {
			break
		}
		cur := kmsg.NewDescribeTopicPartitionsRequestCursor()
		cur.Topic, cur.Partition = resp.NextCursor.Topic, resp.NextCursor.Partition
		q.Cursor = &cur
	}
	if want := "[a-0 a-1 | a-2 b-0 | b-1 |]"; fmt.Sprint(got) != want {
		t.Fatalf("%v, want %s", got, want)
	}
	q = kmsg.NewPtrDescribeTopicPartitionsRequest()
	q.ResponsePartitionLimit = 2000
	for _, n := range []string{"b", "nosuch", "a"} {
		x := kmsg.NewDescribeTopicPartitionsRequestTopic()
		x.Topic = n
		q.Topics = append(q.Topics, x)
	}
	resp := c.ask(q).(*kmsg.DescribeTopicPartitionsResponse)
	if *resp.Topics[0].Topic != "a" || *resp.Topics[2].Topic != "nosuch" || resp.Topics[2].ErrorCode != codeUnknownTopicOrPartition {
		t.Fatalf("%+v", resp.Topics)
	}
}

func TestListConfigResources(t *testing.T) {
	s := startCluster(t, nil, nil)
	c := dial(t, s.addr)
	c.create(newTopic("a", 1))
	for _, x := range []struct {
		version int16
		types   []int8
		want    string
		code    int16
	}{
		{0, nil, "[]", 0},
		{1, nil, "[2:a 4:1 8:1]", 0},
		{1, []int8{2}, "[2:a]", 0},
		{1, []int8{2, 99}, "[]", codeUnsupportedVersion},
	} {
		q := kmsg.NewPtrListConfigResourcesRequest()
		q.SetVersion(x.version)
		q.ResourceTypes = x.types
		resp := c.ask(q).(*kmsg.ListConfigResourcesResponse)
		got := []string{}
		for _, r := range resp.ConfigResources {
			got = append(got, fmt.Sprintf("%d:%s", r.Type, r.Name))
		}
		if fmt.Sprint(got) != x.want || resp.ErrorCode != x.code {
			t.Errorf("version %d %v: %v %d, want %s %d", x.version, x.types, got, resp.ErrorCode, x.want, x.code)
		}
	}
}

func TestInitProducerIDGivesEachAskerItsOwn(t *testing.T) {
	s := startCluster(t, nil, nil)
	c := dial(t, s.addr)
	seen := map[int64]bool{}
	for v := int16(0); v <= 5; v++ {
		for range 300 {
			q := kmsg.NewPtrInitProducerIDRequest()
			q.SetVersion(v)
			q.ProducerID, q.ProducerEpoch = -1, -1
			resp := c.ask(q).(*kmsg.InitProducerIDResponse)
			if resp.ErrorCode != 0 || resp.ProducerEpoch != 0 || seen[resp.ProducerID] {
				t.Fatalf("version %d: %+v", v, resp)
			}
			seen[resp.ProducerID] = true
		}
	}
	for _, x := range []struct {
		id    *string
		pid   int64
		epoch int16
		code  int16
	}{
		{kmsg.StringPtr("tx"), -1, -1, codeCoordinatorNotAvailable},
		{kmsg.StringPtr(""), -1, -1, codeInvalidRequest},
		{nil, 5, -1, codeInvalidRequest},
	} {
		q := kmsg.NewPtrInitProducerIDRequest()
		q.SetVersion(4)
		q.TransactionalID, q.ProducerID, q.ProducerEpoch = x.id, x.pid, x.epoch
		if resp := c.ask(q).(*kmsg.InitProducerIDResponse); resp.ErrorCode != x.code || resp.ProducerID != -1 {
			t.Errorf("%+v: %+v", x, resp)
		}
	}
}

func TestNotLeaderAnswersNameTheLeader(t *testing.T) {
	s := startCluster(t, nil, nil)
	c := dial(t, s.addr)
	id := c.create(newTopic("events", 1))
	p := s.parts.byName["events"][0]
	p.mu.Lock()
	p.err = errNotLeaderForTest
	p.mu.Unlock()
	for v := int16(9); v <= 13; v++ {
		resp := c.ask(produceRequest(v, 1, "events", id, map[int32][]byte{0: oneBatch(t, "x")})).(*kmsg.ProduceResponse)
		got := resp.Topics[0].Partitions[0]
		if got.ErrorCode != codeNotLeaderOrFollower {
			t.Fatalf("version %d: %+v", v, got)
		}
		if (v >= 10) != (got.CurrentLeader.LeaderID == 1 && len(resp.Brokers) == 1 && resp.Brokers[0].Host == "broker.example") {
			t.Errorf("produce version %d: leader %+v, endpoints %+v", v, got.CurrentLeader, resp.Brokers)
		}
	}
	for v := int16(12); v <= 18; v++ {
		resp := c.ask(fetchRequest(v, "events", id, wanted{})).(*kmsg.FetchResponse)
		got := resp.Topics[0].Partitions[0]
		if (v >= 16) != (got.CurrentLeader.LeaderID == 1 && len(resp.Brokers) == 1) {
			t.Errorf("fetch version %d: leader %+v, endpoints %+v", v, got.CurrentLeader, resp.Brokers)
		}
	}
}
