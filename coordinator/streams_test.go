package coordinator

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cockroachdb/datadriven"
)

// topology names a topology for the commands that follow, one subtopology a line:
//
//	topology NAME [epoch=N]
//	ID: from=TOPIC,… through=REPARTITION[:N],… to=SINK,… keeps=CHANGELOG,… even=TOPIC+TOPIC
func (s *script) topology(d *datadriven.TestData) {
	t := &Topology{}
	for _, a := range d.CmdArgs[1:] {
		fmt.Sscan(a.Vals[0], &t.Epoch)
	}
	for _, line := range strings.Split(strings.TrimSpace(d.Input), "\n") {
		id, rest, _ := strings.Cut(line, ":")
		p := Subtopology{ID: id}
		for _, word := range strings.Fields(rest) {
			what, list, _ := strings.Cut(word, "=")
			for _, x := range strings.Split(list, ",") {
				p.add(s.t, what, x)
			}
		}
		t.Subtopologies = append(t.Subtopologies, p)
	}
	if s.topologies == nil {
		s.topologies = map[string]*Topology{}
	}
	s.topologies[d.CmdArgs[0].Key] = t
}

func (p *Subtopology) add(t failer, what, x string) {
	name, count, _ := strings.Cut(x, ":")
	topic := InternalTopic{Name: name}
	if count != "" {
		fmt.Sscan(count, &topic.Partitions)
	}
	switch what {
	case "from":
		p.Sources = append(p.Sources, x)
	case "matching":
		p.SourceRegexes = append(p.SourceRegexes, x)
	case "through":
		p.Repartition = append(p.Repartition, topic)
	case "to":
		p.Sinks = append(p.Sinks, x)
	case "keeps":
		topic.Configs = []TopicConfig{{"cleanup.policy", "compact"}}
		p.Changelogs = append(p.Changelogs, topic)
	case "even":
		g := CopartitionGroup{}
		for _, name := range strings.Split(x, "+") {
			if at := slices.Index(p.Sources, name); at >= 0 {
				g.Sources = append(g.Sources, int16(at))
			} else {
				g.Repartition = append(g.Repartition, int16(slices.IndexFunc(p.Repartition, named(name))))
			}
		}
		p.Copartition = append(p.Copartition, g)
	default:
		t.Fatalf("a subtopology has no %q", what)
	}
}

// streams makes a heartbeat of a member of a streams group:
//
//	streams id=ID [epoch=N] [topology=NAME] [has=TASK,…|none] [standby=TASK,…] [warmup=TASK,…] [process=P] [instance=I] [rack=R]
//	        [endpoint=HOST:PORT] [endpoints=N] [tags=K:V,…] [offsets=TASK:N,…] [rebalance=MS] [v=0] [shutdown]
//
// A task is SUBTOPOLOGY_PARTITION. has says what is active; with has, the lists that are not given are empty.
func (s *script) streams(d *datadriven.TestData) any {
	a := args{}
	for _, x := range d.CmdArgs {
		a[x.Key] = strings.Join(x.Vals, ",")
	}
	q := &StreamsHeartbeatRequest{
		Group: a.or("g", "g"), MemberID: a["id"], MemberEpoch: int32(a.int("epoch", 0)), EndpointEpoch: int32(a.int("endpoints", 0)),
		InstanceID: a.pointer("instance"), RackID: a.pointer("rack"), ClientID: "c", ClientHost: "/127.0.0.1",
		RebalanceMillis: int32(a.int("rebalance", -1)), KnowsTags: a.int("v", 1) >= 1,
	}
	if _, ok := a["shutdown"]; ok {
		q.Shutdown = true
	}
	if q.MemberEpoch == joinEpoch && a["topology"] != "none" {
		q.Topology = s.topologies[a.or("topology", "wc")]
		process := a.or("process", a["id"])
		q.ProcessID = &process
		if _, ok := a["rebalance"]; !ok {
			q.RebalanceMillis = 60_000
		}
	} else if name, ok := a["topology"]; ok {
		q.Topology = s.topologies[name]
	}
	if has, ok := a["has"]; ok || q.MemberEpoch == joinEpoch {
		q.Owned = OwnedTasks{parseTasks(has), parseTasks(a["standby"]), parseTasks(a["warmup"])}
	}
	if e, ok := a["endpoint"]; ok {
		host, port, _ := strings.Cut(e, ":")
		q.Endpoint = &Endpoint{Host: host}
		fmt.Sscan(port, &q.Endpoint.Port)
	}
	for _, x := range splitList(a["tags"]) {
		k, v, _ := strings.Cut(x, ":")
		if q.ClientTags == nil {
			q.ClientTags = map[string]string{}
		}
		q.ClientTags[k] = v
	}
	for _, x := range splitList(a["offsets"]) {
		name, n, _ := strings.Cut(x, ":")
		o := TaskOffset{}
		o.Subtopology, o.Partition = parseTask(name)
		fmt.Sscan(n, &o.Offset)
		q.Offsets = append(q.Offsets, o)
	}
	return q
}

func splitList(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' })
}

func parseTask(text string) (subtopology string, partition int32) {
	subtopology, n, _ := strings.Cut(text, "_")
	fmt.Sscan(n, &partition)
	return subtopology, partition
}

func parseTasks(text string) []Tasks {
	out := []Tasks{}
	for _, x := range splitList(text) {
		if x == "none" {
			continue
		}
		sub, p := parseTask(x)
		out = append(out, Tasks{sub, []int32{p}})
	}
	return out
}

func showTasks(list []Tasks) string {
	out := ""
	for _, t := range list {
		for _, p := range t.Partitions {
			out += fmt.Sprintf(" %s_%d", t.Subtopology, p)
		}
	}
	if out == "" {
		return " nothing"
	}
	return out
}

func showOwned(o OwnedTasks) string {
	out := showTasks(o.Active)
	if len(o.Standby) > 0 {
		out += " standby" + showTasks(o.Standby)
	}
	if len(o.Warmup) > 0 {
		out += " warm-up" + showTasks(o.Warmup)
	}
	return out
}

func showStreamsResult(x *StreamsHeartbeatResult, err error) string {
	out := fmt.Sprintf(" %s epoch=%d", x.MemberID, x.MemberEpoch)
	if err != nil {
		return out
	}
	if x.HasAssignment {
		out += " runs" + showOwned(OwnedTasks{x.Active, x.Standby, x.Warmup})
	}
	if x.HasEndpoints {
		out += fmt.Sprintf(" endpoints(%d)", x.EndpointEpoch)
		for _, e := range x.Endpoints {
			out += fmt.Sprintf(" {%s:%d", e.Endpoint.Host, e.Endpoint.Port)
			for _, t := range e.Active {
				out += fmt.Sprintf(" %s%v", t.Name, t.Partitions)
			}
			for _, t := range e.Standby {
				out += fmt.Sprintf(" standby %s%v", t.Name, t.Partitions)
			}
			out += "}"
		}
	}
	out += showSoon(x.HeartbeatMillis)
	for _, t := range x.creating {
		out += fmt.Sprintf("\n   make %s with %d", t.Name, t.Partitions)
		for _, c := range t.Configs {
			out += fmt.Sprintf(" %s=%s", c.Name, c.Value)
		}
	}
	for _, st := range x.Status {
		out += fmt.Sprintf("\n   status %d: %s", st.Code, st.Detail)
	}
	return out
}

func showStreamsDescription(x *StreamsDescription) string {
	out := fmt.Sprintf(" %s epoch=%d/%d", x.State, x.Epoch, x.AssignmentEpoch)
	if x.Topology != nil {
		out += fmt.Sprintf(" topology=%d", x.Topology.Epoch)
		for _, s := range x.Topology.Subtopologies {
			out += fmt.Sprintf("\n   %s reads %v", s.ID, s.Sources)
			for _, t := range s.Repartition {
				out += fmt.Sprintf(" %s:%d", t.Name, t.Partitions)
			}
			out += fmt.Sprintf(" writes %v keeps", s.Sinks)
			for _, t := range s.Changelogs {
				out += fmt.Sprintf(" %s:%d", t.Name, t.Partitions)
			}
		}
	}
	for _, m := range x.Members {
		out += fmt.Sprintf("\n   %s epoch=%d process=%s runs%s of%s", m.MemberID, m.Epoch, m.ProcessID, showOwned(m.Assigned), showOwned(m.Target))
		for _, o := range m.Offsets {
			out += fmt.Sprintf(" %s_%d at %d", o.Subtopology, o.Partition, o.Offset)
		}
		for _, t := range m.ClientTags {
			out += fmt.Sprintf(" %s=%s", t.Name, t.Value)
		}
	}
	return out
}

func showStreamsRecord(r record) string {
	kind := int16(r.key[1])
	k := readFields(r.key[2:])
	out := k.String()
	if ofStreamsMember(kind) {
		out += " " + k.String()
	}
	names := map[int16]string{
		keyStreamsGroup: "streams", keyStreamsMember: "member", keyStreamsTargetEpoch: "target epoch", keyStreamsTarget: "target",
		keyStreamsCurrent: "current", keyStreamsTopology: "topology",
	}
	out = names[kind] + " " + out
	if r.value == nil {
		return out + " tombstone"
	}
	g := newStreamsGroup()
	v := readFields(r.value)
	v.Int16()
	apply, err := readStreams(kind, "x", v)
	if err != nil || len(v.Src) > 0 {
		panic(fmt.Sprint(err, len(v.Src)))
	}
	apply(g)
	switch kind {
	case keyStreamsGroup:
		return fmt.Sprintf("%s epoch=%d validated=%d", out, g.epoch, g.validated)
	case keyStreamsTargetEpoch:
		return fmt.Sprintf("%s=%d", out, g.targetEpoch)
	case keyStreamsTarget:
		return out + showOwned(g.target["x"].lists())
	case keyStreamsTopology:
		return fmt.Sprintf("%s epoch=%d topics=%v", out, g.topology.Epoch, g.topology.topics())
	case keyStreamsMember:
		m := g.members["x"]
		return fmt.Sprintf("%s process=%s topology=%d instance=%s", out, m.process, m.topologyEpoch, text(m.instance))
	}
	m := g.members["x"]
	out = fmt.Sprintf("%s epoch=%d previous=%d state=%d runs%s", out, m.epoch, m.previous, m.state, showOwned(m.assigned.lists()))
	if !m.revoking.empty() {
		out += " gives up" + showOwned(m.revoking.lists())
	}
	return out
}

// checkStreamsGroup checks what must hold of a streams group at every moment: nobody runs what another runs or has yet to give up,
// and no process has a task twice.
func checkStreamsGroup(t failer, g *streamsGroup) {
	t.Helper()
	active := map[task]string{}
	within := map[string]map[task]string{}
	for _, m := range g.list() {
		for _, x := range slices.Concat(m.assigned.active.sorted(), m.revoking.active.sorted()) {
			if other, ok := active[x]; ok {
				t.Fatalf("%v is active with %s and with %s", x, other, m.id)
			}
			active[x] = m.id
		}
		if m.epoch > g.targetEpoch || g.targetEpoch > g.epoch {
			t.Fatalf("member %s is in epoch %d, the target in %d, the group in %d", m.id, m.epoch, g.targetEpoch, g.epoch)
		}
		here := within[m.process]
		if here == nil {
			here = map[task]string{}
			within[m.process] = here
		}
		for _, set := range []taskSet{m.assigned.active, m.assigned.standby, m.assigned.warmup} {
			for x := range set {
				if other, ok := here[x]; ok && other != m.id {
					t.Fatalf("%v is in process %s with %s and with %s", x, m.process, other, m.id)
				}
				here[x] = m.id
			}
		}
	}
}

// checkTaskTarget checks an assignment: every task is active exactly once, tasks with state have as many standbys as there can be,
// each in a process of its own, and members are even.
func checkTaskTarget(t failer, g *streamsGroup) {
	t.Helper()
	active, copies := map[task]string{}, map[task]map[string]int{}
	processes := map[string]bool{}
	for id, m := range g.members {
		processes[m.process] = true
		for x := range g.target[id].active {
			if other, ok := active[x]; ok {
				t.Fatalf("%v is meant to be active with %s and with %s", x, other, id)
			}
			active[x] = id
		}
		for _, set := range []taskSet{g.target[id].active, g.target[id].standby} {
			for x := range set {
				if copies[x] == nil {
					copies[x] = map[string]int{}
				}
				copies[x][m.process]++
			}
		}
	}
	if g.configured.problem != nil {
		if len(active) > 0 {
			t.Fatalf("%v run while topics are missing", active)
		}
		return
	}
	want := 0
	for id, p := range g.configured.parts {
		for i := range p.tasks {
			x := task{id, i}
			want++
			if active[x] == "" {
				t.Fatalf("nobody is to run %v", x)
			}
			n := 1
			if p.stateful {
				n = min(len(processes), 1+standbys(g.configs))
			}
			if len(copies[x]) != n || slices.Max(slices.Collect(maps.Values(copies[x]))) > 1 {
				t.Fatalf("%v is in %v, and should be in %d processes", x, copies[x], n)
			}
		}
	}
	if len(active) != want {
		t.Fatalf("%d tasks are to run of %d", len(active), want)
	}
	most := (want + len(g.members) - 1) / len(g.members)
	for id := range g.members {
		if standbys(g.configs) == 0 && len(g.target[id].active) > most && len(processes) == len(g.members) {
			t.Fatalf("%s is to run %d tasks; an even share is %d", id, len(g.target[id].active), most)
		}
	}
}
