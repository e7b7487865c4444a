package coordinator

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/varvelog/varve/meta/topic"
)

// shareBody makes an event of a share group's command; those of the share coordinator are filled in by named.
func shareBody(g, cmd string, a args) any {
	switch cmd {
	case "share-beat":
		q := &ShareHeartbeatRequest{
			Group: g, MemberID: a["id"], MemberEpoch: int32(a.int("epoch", 0)), RackID: a.pointer("rack"), ClientID: a.or("client", "c"), ClientHost: "/127.0.0.1",
		}
		if v, ok := a["topics"]; ok {
			q.Topics = strings.Split(v, ",")
		}
		return q
	case "describe-share":
		return describeShare{g}
	case "share-begun":
		return shareBegun{group: g}
	case "share-failed":
		return shareBegun{group: g, failed: []ShareKey{}}
	case "shares":
		return listShares{g}
	case "share-alter":
		return &AlterShareRequest{Group: g, Topics: []AlterShareTopic{{
			Name: a["topic"], Partitions: []AlterSharePartition{{Partition: int32(a.int("p", 0)), Start: a.int("at", 0)}},
		}}}
	case "share-delete-offsets":
		return &DeleteShareOffsetsRequest{Group: g, Topics: strings.Split(a["topic"], ",")}
	}
	return shareForgotten{group: g, topics: []topic.ID{testTopicID(a["topic"])}, all: a["all"] == "yes"}
}

// begun names the share-partitions that were last to be begun.
func (s *script) begun(q shareBegun) shareBegun {
	list := shareKeysOf(s.begins)
	if q.failed != nil {
		q.failed = list
	} else {
		q.begun = list
	}
	return q
}

func shareKeysOf(list []ShareInitialize) (keys []ShareKey) {
	for _, b := range list {
		keys = append(keys, b.ShareKey)
	}
	return keys
}

func showTopicID(id topic.ID) string { return strings.TrimRight(string(id[:]), "\x00") }

func showBegin(list []ShareInitialize) (out string) {
	for _, b := range list {
		out += fmt.Sprintf(" %s/%d@%d(state %d)", showTopicID(b.Topic), b.Partition, b.Start, b.StateEpoch)
	}
	return out
}

func showShareKeys(list []ShareKey) (out string) {
	for _, k := range list {
		out += fmt.Sprintf(" %s/%d", showTopicID(k.Topic), k.Partition)
	}
	return out
}

func showShareAnswer(x any) (out string) {
	switch x := x.(type) {
	case *ShareDescription:
		out = fmt.Sprintf(" %s epoch=%d/%d", x.State, x.Epoch, x.AssignmentEpoch)
		for _, m := range x.Members {
			out += fmt.Sprintf(" {%s epoch=%d rack=%s topics=%v has%s}", m.MemberID, m.Epoch, text(m.RackID), m.Topics, showTopics(m.Assigned))
		}
	case []ShareKey:
		out = showShareKeys(x)
	case *alteredShares:
		if x != nil {
			out = " begin" + showBegin(x.begin)
			for _, t := range x.result.Topics {
				for _, err := range t.Errs {
					if err != nil {
						out += " (" + showErr(err) + ")"
					}
				}
			}
		}
	case *deletedShares:
		if x != nil {
			for i, r := range x.results {
				out += " forget" + showShareKeys(x.keys[i])
				if r.Err != nil {
					out += " (" + showErr(r.Err) + ")"
				}
			}
		}
	case *doomedShares:
		out = " forget" + showShareKeys(x.keys)
	}
	return out
}

func showShareGroupRecord(r record) string {
	kind := int16(r.key[1])
	k := readFields(r.key[2:])
	out := k.String()
	if ofShareMember(kind) {
		out += " " + k.String()
	}
	names := map[int16]string{
		keyShareGroup: "group", keyShareMember: "member", keyShareTargetEpoch: "target epoch", keyShareTarget: "target",
		keyShareCurrent: "current", keyShareTopics: "topics of",
	}
	out = "share " + names[kind] + " " + out
	if r.value == nil {
		return out + " tombstone"
	}
	g := newShareGroup()
	v := readFields(r.value)
	v.Int16()
	apply, err := readShare(kind, "x", v)
	if err != nil {
		panic(err)
	}
	apply(g)
	switch kind {
	case keyShareGroup:
		return fmt.Sprintf("%s epoch=%d", out, g.epoch)
	case keyShareTargetEpoch:
		return fmt.Sprintf("%s=%d", out, g.targetEpoch)
	case keyShareTarget:
		return out + showTopics(grouped(g.target["x"], nil))
	case keyShareMember:
		return fmt.Sprintf("%s topics=%v rack=%s", out, g.members["x"].names, text(g.members["x"].rack))
	case keyShareCurrent:
		m := g.members["x"]
		return fmt.Sprintf("%s epoch=%d previous=%d has%s", out, m.epoch, m.previous, showTopics(grouped(m.assigned, nil)))
	}
	for i, m := range []map[topic.ID]*shareTopic{g.initializing, g.initialized} {
		out += []string{" initializing", " initialized"}[i]
		for _, id := range sortedIDs(m) {
			out += showShareKeys(m[id].keys("", id))
		}
	}
	out += " deleting"
	for _, id := range sortedIDs(g.deleting) {
		out += " " + g.deleting[id]
	}
	return out
}

// checkShareAssignment holds that every partition that may be given out has as many readers as it should, and that members have
// as many as each other but for one.
func checkShareAssignment(t failer, g *shareGroup, view *topicsView) {
	t.Helper()
	homogeneous, readers := true, make(map[string][]string)
	var first []string
	for _, id := range slices.Sorted(maps.Keys(g.members)) {
		m := g.members[id]
		if first == nil {
			first = m.names
		}
		homogeneous = homogeneous && slices.Equal(first, m.names)
		for _, name := range m.names {
			readers[name] = append(readers[name], id)
		}
	}
	check := func(members []string, parts []tp) {
		if len(parts) == 0 || len(members) == 0 {
			return
		}
		sharing, least, most := (len(members)+len(parts)-1)/len(parts), 1<<30, 0
		for _, p := range parts {
			n := 0
			for _, id := range members {
				if _, ok := g.target[id][p]; ok {
					n++
				}
			}
			if n == 0 || n > sharing {
				t.Fatalf("%v has %d readers, not %d: %v", p, n, sharing, g.target)
			}
		}
		for _, id := range members {
			n := 0
			for _, p := range parts {
				if _, ok := g.target[id][p]; ok {
					n++
				}
			}
			least, most = min(least, n), max(most, n)
		}
		if most > least+1 {
			t.Fatalf("some have %d partitions, others %d: %v", most, least, g.target)
		}
	}
	var all []tp
	for name, members := range readers {
		list := g.assignable(view, name)
		all = append(all, list...)
		if !homogeneous {
			check(members, list)
		}
	}
	if homogeneous {
		check(slices.Collect(maps.Keys(g.members)), all)
	}
	for id, a := range g.target {
		for p := range a {
			if !slices.Contains(all, p) {
				t.Fatalf("%s has %v, which may not be given out", id, p)
			}
		}
	}
}

// TestShareGroupsAreWhatTheirLogSays has members come, go, fall silent and change their minds while topics come and go and the
// share coordinator begins and fails; the log is read back at any moment.
func TestShareGroupsAreWhatTheirLogSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := testConfig()
		cfg.ShareSizeMax = 5
		cfg.ShareAssignmentMillis = int32(rapid.SampledFrom([]int{0, 1000}).Draw(t, "interval"))
		now, images := int64(scriptStart), uint64(0)
		c := newCore(&cfg, now)
		var log []record
		var begins [][]ShareInitialize
		epochs := map[string]int32{}
		setTopics := func() {
			images++
			var list []string
			for _, name := range []string{"a", "b", "c"} {
				if n := rapid.IntRange(0, 4).Draw(t, "partitions"); n > 0 {
					list = append(list, fmt.Sprintf("%s:%d", name, n))
				}
			}
			c.setTopics(c.view.next(testTopics(t, images, list...)))
		}
		setTopics()
		ticket := uint64(0)
		step := func(body any) effects {
			ticket++
			c.step(event{ticket: ticket, body: body}, now)
			out := c.take()
			log = append(log, out.records...)
			begins = append(begins, out.begins...)
			return out
		}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			id := rapid.SampledFrom([]string{"m1", "m2", "m3", "m4"}).Draw(t, "member")
			target := func() int32 {
				if g := c.groups["g"]; g != nil && g.share != nil && len(g.share.members) > 0 {
					return g.share.targetEpoch
				}
				return 0
			}
			before := target()
			switch rapid.IntRange(0, 11).Draw(t, "what") {
			case 0:
				setTopics()
			case 1:
				now += rapid.Int64Range(0, 60_000).Draw(t, "millis")
				c.tick(now)
				out := c.take()
				log = append(log, out.records...)
			case 2:
				step(&ShareHeartbeatRequest{Group: "g", MemberID: id, MemberEpoch: leaveEpoch})
				delete(epochs, id)
			case 3:
				if r := step(remove{"g"}).replies[0]; r.err == nil && r.result != nil {
					d := r.result.(*doomedShares)
					if rapid.Bool().Draw(t, "forgotten") {
						step(shareForgotten{group: "g", topics: d.topics, all: true})
					} else {
						step(shareForgotten{group: "g"})
					}
				}
			case 4:
				step(topicGone{topic: "a", id: testTopicID(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "gone"))})
			case 5, 6, 7:
				if len(begins) > 0 {
					n := shareBegun{group: "g", begun: shareKeysOf(begins[0])}
					if rapid.IntRange(0, 3).Draw(t, "begun") == 0 {
						n.begun, n.failed = nil, n.begun
					}
					begins = begins[1:]
					step(n)
				}
			default:
				q := &ShareHeartbeatRequest{Group: "g", MemberID: id, MemberEpoch: epochs[id]}
				if q.MemberEpoch == 0 || rapid.Bool().Draw(t, "says topics") {
					q.Topics = rapid.SampledFrom([][]string{{"a"}, {"b", "a"}, {"c", "d"}}).Draw(t, "topics")
				}
				if r := step(q).replies[0]; r.err == nil {
					epochs[id] = r.result.(*ShareHeartbeatResult).MemberEpoch
				} else {
					delete(epochs, id)
				}
			}
			if target() > before {
				checkShareAssignment(t, c.groups["g"].share, c.view)
			}
			again := newCore(&cfg, now)
			for _, r := range log {
				if err := again.replay(noProducer, r.key, r.value); err != nil {
					t.Fatal(err)
				}
			}
			if got, want := showShareGroups(again), showShareGroups(c); got != want {
				t.Fatalf("the log says\n%sthe state is\n%s", got, want)
			}
		}
	})
}

// showShareGroups is all that the log keeps of share groups.
func showShareGroups(c *core) string {
	var out strings.Builder
	for _, id := range c.groupIDs() {
		g := c.groups[id]
		if g.share == nil {
			fmt.Fprintf(&out, "%s is no share group\n", id)
			continue
		}
		fmt.Fprintf(&out, "%s epoch %d of %d, targets %d at %d\n", id, g.share.epoch, g.share.hash, g.share.targetEpoch, g.share.targetAt)
		for _, m := range slices.Sorted(maps.Keys(g.share.members)) {
			x := g.share.members[m]
			fmt.Fprintf(&out, "  %s %v epoch %d before %d has%s of%s\n", m, x.names, x.epoch, x.previous, showTopics(grouped(x.assigned, nil)), showTopics(grouped(g.share.target[m], nil)))
		}
		if g.share.known {
			fmt.Fprintln(&out, " ", showShareGroupRecord(shareTopicsRecord(id, g.share)))
		}
	}
	return out.String()
}
