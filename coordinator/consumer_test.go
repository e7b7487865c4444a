package coordinator

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/topic"
)

// failer is as much of a test as the checks need.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// testTopics makes an image of topics, each NAME:PARTITIONS, whose ids are their names.
func testTopics(t failer, index uint64, list ...string) *meta.Image {
	t.Helper()
	img := meta.NewImage()
	changes := []meta.Change{meta.RegisterBroker{ID: 1, Incarnation: topic.ID{1}, Host: "h", Port: 1}}
	for _, x := range list {
		name, count, _ := strings.Cut(x, ":")
		n, err := strconv.Atoi(count)
		if err != nil {
			t.Fatalf("%v", err)
		}
		c := meta.CreateTopic{Name: name, ID: testTopicID(name), Partitions: make([]meta.Partition, n)}
		for i := range c.Partitions {
			c.Partitions[i] = meta.Partition{Leader: 1, Replicas: []int32{1}, ISR: []int32{1}}
		}
		changes = append(changes, c)
	}
	next, err := img.Apply(meta.Command{Base: img.Index, Changes: changes}, index)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return next
}

func testTopicID(name string) (id topic.ID) {
	copy(id[:], name)
	return id
}

func (s *script) topics(d *datadriven.TestData) {
	var list []string
	for _, a := range d.CmdArgs {
		list = append(list, strings.Split(a.Key, ",")...)
	}
	s.images++
	s.core.setTopics(s.core.view.next(testTopics(s.t, s.images, list...)))
}

// named gives the partitions of a heartbeat the ids of their topics.
func (s *script) named(body any) any {
	if q, ok := body.(*ConsumerHeartbeatRequest); ok {
		for i := range q.Owned {
			q.Owned[i].Topic = testTopicID(q.Owned[i].Name)
		}
	}
	if q, ok := body.(shareBegun); ok {
		return s.begun(q)
	}
	return body
}

func showTopics(list []TopicPartitions) string {
	if len(list) == 0 {
		return " nothing"
	}
	out := ""
	for _, t := range list {
		for _, p := range t.Partitions {
			out += fmt.Sprintf(" %s/%d", strings.TrimRight(string(t.Topic[:]), "\x00"), p)
		}
	}
	return out
}

func showConsumerRecord(r record) string {
	kind := int16(r.key[1])
	k := readFields(r.key[2:])
	out := k.String()
	if kind != keyConsumerGroup && kind != keyConsumerTargetEpoch {
		out += " " + k.String()
	}
	names := map[int16]string{
		keyConsumerGroup: "group", keyConsumerMember: "member", keyConsumerTargetEpoch: "target epoch", keyConsumerTarget: "target",
		keyConsumerCurrent: "current", keyConsumerRegex: "regex",
	}
	out = names[kind] + " " + out
	if r.value == nil {
		return out + " tombstone"
	}
	g := newConsumerGroup(-1)
	v := readFields(r.value)
	v.Int16()
	apply, err := readConsumer(kind, "x", v)
	if err != nil {
		panic(err)
	}
	apply(g)
	switch kind {
	case keyConsumerGroup:
		return fmt.Sprintf("%s epoch=%d", out, g.epoch)
	case keyConsumerTargetEpoch:
		return fmt.Sprintf("%s=%d", out, g.targetEpoch)
	case keyConsumerTarget:
		return out + showTopics(grouped(g.target["x"], nil))
	case keyConsumerRegex:
		return fmt.Sprintf("%s %v", out, g.regexes["x"].topics)
	case keyConsumerMember:
		m := g.members["x"]
		out = fmt.Sprintf("%s topics=%v regex=%s instance=%s", out, m.names, m.regex, text(m.instance))
		if m.classic != nil {
			out += fmt.Sprintf(" classic session=%d", m.classic.sessionMillis)
			for _, p := range m.classic.protocols {
				out += fmt.Sprintf(" %s(%s)", p.Name, showMetadata(p.Metadata))
			}
		}
		return out
	}
	m := g.members["x"]
	return fmt.Sprintf("%s epoch=%d previous=%d state=%d has%s gives up%s", out, m.epoch, m.previous, m.state,
		showTopics(grouped(m.assigned, nil)), showTopics(grouped(m.revoking, nil)))
}

// consumerModel checks what must hold of a consumer group at every moment.
func checkConsumerGroup(t failer, g *consumerGroup) {
	t.Helper()
	owner := map[tp]string{}
	for _, m := range g.list() {
		for _, p := range slices.Concat(m.assigned.sorted(), m.revoking.sorted()) {
			if other, ok := owner[p]; ok {
				t.Fatalf("%v is with %s and with %s", p, other, m.id)
			}
			owner[p] = m.id
			if _, ok := g.owners[p]; !ok {
				t.Fatalf("%v of %s is taken for free", p, m.id)
			}
		}
		if m.epoch > g.targetEpoch || g.targetEpoch > g.epoch {
			t.Fatalf("member %s is in epoch %d, the target in %d, the group in %d", m.id, m.epoch, g.targetEpoch, g.epoch)
		}
	}
	if len(owner) != len(g.owners) {
		t.Fatalf("%d partitions have an owner, %d are taken for owned", len(owner), len(g.owners))
	}
}

// balanced checks a target: everybody only has what it may read, everything subscribed is with exactly one, and nobody has two
// more than another of the same subscription.
func checkTarget(t failer, g *consumerGroup, view *topicsView, uniform bool) {
	t.Helper()
	owner := map[tp]string{}
	sizes := map[string][]int{}
	for _, m := range g.list() {
		names := g.subscribed(m)
		for p := range g.target[m.id] {
			if other, ok := owner[p]; ok {
				t.Fatalf("%v is meant for %s and for %s", p, other, m.id)
			}
			owner[p] = m.id
			if !slices.Contains(names, view.byID(p.topic).Name) {
				t.Fatalf("%s is to read %v and does not subscribe to it", m.id, p)
			}
		}
		key := strings.Join(names, ",")
		sizes[key] = append(sizes[key], len(g.target[m.id]))
	}
	for _, name := range view.img.Topics() {
		if !g.reads(name.Name) {
			continue
		}
		for i := range name.Partitions {
			if _, ok := owner[tp{name.ID, int32(i)}]; !ok {
				t.Fatalf("nobody is to read %s/%d", name.Name, i)
			}
		}
	}
	for key, list := range sizes {
		if uniform && slices.Max(list)-slices.Min(list) > 1 {
			t.Fatalf("readers of %s have %v partitions", key, list)
		}
	}
}

func (c *core) consumerIDs() []string {
	var out []string
	for _, id := range slices.Sorted(maps.Keys(c.groups)) {
		if c.groups[id].consumer != nil {
			out = append(out, id)
		}
	}
	return out
}

func TestSettingsOfAGroupAreItsOwnOrTheBrokersNewest(t *testing.T) {
	cfg := testConfig()
	cfg.NodeID = 1
	c := newCore(&cfg, 0)
	img := testTopics(t, 1, "a:1")
	for i, step := range []struct {
		change meta.Change
		want   int64
	}{
		{meta.SetConfigs{Kind: meta.BrokerConfig, Set: map[string]string{"group.consumer.assignment.interval.ms": "5"}}, 5},
		{meta.SetConfigs{Kind: meta.BrokerConfig, Name: "2", Set: map[string]string{"group.consumer.assignment.interval.ms": "6"}}, 5},
		{meta.SetConfigs{Kind: meta.BrokerConfig, Name: "1", Set: map[string]string{"group.consumer.assignment.interval.ms": "7"}}, 7},
		{meta.SetConfigs{Kind: meta.GroupConfig, Name: "g", Set: map[string]string{"consumer.assignment.interval.ms": "0"}}, 0},
	} {
		next, err := img.Apply(meta.Command{Base: img.Index, Changes: []meta.Change{step.change}}, uint64(i+2))
		if err != nil {
			t.Fatal(err)
		}
		img = next
		c.setTopics(c.view.next(img))
		if got := c.groupSetting("g", "consumer.assignment.interval.ms", 3); got != step.want {
			t.Errorf("after %+v: %d, want %d", step.change, got, step.want)
		}
	}
	if got := c.groupSetting("h", "consumer.heartbeat.interval.ms", 3); got != 3 {
		t.Errorf("of another: %d", got)
	}
}
