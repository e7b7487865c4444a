package coordinator

// GroupType is which protocol the members of a group speak.
type GroupType int8

// The types of groups.
const (
	ClassicGroup  GroupType = iota
	ConsumerGroup           // KIP-848
	ShareGroup              // KIP-932
	StreamsGroup            // KIP-1071
)

// String is Kafka's name of the type.
func (t GroupType) String() string {
	switch t {
	case ConsumerGroup:
		return "consumer"
	case ShareGroup:
		return "share"
	case StreamsGroup:
		return "streams"
	}
	return "classic"
}

// modern is a group whose members are told by the coordinator what they have, of whichever protocol: what the parts that serve
// every group ask of it.
type modern interface {
	groupType() GroupType
	protocolType() string
	stateName() string
	size() int // members
	// reads says whether members read a topic: its offsets are in use.
	reads(topic string) bool
	// written says whether the log holds something of the group.
	written() bool
	// mayCommit and mayFetch check the member that commits or asks for offsets.
	mayCommit(q *CommitRequest) error
	mayFetch(q *FetchOffsetsRequest) error
	// tombstones take back all that is written of a group without members.
	tombstones(group string) []record
}

// modern is the group as one of the newer protocols; nil: a classic group.
func (g *group) modern() modern {
	switch {
	case g.consumer != nil:
		return g.consumer
	case g.streams != nil:
		return g.streams
	case g.share != nil:
		return g.share
	}
	return nil
}

// kind is the group's type.
func (g *group) kind() GroupType {
	if m := g.modern(); m != nil {
		return m.groupType()
	}
	return ClassicGroup
}

// memberless says whether nobody of a newer protocol is in the group.
func (g *group) memberless() bool {
	m := g.modern()
	return m == nil || m.size() == 0
}

// erase writes away everything that a newer protocol keeps of a group without members.
func (c *core) erase(g *group) {
	m := g.modern()
	if m == nil {
		return
	}
	for _, r := range m.tombstones(g.id) {
		c.write(r)
	}
	g.consumer, g.streams, g.share = nil, nil, nil
	c.cancelJoin(g)
}

// memberTimedOut fires a timer of a member of a newer protocol.
func (c *core) memberTimedOut(g *group, key timerKey) {
	switch {
	case g.consumer != nil:
		c.consumerTimedOut(g, key.member)
	case g.streams != nil:
		c.streamsTimedOut(g, key)
	case g.share != nil:
		c.shareTimedOut(g, key.member)
	}
}

// membersLoaded gives the members of a newer protocol their time, once the group has been read back.
func (c *core) membersLoaded(g *group) {
	switch {
	case g.consumer != nil:
		c.consumerLoaded(g)
	case g.streams != nil:
		c.streamsLoaded(g)
	case g.share != nil:
		c.shareLoaded(g)
	}
}
