package coordinator

import (
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kbin"

	"github.com/varvelog/varve/meta/topic"
)

// Records of share groups in the offsets topic, in Kafka's formats (KIP-932), encoded as those of consumer groups are
// (consumerrecord.go).
//
//	key 10  group | member   rack: nullable string | client id, host: string | topics: array of string
//	key 11  group            epoch i32 | hash of the topics i64
//	key 12  group            assignment epoch i32 | tag 0: time of the assignment i64
//	key 13  group | member   target: array of (topic id | partitions: array of i32)
//	key 14  group | member   epoch, previous epoch i32 | state i8, 0: stable | assigned: array of (topic id | partitions: array of i32)
//	key 15  group            initializing, initialized: arrays of (topic id | name: string | partitions: array of i32) |
//	                         deleting: array of (topic id | name: string)
//
// Format: do not renumber.
const (
	keyShareMember      int16 = 10
	keyShareGroup       int16 = 11
	keyShareTargetEpoch int16 = 12
	keyShareTarget      int16 = 13
	keyShareCurrent     int16 = 14
	keyShareTopics      int16 = 15
)

// ofShareMember says whether a kind of key names a member.
func ofShareMember(kind int16) bool {
	return kind == keyShareMember || kind == keyShareTarget || kind == keyShareCurrent
}

func shareGroupKey(kind int16, group, member string) []byte {
	return shareRecords.key(kind, group, member)
}

func shareMemberRecord(group string, m *shareMember) record {
	b := kbin.AppendCompactNullableString(kbin.AppendInt16(nil, 0), m.rack)
	b = kbin.AppendCompactString(kbin.AppendCompactString(b, m.clientID), m.clientHost)
	return record{key: shareGroupKey(keyShareMember, group, m.id), value: kbin.AppendUvarint(appendStrings(b, m.names), 0)}
}

func shareGroupRecord(group string, g *shareGroup) record {
	b := kbin.AppendInt64(kbin.AppendInt32(kbin.AppendInt16(nil, 0), g.epoch), g.hash)
	return record{key: shareGroupKey(keyShareGroup, group, ""), value: kbin.AppendUvarint(b, 0)}
}

func shareTargetEpochRecord(group string, epoch int32, at int64) record {
	return record{key: shareGroupKey(keyShareTargetEpoch, group, ""), value: appendTargetEpoch(epoch, at)}
}

func shareTargetRecord(group, member string, a assignment) record {
	b := appendAssignment(kbin.AppendInt16(nil, 0), a, false)
	return record{key: shareGroupKey(keyShareTarget, group, member), value: kbin.AppendUvarint(b, 0)}
}

func shareCurrentRecord(group string, m *shareMember) record {
	b := kbin.AppendInt32(kbin.AppendInt32(kbin.AppendInt16(nil, 0), m.epoch), m.previous)
	b = appendAssignment(kbin.AppendInt8(b, int8(memberStable)), m.assigned, false)
	return record{key: shareGroupKey(keyShareCurrent, group, m.id), value: kbin.AppendUvarint(b, 0)}
}

func shareTopicsRecord(group string, g *shareGroup) record {
	b := kbin.AppendInt16(nil, 0)
	for _, m := range []map[topic.ID]*shareTopic{g.initializing, g.initialized} {
		b = kbin.AppendCompactArrayLen(b, len(m))
		for _, id := range sortedIDs(m) {
			b = kbin.AppendCompactString(append(b, id[:]...), m[id].name)
			b = kbin.AppendCompactArrayLen(b, len(m[id].parts))
			for _, p := range slices.Sorted(maps.Keys(m[id].parts)) {
				b = kbin.AppendInt32(b, p)
			}
			b = kbin.AppendUvarint(b, 0)
		}
	}
	b = kbin.AppendCompactArrayLen(b, len(g.deleting))
	for _, id := range sortedIDs(g.deleting) {
		b = kbin.AppendUvarint(kbin.AppendCompactString(append(b, id[:]...), g.deleting[id]), 0)
	}
	return record{key: shareGroupKey(keyShareTopics, group, ""), value: kbin.AppendUvarint(b, 0)}
}

func (f *fields) shareTopics() map[topic.ID]*shareTopic {
	out := make(map[topic.ID]*shareTopic)
	for range f.count(19) {
		id, t := topic.ID(f.Uuid()), &shareTopic{name: f.CompactString(), parts: make(map[int32]struct{}), since: -1}
		for range f.count(4) {
			t.parts[f.Int32()] = struct{}{}
		}
		f.tags(nil)
		out[id] = t
	}
	return out
}

// tombstones take back all that is written of a share group without members.
func (g *shareGroup) tombstones(group string) (list []record) {
	for _, kind := range []int16{keyShareTargetEpoch, keyShareTopics, keyShareGroup} {
		list = append(list, record{key: shareGroupKey(kind, group, "")})
	}
	return list
}

// shareRecords are the records of share groups. One is gone when nothing of it is written any more.
var shareRecords = protocolRecords[shareGroup]{
	kind: ShareGroup, named: ofShareMember,
	in: func(g *group) **shareGroup { return &g.share }, fresh: newShareGroup,
	read: readShare, unwrite: (*shareGroup).unwrite,
	gone: func(g *shareGroup, _ int16) bool { return !g.written() },
}

// readShare reads a value; what it returns puts that into a group.
func readShare(kind int16, of string, v *fields) (apply func(*shareGroup), err error) {
	switch kind {
	case keyShareMember:
		m := &shareMember{id: of, rack: v.CompactNullableString(), clientID: v.CompactString(), clientHost: v.CompactString(), names: v.strings()}
		slices.Sort(m.names)
		apply = func(g *shareGroup) {
			m.assigned = assignment{}
			if old := g.members[of]; old != nil {
				m.epoch, m.previous, m.assigned = old.epoch, old.previous, old.assigned
			}
			g.put(m)
		}
	case keyShareGroup:
		epoch, hash := v.Int32(), v.Int64()
		apply = func(g *shareGroup) { g.epoch, g.hash = epoch, hash }
	case keyShareTargetEpoch:
		epoch, at := v.targetEpoch()
		return func(g *shareGroup) { g.targetEpoch, g.targetAt = epoch, at }, v.end()
	case keyShareTarget:
		a := v.assignment()
		apply = func(g *shareGroup) { g.target[of] = a }
	case keyShareCurrent:
		epoch, previous, _, a := v.Int32(), v.Int32(), v.Int8(), v.assignment()
		apply = func(g *shareGroup) {
			n := &shareMember{id: of}
			if old := g.members[of]; old != nil {
				n = old.clone()
			}
			n.epoch, n.previous, n.assigned = epoch, previous, a
			g.put(n)
		}
	case keyShareTopics:
		initializing, initialized, deleting := v.shareTopics(), v.shareTopics(), make(map[topic.ID]string)
		for range v.count(18) {
			id := topic.ID(v.Uuid())
			deleting[id] = v.CompactString()
			v.tags(nil)
		}
		apply = func(g *shareGroup) {
			g.initializing, g.initialized, g.deleting, g.known = initializing, initialized, deleting, true
		}
	}
	v.tags(nil)
	return apply, v.end()
}

// unwrite takes back what a record said.
func (g *shareGroup) unwrite(kind int16, of string) {
	switch kind {
	case keyShareMember:
		delete(g.members, of)
		delete(g.target, of)
	case keyShareGroup:
		g.epoch, g.hash = firstEpoch, 0
	case keyShareTargetEpoch:
		g.targetEpoch, g.targetAt = firstEpoch, 0
	case keyShareTarget:
		delete(g.target, of)
	case keyShareCurrent:
		if m := g.members[of]; m != nil {
			n := m.clone()
			n.epoch, n.previous, n.assigned = 0, 0, assignment{}
			g.put(n)
		}
	case keyShareTopics:
		fresh := newShareGroup()
		g.initializing, g.initialized, g.deleting, g.known = fresh.initializing, fresh.initialized, fresh.deleting, false
	}
}
