package hot

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/varvelog/varve/hot/vfs"
)

// lines collects a log's lines.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), s)
}

func openLogged(t *testing.T, fs vfs.FS, change func(*Config)) (*Store, *lines) {
	t.Helper()
	out := &lines{}
	c := DefaultConfig("data")
	change(&c)
	s, err := Open(c, Deps{FS: fs, Logger: slog.New(slog.NewTextHandler(out, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Abandon)
	return s, out
}

// TestRefusedAppendMeansFull leaves a gap above the reserve that a batch does
// not fit: refusing it and being full is one state, seen and logged, that ends
// only when there is clearly more room than the batch needs.
func TestRefusedAppendMeansFull(t *testing.T) {
	mem := vfs.NewMem(1)
	s, out := openLogged(t, mem, func(c *Config) { c.ReserveBytes, c.PreallocateBytes = 100<<10, 0 })
	l := openLog(t, s)
	used := func() int64 {
		mem.SetCapacity(1 << 30)
		_, free, _ := mem.Usage("data")
		return 1<<30 - int64(free)
	}
	mem.SetCapacity(used() + 100<<10 + 20_000)
	s.measure()
	if s.Usage().Full {
		t.Fatal("full with 20 kB to spare")
	}
	if _, err := l.Append(records(1, 30_000, 1), AppendOptions{Now: 1}); !errors.Is(err, ErrDiskFull) {
		t.Fatalf("30 kB into a gap of 20: %v", err)
	}
	if !s.Usage().Full || out.count("disk is nearly full") != 1 {
		t.Fatalf("refused, but usage is %+v and it was logged %d times", s.Usage(), out.count("disk is nearly full"))
	}
	s.measure()
	if _, err := l.Append(records(1, 10, 1), AppendOptions{Now: 1}); !errors.Is(err, ErrDiskFull) {
		t.Fatalf("a small batch while full: %v", err)
	}
	mem.SetCapacity(used() + 100<<10 + 40_000)
	s.measure()
	if !s.Usage().Full {
		t.Fatal("not full with less than twice what was refused: it would be again at once")
	}
	mem.SetCapacity(used() + 100<<10 + 70_000)
	s.measure()
	if s.Usage().Full || out.count("disk has space again") != 1 {
		t.Fatalf("still full with 70 kB to spare: %+v", s.Usage())
	}
	mustAppend(t, l, records(1, 30_000, 1))
	if out.count("disk is nearly full") != 1 {
		t.Fatal("logged again")
	}
}

// TestDiskIsMeasuredUnderNoLock holds the look at the disk while another
// append of the same log goes through.
func TestDiskIsMeasuredUnderNoLock(t *testing.T) {
	mem := vfs.NewMem(1)
	fs := vfs.NewFaults(mem)
	s, _ := openLogged(t, fs, func(c *Config) { c.ReserveBytes = 1 << 10 })
	l := openLog(t, s)
	mem.SetCapacity(1 << 20)
	s.measure()
	looked := false
	fs.Inject(vfs.Rule{Ops: []vfs.Op{vfs.OpUsage}, Do: func() {
		if !l.appendMu.TryLock() {
			t.Error("the disk is looked at under the append lock")
			return
		}
		l.appendMu.Unlock()
		looked = true
	}})
	if _, err := l.Append(records(1, 2<<20, 1), AppendOptions{Now: 1}); !errors.Is(err, ErrDiskFull) {
		t.Fatal(err)
	}
	s.space.mu.Lock()
	defer s.space.mu.Unlock()
	if !looked {
		t.Fatal("the disk was not looked at")
	}
}
