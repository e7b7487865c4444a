package hot

import (
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/varvelog/varve/hot/vfs"
	"github.com/varvelog/varve/meta/topic"
)

func scalePartition(i int) topic.Partition {
	return topic.Partition{Topic: "scale", ID: topic.ID{1, byte(i >> 8), byte(i)}, Index: int32(i)}
}

// openedFS notes which files are opened.
type openedFS struct {
	vfs.FS
	mu     sync.Mutex
	opened map[string]int
}

func (o *openedFS) note(name string) {
	o.mu.Lock()
	o.opened[filepath.Base(name)]++
	o.mu.Unlock()
}

func (o *openedFS) Open(name string) (vfs.File, error) { o.note(name); return o.FS.Open(name) }
func (o *openedFS) OpenAppend(name string) (vfs.File, error) {
	o.note(name)
	return o.FS.OpenAppend(name)
}

// partitionFiles counts opens of files that belong to partitions.
func (o *openedFS) partitionFiles(match func(string) bool) (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for name, times := range o.opened {
		if _, _, ok := parseOffsetName(name); ok && match(name) {
			n += times
		}
	}
	return n
}

// growTree makes partitions of several one-batch segments each. On the real
// file system sealed segments are hard work, so only their names and an empty
// index are made: a start that opened one would fail on it.
func growTree(t testing.TB, fs vfs.FS, dir string, partitions, segments int) {
	t.Helper()
	s := openStore(t, fs, dir)
	one := records(1, 50, 1)
	for i := range partitions {
		l, err := s.Log(scalePartition(i), DefaultLogConfig())
		if err != nil {
			t.Fatal(err)
		}
		if err := l.ResetTo(int64(segments), nil, nil); err != nil {
			t.Fatal(err)
		}
		l.saved.localStart = 0
		l.offsets.update(func(o *Offsets) { o.LogStart, o.LocalStart = 0, 0 })
		for n := range segments - 1 {
			f, err := fs.Create(l.path(int64(n), logExt))
			if err != nil {
				t.Fatal(err)
			}
			f.Close()
		}
		mustAppend(t, l, one)
	}
	closeStore(t, s)
}

func TestStartOpensNoSealedSegmentAndAfterACleanCloseNoFileAtAll(t *testing.T) {
	partitions, segments := 100, 10
	var base vfs.FS = vfs.NewMem(1)
	dir := "data"
	if longRun() {
		partitions, base, dir = 10_000, vfs.OS(), t.TempDir()
	}
	growTree(t, base, dir, partitions, segments)
	open := func(fs vfs.FS) *Store {
		s := openStore(t, fs, dir)
		for i := range partitions {
			l, err := s.Log(scalePartition(i), DefaultLogConfig())
			if err != nil {
				t.Fatal(err)
			}
			if got := len(l.list()); got != segments {
				t.Fatalf("%d segments", got)
			}
		}
		return s
	}
	// The second start finds no marker, since the first one died; but nothing
	// was written meanwhile, and sizes say so.
	for _, clean := range []bool{true, false} {
		fs := &openedFS{FS: base, opened: map[string]int{}}
		began := time.Now()
		s := open(fs)
		t.Logf("clean %v: %d partitions, %d segments open in %v", clean, partitions, partitions*segments, time.Since(began))
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("start took %v", took)
		}
		if s.Clean() != clean {
			t.Fatalf("clean is %v", s.Clean())
		}
		if n := fs.partitionFiles(func(string) bool { return true }); n != 0 {
			t.Errorf("clean %v: %d files of unchanged partitions were opened", clean, n)
		}
		s.Abandon()
	}
	// Now every partition gets a record, and the process dies.
	s := open(base)
	for _, l := range s.opened() {
		mustAppend(t, l, records(1, 50, 1))
	}
	s.Abandon()
	fs := &openedFS{FS: base, opened: map[string]int{}}
	began := time.Now()
	s = open(fs)
	opened := time.Since(began)
	l, err := s.Log(scalePartition(0), DefaultLogConfig())
	if err != nil {
		t.Fatal(err)
	}
	a := mustAppend(t, l, records(1, 50, 1))
	waitDurable(t, l, a.LastOffset+1)
	t.Logf("all partitions dirty after kill -9: open and recovered in %v, one record durable after %v", opened, time.Since(began))
	active := offsetName(int64(segments), "")
	if n := fs.partitionFiles(func(name string) bool {
		return strings.HasSuffix(name, logExt) && !strings.HasPrefix(name, active)
	}); n != 0 {
		t.Errorf("%d sealed segments were opened", n)
	}
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestIdlePartitionsCostLittleMemoryAndNoGoroutine(t *testing.T) {
	partitions := 1000
	if longRun() {
		partitions = 10_000
	}
	dir := t.TempDir()
	s := openStore(t, vfs.OS(), dir, func(c *Config) { c.Durability = Replicated })
	c := DefaultLogConfig()
	before, goroutines := heapInUse(), runtime.NumGoroutine()
	logs := make([]*Log, partitions)
	for i := range logs {
		var err error
		if logs[i], err = s.Log(scalePartition(i), c); err != nil {
			t.Fatal(err)
		}
	}
	perNew := (heapInUse() - before) / uint64(partitions)
	for _, l := range logs {
		mustAppend(t, l, records(1, 50, 1))
	}
	if err := s.checkpoint(s.opened(), false); err != nil {
		t.Fatal(err)
	}
	for _, l := range logs {
		l.idle()
	}
	perWritten := (heapInUse() - before) / uint64(partitions)
	t.Logf("%d partitions: %d bytes each when new, %d when written once and idle", partitions, perNew, perWritten)
	if perNew > 2048 || perWritten > 2048 {
		t.Errorf("an idle partition takes %d bytes new, %d written; limit 2048", perNew, perWritten)
	}
	if n := runtime.NumGoroutine(); n > goroutines+2 {
		t.Errorf("%d goroutines for %d partitions", n-goroutines, partitions)
	}
	if n := s.files.openFiles(); n > s.config.OpenFilesMax {
		t.Errorf("%d open files", n)
	}
	closeStore(t, s)
	s = openStore(t, vfs.OS(), dir)
	before = heapInUse()
	for i := range logs {
		var err error
		if logs[i], err = s.Log(scalePartition(i), c); err != nil {
			t.Fatal(err)
		}
	}
	perReopened := (heapInUse() - before) / uint64(partitions)
	t.Logf("%d bytes each when reopened", perReopened)
	if perReopened > 2048 {
		t.Errorf("a reopened partition takes %d bytes; limit 2048", perReopened)
	}
	runtime.KeepAlive(logs)
}

func TestOpenFilesOfSealedSegmentsAreBounded(t *testing.T) {
	s := openStore(t, vfs.OS(), t.TempDir(), func(c *Config) { c.OpenFilesMax = 5 })
	l := openLog(t, s, smallSegments)
	for range 200 {
		mustAppend(t, l, records(3, 40, 1))
	}
	waitDurable(t, l, l.Offsets().End)
	for range 3 {
		checkDense(t, readAll(t, l, 700), 0, l.Offsets().End)
	}
	if n := s.files.openFiles(); n > 7 {
		t.Fatalf("%d open files, limit 5 and the active one", n)
	}
	if n := len(l.list()); n < 40 {
		t.Fatalf("only %d segments", n)
	}
}

// allocations is the least of a few measurements: what runs in the background allocates too, the more the slower the machine is.
func allocations(runs int, f func()) float64 {
	least := testing.AllocsPerRun(runs, f)
	for range 4 {
		least = min(least, testing.AllocsPerRun(runs, f))
	}
	return least
}

func TestAppendAndReadAllocateAFixedFew(t *testing.T) {
	for name, size := range map[string]int{"1 record": 1, "1000 records": 1000} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, vfs.OS(), t.TempDir(), func(c *Config) { c.Durability = Replicated })
			l := openLog(t, s)
			b := records(size, 100, 1)
			mustAppend(t, l, b)
			n := allocations(500, func() { mustAppend(t, l, b) })
			t.Logf("append: %v allocations", n)
			if n > 2 {
				t.Errorf("append allocates %v times", n)
			}
			p := newProducers()
			pb := produced(1, 0, 0, size, false)
			p.apply(pb, nil, 5)
			if n := allocations(500, func() {
				if _, _, err := p.check(pb, nil, &AppendOptions{}); err != nil {
					t.Fatal(err)
				}
				p.apply(pb, nil, 5)
			}); n > 0 {
				t.Errorf("producer state allocates %v times", n)
			}
			end := l.Offsets().End
			n = allocations(500, func() {
				sl, err := l.Read(end/2, 1<<20, end, true)
				if err != nil {
					t.Fatal(err)
				}
				sl.Release()
			})
			t.Logf("read: %v allocations", n)
			if n > 2 {
				t.Errorf("read allocates %v times", n)
			}
			last, ok, err := l.MaxTimestamp()
			if err != nil || !ok {
				t.Fatal(ok, err)
			}
			n = allocations(500, func() {
				if got, ok, err := l.OffsetForTime(last.Timestamp); err != nil || !ok || got.Timestamp < last.Timestamp {
					t.Fatalf("%+v, %v, %v", got, ok, err)
				}
			})
			t.Logf("lookup: %v allocations", n)
			if n > 2 {
				t.Errorf("a lookup by time allocates %v times", n)
			}
		})
	}
}
