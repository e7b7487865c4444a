package sim

// replicationMutants break the rules of replication that the cluster's simulation has no part
// of (the code around the pure cores: files, locks, requests), or that it forgives.
var replicationMutants = []focused{
	{"meta.TestACommandDecidedOnAnOldImageChangesNothing", []mutant{
		{"a command decided on an older image is applied", "1: the image is what the log gives", "meta/apply.go",
			"	if c.Base != img.Index {", "	if false {"},
	}},
	{"meta.TestAQuorumThatIsLostDecidesNothing", []mutant{
		{"a decision counts before it is committed", "1: nobody acts before the commit", "meta/propose.go",
			"	if err != nil {\n		return nil, owed, err", "	if err != nil {\n		return n.Image(), owed, nil"},
	}},
	{"meta.TestTheSameLogGivesTheSameImage", []mutant{
		{"a broker's epoch depends on who applies", "1: the state machine is deterministic", "meta/apply.go",
			"Epoch: int64(index),\n", "Epoch: int64(index) + int64(next.ControllerID),\n"},
	}},
	{"meta.TestControllerScripts", []mutant{
		{"a wish from a later partition epoch is taken for stale", "5: who is behind its brokers is no controller", "meta/controller_partitions.go",
			"w.LeaderEpoch > p.LeaderEpoch || w.PartitionEpoch > p.PartitionEpoch:", "w.LeaderEpoch > p.LeaderEpoch:"},
		{"an older leader is heard", "5: who is behind the controller is fenced", "meta/controller_partitions.go",
			"	case w.LeaderEpoch < p.LeaderEpoch:", "	case false:"},
	}},
	{"meta.TestASealHoldsEverythingOfAnEntry", []mutant{
		{"an entry's seal is not compared", "36: a damaged raft log is refused", "meta/logstore.go",
			"binary.BigEndian.Uint32(l.Extensions[1:]); got != want {", "binary.BigEndian.Uint32(l.Extensions[1:]); got != want && false {"},
	}},
	{"meta.TestDamagedSnapshotIsRefused", []mutant{
		{"a snapshot's checksum is not compared", "36: a damaged snapshot is refused", "meta/snapshotstore.go",
			"	body, err := checkSum(b)\n", "	body, err := b[:len(b)-4], error(nil)\n"},
	}},
	{"meta.TestAStoreThatFailedStaysFailed", []mutant{
		{"raft's disk is tried again", "33: the first error is the last", "meta/logstore.go",
			"		s.failed = err\n", "		_ = err\n"},
	}},
	{"replica/isr.TestWatermarkIsTakenAgainWheneverItMayMove", []mutant{
		{"a fetch does not move the watermark", "12: a fetch moves the watermark", "replica/isr/leader.go",
			"	return true, s.advance()", "	return true, false"},
		{"an answer does not move the watermark", "12: the controller's answer moves the watermark", "replica/isr/leader.go",
			"	s.settle()\n	s.forgetOutsiders()\n	return s.advance()", "	s.settle()\n	s.forgetOutsiders()\n	return false"},
		{"a newer image does not move the watermark", "12: the controller's answer moves the watermark", "replica/isr/leader.go",
			"		s.forgetOutsiders()\n	}\n	return s.advance()", "		s.forgetOutsiders()\n	}\n	return false"},
	}},
	{"replica/isr.TestWhoIsOutsideNeitherHoldsNorMovesTheWatermark", []mutant{
		{"a lagging outsider holds the watermark", "13: who is not in sync does not count", "replica/isr/watermark.go",
			"	for _, id := range s.committed {", "	for _, id := range s.replicas {"},
	}},
	{"replica/isr.TestFencedBrokerIsNotProposed", []mutant{
		{"a fenced follower is proposed and holds the watermark", "13: who may not join does not count (KAFKA-15021)", "replica/isr/leader.go",
			"c.Eligible(id); ok && s.MayJoin", "c.Eligible(id); (ok || true) && s.MayJoin"},
	}},
	{"replica/isr.TestProgressOfOutsidersIsForgotten", []mutant{
		{"what a removed follower had counts when it is back", "17: the ends of outsiders are forgotten", "replica/isr/leader.go",
			"			delete(s.followers, id)", "			_ = id"},
	}},
	{"replica.TestCommitsRunInOffsetOrderOnceWhenTheWatermarkPasses", []mutant{
		{"the record at the watermark is acknowledged", "14: the watermark is above what is acknowledged", "replica/commit.go",
			"c.queue[c.head].offset < hw {", "c.queue[c.head].offset <= hw {"},
	}},
	{"replica.TestAcknowledgementsFailWhenTheLeadershipEnds", []mutant{
		{"an acknowledgement of an older epoch is given", "14: the epoch is checked at the answer", "replica/partition.go",
			"	if r.err != nil || r.epoch != epoch {", "	if r.err != nil {"},
	}},
	{"coordinator.TestCoordinatorWithoutALeaseShowsNothing", []mutant{
		{"a coordinator without a lease shows its state", "26: who may have been replaced has not the last word", "coordinator/shard.go",
			"	outdated := len(out.records) == 0 && !s.c.log.Leased()", "	outdated := false"},
	}},
	{"replica.TestLeaderWithoutALeaseDoesNotSayWhereItsLogEnds", []mutant{
		{"a leader without a lease says where its log ends", "26: who may have been replaced has not the last word", "replica/read.go",
			"	if p.role.Load().err == nil && !p.m.leased() {", "	if false {"},
		{"what is deleted without a lease counts", "26: who may have been replaced has not the last word", "replica/listoffset.go",
			"	if !p.m.leased() {", "	if false {"},
	}},
	{"replica.TestAppendsAndAnswersWantTheMinimumInSync", []mutant{
		{"the minimum is not asked at the answer", "14, 15: the minimum is asked again at the answer", "replica/partition.go",
			"	if !p.isr.Enough() {", "	if false {"},
		{"a set that is too small takes records", "15: below the minimum nothing is appended", "replica/append.go",
			"	if r.Acks == -1 && !p.enough() {", "	if false {"},
		{"what was appended is refused as if it were not", "15: afterwards the outcome is unknown", "replica/partition.go",
			"		return ErrISRTooSmallAfterAppend", "		return ErrISRTooSmall"},
	}},
	{"replica.TestNewLeaderBeginsWithItsEpoch", []mutant{
		{"a leader's epoch is not recorded", "18: the epoch is there before its first record", "replica/lead.go",
			"	if err := p.log.AssignEpoch(l.Epoch); err != nil {", "	if err := p.log.AssignEpoch(NoEpoch); err != nil {"},
		{"a new leader does not take the watermark of what it has", "12: the watermark is taken at the start of an epoch", "replica/lead.go",
			"		fn(ErrNotLeader)\n	}\n	p.progress()", "		fn(ErrNotLeader)\n	}"},
	}},
	{"replica.TestLatestIsNotKnownBelowTheEpochsStart", []mutant{
		{"a new leader tells an older watermark as the latest offset", "26: latest is known from the epoch's start on (KIP-207)", "replica/listoffset.go",
			"	if replicaID < 0 && role.start > p.log.HighWatermark() {", "	if false {"},
	}},
	{"replica/isr.TestJoinNeedsTheEpochStartTheWatermarkAndTheBrokerEpoch", []mutant{
		{"a follower joins below the start of the epoch", "16, 26: a member reaches the epoch's start", "replica/isr/leader.go",
			"f.end >= s.hw && f.end >= s.epochStart &&", "f.end >= s.hw &&"},
	}},
	{"replica.TestTopicThatIsGoneFromTheMetadataKeepsItsFiles", []mutant{
		{"what no image names is deleted", "35: unknown is not deleted", "replica/follow.go",
			"			want.leads, want.gone = false, true", "			want.leads, want.deleted = false, true"},
	}},
	{"replica.TestDirectoryOfNoKnownTopicIsKept", []mutant{
		{"strays are deleted", "35: unknown is not deleted", "replica/follow.go",
			"		m.follow.strays = append(m.follow.strays, p)", "		m.follow.strays = append(m.follow.strays, p)\n		m.setLocked(p, desired{deleted: true})"},
	}},
	{"replica.TestLogThatBeginsAnewGoesOnAtWhatItHad", []mutant{
		{"a log that lost its records gives out their offsets again", "28: an offset is given out once", "replica/lead.go",
			"		if err := p.log.ResetTo(had, p.log.Lineage(), nil); err != nil {", "		if err := error(nil); err != nil {"},
	}},
	{"hot/lineage.TestAssignAppendsAndDropsContradictions", []mutant{
		{"two epochs begin at one offset", "24: epochs and their starts rise strictly", "hot/lineage/lineage.go",
			"c[keep].Epoch < epoch && c[keep].Start < start {", "c[keep].Epoch < epoch && c[keep].Start <= start {"},
	}},
	{"hot/lineage.TestTruncate", []mutant{
		{"an epoch outlives its records", "24: the epochs are cut with the log", "hot/lineage/lineage.go",
			"sort.Search(len(c), func(i int) bool { return c[i].Start >= end })", "sort.Search(len(c), func(i int) bool { return c[i].Start > end })"},
	}},
	{"hot.TestTruncatingToTheEndForgetsEpochsWithoutRecords", []mutant{
		{"an epoch without records outlives the truncation", "24: the epochs are cut with the log", "hot/truncate.go",
			"	if off >= l.offsets.end.Load() {\n		return l.dropEpochsLocked(off)", "	if off >= l.offsets.end.Load() {\n		return nil"},
	}},
	{"hot.TestBulkCheckpointKeepsTheEpochsOfOffloadedBatches", []mutant{
		{"epochs are written in place", "24: the epochs are replaced as a whole (KAFKA-16541)", "hot/checkpoint.go",
			"		return l.writeFile(path+tmpExt, b)", "		return l.writeFile(path, b)"},
	}},
	{"hot.TestEpochWithoutRecordsOutlivesTheProcess", []mutant{
		{"an epoch that wrote nothing is not saved", "18, 24: the epoch outlives the process", "hot/log.go",
			"	l.saved.epochs = uint32(len(c))\n	if err := l.journal(l.saved); err != nil {", "	l.saved.epochs = uint32(len(c))\n	if err := error(nil); err != nil {"},
	}},
	{"hot.TestFollowerTakesTheLeadersBytesAsTheyAreOrNothing", []mutant{
		{"a follower does not look at checksums", "27: a copy is checked before it is appended", "hot/append.go",
			"			err = one.VerifyCRC()", "			_ = one.VerifyCRC()"},
		{"a follower stamps its own epoch", "27: a copy is what the leader wrote", "hot/append.go",
			"		if o.Origin != Follower {\n			one.SetBaseOffset(next)", "		{\n			one.SetBaseOffset(next)"},
		{"a copy may overlap", "27: a copy continues the log", "hot/append.go",
			"		if one.BaseOffset() < next || one.LastOffsetDelta() < 0 || one.LastOffset() < next {", "		if one.LastOffsetDelta() < 0 {"},
		{"followers do not know the producers", "34: followers derive the producers' state", "hot/append.go",
			"	next := l.recordLocked(b, o.Now)\n", "	next := l.recordLocked(b, o.Now)\n	if o.Origin == Follower {\n		l.producers = newProducers()\n	}\n"},
	}},
	{"hot.TestOffsetsAreGivenOutOnceToManyAppenders", []mutant{
		{"two append at once", "28: there is one appender", "hot/append.go",
			"	l.appendMu.Lock()\n	a, err := l.appendLocked(b, first, &o)\n	l.letGoLocked()\n	l.appendMu.Unlock()", "	a, err := l.appendLocked(b, first, &o)\n	l.letGoLocked()"},
	}},
	{"hot.TestMarkerGoesBeforeAnythingElseAndComesLast", []mutant{
		{"the clean marker stays while the store runs", "30: the marker is removed before loading (KAFKA-10471)", "hot/store.go",
			"		if err := s.fs.Remove(markerPath); err != nil {", "		if err := error(nil); err != nil {"},
	}},
	{"hot.TestNoMarkerWhenTheStopFailed", []mutant{
		{"an error of a log that is being closed is forgotten", "30, 33: an error on the way is no clean stop", "hot/log.go",
			"		if old != nil && (*old != ErrClosed || l.isDeleted()) {", "		if old != nil {"},
		{"a stop that failed leaves the marker", "30: the marker is the last, after all else", "hot/store.go",
			"	if failed == nil {\n		failed = vfs.WriteFileAtomic(s.fs, filepath.Join(s.config.Dir, markerName)", "	if true {\n		failed = vfs.WriteFileAtomic(s.fs, filepath.Join(s.config.Dir, markerName)"},
	}},
	{"hot.TestBrokerEpochOutlivesPowerLossAndNothingElseIsTakenForIt", []mutant{
		{"any text is taken for the broker's epoch", "30: the disk says under which epoch it was left", "hot/brokerepoch.go",
			"	if err != nil || formatBrokerEpoch(epoch) != string(b) {", "	if err != nil {"},
	}},
	{"replica.TestDirectoryThatMayLackRecordsSaysSo", []mutant{
		{"an unclean stop counts as a clean one", "29, 30: without the marker what was acknowledged may be gone", "replica/restart.go",
			"	if s.Durability() == hot.Replicated && !s.Clean() {", "	if false {"},
	}},
	{"hot.TestRecoveryDerivesWhatTheBatchesSay", []mutant{
		{"a torn tail stays", "31: recovery cuts at the first bad batch", "hot/recover.go",
			"errors.Join(h.file.Truncate(end), h.file.Sync())", "errors.Join(h.file.Sync())"},
		{"recovery goes on behind what is torn", "31: recovery cuts at the first bad batch", "hot/recover.go",
			"		b, err := sc.next()\n", "		b, err := sc.next()\n		if err != nil && !errors.Is(err, io.EOF) {\n			return size, nil\n		}\n"},
		{"recovery derives no producers", "31, 34: recovery derives the producers' state", "hot/recover.go",
			"		if b.HasProducer() {\n			if t, aborted", "		if b.HasProducer() && false {\n			if t, aborted"},
		{"recovery derives no epochs", "31: recovery derives the epochs", "hot/recover.go",
			"		if b.LeaderEpoch() > r.chain.Latest() {\n			r.chain", "		if false {\n			r.chain"},
	}},
	{"hot.TestWhatIsBadBelowTheWatermarkIsNoTornTail", []mutant{
		{"damage below the watermark is cut", "32: damage is no torn tail", "hot/recover.go",
			"(r.next < r.state.highWatermark || r.log.store.inThisRun(keyOf(r.log.part)))", "r.log.store.inThisRun(keyOf(r.log.part))"},
	}},
	{"hot.TestDamageBelowAFooterIsQuarantinedNotCut", []mutant{
		{"damage in a synced segment is cut", "32: damage is no torn tail", "hot/recover.go",
			"		if synced, err = r.syncedOnce(i); err != nil {", "		if _, err = r.syncedOnce(i); err != nil {"},
	}},
	{"hot.TestLostDurableBytesTakeTheLogOfflineInsteadOfCuttingIt", []mutant{
		{"a log shorter than what was synced is taken for whole", "32: what was synced and is gone is not cut over", "hot/recover.go",
			"	if size < int64(st.position) {\n		return -1, 0, nil", "	if size < int64(st.position) {\n		return 0, 0, nil"},
	}},
	{"replica.TestReplicaWhoseEndIsMissingDoesNotLead", []mutant{
		{"a replica that lacks committed records leads", "32: nobody leads from a cut log", "replica/lead.go",
			"	if l.Unclean <= epoch {", "	if l.Unclean <= epoch && false {"},
	}},
	{"hot.TestFirstWriteOrSyncErrorEndsAppends", []mutant{
		{"appends go on after an error", "33: the first error is the last", "hot/append.go",
			"	if err := l.Err(); err != nil {\n		return Appended{}, err\n	}\n	if first", "	if first"},
		{"a failed write is only reported", "33: the first error is the last", "hot/append.go",
			"	return l.fail(\"write\", err)", "	return err"},
	}},
	{"hot.TestProducerRulesFollowKafka", []mutant{
		{"four batches are remembered", "34: the last five batches are known", "hot/producer.go",
			"const batchesKept = 5", "const batchesKept = 4"},
		{"a repeat is told its last offset as its first", "34: a repeat gets its first offset", "hot/append.go",
			"		BaseOffset: r.lastOffset - int64(r.delta), LastOffset", "		BaseOffset: r.lastOffset, LastOffset"},
	}},
}
