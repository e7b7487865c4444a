package sim

// membershipMutants break the rules of streams groups, share groups, groups that
// change protocol, and leaders of share-partitions.
var membershipMutants = []focused{
	{"coordinator.TestSimulatedMembershipsKeepTheirPromises", []mutant{
		{"a task is given while another runs it", "streams: one active owner of a task", "coordinator/streamsreconcile.go",
			"func (s *streamsStep) activeTaken(t task) bool {", "func (s *streamsStep) activeTaken(t task) bool {\n	if true {\n		return false\n	}"},
		{"a task counts as given up before it is", "streams: revocation is confirmed", "coordinator/streamsreconcile.go",
			"return s.said && !s.owned.overlaps(t)", "return true"},
		{"an older epoch of a streams member is heard", "streams: members are fenced by epoch", "coordinator/streamsheartbeat.go",
			"	case q.MemberEpoch == joinEpoch || q.MemberEpoch == m.epoch:", "	case q.MemberEpoch == joinEpoch || q.MemberEpoch <= m.epoch:"},
		{"an older epoch of a share member is heard", "share: members are fenced by epoch", "coordinator/shareheartbeat.go",
			"	case q.MemberEpoch == joinEpoch, q.MemberEpoch == m.epoch, q.MemberEpoch == m.previous:", "	case q.MemberEpoch <= m.epoch:"},
		{"a share-partition that could not be begun counts as begun", "share: nothing is given out before it is begun", "coordinator/sharestart.go",
			"			if i < len(q.begun) {", "			if i >= 0 {"},
		{"a share-partition is given out before it is begun", "share: nothing is given out before it is begun", "coordinator/shareassign.go",
			"		if _, ok := ready.parts[int32(i)]; ok {", "		if true {"},
		{"a downgraded group forgets its offsets", "migration: commits stay", "coordinator/migrate.go",
			"	to.offsets, to.txns = g.offsets, g.txns\n", "	to.txns = g.txns\n"},
		{"a failed write stands", "share leader: what is not durable did not happen", "coordinator/share/round.go",
			"				r.slot = r.was\n", ""},
		{"deliveries have no limit", "share leader: the delivery limit holds", "coordinator/share/acknowledge.go",
			"	if r.deliveries >= p.limits.DeliveriesMax {\n		p.giveUp(r, Exhausted)", "	if false {\n		p.giveUp(r, Exhausted)"},
	}},
}
