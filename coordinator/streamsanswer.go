package coordinator

import (
	"fmt"
	"slices"
	"strings"
)

// streamsAnswer tells a member how it stands, once its heartbeat has been taken.
func (c *core) streamsAnswer(b *streamsEntry, r *StreamsHeartbeatResult) {
	sg, m := b.sg, b.m
	r.MemberEpoch = m.epoch
	r.HeartbeatMillis = c.streamsWaits(b).interval(c.groupSetting(b.g.id, "streams.heartbeat.interval.ms", c.cfg.StreamsHeartbeatMillis))
	r.TaskOffsetMillis, r.RecoveryLag = taskOffsetMillis, recoveryLag
	changed := !b.old.assigned.same(m.assigned)
	// A member that says it has something else may not have had the answer that told it: Kafka leaves it so until the next change,
	// and its tasks with nobody.
	if b.q.MemberEpoch == joinEpoch || changed || b.q.Owned.said() && !b.q.Owned.sets().holds(m.assigned) {
		lists := m.assigned.lists()
		r.HasAssignment, r.Active, r.Standby, r.Warmup = true, lists.Active, lists.Standby, lists.Warmup
	}
	news := !same(b.old.endpoint, m.endpoint) || changed && m.endpoint != nil
	if news && !b.fresh { // the first member is told of itself; for everybody to come that is where epochs begin
		sg.endpointEpoch++
	}
	if r.EndpointEpoch = sg.endpointEpoch; r.EndpointEpoch != b.q.EndpointEpoch || news && b.fresh {
		r.HasEndpoints, r.Endpoints = true, c.endpoints(sg)
	}
	if p := b.configured.problem; p != nil {
		b.status = append(b.status, *p)
		r.creating = b.configured.missing
	}
	if sg.shutdown != "" {
		b.note(StatusShutdown, "Streams group member %s encountered a fatal error and requested a shutdown for the entire application.", sg.shutdown)
	}
	if missing := missingTags(b.configs, m.tags); b.q.KnowsTags && len(missing) > 0 {
		b.note(StatusMissingClientTags, "Missing required client tags for rack-aware standby assignment: [%s]. Configure them via 'client.tag.<tagKey>' in your Streams config.", strings.Join(missing, ", "))
	}
	r.Status = b.status
}

// streamsWaits is what the member waits for. While topics are missing it is told the regular interval: Kafka Streams counts in it
// how long it bears with that.
func (c *core) streamsWaits(b *streamsEntry) waiting {
	sg := b.sg
	w := waiting{members: len(sg.members), due: -1}
	switch {
	case b.configured.problem != nil:
	case sg.delayed:
		w.due = c.untilTimer(timerKey{kind: timerJoin, group: b.g.id})
	default:
		w.others = b.m.state == memberUnreleased
		w.due = c.untilAssignment(sg.epoch, sg.targetEpoch, sg.assigned, c.streamsInterval(b.g))
	}
	return w
}

// holds says whether both are the same tasks, whenever they were assigned.
func (s taskSets) holds(o taskSets) bool { return s.within(o) && o.within(s) }

// missingTags is the tags that the group's settings ask of every member and that this one has not.
func missingTags(configs, tags map[string]string) (missing []string) {
	for _, tag := range strings.Split(configs[rackTagsConfig], ",") {
		tag = strings.TrimSpace(tag)
		if _, ok := tags[tag]; !ok && tag != "" {
			missing = append(missing, tag)
		}
	}
	return missing
}

// endpoints says for every member that answers queries which partitions the state there is of.
func (c *core) endpoints(sg *streamsGroup) []EndpointPartitions {
	out := []EndpointPartitions{}
	for _, m := range sg.list() {
		if m.endpoint == nil {
			continue
		}
		replicas := taskSet{}
		for _, set := range []taskSet{m.assigned.standby, m.assigned.warmup} {
			for t := range set {
				replicas[t] = 0
			}
		}
		out = append(out, EndpointPartitions{*m.endpoint, c.partitionsOf(sg, m.assigned.active), c.partitionsOf(sg, replicas)})
	}
	return out
}

// partitionsOf is the partitions that tasks read.
func (c *core) partitionsOf(sg *streamsGroup, set taskSet) []TopicPartitions {
	out := []TopicPartitions{}
	for _, x := range set.list() {
		part := sg.configured.parts[x.Subtopology]
		if part == nil {
			continue
		}
		for _, name := range part.sources {
			t := c.view.byName(name)
			if t == nil {
				continue
			}
			mine := slices.DeleteFunc(slices.Clone(x.Partitions), func(p int32) bool { return int(p) >= len(t.Partitions) })
			if len(mine) > 0 {
				out = append(out, TopicPartitions{Topic: t.ID, Name: name, Partitions: mine})
			}
		}
	}
	return out
}

// String names a task as Kafka Streams does.
func (t task) String() string { return fmt.Sprintf("%s_%d", t.subtopology, t.index) }
