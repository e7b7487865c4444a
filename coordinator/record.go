package coordinator

import (
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/hot/batch"
)

// Records of the offsets topic, in Kafka's formats. The first two bytes of a key say what the record is about; the first two
// of a value are the value's version. A null value deletes what the key names.
//
//	key 0, 1   i16 version | group string | topic string | partition i32             an offset
//	key 2      i16 version | group string                                            a classic group
//	key 3–16   a consumer group, see consumerrecord.go
//	key 10–15  a share group, see sharegrouprecord.go
//	key 17–23  a streams group, see streamsrecord.go
//
// Written are offset values of version 4, the first with the topic's id (version 1 when the commit brought its own retention
// time, which later versions have no field for), and group values of version 3, as Kafka 4.4 does, so that every tool that
// reads the topic can read them. All versions are read. Format: do not renumber.
const (
	keyOffset         int16 = 1
	keyGroup          int16 = 2
	valueOffset       int16 = 4
	valueOffsetExpire int16 = 1
	valueGroup        int16 = 3
)

// batchOverhead is room for what surrounds a record's key and value: batch header, lengths, varints.
const batchOverhead = batch.HeaderSize + 64

// record is one record to be written; value nil is a tombstone. A record of a transaction names its producer; the end of the
// transaction is a record that has nothing else.
type record struct {
	key, value []byte
	txn        *Producer
	end        *batch.Marker
	ticket     uint64 // of a transaction's: who is to be told when it is refused
}

// Producer is a transactional producer, as its records name it.
type Producer struct {
	ID    int64
	Epoch int16
}

// noProducer is the producer id of what is not part of a transaction.
const noProducer int64 = -1

func (r record) size() int { return len(r.key) + len(r.value) }

func offsetKey(group, topic string, partition int32) []byte {
	k := kmsg.OffsetCommitKey{Version: keyOffset, Group: group, Topic: topic, Partition: partition}
	return k.AppendTo(nil)
}

func offsetRecord(group, topic string, partition int32, o *offset) record {
	v := kmsg.OffsetCommitValue{
		Version: valueOffset, Offset: o.offset, LeaderEpoch: o.leaderEpoch, Metadata: o.metadata, CommitTimestamp: o.committed,
		TopicID: o.id,
	}
	if o.expires >= 0 {
		v.Version, v.ExpireTimestamp = valueOffsetExpire, o.expires
	}
	return record{key: offsetKey(group, topic, partition), value: v.AppendTo(nil)}
}

func offsetTombstone(group, topic string, partition int32) record {
	return record{key: offsetKey(group, topic, partition)}
}

func groupKey(group string) []byte {
	k := kmsg.GroupMetadataKey{Version: keyGroup, Group: group}
	return k.AppendTo(nil)
}

// groupRecord is the group as it stands. Only groups whose members all have an assignment, and groups without members, are
// ever written.
func groupRecord(g *group) record {
	v := kmsg.GroupMetadataValue{
		Version: valueGroup, Generation: g.generation, Protocol: g.protocol, CurrentStateTimestamp: g.since,
	}
	if g.protocolType != nil {
		v.ProtocolType = *g.protocolType
	}
	if g.leader != "" {
		leader := g.leader
		v.Leader = &leader
	}
	for _, m := range g.list() {
		km := kmsg.NewGroupMetadataValueMember()
		km.MemberID, km.InstanceID, km.ClientID, km.ClientHost = m.id, m.instance, m.clientID, m.clientHost
		km.RebalanceTimeoutMillis, km.SessionTimeoutMillis = int32(m.rebalanceMillis), int32(m.sessionMillis)
		km.Subscription, km.Assignment = m.metadata(*g.protocol), m.assignment
		v.Members = append(v.Members, km)
	}
	return record{key: groupKey(g.id), value: v.AppendTo(nil)}
}

func groupTombstone(group string) record { return record{key: groupKey(group)} }

// replay applies one record of the log. Records of other kinds are passed over. On an error nothing has changed.
func (c *core) replay(producer int64, key, value []byte) error {
	if len(key) < 2 {
		return fmt.Errorf("%w: key of %d bytes", ErrCorrupt, len(key))
	}
	switch version := int16(binary.BigEndian.Uint16(key)); {
	case version == 0 || version == 1:
		return c.replayOffset(producer, key, value)
	case version == keyGroup:
		return c.replayGroup(key, value)
	case version >= keyShareMember && version <= keyShareTopics:
		return shareRecords.replay(c, key, value)
	case version == keyConsumerGroup, version >= keyConsumerMember && version <= keyConsumerCurrent, version == keyConsumerRegex:
		return consumerRecords.replay(c, key, value)
	case version >= keyStreamsGroup && version <= keyStreamsTopology && version != keyStreamsRetired:
		return streamsRecords.replay(c, key, value)
	}
	return nil
}

func (c *core) replayOffset(producer int64, key, value []byte) error {
	var k kmsg.OffsetCommitKey
	if err := k.ReadFrom(key); err != nil {
		return fmt.Errorf("%w: offset key: %w", ErrCorrupt, err)
	}
	if value == nil {
		if g := c.group(k.Group); g != nil {
			g.dropOffset(k.Topic, k.Partition)
			c.dropPending(g, partition{k.Topic, k.Partition})
			c.settle(g)
		}
		return nil
	}
	v := kmsg.OffsetCommitValue{LeaderEpoch: NoEpoch}
	if err := v.ReadFrom(value); err != nil || v.Version < 0 || v.Version > 4 {
		return fmt.Errorf("%w: offset value of version %d: %v", ErrCorrupt, v.Version, err)
	}
	o := offset{
		offset: v.Offset, leaderEpoch: v.LeaderEpoch, metadata: v.Metadata, committed: v.CommitTimestamp, expires: -1, id: v.TopicID,
	}
	if v.Version == valueOffsetExpire {
		o.expires = v.ExpireTimestamp
	}
	c.seq++
	o.seq = c.seq
	if producer != noProducer {
		c.setPending(c.groupOrNew(k.Group), producer, partition{k.Topic, k.Partition}, o)
		return nil
	}
	c.groupOrNew(k.Group).setOffset(k.Topic, k.Partition, o)
	return nil
}

func (c *core) replayGroup(key, value []byte) error {
	var k kmsg.GroupMetadataKey
	if err := k.ReadFrom(key); err != nil {
		return fmt.Errorf("%w: group key: %w", ErrCorrupt, err)
	}
	old := c.group(k.Group)
	if value == nil {
		if old != nil && old.consumer == nil {
			bare := newGroup(k.Group, -1)
			bare.offsets, bare.txns = old.offsets, old.txns
			c.groups[k.Group] = bare
			c.settle(bare)
		}
		return nil
	}
	v := kmsg.GroupMetadataValue{CurrentStateTimestamp: -1}
	if err := v.ReadFrom(value); err != nil || v.Version < 0 || v.Version > 4 {
		return fmt.Errorf("%w: group value of version %d: %v", ErrCorrupt, v.Version, err)
	}
	if len(v.Members) > 0 && v.Protocol == nil {
		return fmt.Errorf("%w: group value with members and without a protocol", ErrCorrupt)
	}
	g := newGroup(k.Group, v.CurrentStateTimestamp)
	g.generation, g.protocol, g.persisted = v.Generation, v.Protocol, true
	if v.ProtocolType != "" {
		g.protocolType = &v.ProtocolType
	}
	for i := range v.Members {
		g.restore(&v.Members[i], v.Version)
	}
	if len(v.Members) > 0 {
		g.state = Stable
		if v.Leader != nil && g.members[*v.Leader] != nil {
			g.leader = *v.Leader
		}
	}
	g.readSubscriptions()
	if old != nil {
		g.offsets, g.txns = old.offsets, old.txns
	}
	c.groups[k.Group] = g
	return nil
}

// restore puts in a member as its record has it: it is known to speak the chosen protocol only.
func (g *group) restore(km *kmsg.GroupMetadataValueMember, version int16) {
	m := &member{
		id: km.MemberID, instance: km.InstanceID, clientID: km.ClientID, clientHost: km.ClientHost,
		rebalanceMillis: int64(km.RebalanceTimeoutMillis), sessionMillis: int64(km.SessionTimeoutMillis),
		protocols:  []Protocol{{Name: *g.protocol, Metadata: clone(km.Subscription)}},
		assignment: clone(km.Assignment),
	}
	if version == 0 {
		m.rebalanceMillis = m.sessionMillis
	}
	g.add(m)
}

func clone(b []byte) []byte { return append([]byte{}, b...) }

// loaded ends the replay: from now on time counts. Every member has its whole session to be heard of.
func (c *core) loaded(now int64) {
	c.now = now
	for _, id := range c.groupIDs() {
		g := c.groups[id]
		for _, m := range g.list() {
			c.setSession(g, m.id, m.sessionMillis)
		}
		c.membersLoaded(g)
		if len(g.members) > int(c.cfg.GroupSizeMax) { // it was lowered: the last to rejoin are turned away
			c.rebalance(g)
		}
	}
}
