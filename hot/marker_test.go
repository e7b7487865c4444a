package hot

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/varvelog/varve/hot/vfs"
)

// hasMarker says whether the directory says that it was left in order.
func hasMarker(t *testing.T, fs vfs.FS) bool {
	t.Helper()
	_, err := fs.Stat("data/" + markerName)
	if err != nil && !errors.Is(err, vfs.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

// TestMarkerGoesBeforeAnythingElseAndComesLast: the clean-shutdown marker is away,
// durably, before a start looks at anything (KAFKA-10471), so that a start which
// dies at once is no clean stop; and at a stop it is the last to be written.
func TestMarkerGoesBeforeAnythingElseAndComesLast(t *testing.T) {
	mem := vfs.NewMem(1)
	s := openStore(t, mem, "data")
	l := openLog(t, s)
	mustAppend(t, l, records(3, 20, 1))
	l.SetHighWatermark(3)
	var mu sync.Mutex
	var done []string // while the marker was there
	hook := &hookFS{FS: mem, hook: func(op, name string) {
		mu.Lock()
		defer mu.Unlock()
		if hasMarker(t, mem) {
			done = append(done, op+" "+name)
		}
	}}
	seen := func() []string {
		mu.Lock()
		defer mu.Unlock()
		list := done
		done = nil
		return list
	}
	closeStore(t, s)
	if !hasMarker(t, mem) {
		t.Fatal("no marker after a clean stop")
	}
	// The next start: whatever it writes, it writes without the marker.
	s = openStore(t, hook, "data")
	if !s.Clean() {
		t.Fatal("the stop was clean")
	}
	l = openLog(t, s)
	mustAppend(t, l, records(3, 20, 1))
	waitDurable(t, l, 6)
	for _, op := range seen() {
		if !strings.Contains(op, markerName) {
			t.Errorf("%s while the marker was there", op)
		}
	}
	closeStore(t, s)
	for _, op := range seen() {
		if !strings.HasPrefix(op, "sync") {
			t.Errorf("%s after the marker was written", op)
		}
	}
	// A start that dies before it has written anything: its stop was not clean.
	for seed := range uint64(10) {
		s = openStore(t, mem, "data")
		image := mem.CrashSeed(seed)
		s.Abandon()
		again := openStore(t, image, "data")
		if again.Clean() {
			t.Fatalf("seed %d: a start that died at once counts as a clean stop", seed)
		}
		again.Abandon()
		s = openStore(t, mem, "data")
		closeStore(t, s)
	}
}

// TestMarkerSaysThatEverythingIsDurable cuts the power right after a clean stop:
// who trusts the marker finds all there.
func TestMarkerSaysThatEverythingIsDurable(t *testing.T) {
	for seed := range uint64(30) {
		mem := vfs.NewMem(seed)
		s := openStore(t, mem, "data", func(c *Config) { c.Durability, c.FlushInterval = Replicated, 1<<40 })
		l := openLog(t, s)
		for range 5 {
			mustAppend(t, l, records(3, 200, 1))
		}
		closeStore(t, s)
		image := mem.CrashSeed(seed)
		s = openStore(t, image, "data")
		l = openLog(t, s)
		if o := l.Offsets(); !s.Clean() || o.End != 15 || l.Err() != nil {
			t.Fatalf("seed %d: clean %t, %+v, %v", seed, s.Clean(), o, l.Err())
		}
		checkDense(t, readAll(t, l, 1<<20), 0, 15)
		s.Abandon()
	}
}

// TestNoMarkerWhenTheStopFailed: an error on the way is no clean stop, whatever
// could be written after it.
func TestNoMarkerWhenTheStopFailed(t *testing.T) {
	for k := range 6 {
		mem := vfs.NewMem(uint64(k))
		faults := vfs.NewFaults(mem)
		s := openStore(t, faults, "data", func(c *Config) { c.Durability, c.FlushInterval = Replicated, 1<<40 })
		l := openLog(t, s)
		mustAppend(t, l, records(3, 20, 1))
		rule := faults.Inject(vfs.Rule{Ops: []vfs.Op{vfs.OpSync, vfs.OpSyncFS, vfs.OpSyncDir, vfs.OpWrite}, Skip: k, Err: syscall.EIO, Count: 1})
		err := s.Close(context.Background())
		if rule.Hits() > 0 && (err == nil || hasMarker(t, mem)) && !strings.Contains(fmt.Sprint(err), markerName) {
			t.Fatalf("fault %d: close says %v, marker %t", k, err, hasMarker(t, mem))
		}
	}
}
