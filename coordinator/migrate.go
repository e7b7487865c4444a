package coordinator

import (
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Migration is which way a group with members may change between the classic and the consumer protocol (KIP-848,
// group.consumer.migration.policy). Groups without members always may.
type Migration struct{ Upgrade, Downgrade bool }

func migrationOf(policy string) Migration {
	both := strings.EqualFold(policy, "bidirectional")
	return Migration{Upgrade: both || strings.EqualFold(policy, "upgrade"), Downgrade: both || strings.EqualFold(policy, "downgrade")}
}

// classicMember is what is known of a member of a consumer group that speaks the classic protocol: enough to make it a member
// of a classic group again.
type classicMember struct {
	sessionMillis int32
	protocols     []Protocol
}

func (m *classicMember) same(o *classicMember) bool {
	if m == nil || o == nil {
		return m == o
	}
	return m.sessionMillis == o.sessionMillis && slices.EqualFunc(m.protocols, o.protocols, func(a, b Protocol) bool {
		return a.Name == b.Name && string(a.Metadata) == string(b.Metadata)
	})
}

// upgrade makes a consumer group of a classic one, whose members go on as they are: with their partitions, and with the
// generation as their epoch. Requests that are parked are told to join again. On an error nothing has changed.
func (c *core) upgrade(g *group) (*group, error) {
	switch {
	case !c.cfg.Migration.Upgrade:
		return nil, cannotUpgrade(g.id, "online upgrade is disabled.")
	case g.protocolType == nil || *g.protocolType != consumerProtocol:
		return nil, cannotUpgrade(g.id, "the group does not use the consumer embedded protocol.")
	case len(g.members) > int(c.cfg.ConsumerSizeMax):
		return nil, cannotUpgrade(g.id, "the group size exceeds the consumer group maximum size.")
	case c.view == nil:
		return nil, ErrNotAvailable
	}
	to := newConsumerGroup(c.wall())
	to.epoch, to.targetEpoch = g.generation, g.generation
	protocol := g.vote()
	if g.protocol != nil {
		protocol = *g.protocol
	}
	list := g.list()
	for _, m := range list {
		n, err := c.upgraded(g.id, m, protocol, g.generation)
		if err == nil {
			err = c.takeOn(g, to, n, m.assignment)
		}
		if err != nil {
			return nil, err
		}
	}
	for _, m := range list {
		// What a member may still read, and what nobody else was given since, is with it until it says otherwise.
		n := to.members[m.id].clone()
		for p := range c.decoded(m.held, g.generation) {
			if _, taken := to.owners[p]; !taken {
				n.assigned[p] = g.generation
			}
		}
		to.put(n)
	}
	c.endClassic(g)
	bare := c.replaced(g)
	bare.consumer = to
	to.hash = c.topicsHash(bare)
	members := to.list()
	for _, m := range members {
		c.write(consumerMemberRecord(g.id, m))
	}
	c.write(consumerGroupRecord(g.id, to))
	for _, m := range members {
		c.write(consumerTargetRecord(g.id, m.id, to.target[m.id]))
	}
	c.write(consumerTargetEpochRecord(g.id, to.targetEpoch, 0))
	for _, m := range members {
		c.write(consumerCurrentRecord(g.id, m))
		c.setSession(bare, m.id, int64(m.classic.sessionMillis))
	}
	return bare, nil
}

func cannotUpgrade(group, why string) error {
	return refuse(ErrUnknownGroup, "Cannot upgrade classic group %s to consumer group because %s", group, why)
}

const malformed = "the embedded consumer protocol is malformed."

// upgraded is a classic member as one of a consumer group, without partitions.
func (c *core) upgraded(group string, m *member, protocol string, generation int32) (*consumerMember, error) {
	var subscription kmsg.ConsumerMemberMetadata
	if subscription.ReadFrom(m.metadata(protocol)) != nil {
		return nil, cannotUpgrade(group, malformed)
	}
	return &consumerMember{
		id: m.id, clientID: m.clientID, clientHost: m.clientHost, instance: m.instance, rack: subscription.Rack,
		names: sortedDistinct(slices.Clone(subscription.Topics)), rebalanceMillis: int32(m.rebalanceMillis),
		epoch: generation, previous: generation, assigned: assignment{}, revoking: assignment{},
		classic: &classicMember{sessionMillis: int32(m.sessionMillis), protocols: m.protocols},
	}, nil
}

// takeOn puts a member into a group that is being upgraded, with the partitions of its assignment.
func (c *core) takeOn(g *group, to *consumerGroup, n *consumerMember, data []byte) error {
	var a kmsg.ConsumerMemberAssignment
	if len(data) > 0 {
		switch err := a.ReadFrom(data); {
		case err != nil:
			return cannotUpgrade(g.id, malformed)
		case len(a.UserData) > 0:
			return cannotUpgrade(g.id, "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default assignor before re-attempting the upgrade.")
		}
	}
	n.assigned = c.decoded(data, g.generation)
	for p := range n.assigned {
		if _, taken := to.owners[p]; taken {
			return cannotUpgrade(g.id, "two of its members are assigned the same partition.")
		}
	}
	to.target[n.id] = maps.Clone(n.assigned)
	to.put(n)
	return nil
}

// decoded is the partitions that an assignment names, as far as their topics exist.
func (c *core) decoded(data []byte, epoch int32) assignment {
	out := assignment{}
	var a kmsg.ConsumerMemberAssignment
	if len(data) == 0 || a.ReadFrom(data) != nil {
		return out
	}
	for _, t := range a.Topics {
		if known := c.view.byName(t.Topic); known != nil {
			for _, p := range t.Partitions {
				out[tp{known.ID, p}] = epoch
			}
		}
	}
	return out
}

// endClassic ends everything that is under way in a classic group, and what is written of it.
func (c *core) endClassic(g *group) {
	for _, m := range g.list() {
		c.endJoin(g, m, joinFailed(m.id), ErrRebalancing)
		c.endSync(m, &SyncResult{}, ErrRebalancing)
		c.cancelSession(g, m.id)
	}
	for id := range g.pending {
		c.cancelSession(g, id)
	}
	c.cancelJoin(g)
	c.cancelSync(g)
	if g.persisted {
		c.write(groupTombstone(g.id))
		g.persisted = false
	}
}

// replaced puts another group in the place of one, with its offsets.
func (c *core) replaced(g *group) *group {
	bare := newGroup(g.id, c.wall())
	bare.offsets, bare.txns = g.offsets, g.txns
	c.groups[g.id] = bare
	return bare
}

// downgrade makes a classic group of a consumer group once the members that are left, besides those who are going, all speak the
// classic protocol. It reports whether it has; the group that is there then is another. The members are to join again, unless
// keep says that the assignment need not change, and all have what it gives them.
func (c *core) downgrade(g *group, going []*consumerMember, keep bool) bool {
	cg := g.consumer
	leaves := make(map[string]bool, len(going))
	for _, m := range going {
		leaves[m.id] = true
	}
	stay := slices.DeleteFunc(cg.list(), func(m *consumerMember) bool { return leaves[m.id] })
	if !c.cfg.Migration.Downgrade || len(stay) == 0 || len(stay) > int(c.cfg.GroupSizeMax) ||
		slices.ContainsFunc(stay, func(m *consumerMember) bool { return m.classic == nil }) {
		return false
	}
	to := newGroup(g.id, c.wall())
	to.offsets, to.txns = g.offsets, g.txns
	to.generation, to.state, to.persisted = cg.epoch, Stable, true
	kind := consumerProtocol
	to.protocolType = &kind
	for _, m := range stay {
		keep = keep && m.state == memberStable && m.epoch == cg.targetEpoch
		to.add(&member{
			id: m.id, instance: m.instance, clientID: m.clientID, clientHost: m.clientHost, rebalanceMillis: int64(m.rebalanceMillis),
			sessionMillis: int64(m.classic.sessionMillis), protocols: m.classic.protocols,
		})
	}
	protocol := to.vote()
	if protocol == "" {
		return false
	}
	to.protocol = &protocol
	for _, m := range to.members {
		// What it has, not what it was to have: what it has yet to give up must not be taken for free, should the group be upgraded
		// again before it has joined.
		data, ok := c.classicAssignment(cg.members[m.id].holds(), m.metadata(protocol))
		if !ok {
			return false
		}
		m.assignment = data
	}
	to.readSubscriptions()
	r := groupRecord(to)
	if r.size() > c.cfg.BatchBytesMax-batchOverhead {
		return false
	}
	for _, m := range cg.list() {
		c.forget(g, m)
	}
	c.erase(g)
	c.write(r)
	c.groups[g.id] = to
	for _, m := range to.list() {
		c.setSession(to, m.id, m.sessionMillis)
	}
	if !keep {
		c.rebalance(to)
	}
	return true
}

// classicAssignment is an assignment as the clients of the classic protocol encode it, in the version that the member's own
// metadata has.
func (c *core) classicAssignment(a assignment, metadata []byte) ([]byte, bool) {
	var subscription kmsg.ConsumerMemberMetadata
	if subscription.ReadFrom(metadata) != nil {
		return nil, false
	}
	out := kmsg.ConsumerMemberAssignment{Version: min(subscription.Version, 3)}
	for _, t := range grouped(a, c.view) {
		out.Topics = append(out.Topics, kmsg.ConsumerMemberAssignmentTopic{Topic: t.Name, Partitions: t.Partitions})
	}
	slices.SortFunc(out.Topics, func(a, b kmsg.ConsumerMemberAssignmentTopic) int { return strings.Compare(a.Topic, b.Topic) })
	return out.AppendTo(nil), true
}

// speaks says whether a classic member with these protocols can be in the group: one of them must be spoken by all others
// of its kind.
func (g *consumerGroup) speaks(protocolType string, protocols []Protocol) bool {
	if protocolType != consumerProtocol {
		return false
	}
	spoken, classic := make(map[string]int), 0
	for m := range maps.Values(g.members) {
		if m.classic == nil {
			continue
		}
		classic++
		for i := range m.classic.protocols {
			spoken[m.classic.protocols[i].Name]++
		}
	}
	return slices.ContainsFunc(protocols, func(p Protocol) bool { return spoken[p.Name] == classic })
}
