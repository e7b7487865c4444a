package sim

// deletionMutants break the removal of deleted topics from the bucket, and two rules of what is read.
var deletionMutants = []focused{
	{"replica.TestLateLeaderOfADeletedTopicLeavesNothingInTheBucket", []mutant{
		{"a late leader does not look at the bucket", "T18: whoever may have led removes what it put", "replica/delete.go",
			"	bucket := d.Tier && m.deps.Tier != nil\n", "	bucket := d.Tier && m.deps.Tier != nil && !here\n"},
	}},
	{"meta.TestControllerScripts", []mutant{
		{"the bucket is confirmed before all have heard", "T18: the bucket's confirmation comes last", "meta/controller_topics.go",
			"	c.Tier = c.Tier && d.Tier && !others\n", "	c.Tier = c.Tier && (d.Tier || others)\n"},
	}},
	{"tier.TestRemovalGoesByTheBucketNotByWhatWasKnown", []mutant{
		{"a removal goes by what was known", "T18: a committed deletion goes by the bucket", "tier/collectcall.go",
			"	if err := m.archive.Forget(p); err != nil {\n		return err\n	}\n	r := ", "	if err := error(nil); err != nil {\n		return err\n	}\n	r := "},
	}},
	{"tier.TestDeletedTopicLeavesTheBucketEmpty", []mutant{
		{"a removal does not fence the leaders", "T18: the retired head fences late leaders", "tier/grave.go",
			"	g := &grave{id: e.p}\n", "	g := &grave{id: e.p, step: graveSweep}\n"},
	}},
	{"replica/isr.TestFollowerActsOnAnswers", []mutant{
		{"the watermark of a diverging answer is taken", "20: a diverging answer truncates only", "replica/isr/follower.go",
			"		return f.truncate(v, *r.Diverging, r.LogStart)\n", "		a := f.truncate(v, *r.Diverging, r.LogStart)\n		a.HighWatermark = r.HighWatermark\n		return a\n"},
	}},
	{"hot.TestLastStableOffsetWaitsForTheMarkerToBeCommitted", []mutant{
		{"open transactions are shown to read_committed", "25: read_committed ends at the last stable offset", "hot/log.go",
			"	if unstable >= 0 && unstable < hw {\n		return unstable\n", "	if unstable >= 0 && unstable < hw {\n		return hw\n"},
	}},
	{"replica.TestLeaderThatMissedADeletionKeepsNobodyWaiting", []mutant{
		{"an empty replica waits for what was deleted", "T11, T16: a committed start stands", "replica/rebuild.go",
			"	case !s.exists() && s.start > end:\n", "	case false:\n"},
		{"a consumer is sent back to what was deleted", "T11: a committed start stands", "replica/readcold.go",
			"			if err := p.followCommittedStart(ctx); err != nil {", "			if err := error(nil); err != nil {"},
	}},
	{"replica.TestUncleanLeaderGivesNoDeletedOffsetOutAgain", []mutant{
		{"offsets that were deleted are given out again", "T11: a committed start stands", "replica/whole.go",
			"	if !s.exists() && s.start > v.End {", "	if false {"},
	}},
}
