package coordinator

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kbin"

	"github.com/varvelog/varve/meta/topic"
)

// Records of consumer groups in the offsets topic, in Kafka's formats (KIP-848). Keys are not flexible, values of version 0 are:
// compact strings and arrays, a count of tagged fields at the end of every structure.
//
//	key 3   group                     epoch i32 | tag 0: hash of the topics i64, tag 1: creation time i64
//	key 5   group | member            instance, rack: nullable string | client id, host: string | topics: array of string |
//	                                  regex: nullable string | rebalance timeout ms i32 | assignor: nullable string |
//	                                  tag 0: of a member that speaks the classic protocol, else null (see appendClassic)
//	key 6   group                     assignment epoch i32 | tag 0: time of the assignment i64
//	key 7   group | member            target: array of (topic id | partitions: array of i32)
//	key 8   group | member            epoch, previous epoch i32 | state i8 | assigned, to be revoked: arrays of
//	                                  (topic id | partitions: array of i32 | tag 0: epochs in which each was assigned, array of i32)
//	key 16  group | expression        topics: array of string | version i64 | time i64
//
// Format: do not renumber.
const (
	keyConsumerGroup       int16 = 3
	keyConsumerMember      int16 = 5
	keyConsumerTargetEpoch int16 = 6
	keyConsumerTarget      int16 = 7
	keyConsumerCurrent     int16 = 8
	keyConsumerRegex       int16 = 16
)

// ofConsumerMember says whether keys of that kind name a member, or an expression.
func ofConsumerMember(kind int16) bool {
	return kind != keyConsumerGroup && kind != keyConsumerTargetEpoch
}

func consumerKey(kind int16, group, of string) []byte { return consumerRecords.key(kind, group, of) }

func consumerRegexKey(group, text string) []byte { return consumerKey(keyConsumerRegex, group, text) }

// appendTag appends a tagged field of 8 bytes.
func appendTag(b []byte, tag uint32, v int64) []byte {
	return kbin.AppendInt64(kbin.AppendUvarint(kbin.AppendUvarint(b, tag), 8), v)
}

func consumerGroupRecord(group string, g *consumerGroup) record {
	b := kbin.AppendInt32(kbin.AppendInt16(nil, 0), g.epoch)
	b = kbin.AppendUvarint(b, 2)
	b = appendTag(appendTag(b, 0, g.hash), 1, g.created)
	return record{key: consumerKey(keyConsumerGroup, group, ""), value: b}
}

func consumerMemberRecord(group string, m *consumerMember) record {
	b := kbin.AppendInt16(nil, 0)
	b = kbin.AppendCompactNullableString(b, m.instance)
	b = kbin.AppendCompactNullableString(b, m.rack)
	b = kbin.AppendCompactString(b, m.clientID)
	b = kbin.AppendCompactString(b, m.clientHost)
	b = appendStrings(b, m.names)
	var regex *string
	if m.regex != "" {
		regex = &m.regex
	}
	b = kbin.AppendCompactNullableString(b, regex)
	b = kbin.AppendInt32(b, m.rebalanceMillis)
	b = kbin.AppendCompactNullableString(b, m.assignor)
	return record{key: consumerKey(keyConsumerMember, group, m.id), value: appendClassic(b, m.classic)}
}

// appendClassic appends the tagged fields of a member: field 0, always there, is a nullable structure. Without it Kafka takes a
// member for one of the classic protocol.
//
//	uvarint 0                                             null: the member speaks the consumer protocol
//	uvarint 1 | session timeout ms i32 | protocols: array of (name: string | metadata: bytes | no tags) | no tags
func appendClassic(b []byte, m *classicMember) []byte {
	field := []byte{0}
	if m != nil {
		field = kbin.AppendInt32([]byte{1}, m.sessionMillis)
		field = kbin.AppendCompactArrayLen(field, len(m.protocols))
		for i := range m.protocols {
			field = kbin.AppendCompactString(field, m.protocols[i].Name)
			field = kbin.AppendUvarint(kbin.AppendCompactBytes(field, m.protocols[i].Metadata), 0)
		}
		field = kbin.AppendUvarint(field, 0)
	}
	b = kbin.AppendUvarint(kbin.AppendUvarint(b, 1), 0)
	return append(kbin.AppendUvarint(b, uint32(len(field))), field...)
}

// classic reads what appendClassic has written.
func (f *fields) classic() *classicMember {
	if f.Uvarint() == 0 {
		return nil
	}
	m := &classicMember{sessionMillis: f.Int32()}
	for range f.count(3) {
		p := Protocol{Name: f.CompactString(), Metadata: clone(f.CompactBytes())}
		f.tags(nil)
		m.protocols = append(m.protocols, p)
	}
	f.tags(nil)
	if len(m.protocols) == 0 && f.bad == nil {
		f.bad = fmt.Errorf("%w: a classic member without protocols", ErrCorrupt)
	}
	return m
}

func consumerTargetEpochRecord(group string, epoch int32, at int64) record {
	b := kbin.AppendInt32(kbin.AppendInt16(nil, 0), epoch)
	return record{key: consumerKey(keyConsumerTargetEpoch, group, ""), value: appendTag(kbin.AppendUvarint(b, 1), 0, at)}
}

func consumerTargetRecord(group, member string, a assignment) record {
	b := appendAssignment(kbin.AppendInt16(nil, 0), a, false)
	return record{key: consumerKey(keyConsumerTarget, group, member), value: kbin.AppendUvarint(b, 0)}
}

func consumerCurrentRecord(group string, m *consumerMember) record {
	b := kbin.AppendInt16(nil, 0)
	b = kbin.AppendInt32(kbin.AppendInt32(b, m.epoch), m.previous)
	b = kbin.AppendInt8(b, int8(m.state))
	b = appendAssignment(appendAssignment(b, m.assigned, true), m.revoking, true)
	return record{key: consumerKey(keyConsumerCurrent, group, m.id), value: kbin.AppendUvarint(b, 0)}
}

func consumerRegexRecord(group, text string, r *resolved) record {
	b := appendStrings(kbin.AppendInt16(nil, 0), r.topics)
	b = kbin.AppendInt64(kbin.AppendInt64(b, r.version), r.at)
	return record{key: consumerRegexKey(group, text), value: kbin.AppendUvarint(b, 0)}
}

func appendStrings(b []byte, list []string) []byte {
	b = kbin.AppendCompactArrayLen(b, len(list))
	for _, s := range list {
		b = kbin.AppendCompactString(b, s)
	}
	return b
}

// appendAssignment appends an assignment by topic, in order; with epochs those in which each partition was assigned.
func appendAssignment(b []byte, a assignment, epochs bool) []byte {
	list := grouped(a, nil)
	b = kbin.AppendCompactArrayLen(b, len(list))
	for _, t := range list {
		b = append(b, t.Topic[:]...)
		b = kbin.AppendCompactArrayLen(b, len(t.Partitions))
		for _, p := range t.Partitions {
			b = kbin.AppendInt32(b, p)
		}
		if !epochs {
			b = kbin.AppendUvarint(b, 0)
			continue
		}
		field := kbin.AppendCompactArrayLen(nil, len(t.Partitions))
		for _, p := range t.Partitions {
			field = kbin.AppendInt32(field, a[tp{t.Topic, p}])
		}
		b = kbin.AppendUvarint(kbin.AppendUvarint(b, 1), 0)
		b = append(kbin.AppendUvarint(b, uint32(len(field))), field...)
	}
	return b
}

// fields reads a record of a consumer group. Its errors are kept until the end.
type fields struct {
	kbin.Reader
	bad error
}

func readFields(b []byte) *fields { return &fields{Reader: kbin.Reader{Src: b}} }

// count reads an array's length: no more elements than their least size leaves room for.
func (f *fields) count(least int) int {
	n := int(f.CompactArrayLen())
	if n < 0 {
		return 0
	}
	if n > len(f.Src)/least {
		f.bad = fmt.Errorf("%w: array of %d in %d bytes", ErrCorrupt, n, len(f.Src))
		return 0
	}
	return n
}

func (f *fields) strings() []string {
	n := f.count(1)
	list := make([]string, 0, n)
	for range n {
		list = append(list, f.CompactString())
	}
	return list
}

// tags reads the tagged fields at the end of a structure.
func (f *fields) tags(fn func(tag uint32, b *fields)) {
	for n := f.Uvarint(); n > 0 && f.bad == nil && f.Ok(); n-- {
		tag, size := f.Uvarint(), f.Uvarint()
		if int64(size) > int64(len(f.Src)) {
			f.bad = fmt.Errorf("%w: field of %d bytes in %d", ErrCorrupt, size, len(f.Src))
			return
		}
		if b := readFields(f.Span(int(size))); fn != nil {
			fn(tag, b)
			if f.bad == nil {
				f.bad = b.end()
			}
		}
	}
}

func (f *fields) assignment() assignment {
	n := f.count(18)
	a := make(assignment)
	for range n {
		id := topic.ID(f.Uuid())
		list := make([]int32, f.count(4))
		for i := range list {
			list[i] = f.Int32()
		}
		var epochs []int32
		f.tags(func(tag uint32, b *fields) {
			if tag != 0 {
				return
			}
			epochs = make([]int32, b.count(4))
			for i := range epochs {
				epochs[i] = b.Int32()
			}
		})
		for i, p := range list {
			at := int32(0)
			if i < len(epochs) {
				at = epochs[i]
			}
			a[tp{id, p}] = at
		}
	}
	return a
}

// end is the error of what was read.
func (f *fields) end() error {
	if f.bad != nil {
		return f.bad
	}
	if !f.Ok() {
		return fmt.Errorf("%w: record ends early", ErrCorrupt)
	}
	return nil
}

// consumerRecords are the records of consumer groups.
var consumerRecords = protocolRecords[consumerGroup]{
	kind: ConsumerGroup, named: ofConsumerMember,
	in: func(g *group) **consumerGroup { return &g.consumer }, fresh: func() *consumerGroup { return newConsumerGroup(-1) },
	read: readConsumer, unwrite: (*consumerGroup).unwrite,
	gone: func(_ *consumerGroup, kind int16) bool { return kind == keyConsumerGroup },
}

// readConsumer reads a value; what it returns puts that into a group.
func readConsumer(kind int16, of string, v *fields) (apply func(*consumerGroup), err error) {
	switch kind {
	case keyConsumerGroup:
		epoch, hash, created := v.Int32(), int64(0), int64(-1)
		v.tags(func(tag uint32, b *fields) {
			switch tag {
			case 0:
				hash = b.Int64()
			case 1:
				created = b.Int64()
			}
		})
		apply = func(g *consumerGroup) { g.epoch, g.hash, g.created = epoch, hash, created }
	case keyConsumerMember:
		m := &consumerMember{id: of, instance: v.CompactNullableString(), rack: v.CompactNullableString()}
		m.clientID, m.clientHost, m.names = v.CompactString(), v.CompactString(), v.strings()
		slices.Sort(m.names)
		if regex := v.CompactNullableString(); regex != nil {
			m.regex = *regex
		}
		m.rebalanceMillis, m.assignor = v.Int32(), v.CompactNullableString()
		v.tags(func(tag uint32, b *fields) {
			if tag == 0 {
				m.classic = b.classic()
			}
		})
		apply = func(g *consumerGroup) {
			m.assigned, m.revoking = assignment{}, assignment{}
			if old := g.members[of]; old != nil {
				m.epoch, m.previous, m.state, m.assigned, m.revoking = old.epoch, old.previous, old.state, old.assigned, old.revoking
			}
			g.put(m)
		}
	case keyConsumerTargetEpoch:
		epoch, at := v.targetEpoch()
		apply = func(g *consumerGroup) { g.targetEpoch, g.targetAt = epoch, at }
	case keyConsumerTarget:
		a := v.assignment()
		v.tags(nil)
		apply = func(g *consumerGroup) { g.target[of] = a }
	case keyConsumerCurrent:
		m := consumerMember{epoch: v.Int32(), previous: v.Int32(), state: memberState(v.Int8()), assigned: v.assignment(), revoking: v.assignment()}
		v.tags(nil)
		apply = func(g *consumerGroup) {
			n := &consumerMember{id: of, rebalanceMillis: -1}
			if old := g.members[of]; old != nil {
				n = old.clone()
			}
			n.epoch, n.previous, n.state, n.assigned, n.revoking = m.epoch, m.previous, m.state, m.assigned, m.revoking
			g.put(n)
		}
	case keyConsumerRegex:
		r := &resolved{topics: v.strings(), version: v.Int64(), at: v.Int64()}
		r.version = -1 // another process's: it is to be resolved again
		v.tags(nil)
		apply = func(g *consumerGroup) { g.regexes[of] = r }
	}
	return apply, v.end()
}

// unwrite takes back what a record said.
func (g *consumerGroup) unwrite(kind int16, of string) {
	switch kind {
	case keyConsumerMember:
		if m := g.members[of]; m != nil {
			g.drop(m)
		}
	case keyConsumerTargetEpoch:
		g.targetEpoch, g.targetAt = 0, 0
	case keyConsumerTarget:
		delete(g.target, of)
	case keyConsumerCurrent:
		if m := g.members[of]; m != nil {
			n := m.clone()
			n.epoch, n.previous, n.state, n.assigned, n.revoking = 0, 0, memberStable, assignment{}, assignment{}
			g.put(n)
		}
	case keyConsumerRegex:
		delete(g.regexes, of)
	}
}
