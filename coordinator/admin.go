package coordinator

import (
	"maps"
	"slices"
)

// describe is DescribeGroups for one group.
func (c *core) describe(e event, id string) {
	g := c.group(id)
	if g != nil && g.modern() != nil {
		c.reply(e.ticket, &Description{Group: id, State: Dead}, refuse(ErrUnknownGroup, "Group %s is not a classic group.", id))
		return
	}
	if g == nil {
		c.reply(e.ticket, &Description{Group: id, State: Dead}, ErrUnknownGroup)
		return
	}
	d := &Description{Group: id, State: g.state}
	if g.protocolType != nil {
		d.ProtocolType = *g.protocolType
	}
	stable := g.state == Stable
	if stable && g.protocol != nil {
		d.Protocol = *g.protocol
	}
	for _, m := range g.list() {
		md := MemberDescription{
			MemberID: m.id, InstanceID: m.instance, ClientID: m.clientID, ClientHost: m.clientHost, Assignment: m.assignment,
		}
		if stable { // otherwise there is no telling of which protocol
			md.Metadata = m.metadata(d.Protocol)
		}
		d.Members = append(d.Members, md)
	}
	c.reply(e.ticket, d, nil)
}

// list is this partition's part of ListGroups.
func (c *core) list(e event) {
	out := make([]Listed, 0, len(c.groups))
	for _, id := range c.groupIDs() {
		g := c.groups[id]
		l := Listed{Group: id, State: g.state.String(), Type: g.kind()}
		if m := g.modern(); m != nil {
			l.State, l.ProtocolType = m.stateName(), m.protocolType()
		}
		if g.protocolType != nil {
			l.ProtocolType = *g.protocolType
		}
		out = append(out, l)
	}
	c.reply(e.ticket, out, nil)
}

// remove is DeleteGroups for one group.
func (c *core) remove(e event, id string) {
	g := c.group(id)
	switch {
	case g == nil:
		c.reply(e.ticket, nil, ErrUnknownGroup)
		return
	case g.state != Empty || !g.memberless():
		c.reply(e.ticket, nil, ErrGroupNotEmpty)
		return
	}
	if g.share != nil {
		if d := c.doom(g); len(d.topics) > 0 {
			g.share.deletions++
			c.reply(e.ticket, d, nil) // the rest when the share coordinator has forgotten it
			return
		}
	}
	for _, t := range slices.Sorted(maps.Keys(g.offsets)) {
		for _, p := range slices.Sorted(maps.Keys(g.offsets[t])) {
			c.write(offsetTombstone(id, t, p))
		}
	}
	for _, p := range g.pendingPartitions() {
		c.dropPending(g, p)
		c.write(offsetTombstone(id, p.topic, p.index))
	}
	c.erase(g)
	if g.persisted {
		c.write(groupTombstone(id))
	}
	for p := range g.pending {
		c.cancelSession(g, p)
	}
	delete(c.groups, id)
	c.reply(e.ticket, nil, nil)
}
