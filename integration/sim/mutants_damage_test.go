package sim

// damageMutants break the rules of what a replica may conclude while something is damaged, missing or
// out of reach: where leader epochs ended, that nobody has a record, that a log never held any, that
// nobody else leads.
var damageMutants = []focused{
	{"replica.TestDoubtIsOnlyWhereDamageHidesAnEpoch", []mutant{
		{"who lies below the damage waits, too", "19: damage holds back nobody from whom it hides nothing", "replica/read.go",
			" && min(end, at) > from && p.mayBeHidden(end)", " && from >= 0 && p.mayBeHidden(end)"},
		{"an epoch is doubtful whose last batch is there", "19: damage holds back nobody from whom it hides nothing", "replica/read.go",
			" && !p.wroteUpTo(found, end)\n", "\n"},
		{"a consumer waits where damage hides an epoch", "19: damage holds back nobody from whom it hides nothing", "replica/read.go",
			"	case doubtful:\n		return nil, nil\n", "	case doubtful:\n		return nil, ErrOffsetNotAvailable\n"},
		{"an end that damage may hide is told", "19, 21: what is not known is not told", "replica/listoffset.go",
			"	if doubtful && !p.damage.verdict.Load().holds(p) {", "	if doubtful && end < NoOffset {"},
		{"the archive is compared with epochs that damage hides", "19, T9: what is not known is not compared", "replica/read.go",
			"			return chain, before && from <= offset && offset < p.openedEnd\n", "			return chain, false && offset < from\n"},
	}},
	{"replica.TestFollowerThatMayHaveWhatIsHiddenIsNeitherCutNorLetIn", []mutant{
		{"a follower is cut where damage hides an epoch", "19, 21: what is not known cuts nobody", "replica/read.go",
			"	case doubtful && r.ReplicaID >= 0:\n		return nil, ErrOffsetNotAvailable\n	case doubtful:\n		return nil, nil\n", "	case doubtful && end < 0:\n"},
		{"a follower is let in where damage hides an epoch", "19: who may have other records is not in sync", "replica/read.go",
			"	case doubtful && r.ReplicaID >= 0:\n		return nil, ErrOffsetNotAvailable\n", ""},
	}},
	{"replica.TestDoubtReachesDownToTheFirstDamage", []mutant{
		{"doubt begins where the log ends", "19: doubt reaches down to the first damage", "hot/rederive.go",
			"{ return max(l.partial.Load()-1, 0) }", "{ return l.offsets.end.Load() }"},
	}},
	{"hot.TestLogOpensWithoutItsEpochsAndWithDamage", []mutant{
		{"epochs that begin behind damage are taken for sure", "24: what was read past damage is doubtful", "hot/chain.go",
			"doubt || l.damagedWithin(next, b.BaseOffset())", "doubt || l.damagedWithin(next, next)"},
	}},
	{"hot.TestDoubtOutlivesAStart", []mutant{
		{"a start forgets the doubt", "24: doubt is durable", "hot/recover.go",
			"	l.doubtful.Store(state.doubtful)\n", ""},
	}},
	{"replica.TestWhoIsWaitedForIsTold", []mutant{
		{"who is down counts as having said no", "34: silence is no answer", "replica/mendsource.go",
			"				return nil, fmt.Errorf(\"%w: it is down\", errNoSource)", "				return nil, errAbsent"},
		{"it is concluded before everybody has answered", "34: silence is no answer", "replica/damage.go",
			"		if q.waits == \"\" && q.epoch", "		if q.epoch"},
		{"each round is told", "34: who is waited for is told once", "replica/damage.go",
			"			if tries == 1 || told != q.waits {", "			if tries > 0 || told != q.waits {"},
	}},
	{"replica.TestLeaderDoesNotTakeWhatItCannotJudge", []mutant{
		{"what was concluded holds for the next leadership", "34: who leads later asks again", "replica/damage.go",
			"v != nil && v.epoch == epoch {", "v != nil {"},
		{"who knows not all producers leads", "34: who knows all producers leads", "replica/lead.go",
			"	if p.lacksEnd(l) || p.cannotJudge(l) {", "	if p.lacksEnd(l) {"},
	}},
	{"replica.TestProducersThatRetentionTookAreToldByTheBucket", []mutant{
		{"a bucket that does not answer has said no", "34: silence is no answer", "replica/mendsource.go",
			"	case err != nil:\n		return []string{theBucket}, err\n", "	case err != nil:\n		return nil, err\n"},
		{"what the bucket knows of producers is left there", "34: producers outlive their records", "replica/mendsource.go",
			"p.log.CompleteFrom(at, producers, aborted)", "p.log.CompleteFrom(at, func([]byte) []byte { return nil }(producers), aborted)"},
	}},
	{"replica.TestLeaderConcludesNothingFromADiskThatCannotBeRead", []mutant{
		{"a disk that does not read has said no", "34: silence is no answer", "replica/mendsource.go",
			"	case !errors.Is(err, hot.ErrBelowLocal):\n		return []string{ownDisk}, err", "	case !errors.Is(err, hot.ErrBelowLocal):\n		return nil, err"},
	}},
	{"hot.TestDirectoryRemovedBeforeTheFirstCheckpointIsMissed", []mutant{
		{"the first records are not announced", "29: a log that held records is missed", "hot/held.go",
			"	if l.held && epoch <= l.latest.Load().Epoch {", "	if true {"},
		{"the first records are announced without their epoch", "29: a log that held records is missed", "hot/held.go",
			"	s.held = true\n	s.learn(e)\n", "	s.held = true\n"},
	}},
	{"hot.TestDirectoryThatNeverHeldRecordsIsNotMissed", []mutant{
		{"records are announced of a directory that may not be there", "29: a log that held none is not missed", "hot/held.go",
			"	if !l.held { // else", "	if l.held && epoch < -1 { // else"},
	}},
	{"hot.TestEpochOfARefusedAppendIsNotHeldAgainstTheEarlierOne", []mutant{
		{"what could not be appended stays announced", "24: an epoch that wrote nothing here begins nowhere", "hot/held.go",
			"	if told.entry.Epoch <= l.latest.Load().Epoch {", "	if true {"},
	}},
	{"hot.TestWatermarkJournaledBetweenTwoEpochsOfAnAppendKnowsTheLater", []mutant{
		{"a later epoch is forgotten by the first of an append", "29: a log that held records is missed", "hot/held.go",
			"	if t := l.told.Load(); t != nil {", "	if t := l.told.Load(); t != nil && false {"},
	}},
	{"replica.TestLeaseThatRunsOutOnTheWayToTheBucket", []mutant{
		{"a leader always has a lease, says its log", "T8: who may have been replaced puts nothing into the bucket", "replica/tierlog.go",
			"{ return l.p.m.leased() }", "{ return true }"},
		{"a leader appends without a lease", "14: who may have been replaced appends nothing", "replica/append.go",
			"	if !p.m.leased() {", "	if false {"},
	}},
	{"replica.TestUncleanLeaderWithoutALeaseTakesNothingFromTheBucket", []mutant{
		{"an unclean leader claims without a lease", "T8: who may have been replaced puts nothing into the bucket", "replica/whole.go",
			"	if !p.m.leased() {", "	if false {"},
	}},
}
