package hot

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/varvelog/varve/hot/vfs"
)

// What is repaired in place above the recovery point stays so: the shared log has
// the bytes from before, which may be as bad as those that were found damaged, and
// of another replica the right ones need not be the same.
func TestRepairIsNotUndoneByTheSharedLog(t *testing.T) {
	for _, rolled := range []bool{false, true} {
		repairUnderSharedLog(t, rolled)
	}
}

// repairUnderSharedLog repairs a batch in the active segment or, rolled, in the one
// before it: then the active one has an end that only the shared log makes durable.
func repairUnderSharedLog(t *testing.T, rolled bool) {
	mem := vfs.NewMem(11)
	s, l := behindStore(t, mem, 6)
	defer s.Abandon()
	sound := readAll(t, l, 1<<20)
	at := int64(0)
	for _, b := range sound[:3] {
		at += int64(len(b))
	}
	path, end := l.active().path(logExt), int64(7)
	if rolled {
		if err := l.Roll(0); err != nil {
			t.Fatal(err)
		}
		appendDurable(t, l, 5)
		end = 12
	}
	flip(t, mem, path, at+100)
	if bad, err := l.CheckAt(3); err != nil || !bad {
		t.Fatalf("damage is not found: %v", err)
	}
	other := records(1, 50, 9)
	other.SetBaseOffset(3)
	other.SetLeaderEpoch(sound[3].LeaderEpoch())
	if len(other) != len(sound[3]) || bytes.Equal(other, sound[3]) {
		t.Fatal("another batch of the same size is wanted")
	}
	if err := l.Repair(l.Damaged()[0], other); err != nil {
		t.Fatal(err)
	}
	before := s.stats.SharedRounds.Load()
	check := func(when string, end int64) {
		t.Helper()
		for seed := range uint64(20) {
			s := sharedStore(t, mem.CrashSeed(seed))
			l := openLog(t, s)
			if o := l.Offsets(); o.End != end {
				t.Fatalf("%s, seed %d: ends at %d, want %d", when, seed, o.End, end)
			}
			if got := readAll(t, l, 1<<20); !bytes.Equal(got[3], other) {
				t.Fatalf("%s, seed %d: the repair is undone", when, seed)
			}
			s.Abandon()
		}
	}
	check("after the repair", end)
	appendDurable(t, l, 5) // by the shared log again, under the new number
	if s.stats.SharedRounds.Load() == before {
		t.Fatal("the shared log was not used any more")
	}
	check("after more rounds", end+5)
}

// A journal that has lost its end knows nothing of cuts: what the shared log has of
// such a log may be wrong, and may be all there is of records that were durable.
func TestRecordsOfALogThatTheJournalDoesNotKnowAreNotForgotten(t *testing.T) {
	mem, _, _ := sharedOnly(t, 12)
	flip(t, mem, "data/"+journalName, journalHeaderSize+9) // and all behind it
	for range 2 {                                          // the second start knows it, too
		s := openStore(t, mem, "data")
		l := openLog(t, s)
		if _, _, lost := l.Lost(); !lost || l.Err() != nil || l.Offsets().End != 1 {
			t.Fatalf("lost %v, %+v, %v", lost, l.Offsets(), l.Err())
		}
		if err := s.journal.sync(); err != nil {
			t.Fatal(err)
		}
		s.Abandon()
	}
	kept, err := vfs.ReadFile(mem, "data/"+sharedName+damagedSuffix, 1<<20)
	if err != nil || !bytes.Contains(kept, bytes.Repeat([]byte("a"), 50)) {
		t.Fatalf("the only copy is not kept: %v", err)
	}
	// Made anew it is another log.
	s := openStore(t, mem, "data")
	defer s.Abandon()
	openLog(t, s)
	if err := s.Delete(testPartition); err != nil {
		t.Fatal(err)
	}
	if _, _, lost := openLog(t, s).Lost(); lost {
		t.Fatal("held against a log that was made anew")
	}
}

// Who moves a damaged journal away is not to lose by it what the shared log has;
// after a clean close there is nothing in it.
func TestSharedLogOutlivesAJournalThatWasMovedAway(t *testing.T) {
	mem, _, _ := sharedOnly(t, 18)
	if err := mem.Remove("data/" + journalName); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, mem, "data")
	if _, _, lost := openLog(t, s).Lost(); !lost {
		t.Fatal("the log counts without what the shared log has")
	}
	s.Abandon()
	if _, err := mem.Stat("data/" + sharedName + damagedSuffix); err != nil {
		t.Fatalf("the only copy is not kept: %v", err)
	}
	mem = vfs.NewMem(19)
	s = sharedStore(t, mem)
	appendDurable(t, openLog(t, s), 2) // too little for the file to be begun anew
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := mem.Remove("data/" + journalName); err != nil {
		t.Fatal(err)
	}
	s = sharedStore(t, mem)
	defer s.Abandon()
	l := openLog(t, s)
	if _, _, lost := l.Lost(); lost || l.Offsets().End != 2 {
		t.Fatalf("accused after a clean close: lost %v, %+v", lost, l.Offsets())
	}
}

func TestLogWhoseDirectoryIsGoneLacksWhatTheSharedLogHas(t *testing.T) {
	mem, _, _ := sharedOnly(t, 13)
	if err := mem.RemoveAll("data/" + partitionDirName(onlyPartition(t, mem))); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s := sharedStore(t, mem)
		l := openLog(t, s)
		if _, _, lost := l.Lost(); !lost || l.Offsets().End != 0 {
			t.Fatalf("lost %v, %+v", lost, l.Offsets())
		}
		s.Abandon()
	}
	if _, err := mem.Stat("data/" + sharedName + damagedSuffix); err != nil {
		t.Fatalf("the only copy is not kept: %v", err)
	}
}

// What cannot be applied now may be so at the next start: until then nothing is
// void.
func TestSegmentThatCannotBeOpenedKeepsTheSharedLog(t *testing.T) {
	mem, _, _ := sharedOnly(t, 14)
	for _, op := range []vfs.Op{vfs.OpOpen, vfs.OpWrite, vfs.OpStat} {
		faults := vfs.NewFaults(mem)
		faults.Inject(vfs.Rule{Ops: []vfs.Op{op}, Path: "*" + logExt, Err: syscall.EIO})
		s, err := Open(DefaultConfig("data"), Deps{FS: faults})
		if err == nil {
			s.Abandon()
		}
		if !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), "apply the shared log") {
			t.Fatalf("%s: opened: %v", op, err)
		}
	}
	s := sharedStore(t, mem)
	defer s.Abandon()
	if l := openLog(t, s); l.Offsets().End != 10 {
		t.Fatalf("%+v", l.Offsets())
	}
}

// A file of another size than is asked for now is applied before it goes.
func TestSharedLogOfAnotherSizeIsAppliedFirst(t *testing.T) {
	mem := vfs.NewMem(15)
	end := int64(0)
	for i, size := range []int64{sharedBytesMin, 4 * sharedBytesMin, 2 * sharedBytesMin, 0, sharedBytesMin, sharedBytesMin, 0} {
		s := openStore(t, mem, "data", func(c *Config) { c.SharedLogBytes = size })
		s.syncer.sharedMin.Store(1)
		if _, err := mem.Stat("data/" + sharedName); (err == nil) != (i == 5) {
			t.Fatalf("start %d: file of %d bytes: %v", i, size, err)
		}
		if size > 0 {
			haveShared(t, s)
		}
		l := openLog(t, s)
		if o := l.Offsets(); o.End != end {
			t.Fatalf("start %d: ends at %d, want %d", i, o.End, end)
		}
		appendDurable(t, l, 5)
		end += 5
		if n := s.stats.SharedRounds.Load(); (n > 0) != (size > 0) {
			t.Fatalf("start %d: %d rounds in a shared log of %d bytes", i, n, size)
		}
		image := mem.CrashSeed(uint64(i))
		s.Abandon()
		mem = image
	}
}

// A file system may have no space for blocks that are there already: the shared
// log is not written any more, and nobody loses anything.
func TestDiskThatIsFullForTheSharedLogTakesNobodyOffline(t *testing.T) {
	for name, rule := range map[string]vfs.Rule{
		"round": {Ops: []vfs.Op{vfs.OpWrite}, Skip: 3},
		"sync":  {Ops: []vfs.Op{vfs.OpSync}, Skip: 3},
		// A file of 16 blocks is begun anew after 14 rounds.
		"begun anew":       {Ops: []vfs.Op{vfs.OpWrite}, Skip: 14},
		"begun anew, sync": {Ops: []vfs.Op{vfs.OpSync}, Skip: 14},
	} {
		mem := vfs.NewMem(16)
		faults := vfs.NewFaults(mem)
		s := sharedStore(t, faults)
		l := openLog(t, s)
		appendDurable(t, l, 1)
		rule.Path, rule.Err = sharedName, syscall.ENOSPC
		fault := faults.Inject(rule)
		appendDurable(t, l, 40)
		if fault.Hits() != 1 || l.Err() != nil || s.Err() != nil {
			t.Fatalf("%s: %d hits, %v, %v", name, fault.Hits(), l.Err(), s.Err())
		}
		for seed := range uint64(10) {
			s := sharedStore(t, mem.CrashSeed(seed))
			l := openLog(t, s)
			if _, _, lost := l.Lost(); lost || l.Offsets().End != 41 {
				t.Fatalf("%s, seed %d: lost %v, %+v", name, seed, lost, l.Offsets())
			}
			s.Abandon()
		}
		if err := s.Close(context.Background()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if j := rereadJournal(t, mem); j.version != journalVersion {
			t.Fatalf("%s: journal of version %d after a clean close", name, j.version)
		}
	}
}

// Nobody pays for a shared log with start-up time or space before many rounds
// would go to it.
func TestSharedLogIsMadeWhenThereIsWorkForIt(t *testing.T) {
	mem := vfs.NewMem(17)
	s := openStore(t, mem, "data", func(c *Config) { c.SharedLogBytes = sharedBytesMin })
	defer s.Abandon()
	s.syncer.sharedAfter = 20
	logs := make([]*Log, 2)
	for i := range logs {
		l, err := s.Log(scalePartition(i), DefaultLogConfig())
		if err != nil {
			t.Fatal(err)
		}
		logs[i] = l
	}
	both := func() {
		for _, l := range logs {
			mustAppend(t, l, records(1, 50, 1))
		}
		for _, l := range logs {
			waitDurable(t, l, l.Offsets().End)
		}
	}
	appendDurable(t, logs[0], 50) // by itself it needs none
	for range 10 {
		both()
	}
	if _, err := mem.Stat("data/" + sharedName); err == nil || s.syncer.making.Load() {
		t.Fatal("made for a few rounds")
	}
	if j := rereadJournal(t, mem); j.version != journalVersion {
		t.Fatalf("journal of version %d", j.version)
	}
	s.syncer.sharedMin.Store(1) // whether both are in one round depends on the machine
	eventually(t, func() bool { both(); return s.stats.SharedRounds.Load() > 0 })
	want := logs[1].Offsets().End
	for seed := range uint64(10) {
		s := sharedStore(t, mem.CrashSeed(seed))
		l, err := s.Log(scalePartition(1), DefaultLogConfig())
		if err != nil || l.Offsets().End != want {
			t.Fatalf("seed %d: %v, ends at %d, want %d", seed, err, l.Offsets().End, want)
		}
		s.Abandon()
	}
}

// What a round allocates does not grow with the records or the logs in it.
func TestSharedRoundAllocatesNothingForRecordsAndLogs(t *testing.T) {
	allocs := func(n int) float64 {
		s := openStore(t, vfs.OS(), t.TempDir(), func(c *Config) { c.SharedLogBytes = 4 << 20 })
		defer s.Abandon()
		haveShared(t, s)
		logs := make([]*Log, n)
		b := records(10, 50, 1)
		for i := range logs {
			l, err := s.Log(scalePartition(i), DefaultLogConfig())
			if err != nil {
				t.Fatal(err)
			}
			logs[i] = l
		}
		round := func() {
			for _, l := range logs {
				mustAppend(t, l, b)
			}
			for _, l := range logs {
				for l.Offsets().Durable < l.Offsets().End {
					s.syncer.await(false)
				}
			}
		}
		for range 5 {
			round()
		}
		before := s.stats.SharedRounds.Load()
		each := allocations(20, round)
		if s.stats.SharedRounds.Load()-before < 20 {
			t.Fatal("the shared log was not used")
		}
		return each
	}
	few, many := allocs(4), allocs(104)
	t.Logf("%v allocations for rounds of 4 appends, %v of 104", few, many)
	if grown := (many - few) / 100; grown > 2.2 { // an append takes two at most
		t.Errorf("%.2f allocations more for each log of a round", grown)
	}
	if few > 4*2+8 {
		t.Errorf("%v allocations for a round of 4 logs", few)
	}
}
