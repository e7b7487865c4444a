package coordinator

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// What members of streams groups are told about reporting offsets, as Kafka has it fixed.
const (
	taskOffsetMillis int32 = 60_000
	recoveryLag      int64 = 10_000
	noRecoveryLag    int64 = -1 // it is not told
)

// streamsHeartbeat is StreamsGroupHeartbeat: joining, leaving, and everything between.
func (c *core) streamsHeartbeat(e event, q *StreamsHeartbeatRequest) {
	r := &StreamsHeartbeatResult{MemberID: q.MemberID, MemberEpoch: q.MemberEpoch, RecoveryLag: noRecoveryLag}
	err := q.check()
	if err == nil {
		switch q.MemberEpoch {
		case leaveEpoch, leaveStaticEpoch:
			err = c.streamsLeave(q)
		default:
			err = c.streamsBeat(q, r)
		}
	}
	c.reply(e.ticket, r, err)
}

// check is Kafka's check of a request's form, with its texts.
func (q *StreamsHeartbeatRequest) check() error {
	empty := func(s *string) bool { return s != nil && strings.TrimSpace(*s) == "" }
	if q.Topology != nil && slices.ContainsFunc(q.Topology.Subtopologies, func(s Subtopology) bool { return len(s.SourceRegexes) > 0 }) {
		return invalid("Regular expressions for source topics are not supported yet.")
	}
	switch {
	case strings.TrimSpace(q.MemberID) == "":
		return invalid("MemberId can't be empty.")
	case strings.TrimSpace(q.Group) == "":
		return invalid("GroupId can't be empty.")
	case empty(q.InstanceID):
		return invalid("InstanceId can't be empty.")
	case empty(q.RackID):
		return invalid("RackId can't be empty.")
	case q.MemberEpoch == joinEpoch:
		if err := q.checkJoin(); err != nil {
			return err
		}
	case q.MemberEpoch == leaveStaticEpoch && q.InstanceID == nil:
		return invalid("InstanceId can't be null.")
	case q.MemberEpoch < leaveStaticEpoch:
		return refuse(ErrInvalidHeartbeat, "MemberEpoch is %d, but must be greater than or equal to -2.", q.MemberEpoch)
	}
	o := &q.Owned
	if some, all := o.Active != nil || o.Standby != nil || o.Warmup != nil, o.said(); some && !all {
		return invalid("If one task-type is non-null, all must be non-null.")
	}
	if q.MemberEpoch != joinEpoch && q.Topology != nil {
		return invalid("Topology can only be provided when (re-)joining.")
	}
	return nil
}

func (q *StreamsHeartbeatRequest) checkJoin() error {
	switch {
	case q.RebalanceMillis == -1:
		return invalid("RebalanceTimeoutMs must be provided in first request.")
	case q.Owned.Active == nil || len(q.Owned.Active) > 0:
		return invalid("ActiveTasks must be empty when (re-)joining.")
	case q.Owned.Standby == nil || len(q.Owned.Standby) > 0:
		return invalid("StandbyTasks must be empty when (re-)joining.")
	case q.Owned.Warmup == nil || len(q.Owned.Warmup) > 0:
		return invalid("WarmupTasks must be empty when (re-)joining.")
	case q.Topology == nil:
		return invalid("Topology must be non-null when (re-)joining.")
	}
	return q.Topology.check()
}

// said says whether the member says what it has.
func (o *OwnedTasks) said() bool { return o.Active != nil && o.Standby != nil && o.Warmup != nil }

// sets is the tasks as sets.
func (o *OwnedTasks) sets() taskSets {
	s := newTaskSets()
	fill := func(to taskSet, list []Tasks) {
		for _, t := range list {
			for _, p := range t.Partitions {
				to[task{t.Subtopology, p}] = 0
			}
		}
	}
	fill(s.active, o.Active)
	fill(s.standby, o.Standby)
	fill(s.warmup, o.Warmup)
	return s
}

// streamsOf finds the streams group of that name. Of a member that joins nil stands for a group yet to be made; an empty classic
// group makes way for it.
func (c *core) streamsOf(name string, join bool) (*group, *streamsGroup, error) {
	g := c.group(name)
	switch {
	case g != nil && g.streams != nil:
		return g, g.streams, nil
	case g == nil && !join:
		return nil, nil, refuse(ErrUnknownGroup, "Streams group %s not found.", name)
	case g != nil && (!join || g.modern() != nil || g.state != Empty || len(g.members) > 0):
		return nil, nil, refuse(ErrUnknownGroup, "Group %s is not a streams group.", name)
	}
	return g, newStreamsGroup(), nil
}

// streamsEntry is a heartbeat being decided on. Nothing of the group is changed before all of it is found to be right.
type streamsEntry struct {
	q           *StreamsHeartbeatRequest
	g           *group // nil: yet to be made
	fresh       bool   // the group is made for the member
	sg          *streamsGroup
	old, m      *streamsMember // as it was and as it will be
	away        *streamsMember // the static member whose place m takes; nil: none
	founds      bool           // the group has no topology yet: m's becomes its own
	topology    *Topology
	configured  *configuredTopology
	hash        int64
	validated   int32
	offsets     map[task]int64
	ends        map[task]int64
	configs     map[string]string
	reconfigure bool
	status      []StreamsStatus
}

// streamsBeat takes a heartbeat of a member that is or wants to be in the group.
func (c *core) streamsBeat(q *StreamsHeartbeatRequest, r *StreamsHeartbeatResult) error {
	if c.view == nil {
		return ErrNotAvailable
	}
	b := &streamsEntry{q: q, validated: noTopology, fresh: c.group(q.Group) == nil || c.group(q.Group).streams == nil}
	var err error
	if b.g, b.sg, err = c.streamsOf(q.Group, q.MemberEpoch == joinEpoch); err != nil {
		return err
	}
	if err = c.streamsMember(b); err != nil {
		return err
	}
	if err = c.streamsTopology(b); err != nil {
		return err
	}
	b.configs = c.streamsConfigs(q.Group)
	c.admit(b)
	c.streamsAnswer(b, r)
	return nil
}

// streamsMember finds the member that a heartbeat comes from, or makes it.
func (c *core) streamsMember(b *streamsEntry) error {
	q, sg := b.q, b.sg
	join := q.MemberEpoch == joinEpoch
	m := sg.members[q.MemberID]
	static := (*streamsMember)(nil)
	if q.InstanceID != nil {
		static = sg.members[sg.static[*q.InstanceID]]
	}
	if full := len(sg.members) >= int(c.cfg.StreamsSizeMax); join && full && m == nil && static == nil {
		return refuse(ErrGroupFull, "The streams group has reached its maximum capacity of %d members.", c.cfg.StreamsSizeMax)
	}
	if q.InstanceID != nil {
		switch {
		case static == nil && !join:
			return refuse(ErrUnknownMember, "Instance id %s is unknown.", *q.InstanceID)
		case static != nil && join && static.epoch != leaveStaticEpoch:
			return refuse(ErrUnreleasedInstance, "Static member %s with instance id %s cannot join the group because the instance id is owned by %s member.", q.MemberID, *q.InstanceID, static.id)
		case static != nil && join:
			m = static.clone()
			m.id, m.epoch, m.previous = q.MemberID, joinEpoch, joinEpoch
			b.away = static
		case static != nil && static.id != q.MemberID:
			return refuse(ErrFencedInstance, "Static member %s with instance id %s was fenced by member %s.", q.MemberID, *q.InstanceID, static.id)
		}
	}
	switch {
	case m == nil && !join:
		return refuse(ErrUnknownMember, "Member %s is not a member of group %s.", q.MemberID, q.Group)
	case m == nil:
		m = newStreamsMember(q.MemberID)
	}
	if err := m.checkEpoch(q); err != nil {
		return err
	}
	b.old, b.m = m, m.clone()
	b.m.take(q)
	if rec := streamsMemberRecord(q.Group, b.m); rec.size() > c.cfg.BatchBytesMax-batchOverhead {
		return ErrTooLarge
	}
	return nil
}

// checkEpoch decides whether a heartbeat is from the member as it is now. One epoch back is, too, if it says that it has no more
// than it may: then the answer to it was lost.
func (m *streamsMember) checkEpoch(q *StreamsHeartbeatRequest) error {
	than := ""
	switch {
	case q.MemberEpoch == joinEpoch || q.MemberEpoch == m.epoch:
		return nil
	case q.MemberEpoch > m.epoch:
		than = "greater"
	case q.MemberEpoch == m.previous && q.Owned.said() && q.Owned.sets().within(m.assigned):
		return nil
	default:
		than = "smaller"
	}
	return refuse(ErrFencedMemberEpoch, "The streams group member has a %s member epoch (%d) than the one known by the group coordinator (%d). The member must abandon all its partitions and rejoin.", than, q.MemberEpoch, m.epoch)
}

// within says whether all of the tasks are among others, in the same role.
func (s taskSets) within(o taskSets) bool {
	inside := func(a, b taskSet) bool {
		for t := range a {
			if !b.has(t) {
				return false
			}
		}
		return true
	}
	return inside(s.active, o.active) && inside(s.standby, o.standby) && inside(s.warmup, o.warmup)
}

// take takes over what a heartbeat says of its member.
func (m *streamsMember) take(q *StreamsHeartbeatRequest) {
	set := func(to **string, v *string) {
		if v != nil {
			*to = v
		}
	}
	set(&m.instance, q.InstanceID)
	set(&m.rack, q.RackID)
	m.clientID, m.clientHost = q.ClientID, q.ClientHost
	if q.RebalanceMillis != -1 {
		m.rebalanceMillis = q.RebalanceMillis
	}
	if q.Topology != nil {
		m.topologyEpoch = q.Topology.Epoch
	}
	if q.ProcessID != nil {
		m.process = *q.ProcessID
	}
	if q.ClientTags != nil {
		m.tags = q.ClientTags
	}
	if q.Endpoint != nil || q.MemberEpoch == joinEpoch {
		m.endpoint = q.Endpoint
	}
}

// described says whether two states of a member have the same said of them; placed, whether the same tasks would be meant for them.
func (m *streamsMember) described(o *streamsMember) bool {
	return m.placed(o) && same(m.instance, o.instance) && m.clientID == o.clientID && m.clientHost == o.clientHost &&
		m.rebalanceMillis == o.rebalanceMillis && same(m.endpoint, o.endpoint)
}

func (m *streamsMember) placed(o *streamsMember) bool {
	return m.topologyEpoch == o.topologyEpoch && same(m.rack, o.rack) && maps.Equal(m.tags, o.tags) && m.process == o.process
}

// streamsTopology finds the topology that counts, and holds it against the topics that there are.
func (c *core) streamsTopology(b *streamsEntry) error {
	q, sg := b.q, b.sg
	b.topology = sg.topology
	if q.Topology != nil {
		switch {
		case sg.topology == nil:
			b.founds, b.topology = true, q.Topology
			if rec := streamsTopologyRecord(q.Group, q.Topology); rec.size() > c.cfg.BatchBytesMax-batchOverhead {
				return ErrTooLarge
			}
		case sg.topology.Epoch <= q.Topology.Epoch && !sg.topology.same(q.Topology):
			return invalid("Topology updates are not supported yet.")
		}
	}
	if b.topology == nil {
		return fmt.Errorf("%w: streams group %s has members and no topology", ErrCorrupt, q.Group)
	}
	if sg.topology != nil && b.m.topologyEpoch < sg.topology.Epoch {
		b.note(StatusStaleTopology, "The member's topology epoch %d is behind the group's topology epoch %d.", b.m.topologyEpoch, sg.topology.Epoch)
	}
	b.hash, b.configured = sg.hash, sg.configured
	if b.founds || b.configured == nil || sg.seen != c.view.version {
		b.hash = b.topology.hash(c.view)
		if b.founds || b.configured == nil || b.hash != sg.hash {
			b.reconfigure = true
			var err error
			if b.configured, err = b.topology.configure(c.view); err != nil {
				return err
			}
		}
	}
	if b.configured.problem == nil {
		b.validated = b.topology.Epoch
		if err := b.configured.known(&q.Owned); err != nil {
			return err
		}
	}
	return b.reported()
}

// reported reads the offsets that the member reports.
func (b *streamsEntry) reported() error {
	read := func(list []TaskOffset, was map[task]int64) (map[task]int64, error) {
		if list == nil {
			return was, nil
		}
		out := make(map[task]int64)
		for _, o := range list {
			t := task{o.Subtopology, o.Partition}
			if _, twice := out[t]; twice {
				return nil, refuse(ErrInvalidHeartbeat, "Task offsets contain a duplicate entry for subtopology %s and partition %d.", o.Subtopology, o.Partition)
			}
			if p := b.configured.parts[o.Subtopology]; p == nil || o.Partition < 0 || o.Partition >= p.tasks {
				continue // of no task that there is: nobody will ask for it
			}
			out[t] = o.Offset
		}
		return out, nil
	}
	var err error
	if b.offsets, err = read(b.q.Offsets, b.old.offsets); err == nil {
		b.ends, err = read(b.q.EndOffsets, b.old.ends)
	}
	return err
}

func (b *streamsEntry) note(code int8, format string, args ...any) {
	b.status = append(b.status, StreamsStatus{code, fmt.Sprintf(format, args...)})
}

// known checks that the topology has the tasks that a member says it has.
func (t *configuredTopology) known(o *OwnedTasks) error {
	for _, list := range [][]Tasks{o.Active, o.Standby, o.Warmup} {
		for _, x := range list {
			p := t.parts[x.Subtopology]
			if p == nil {
				return refuse(ErrInvalidHeartbeat, "Subtopology %s does not exist in the topology.", x.Subtopology)
			}
			for _, index := range x.Partitions {
				if index < 0 || index >= p.tasks {
					return refuse(ErrInvalidHeartbeat, "Task %d for subtopology %s is invalid. Number of tasks for this subtopology: %d", index, x.Subtopology, p.tasks)
				}
			}
		}
	}
	return nil
}

// streamsConfigs is the settings that assignments of a group follow, under Kafka's names in records.
func (c *core) streamsConfigs(group string) map[string]string {
	out := map[string]string{standbyConfig: strconv.FormatInt(c.groupSetting(group, "streams.num.standby.replicas", c.cfg.StreamsStandbys), 10)}
	tags := strings.Join(c.cfg.StreamsRackTags, ",")
	if text, ok := c.view.settings(group)["streams.rack.aware.assignment.tags"]; ok {
		tags = text
	}
	if tags != "" {
		out[rackTagsConfig] = tags
	}
	return out
}

const (
	standbyConfig  = "num.standby.replicas"
	rackTagsConfig = "rack.aware.assignment.tags"
)
