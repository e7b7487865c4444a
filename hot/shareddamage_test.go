package hot

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/varvelog/varve/hot/vfs"
)

// sharedLoad is a store of several logs, most of which get records by the shared
// log, a few of them at a time; the last one has had none since it was synced.
type sharedLoad struct {
	mem    *vfs.Mem
	ends   []int64 // that were acknowledged
	rounds []sharedRound
	had    []map[int32]bool // logs of which each round had entries
	g      sharedGeneration
	size   int64
}

const loadLogs = 7

func newSharedLoad(t *testing.T, rng *rand.Rand) *sharedLoad {
	t.Helper()
	x := &sharedLoad{mem: vfs.NewMem(rng.Uint64()), size: 4 * sharedBytesMin}
	s := sharedStore(t, x.mem, func(c *Config) { c.SharedLogBytes = x.size })
	defer s.Abandon()
	var logs []*Log
	for i := range loadLogs {
		l, err := s.Log(scalePartition(i), DefaultLogConfig())
		if err != nil {
			t.Fatal(err)
		}
		mustAppend(t, l, records(1, 50, 1))
		logs = append(logs, l)
	}
	s.syncer.flush()
	for range 20 {
		var some []*Log
		for _, i := range rng.Perm(loadLogs - 1)[:1+rng.IntN(3)] {
			mustAppend(t, logs[i], records(1, 50+rng.IntN(1500), 1))
			some = append(some, logs[i])
		}
		for _, l := range some {
			waitDurable(t, l, l.Offsets().End)
		}
	}
	for _, l := range logs {
		x.ends = append(x.ends, l.Offsets().End)
	}
	x.look(t)
	return x
}

// look reads the rounds.
func (x *sharedLoad) look(t *testing.T) {
	t.Helper()
	f, err := x.mem.Open("data/" + sharedName)
	if err == nil {
		x.g, err = readSharedHeader(f, x.size)
	}
	if err != nil {
		t.Fatal(err)
	}
	r := sharedReader{f: f, size: x.size, salt: x.g.salt}
	if x.rounds, err = r.scan(); err != nil || len(x.rounds) < 20 {
		t.Fatalf("%d rounds, %v", len(x.rounds), err)
	}
	for i := range x.rounds {
		had := map[int32]bool{}
		if err := r.entries(&x.rounds[i], func(e sharedEntry, _ int64) error { had[e.key.index] = true; return nil }); err != nil {
			t.Fatal(err)
		}
		x.had = append(x.had, had)
	}
}

// touched are the logs that have entries in rounds of a part of the file.
func (x *sharedLoad) touched(from, to int64) map[int32]bool {
	out := map[int32]bool{}
	for i := range x.rounds {
		if q := &x.rounds[i]; q.at < to && from < q.end() {
			for k := range x.had[i] {
				out[k] = true
			}
		}
	}
	return out
}

// needed says whether a part of the file has a header, or of a round more than its repetition of the one before, which is needed
// only when that is damaged.
func (x *sharedLoad) needed(from, to int64) bool {
	return from < sharedBlock || to > x.size-sharedBlock ||
		slices.ContainsFunc(x.rounds, func(q sharedRound) bool { return q.at < to && from < q.olderAt() })
}

// check opens a store and compares what its logs have with what was acknowledged.
// Those in may, and no others, may count as having lost their end.
func (x *sharedLoad) check(t *testing.T, fs vfs.FS, d Deps, may map[int32]bool, what string) (lost int) {
	t.Helper()
	d.FS = fs
	c := DefaultConfig("data")
	c.SharedLogBytes = x.size
	s, err := Open(c, d)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	defer s.Abandon()
	for i, end := range x.ends {
		l, err := s.Log(scalePartition(i), DefaultLogConfig())
		if err != nil || l.Err() != nil {
			t.Fatalf("%s: log %d: %v, %v", what, i, err, l.Err())
		}
		_, _, gone := l.Lost()
		if gone {
			lost++
		}
		switch {
		case gone && !may[int32(i)]:
			t.Fatalf("%s: log %d counts as having lost its end, %+v of %d, and only %v were hit", what, i, l.Offsets(), end, may)
		case !gone && l.Offsets().End != end:
			t.Fatalf("%s: log %d ends at %d, %d was acknowledged, and it does not know", what, i, l.Offsets().End, end)
		}
	}
	return lost
}

// One flipped bit costs the logs that have entries in the round that it hit at most,
// and those only what their own files do not have.
func TestFlippedBitCostsOnlyWhatItHit(t *testing.T) {
	lost := 0
	for seed := range uint64(120) {
		rng := rand.New(rand.NewPCG(seed, 21))
		x := newSharedLoad(t, rng)
		end := x.rounds[len(x.rounds)-1].at // the last round may as well be torn
		at := sharedBlock + rng.Int64N(end-sharedBlock)
		if seed%10 == 0 {
			at = rng.Int64N(sharedHeaderSize)
		}
		what := fmt.Sprintf("seed %d, bit in byte %d", seed, at)
		for _, image := range []*vfs.Mem{x.mem.Clone(), x.mem.CrashSeed(seed), x.mem.CrashSeed(seed + 1000), x.unwritten(t)} {
			flip(t, image, "data/"+sharedName, at)
			lost += x.check(t, image, Deps{}, x.touched(at, at+1), what)
		}
		image := x.mem.Clone() // the process was killed: the files have everything
		flip(t, image, "data/"+sharedName, at)
		x.check(t, image, Deps{}, nil, what+", killed")
	}
	if lost == 0 {
		t.Fatal("no damage cost anything")
	}
}

// unwritten is what the disk has when nothing was written back of what the shared
// log has.
func (x *sharedLoad) unwritten(t *testing.T) *vfs.Mem {
	t.Helper()
	image := x.mem.Clone()
	for i := range loadLogs {
		path := "data/" + partitionDirName(scalePartition(i)) + "/" + offsetName(0, logExt)
		f, err := image.OpenAppend(path)
		if err == nil {
			err = f.Truncate(int64(len(records(1, 50, 1))))
		}
		if err == nil {
			err = f.Sync()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return image
}

// Pages of the file that cannot be read cost what is on them, and the store opens.
func TestUnreadablePagesCostOnlyWhatIsOnThem(t *testing.T) {
	lost := 0
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 22))
			x := newSharedLoad(t, rng)
			pages := 1 + rng.Int64N(2)
			last := x.rounds[len(x.rounds)-1].at/sharedBlock - pages
			page := 1 + rng.Int64N(last)
			if seed%10 == 0 { // a header
				page, pages = []int64{0, x.size/sharedBlock - 1}[rng.IntN(2)], 1
			}
			for i, image := range []*vfs.Mem{x.mem.CrashSeed(seed), x.unwritten(t)} {
				d := &pageFaults{FS: image, left: map[string]int{}}
				for n := range pages {
					d.fail("data/"+sharedName, page+n, -1)
				}
				what := fmt.Sprintf("seed %d, image %d, pages %d+%d", seed, i, page, pages)
				lost += x.check(t, d, Deps{}, x.touched(page*sharedBlock, (page+pages)*sharedBlock), what)
				if _, err := image.Stat("data/" + sharedName + damagedSuffix); err != nil && x.needed(page*sharedBlock, (page+pages)*sharedBlock) {
					t.Fatalf("%s: the file is not kept: %v", what, err)
				}
			}
		})
	}
	if lost == 0 {
		t.Fatal("no damage cost anything")
	}
}

// Where nobody tells whose rounds were hit, every log may have lost something, but
// for those whose later entries say that they have not; and nothing is lost when
// the kernel has not stopped since.
func TestRoundsThatNobodyTellsOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := map[int32]bool{}
		for i := range int32(loadLogs) {
			all[i] = true
		}
		rng := rand.New(rand.NewPCG(1, 23))
		x := newSharedLoad(t, rng)
		fail := func(image *vfs.Mem, from, to int64) *pageFaults {
			d := &pageFaults{FS: image, left: map[string]int{}}
			for at := from; at < to; at += sharedBlock {
				d.fail("data/"+sharedName, at/sharedBlock, -1)
			}
			return d
		}
		last := &x.rounds[len(x.rounds)-1]
		if n := x.check(t, fail(x.unwritten(t), last.at, last.end()), Deps{}, all, "last round"); n != loadLogs {
			t.Fatalf("%d logs know that the last round cannot be read", n)
		}
		if n := x.check(t, fail(x.unwritten(t), last.end(), last.end()+1), Deps{}, all, "behind the last round"); n != loadLogs {
			t.Fatalf("%d logs know that there may be another round", n)
		}
		if n := x.check(t, fail(x.unwritten(t), last.end()+sharedBlock, last.end()+2*sharedBlock), Deps{}, nil, "unused"); n > 0 {
			t.Fatalf("%d logs lost what is on a page that was never used", n)
		}
		// The middle, so much of it that the next round does not tell of all.
		from, to := &x.rounds[2], &x.rounds[12]
		x.check(t, fail(x.unwritten(t), from.at, to.at), Deps{}, all, "the middle")
		image := x.mem.Clone()
		if err := vfs.WriteFileAtomic(image, "data/"+bootName, []byte("this")); err != nil {
			t.Fatal(err)
		}
		if n := x.check(t, fail(image, last.at, last.end()), Deps{Boot: "this"}, nil, "the same run of the kernel"); n > 0 {
			t.Fatalf("%d logs lost what is in their files", n)
		}
		// Nothing was lost in place: those that went on later know it.
		image = x.mem.Clone()
		later := x.touched(to.at, x.size)
		for k := range later {
			delete(all, k)
		}
		x.check(t, fail(image, from.at, to.at), Deps{}, all, "the middle, all in place")
	})
}

// A page that can be read at the second try is no damage.
func TestSharedLogThatCannotBeReadForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newSharedLoad(t, rand.New(rand.NewPCG(1, 24)))
		image := x.unwritten(t)
		d := &pageFaults{FS: image, left: map[string]int{}}
		d.fail("data/"+sharedName, 3, 2)
		x.check(t, d, Deps{}, nil, "a while")
		if _, err := image.Stat("data/" + sharedName + damagedSuffix); err == nil {
			t.Fatal("a file that is sound is set aside")
		}
	})
}

// What a producer sends does not pass for a round.
func TestRecordsDoNotPassForRounds(t *testing.T) {
	g := sharedGeneration{number: 1, salt: 5, first: 1}
	b := append(g.append(nil), make([]byte, sharedBlock-sharedHeaderSize)...)
	fake := sharedGeneration{number: 9, salt: 6}.appendRound(nil, 2, nil, sharedWrite{sharedEntry{base: 1}, []byte("made up")})
	b = g.appendRound(b, 1, nil, sharedWrite{sharedEntry{}, append(make([]byte, sharedBlock-sharedRoundHead-sharedEntryHead), fake...)})
	b = append(b, make([]byte, sharedBlock)...)
	r := sharedReader{f: bytes.NewReader(b), size: int64(len(b)), salt: g.salt}
	if rounds, err := r.scan(); err != nil || len(rounds) != 1 {
		t.Fatalf("%d rounds, %v", len(rounds), err)
	}
}
