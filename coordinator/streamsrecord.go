package coordinator

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kbin"
)

// Records of streams groups in the offsets topic, in Kafka's formats (KIP-1071), written as those of consumer groups are.
//
//	key 17  group            epoch i32 | hash of the topics i64 | tag 0: validated topology epoch i32, tag 1: settings of the last
//	                         assignment, array of (name, value: string), tag 2, tag 3: epochs of topology descriptions i32
//	key 19  group | member   instance, rack: nullable string | client id, host: string | rebalance timeout ms i32 | topology epoch i32 |
//	                         process: string | endpoint: nullable (host: string | port u16) | tags: array of (key, value: string)
//	key 20  group            assignment epoch i32 | tag 0: time of the assignment i64
//	key 21  group | member   target: active, standby, warm-up tasks
//	key 22  group | member   epoch, previous epoch i32 | state i8 | assigned: active, standby, warm-up tasks | to be revoked: likewise
//	key 23  group            epoch i32 | array of subtopology
//
//	tasks        array of (subtopology: string | partitions: array of i32 | tag 0, of active tasks in key 22: the epochs in which each
//	             was assigned, array of i32)
//	subtopology  id: string | sources, source expressions: array of string | changelogs: array of topic | sinks: array of string |
//	             repartition sources: array of topic | copartition groups: array of (sources, expressions, repartition: array of i16)
//	topic        name: string | partitions i32 | replicas i16 | settings: array of (name, value: string)
//
// Format: do not renumber.
const (
	keyStreamsGroup       int16 = 17
	keyStreamsRetired     int16 = 18 // of releases before Kafka 4.2: passed over
	keyStreamsMember      int16 = 19
	keyStreamsTargetEpoch int16 = 20
	keyStreamsTarget      int16 = 21
	keyStreamsCurrent     int16 = 22
	keyStreamsTopology    int16 = 23
)

// ofStreamsMember says whether keys of that kind name a member.
func ofStreamsMember(kind int16) bool {
	return kind == keyStreamsMember || kind == keyStreamsTarget || kind == keyStreamsCurrent
}

func streamsKey(kind int16, group, member string) []byte {
	return streamsRecords.key(kind, group, member)
}

// appendField appends a tagged field.
func appendField(b []byte, tag uint32, value []byte) []byte {
	return append(kbin.AppendUvarint(kbin.AppendUvarint(b, tag), uint32(len(value))), value...)
}

func streamsGroupRecord(group string, g *streamsGroup) record {
	b := kbin.AppendInt64(kbin.AppendInt32(kbin.AppendInt16(nil, 0), g.epoch), g.hash)
	var tagged [][]byte
	number := func(tag uint32, v int32) {
		if v != noTopology {
			tagged = append(tagged, appendField(nil, tag, kbin.AppendInt32(nil, v)))
		}
	}
	number(0, g.validated)
	tagged = append(tagged, appendField(nil, 1, appendPairs(nil, pairs(g.configs))))
	number(2, g.stored)
	number(3, g.failed)
	b = kbin.AppendUvarint(b, uint32(len(tagged)))
	return record{key: streamsKey(keyStreamsGroup, group, ""), value: append(b, slices.Concat(tagged...)...)}
}

func streamsMemberRecord(group string, m *streamsMember) record {
	b := kbin.AppendInt16(nil, 0)
	b = kbin.AppendCompactNullableString(kbin.AppendCompactNullableString(b, m.instance), m.rack)
	b = kbin.AppendCompactString(kbin.AppendCompactString(b, m.clientID), m.clientHost)
	b = kbin.AppendInt32(kbin.AppendInt32(b, m.rebalanceMillis), m.topologyEpoch)
	b = kbin.AppendCompactString(b, m.process)
	if m.endpoint == nil {
		b = kbin.AppendInt8(b, -1)
	} else {
		b = kbin.AppendUint16(kbin.AppendCompactString(kbin.AppendInt8(b, 1), m.endpoint.Host), m.endpoint.Port)
		b = kbin.AppendUvarint(b, 0)
	}
	b = appendPairs(b, pairs(m.tags))
	return record{key: streamsKey(keyStreamsMember, group, m.id), value: kbin.AppendUvarint(b, 0)}
}

func streamsTargetEpochRecord(group string, epoch int32, at int64) record {
	return record{key: streamsKey(keyStreamsTargetEpoch, group, ""), value: appendTargetEpoch(epoch, at)}
}

func streamsTargetRecord(group, member string, s taskSets) record {
	b := kbin.AppendInt16(nil, 0)
	for _, set := range []taskSet{s.active, s.standby, s.warmup} {
		b = appendTasks(b, set, false)
	}
	return record{key: streamsKey(keyStreamsTarget, group, member), value: kbin.AppendUvarint(b, 0)}
}

func streamsCurrentRecord(group string, m *streamsMember) record {
	b := kbin.AppendInt32(kbin.AppendInt32(kbin.AppendInt16(nil, 0), m.epoch), m.previous)
	b = kbin.AppendInt8(b, int8(m.state))
	for _, s := range []taskSets{m.assigned, m.revoking} {
		b = appendTasks(b, s.active, true)
		b = appendTasks(appendTasks(b, s.standby, false), s.warmup, false)
	}
	return record{key: streamsKey(keyStreamsCurrent, group, m.id), value: kbin.AppendUvarint(b, 0)}
}

func streamsTopologyRecord(group string, t *Topology) record {
	return record{key: streamsKey(keyStreamsTopology, group, ""), value: t.appendTo(kbin.AppendInt16(nil, 0))}
}

// same says whether two topologies are the same, in whatever order their subtopologies are.
func (t *Topology) same(o *Topology) bool {
	return string(t.inOrder().appendTo(nil)) == string(o.inOrder().appendTo(nil))
}

func (t *Topology) inOrder() *Topology {
	out := &Topology{Epoch: t.Epoch, Subtopologies: slices.Clone(t.Subtopologies)}
	slices.SortFunc(out.Subtopologies, func(a, b Subtopology) int { return slices.Compare([]byte(a.ID), []byte(b.ID)) })
	return out
}

func (t *Topology) appendTo(b []byte) []byte {
	b = kbin.AppendCompactArrayLen(kbin.AppendInt32(b, t.Epoch), len(t.Subtopologies))
	for i := range t.Subtopologies {
		s := &t.Subtopologies[i]
		b = appendStrings(appendStrings(kbin.AppendCompactString(b, s.ID), s.Sources), s.SourceRegexes)
		b = appendInternal(b, s.Changelogs)
		b = appendInternal(appendStrings(b, s.Sinks), s.Repartition)
		b = kbin.AppendCompactArrayLen(b, len(s.Copartition))
		for _, g := range s.Copartition {
			for _, list := range [][]int16{g.Sources, g.SourceRegexes, g.Repartition} {
				b = kbin.AppendCompactArrayLen(b, len(list))
				for _, at := range list {
					b = kbin.AppendInt16(b, at)
				}
			}
			b = kbin.AppendUvarint(b, 0)
		}
		b = kbin.AppendUvarint(b, 0)
	}
	return kbin.AppendUvarint(b, 0)
}

func appendInternal(b []byte, list []InternalTopic) []byte {
	b = kbin.AppendCompactArrayLen(b, len(list))
	for i := range list {
		b = kbin.AppendCompactString(b, list[i].Name)
		b = kbin.AppendInt16(kbin.AppendInt32(b, list[i].Partitions), list[i].Replicas)
		b = kbin.AppendUvarint(appendPairs(b, list[i].Configs), 0)
	}
	return b
}

func appendPairs(b []byte, list []TopicConfig) []byte {
	b = kbin.AppendCompactArrayLen(b, len(list))
	for _, x := range list {
		b = kbin.AppendUvarint(kbin.AppendCompactString(kbin.AppendCompactString(b, x.Name), x.Value), 0)
	}
	return b
}

// appendTasks appends tasks by subtopology, in order; with epochs those in which each was assigned.
func appendTasks(b []byte, set taskSet, epochs bool) []byte {
	list := set.list()
	b = kbin.AppendCompactArrayLen(b, len(list))
	for _, x := range list {
		b = kbin.AppendCompactArrayLen(kbin.AppendCompactString(b, x.Subtopology), len(x.Partitions))
		for _, p := range x.Partitions {
			b = kbin.AppendInt32(b, p)
		}
		if !epochs {
			b = kbin.AppendUvarint(b, 0)
			continue
		}
		field := kbin.AppendCompactArrayLen(nil, len(x.Partitions))
		for _, p := range x.Partitions {
			field = kbin.AppendInt32(field, set[task{x.Subtopology, p}])
		}
		b = appendField(kbin.AppendUvarint(b, 1), 0, field)
	}
	return b
}

func (f *fields) pairs() []TopicConfig {
	list := make([]TopicConfig, f.count(3))
	for i := range list {
		list[i] = TopicConfig{f.CompactString(), f.CompactString()}
		f.tags(nil)
	}
	return list
}

func (f *fields) tasks() taskSet {
	set := taskSet{}
	for range f.count(3) {
		subtopology := f.CompactString()
		list := f.numbers()
		var epochs []int32
		f.tags(func(tag uint32, b *fields) {
			if tag == 0 {
				epochs = b.numbers()
			}
		})
		for i, p := range list {
			at := int32(0)
			if i < len(epochs) {
				at = epochs[i]
			}
			set[task{subtopology, p}] = at
		}
	}
	return set
}

func (f *fields) numbers() []int32 {
	list := make([]int32, f.count(4))
	for i := range list {
		list[i] = f.Int32()
	}
	return list
}

func (f *fields) taskSets() taskSets { return taskSets{f.tasks(), f.tasks(), f.tasks()} }

func (f *fields) topology() *Topology {
	t := &Topology{Epoch: f.Int32()}
	t.Subtopologies = make([]Subtopology, f.count(8))
	for i := range t.Subtopologies {
		s := &t.Subtopologies[i]
		s.ID, s.Sources, s.SourceRegexes = f.CompactString(), f.strings(), f.strings()
		s.Changelogs, s.Sinks, s.Repartition = f.internal(), f.strings(), f.internal()
		s.Copartition = make([]CopartitionGroup, f.count(4))
		for j := range s.Copartition {
			for _, to := range []*[]int16{&s.Copartition[j].Sources, &s.Copartition[j].SourceRegexes, &s.Copartition[j].Repartition} {
				*to = make([]int16, f.count(2))
				for k := range *to {
					(*to)[k] = f.Int16()
				}
			}
			f.tags(nil)
		}
		f.tags(nil)
	}
	f.tags(nil)
	return t
}

func (f *fields) internal() []InternalTopic {
	list := make([]InternalTopic, f.count(9))
	for i := range list {
		list[i] = InternalTopic{Name: f.CompactString(), Partitions: f.Int32(), Replicas: f.Int16(), Configs: f.pairs()}
		f.tags(nil)
	}
	return list
}

// streamsRecords are the records of streams groups.
var streamsRecords = protocolRecords[streamsGroup]{
	kind: StreamsGroup, named: ofStreamsMember,
	in: func(g *group) **streamsGroup { return &g.streams }, fresh: newStreamsGroup,
	read: readStreams, unwrite: (*streamsGroup).unwrite,
	gone: func(_ *streamsGroup, kind int16) bool { return kind == keyStreamsGroup },
}

// readStreams reads a value; what it returns puts that into a group.
func readStreams(kind int16, member string, v *fields) (apply func(*streamsGroup), err error) {
	switch kind {
	case keyStreamsGroup:
		apply = readStreamsGroup(v)
	case keyStreamsMember:
		m := readStreamsMember(member, v)
		apply = func(g *streamsGroup) {
			if old := g.members[member]; old != nil {
				m.epoch, m.previous, m.state, m.assigned, m.revoking = old.epoch, old.previous, old.state, old.assigned, old.revoking
			}
			g.put(m)
		}
	case keyStreamsTargetEpoch:
		epoch, at := v.targetEpoch()
		apply = func(g *streamsGroup) { g.targetEpoch, g.assigned = epoch, at }
	case keyStreamsTarget:
		s := v.taskSets()
		v.tags(nil)
		apply = func(g *streamsGroup) { g.target[member] = s }
	case keyStreamsCurrent:
		m := streamsMember{epoch: v.Int32(), previous: v.Int32(), state: memberState(v.Int8()), assigned: v.taskSets(), revoking: v.taskSets()}
		v.tags(nil)
		apply = func(g *streamsGroup) {
			n := newStreamsMember(member)
			if old := g.members[member]; old != nil {
				n = old.clone()
			}
			n.epoch, n.previous, n.state, n.assigned, n.revoking = m.epoch, m.previous, m.state, m.assigned, m.revoking
			g.put(n)
		}
	case keyStreamsTopology:
		t := v.topology()
		if v.bad == nil && t.check() != nil {
			return nil, fmt.Errorf("%w: topology of a streams group: %w", ErrCorrupt, t.check())
		}
		apply = func(g *streamsGroup) { g.topology = t }
	}
	return apply, v.end()
}

func readStreamsGroup(v *fields) func(*streamsGroup) {
	epoch, hash := v.Int32(), v.Int64()
	numbers := map[uint32]int32{0: noTopology, 2: noTopology, 3: noTopology}
	configs := make(map[string]string)
	v.tags(func(tag uint32, b *fields) {
		if tag == 1 {
			for _, x := range b.pairs() {
				configs[x.Name] = x.Value
			}
		} else if _, ok := numbers[tag]; ok {
			numbers[tag] = b.Int32()
		}
	})
	return func(g *streamsGroup) {
		g.epoch, g.hash, g.configs = epoch, hash, configs
		g.validated, g.stored, g.failed = numbers[0], numbers[2], numbers[3]
	}
}

func readStreamsMember(id string, v *fields) *streamsMember {
	m := newStreamsMember(id)
	m.instance, m.rack = v.CompactNullableString(), v.CompactNullableString()
	m.clientID, m.clientHost = v.CompactString(), v.CompactString()
	m.rebalanceMillis, m.topologyEpoch, m.process = v.Int32(), v.Int32(), v.CompactString()
	if v.Int8() > 0 {
		m.endpoint = &Endpoint{v.CompactString(), v.Uint16()}
		v.tags(nil)
	}
	m.tags = make(map[string]string)
	for _, x := range v.pairs() {
		m.tags[x.Name] = x.Value
	}
	v.tags(nil)
	return m
}

// unwrite takes back what a record said.
func (g *streamsGroup) unwrite(kind int16, member string) {
	switch kind {
	case keyStreamsMember:
		if m := g.members[member]; m != nil {
			target, ok := g.target[member]
			if g.drop(m); ok {
				g.target[member] = target
			}
		}
	case keyStreamsTargetEpoch:
		g.targetEpoch, g.assigned = 0, 0
	case keyStreamsTarget:
		delete(g.target, member)
	case keyStreamsCurrent:
		if m := g.members[member]; m != nil {
			n := m.clone()
			n.epoch, n.previous, n.state, n.assigned, n.revoking = 0, 0, memberStable, newTaskSets(), newTaskSets()
			g.put(n)
		}
	case keyStreamsTopology:
		g.topology = nil
	}
}
