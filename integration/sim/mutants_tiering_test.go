package sim

// tieringMutants break the rules of tiering, T1 to T19, one line each. Each is noticed by a
// test that looks for it; the simulations of tier and of the cluster have mutants of their own.
var tieringMutants = []focused{
	{"tier.TestNoNameIsUsedTwice", []mutant{
		{"an object may be written over", "T3: If-None-Match", "tier/object.go",
			"objstore.PutOptions{IfNoneMatch: true, CRC32C: &crc}", "objstore.PutOptions{CRC32C: &crc}"},
		{"a page may be written over", "T3: If-None-Match", "tier/commit.go",
			"objstore.PutOptions{IfNoneMatch: true, CRC32C: &ref.crc}", "objstore.PutOptions{CRC32C: &ref.crc}"},
		{"the head is written over whatever is there", "T3, T4: the head is replaced by compare-and-swap", "tier/commit.go",
			"objstore.PutOptions{IfMatch: next.etag, IfNoneMatch: next.etag == \"\", CRC32C: &crc}", "objstore.PutOptions{CRC32C: &crc}"},
		{"two objects of one range have one name", "T3: names have a random part", "tier/build.go",
			"r.build(ctx, seg, o, binary.BigEndian.Uint64(random[:]))", "r.build(ctx, seg, o, binary.BigEndian.Uint64(random[:])&0)"},
		{"an object goes without its checksum", "T13: uploads carry a checksum", "tier/object.go",
			"	crc := o.add.Segment.ObjectCRC\n	stored, err := o.remote.a.deps.Store.Put(ctx, o.Key(), body, objstore.PutOptions{IfNoneMatch: true, CRC32C: &crc})",
			"	stored, err := o.remote.a.deps.Store.Put(ctx, o.Key(), body, objstore.PutOptions{IfNoneMatch: true})"},
	}},
	{"tier.TestPutNeverTakesAnotherObjectForItsOwn", []mutant{
		{"any object under the name is ours", "T3, T5: a put whose answer is lost is verified", "tier/object.go",
			"	if obj.Size != o.Size() || !bytes.Equal(got, o.footer) {", "	if obj.Size != o.Size() || !bytes.Equal(got, got) {"},
	}},
	{"tier.TestSegmentsThatCannotBeStoredAreRefused", []mutant{
		{"what another epoch uploaded is committed", "T4: the commit is of the upload's epoch", "tier/apply.go",
			"	case epoch < 0 || s.ID.Epoch != epoch:", "	case epoch < 0:"},
		{"a segment may overlap", "T4: a segment continues at the end", "tier/apply.go",
			"	case base != m.end:", "	case base > m.end:"},
		{"a segment may leave a gap", "T4: a segment continues at the end", "tier/apply.go",
			"	case base != m.end:", "	case base < m.end:"},
		{"epochs of the archive may fall", "T9: the archive has one lineage", "tier/apply.go",
			"		case e.Epoch < latest:", "		case false:"},
	}},
	{"tier.TestLostAnswerIsFoundOutByReading", []mutant{
		{"an edit whose answer is lost is not looked for", "T6: an unknown outcome is read back", "tier/commit.go",
			"		if m.hasEdit(id) {", "		if false {"},
	}},
	{"tier.TestOutcomeStaysOpenWhileTheStoreIsDown", []mutant{
		{"who cannot look takes the edit for refused", "T6: an unknown outcome stays open", "tier/commit.go",
			"		if m, err = r.refreshUntil(ctx, &wait); err != nil {\n			return err", "		if m, err = r.refreshUntil(ctx, &wait); err != nil {\n			return ErrConflict"},
	}},
	{"tier.TestOrphanCandidatesLeavesAloneWhatMayStillBeCommitted", []mutant{
		{"a newer leader's objects are orphans", "T7: what may be committed still is no orphan", "tier/lane_collect.go",
			" || own[o.Key] || info.ID.Epoch > epoch {", " || own[o.Key] {"},
		{"objects on their way are orphans", "T7: what may be committed still is no orphan", "tier/lane_collect.go",
			" || own[o.Key] || info.ID.Epoch > epoch {", " || info.ID.Epoch > epoch {"},
	}},
	{"tier.TestCollectorAsksTheBucketBeforeItDeletes", []mutant{
		{"the collector goes by its own copy", "T7: the manifest is read from the bucket before anything goes", "tier/collectcall.go",
			"		if !named[k] {", "		if named[k] || !named[k] {"},
		{"the collector of an older leader goes on", "T7: collection is fenced", "tier/collectcall.go",
			"	if state.LeaderEpoch != r.epoch {", "	if false {"},
	}},
	{"tier.TestNewLeaderClaimsBeforeItUploads", []mutant{
		{"uploads do not wait for the claim", "T8: a barrier, then uploads", "tier/lane_copy.go",
			"	if p.claimLane(c, now) {\n		p.startUploads", "	if p.claimLane(c, now) || true {\n		p.startUploads"},
	}},
	{"tier.TestFencedLeaderStopsAndSaysSo", []mutant{
		{"a fenced leader goes on", "T8: who lost the leadership stops", "tier/partition.go",
			"	p.fenced, p.claimed = true, false", "	p.claimed = false"},
	}},
	{"tier.TestDamagedSegmentIsNeverUploaded", []mutant{
		{"batches of another epoch are uploaded", "T9: an object's batches are of its lineage", "tier/build.go",
			"epoch >= 0 && (h.LeaderEpoch() > epoch ||", "epoch >= 0 && false && (h.LeaderEpoch() > epoch ||"},
		{"damaged batches are uploaded", "T13: what is uploaded was checked", "tier/build.go",
			"	if err := whole.VerifyCRC(); err != nil {", "	if err := whole.VerifyCRC(); err != nil && false {"},
	}},
	{"tier.TestRetainDecides", []mutant{
		{"a straddling segment counts twice", "T10: the union of both tiers", "tier/retention.go",
			"		if s.base >= in.end && s.end <= in.highWatermark ||", "		if s.end <= in.highWatermark ||"},
	}},
	{"tier.TestStartNeverGoesBack", []mutant{
		{"an edit takes the start back", "T11: the start is monotonic", "tier/apply.go",
			"	if ed.e.AdvanceStart > ed.m.start && ed.e.AdvanceStart > 0 {", "	if ed.e.AdvanceStart > 0 {"},
		{"a new leader does not follow the committed start", "T11: a committed start stands", "tier/partition.go",
			"	if o := p.log.LogOffsets; p.remote.Start > o.LogStart &&", "	if o := p.log.LogOffsets; p.remote.Start < o.LogStart &&"},
	}},
	{"tier.TestMissingObjectIsRetriableUnlessBelowTheStart", []mutant{
		{"a missing object is not looked up again", "T12: a 404 is looked up once", "tier/secondlook.go",
			"	if !errors.Is(err, ErrMissing) {\n", "	if !errors.Is(err, ErrMissing) || true {\n"},
		{"a missing object is out of range", "T12: out of range is below the start only", "tier/read.go",
			"		return nil, fmt.Errorf(\"%s: %w\", key, ErrMissing)\n	case", "		return nil, fmt.Errorf(\"%s: %w\", key, ErrBelowStart)\n	case"},
	}},
	{"tier.TestMemoryOfChunksIsNotReusedWhileSomebodyReads", []mutant{
		{"a reader does not hold what it reads", "T12: readers pin what they read", "tier/fill.go",
			"		raw.refs.Add(int32(w.waiters))", "		raw.refs.Add(int32(w.waiters) * 0)"},
	}},
	{"tier.TestDamageInTheStoreIsNeverServed", []mutant{
		{"a batch's checksum is not compared when it is read", "T13: every batch is checked", "tier/chunk.go",
			"		if err := b.VerifyCRC(); err != nil {", "		if err := b.VerifyCRC(); err != nil && false {"},
		{"a chunk's checksum is not compared when it is read", "T13: every chunk is checked", "tier/chunk.go",
			"		if err == nil && sum != c.crc {", "		if false {"},
	}},
	{"tier.TestDamagedIndexIsAnErrorAndHealsWhenRepaired", []mutant{
		{"an index's checksum is not compared", "T13: every section is checked", "tier/footer.go",
			"	case got != sum:", "	case got != sum && false:"},
	}},
	{"tier.TestReplacedSegmentIsReadFromItsNewObject", []mutant{
		{"chunks are cached by offset", "T14: caches go by object", "tier/fill.go",
			"	return chunkKey{object: t.remote.objectKey(t.segment.ID), chunk: int32(i)}", "	return chunkKey{object: t.remote.objectKey(SegmentID{Base: t.segment.ID.Base}), chunk: int32(i)}"},
		{"indexes are cached by offset", "T14: caches go by object", "tier/remote.go",
			"{ return objectKey{r.key, id} }", "{ return objectKey{r.key, SegmentID{Base: id.Base}} }"},
		{"a replacement may end elsewhere", "T15: the same offsets", "tier/apply.go",
			" || r.New.Segment.End != entries[i+len(r.Old)-1].End {", " {"},
		{"what was replaced is forgotten", "T15: old objects are marked by the commit", "tier/apply.go",
			"		ed.markRun(r.Old, ed.m.tail)", "		ed.markRun(r.Old[:0], ed.m.tail)"},
	}},
	{"tier.TestLocalLogIsKeptForWhatTheBucketHasLost", []mutant{
		{"local data goes while the bucket has lost its copy", "T1: what is in doubt covers nothing", "tier/partition.go",
			"	return min(p.remote.End, from)", "	return min(p.remote.End, max(from, p.remote.End))"},
	}},
	{"tier.TestNothingButTheWholeSameRangeIsPutAnew", []mutant{
		{"other records take an object's place", "T15: the same records", "tier/mendcall.go",
			"	if err := j.same(ctx, old, &add); err != nil {", "	if err := j.same(ctx, old, &add); err != nil && false {"},
		{"batches of another epoch take an object's place", "T15: the same leader epochs", "tier/build.go",
			"	if b.o.ExactEpochs && h", "	if false && h"},
	}},
	{"tier.TestReplacementIsReadBackBeforeItIsCommitted", []mutant{
		{"a replacement is not read back", "T13: nothing is replaced by worse", "tier/mendcall.go",
			"	if err == nil && fault != FaultNone {", "	if false {"},
	}},
	{"tier.TestStoreThatFailsIsNoDamage", []mutant{
		{"what the store does not give is missing", "T19: a store that fails is no damage", "tier/examine.go",
			"		return FaultMissing, objstore.Object{}, nil\n	case err != nil:\n		return FaultNone, objstore.Object{}, storeError(\"examine\", err)\n	case obj",
			"		return FaultMissing, objstore.Object{}, nil\n	case err != nil:\n		return FaultMissing, objstore.Object{}, nil\n	case obj"},
	}},
	{"tier.TestExpiredDataGoesLocallyDuringAnOutage", []mutant{
		{"expired data waits for the bucket", "T17: an outage does not fill the disk with what nobody wants", "tier/lane_retain.go",
			"		if p.held && p.callRest.failures > 0 {", "		if false {"},
	}},
	{"hot.TestOffloadedLogDeletesOnlyBelowTheCommittedRemoteEnd", []mutant{
		{"local retention does not wait for the bucket", "T1, T17: nothing goes that is not in the bucket", "hot/retain.go",
			"		waits := offloads && end > remote", "		waits := offloads && end > max(remote, hw)"},
	}},
	{"hot.TestDiskNearlyFullRefusesAppendsServesReadsAndRecovers", []mutant{
		{"writes go on until the disk is full", "T17: writes are refused before the disk is full", "hot/space.go",
			"		return uint64(s.config.ReserveBytes)", "		return 0"},
	}},
	{"tier.TestTopicDeletionGoesOnAfterARestart", []mutant{
		{"a deletion is not written down", "T18: the tombstone comes first", "tier/manager.go",
			"	if err := m.journal.add(p); err != nil {", "	if err := error(nil); err != nil {"},
	}},
	{"tier.TestDeletedTopicLeavesTheBucketEmpty", []mutant{
		{"a deleted topic's objects go at once", "T18: the tombstone, the grace, then the objects", "tier/grave.go",
			"		g.at = now.steady + c.cfg.graceMillis", "		g.at = now.steady"},
		{"nobody looks for late uploads of a deleted topic", "T18: late uploads go, too", "tier/grave.go",
			"	case graveSweep:\n		g.at = now.steady + c.cfg.lifetimeMillis()", "	case graveSweep:\n		g.at = now.steady"},
		{"a deleted partition without a manifest takes a first leader", "T18: the retired head fences late leaders", "tier/collectcall.go",
			"	if err != nil || state.Retired {", "	if err != nil || state.Retired || state.Sequence == 0 {"},
		{"a deleted topic's head goes first", "T18: the tombstone outlives the objects", "tier/collectcall.go",
			"			case ok && info.Kind == KeyHead:", "			case ok && info.Kind == KeyHead && false:"},
	}},
	{"tier.TestDeletedTopicIsNotLedAgainAndFencesLateLeaders", []mutant{
		{"a deleted topic's manifest takes new leaders", "T18: the tombstone fences late leaders", "tier/collectcall.go",
			"			err = m.retire(ctx, e.p)", "			_ = 0"},
	}},
	{"tier.TestManifestsThatContradictThemselvesAreRefused", []mutant{
		{"a head that contradicts itself is used", "T19: metadata that cannot be right is refused", "tier/head.go",
			"	return m, m.check()", "	return m, nil"},
	}},
	{"tier.TestHeadThatVanishedOrWentBackIsNoEmptyArchive", []mutant{
		{"a head that vanished is an empty archive", "T19: an operator must look", "tier/remote.go",
			"	case m.etag == \"\" && before.etag != \"\":", "	case false:"},
		{"a head may go back", "T19: an operator must look", "tier/remote.go",
			"	case m.sequence < before.sequence:", "	case false:"},
	}},
	{"tier.TestUnreadableHeadStopsItsPartition", []mutant{
		{"a head that cannot be read is an empty archive", "T19: it stops its partition", "tier/remote.go",
			"	m, err := r.decode(body, obj.ETag)\n	if err == nil {", "	m, err := r.decode(body, obj.ETag)\n	if err != nil {\n		m, err = emptyManifest(r.p.ID, r.p.Index), nil\n		m.etag = obj.ETag\n	}\n	if err == nil {"},
	}},
	{"replica.TestMissingObjectIsRetriableAndNeverOutOfRange", []mutant{
		{"clients are told that a missing object is out of range", "T12: out of range is below the start only", "replica/readcold.go",
			"		case errors.Is(err, tier.ErrBelowStart) && p.log", "		case (errors.Is(err, tier.ErrBelowStart) || errors.Is(err, tier.ErrMissing)) && p.log"},
	}},
	{"replica.TestEmptyReplicaStartsWhereTheBucketEnds", []mutant{
		{"a new replica begins above the bucket's end", "T16: at or below the committed end", "replica/rebuild.go",
			"p.log.ResetTo(s.end, s.chain, s.producers)", "p.log.ResetTo(s.end+1, s.chain, s.producers)"},
		{"a new replica knows no producers", "T16: producers come from the bucket", "replica/rebuild.go",
			"p.log.ResetTo(s.end, s.chain, s.producers)", "p.log.ResetTo(s.end, s.chain, nil)"},
	}},
	{"replica.TestCutOffLeaderCommitsNothingAfterTheUncleanOne", []mutant{
		{"an unclean leader does not claim the manifest", "T8, T9: the claim comes before the bucket's end is read", "replica/whole.go",
			"	if err := p.remote.Claim(ctx, epoch); err != nil {", "	if err := error(nil); err != nil {"},
	}},
	{"tier.TestLogOfAnotherHistoryIsNotJoinedToTheArchive", []mutant{
		{"only ends are compared", "T9: the archive and the log are of one lineage", "tier/divergence.go",
			"	p.contradicts = j.epoch >= 0 && ", "	p.contradicts = false && "},
	}},
	{"tier.TestLeaderThatClaimedEarlyLooksForOrphansOfTheOneBefore", []mutant{
		{"who has claimed already looks for no orphans", "T7: orphans of the leader before are looked for", "tier/partition.go",
			"		p.suspect = p.suspect || p.claimed && e.state.hadLeaders()\n", ""},
	}},
	{"tier.TestOrphansOfAnIdlePartitionAreFound", []mutant{
		{"orphans are looked for by who writes only", "T7: orphans go, also where nothing is written any more", "tier/lane_collect.go",
			"	p.searchLane(c, now)\n", ""},
		{"what a search finds is forgotten", "T7: orphans go, also where nothing is written any more", "tier/lane_collect.go",
			"		p.suspect = p.suspect || e.left\n", ""},
	}},
	{"tier.TestLeaderWithoutALeasePutsNothing", []mutant{
		{"a manifest is claimed without a lease", "T8, T18: who may have been replaced puts nothing into the bucket", "tier/carryout.go",
			"		if !l.log.Leased() {\n			return State{}, errNoLease\n		}\n		if err := l.remote.Claim(", "		if err := l.remote.Claim("},
		{"a segment is uploaded without a lease", "T8, T18: who may have been replaced puts nothing into the bucket", "tier/uploadcall.go",
			"		if !l.log.Leased() {", "		if false {"},
	}},
	{"tier.TestLeaderWithoutALeaseDeletesNothing", []mutant{
		{"retention is committed without a lease", "T8, T11: who may not know the settings deletes nothing", "tier/carryout.go",
			"		if !l.log.Leased() {\n			return State{}, errNoLease\n		}\n		if err := l.remote.Commit(", "		if err := l.remote.Commit("},
		{"the log start rises without a lease", "T8, T11: who may not know the settings deletes nothing", "tier/carryout.go",
			"				if !l.log.Leased() {", "				if false {"},
	}},
	{"tier.TestJournalIsWrittenAnewAfterAFailedWrite", []mutant{
		{"the journal goes on behind half a line", "T18: the tombstone is there to be read", "tier/journal.go",
			"	if j.dirty {", "	if false {"},
	}},
	{"tier.TestJournalReadsWhatIsGluedToHalfALine", []mutant{
		{"what is glued to half a line is not read", "T18: the tombstone is there to be read", "tier/journal.go",
			"at < 1 || !half {", "at < 1 || half {"},
	}},
	{"tier.TestUnreadableManifestStopsItsOwnRemovalAlone", []mutant{
		{"an unreadable manifest is swept away", "T18, T19: unknown means keep", "tier/collectcall.go",
			"	if err != nil || state.Retired {\n		return err\n	}", "	if unreadable(err) {\n		return nil\n	}\n	if err != nil || state.Retired {\n		return err\n	}"},
		{"an unreadable manifest is asked for without end", "T19: it is said, and waits for an operator", "tier/grave.go",
			"		if unreadable(e.err) {", "		if false {"},
	}},
	{"tier.TestEveryReadLooksOnceMoreForWhatIsGone", []mutant{
		{"producers are read from the manifest at hand alone", "T12: a 404 is looked up once", "tier/secondlook.go",
			"	return read(m)\n}", "	return v, err\n}"},
	}},
	{"replica.TestUncleanLeaderTakesTheBucketsRecords", []mutant{
		{"an unclean leader leaves the bucket's lineage", "T9: the bucket's committed part is in every lineage", "replica/whole.go",
			"	if s.exists() && isr.Yields(", "	if s.exists() && false && isr.Yields("},
	}},
}
