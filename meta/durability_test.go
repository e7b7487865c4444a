package meta

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	bbolterrors "go.etcd.io/bbolt/errors"
)

// faultyStore fails the nth write and whatever comes after it would do.
type faultyStore struct {
	store
	left atomic.Int64 // writes until the fault; below zero: none
}

var errDisk = errors.New("input/output error")

func (s *faultyStore) broken() bool { return s.left.Add(-1) == 0 }

func (s *faultyStore) StoreLogs(l []*raft.Log) error {
	if s.broken() {
		return errDisk
	}
	return s.store.StoreLogs(l)
}

func TestTheFirstStoreErrorIsFinal(t *testing.T) {
	ctx := context.Background()
	faulty := &faultyStore{}
	fatal := make(chan error, 2)
	n := openNode(t, Config{faults: func(s store) store { faulty.store = s; return faulty }}, Deps{Fatal: func(err error) { fatal <- err }})
	register(t, n)
	createTopic(t, n, "a", 1)
	faulty.left.Store(1)
	if _, err := n.CreateTopics(ctx, []NewTopic{{Name: "b", Partitions: 1, ReplicationFactor: 1}}, false); err == nil {
		t.Fatal("a topic was created without its log entry")
	}
	select {
	case err := <-fatal:
		if !errors.Is(err, ErrFailed) || !errors.Is(err, errDisk) {
			t.Errorf("fatal error %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the failure was not reported")
	}
	// The disk works again, but this process must not go on.
	for range 3 {
		if _, err := n.CreateTopics(ctx, []NewTopic{{Name: "c", Partitions: 1, ReplicationFactor: 1}}, false); !errors.Is(err, ErrFailed) {
			t.Fatalf("goes on after the failure: %v", err)
		}
	}
	if img := n.Image(); img.Topic("a") == nil || img.Topic("b") != nil || img.Topic("c") != nil {
		t.Error("the image holds what was not logged")
	}
	if len(fatal) != 0 {
		t.Error("the failure was reported twice")
	}
}

// copyDir copies a directory as it is, as a crash would leave it.
func copyDir(t *testing.T, from string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}

func TestWhatWasAnsweredSurvivesACrash(t *testing.T) {
	// No snapshots: nothing may write while the directory is copied. The kill
	// loop has them.
	cfg := Config{Dir: t.TempDir(), NodeID: 1}
	n := openNode(t, cfg, Deps{})
	register(t, n)
	waitFor(t, func() bool { who, _ := n.founding.get(); return who.clusterID != "" }) // its file is written when the image is seen
	for i := range 13 {
		created := createTopic(t, n, fmt.Sprintf("topic-%d", i), 2)
		if i%4 != 0 {
			continue
		}
		crashed := cfg
		crashed.Dir = copyDir(t, cfg.Dir)
		again := openNode(t, crashed, Deps{})
		if again.Image().TopicByID(created.ID) == nil || again.Image().TopicCount() != i+1 {
			t.Fatalf("after topic %d: %d topics", i, again.Image().TopicCount())
		}
		closeNode(t, again)
	}
}

func TestSnapshotsBoundTheLog(t *testing.T) {
	cfg := Config{Dir: t.TempDir(), NodeID: 1, SnapshotEntries: 16, TrailingEntries: 8}
	n := openNode(t, cfg, Deps{})
	register(t, n)
	for i := range 100 {
		createTopic(t, n, fmt.Sprintf("topic-%d", i), 1)
	}
	want := n.Image().EncodeSnapshot()
	waitFor(t, func() bool {
		first, err := n.store.FirstIndex()
		if err != nil {
			t.Fatal(err)
		}
		last, _ := n.store.LastIndex()
		return last-first < 16+2*8
	})
	closeNode(t, n)
	n = openNode(t, cfg, Deps{})
	if !bytes.Equal(n.Image().EncodeSnapshot(), want) {
		t.Error("the image changed")
	}
	waitFor(t, func() bool { // one that is due again is there before an old one is gone
		entries, err := os.ReadDir(filepath.Join(cfg.Dir, "snapshots"))
		if err != nil {
			t.Fatal(err)
		}
		return len(entries) <= snapshotsKept
	})
}

func TestSnapshotsAreDueByBytesToo(t *testing.T) {
	n := openNode(t, Config{SnapshotBytes: 2000}, Deps{})
	register(t, n)
	createTopic(t, n, "a", 500) // 4 KB of partitions
	waitFor(t, func() bool { return n.raft.Stats()["last_snapshot_index"] != "0" })
}

func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			all := make([]byte, 1<<20)
			t.Fatalf("waited in vain, while\n%s", all[:runtime.Stack(all, true)])
		}
	}
}

// TestDamageIsRefusedOrHarmless flips bytes all over the directory: the node
// must refuse to start, or be what it was. It must never be something else.
func TestDamageIsRefusedOrHarmless(t *testing.T) {
	cfg := Config{Dir: t.TempDir(), NodeID: 1, SnapshotEntries: 10, TrailingEntries: 4}
	n := openNode(t, cfg, Deps{})
	register(t, n)
	for i := range 14 {
		createTopic(t, n, fmt.Sprintf("topic-%d", i), 3)
	}
	waitFor(t, func() bool { return n.raft.Stats()["last_snapshot_index"] != "0" })
	want := n.Image().EncodeSnapshot()
	closeNode(t, n)

	refused, harmless := 0, 0
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	flip := func(name string, offset int64) {
		dir := copyDir(t, cfg.Dir)
		flipByte(t, filepath.Join(dir, name), offset)
		damaged := cfg
		damaged.Dir = dir
		again, err := Open(damaged, Deps{})
		if err != nil {
			refused++
			return
		}
		harmless++
		if !bytes.Equal(again.Image().EncodeSnapshot(), want) {
			t.Errorf("seed %d: with byte %d of %s flipped it starts as something else", seed, offset, name)
		}
		closeNode(t, again)
	}
	for _, name := range filesIn(t, cfg.Dir) {
		info, err := os.Stat(filepath.Join(cfg.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		flips := 12
		if strings.HasSuffix(name, ".snap") {
			flips = 4
		}
		for range flips {
			flip(name, random.Int64N(info.Size()))
		}
	}
	t.Logf("%d refused, %d harmless", refused, harmless)
	if refused == 0 {
		t.Error("no damage was noticed")
	}
}

func filesIn(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			name, _ := filepath.Rel(dir, path)
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func flipByte(t *testing.T, path string, offset int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, offset); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	b[0] ^= 0x10
	if _, err := f.WriteAt(b, offset); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestDamagedLogEntryIsRefused(t *testing.T) {
	cfg := Config{Dir: t.TempDir(), NodeID: 1}
	n := openNode(t, cfg, Deps{})
	register(t, n)
	createTopic(t, n, "find-me-in-the-log", 1)
	closeNode(t, n)
	path := filepath.Join(cfg.Dir, "raft.db")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for at := 0; ; {
		i := bytes.Index(b[at:], []byte("find-me"))
		if i < 0 {
			break
		}
		flipByte(t, path, int64(at+i))
		found++
		at += i + 1
	}
	if _, err := Open(cfg, Deps{}); found == 0 || !errors.Is(err, ErrCorrupt) {
		t.Errorf("%d places damaged: %v", found, err)
	}
}

func TestDamagedSnapshotIsRefused(t *testing.T) {
	cfg := Config{Dir: t.TempDir(), NodeID: 1, SnapshotEntries: 4, TrailingEntries: 1}
	n := openNode(t, cfg, Deps{})
	register(t, n)
	for i := range 12 {
		createTopic(t, n, fmt.Sprintf("topic-%d", i), 1)
	}
	waitFor(t, func() bool { e, _ := os.ReadDir(filepath.Join(cfg.Dir, "snapshots")); return len(e) == snapshotsKept })
	closeNode(t, n)
	entries, err := os.ReadDir(filepath.Join(cfg.Dir, "snapshots"))
	if err != nil {
		t.Fatal(err)
	}
	newest := filepath.Join("snapshots", entries[len(entries)-1].Name())
	info, err := os.Stat(filepath.Join(cfg.Dir, newest))
	if err != nil {
		t.Fatal(err)
	}
	dir := copyDir(t, cfg.Dir)
	for at := range info.Size() {
		flipByte(t, filepath.Join(dir, newest), at)
		store, err := openSnapshots(filepath.Join(dir, "snapshots"))
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := store.newest(); !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
			t.Fatalf("byte %d damaged: %v", at, err)
		}
		if _, err := store.List(); err == nil {
			t.Fatalf("byte %d damaged: raft would use it", at)
		}
		flipByte(t, filepath.Join(dir, newest), at)
	}
	flipByte(t, filepath.Join(dir, newest), 30)
	bad := cfg
	bad.Dir = dir
	before := contents(t, dir)
	for range 2 {
		if _, err := Open(bad, Deps{}); !errors.Is(err, ErrCorrupt) {
			t.Errorf("with a damaged snapshot it starts: %v", err)
		}
		// The older snapshot, and what the log still has, may be all that is left to mend it with.
		if after := contents(t, dir); !maps.Equal(before, after) {
			t.Error("something in the directory is not what it was")
		}
	}
	// Without its newest snapshot the log does not reach back far enough.
	damaged := cfg
	damaged.Dir = copyDir(t, cfg.Dir)
	if err := os.RemoveAll(filepath.Join(damaged.Dir, "snapshots")); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(damaged, Deps{}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("without snapshots it starts: %v", err)
	}
}

// contents is what a directory holds: of the log its entries, for its file changes whenever it is opened.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, name := range filesIn(t, dir) {
		if name == "raft.db" {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		all[name] = string(b)
	}
	s, err := openLogStore(filepath.Join(dir, "raft.db"), lockTimeout, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	first, err := s.FirstIndex()
	if err != nil {
		t.Fatal(err)
	}
	for i := first; ; i++ {
		var l raft.Log
		if err := s.GetLog(i, &l); errors.Is(err, raft.ErrLogNotFound) && i > first {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all[fmt.Sprint("entry ", i)] = string(l.Data)
	}
}

func TestALaterReleasesLogIsRefused(t *testing.T) {
	cfg := Config{Dir: t.TempDir(), NodeID: 1}
	n := openNode(t, cfg, Deps{})
	register(t, n)
	last, err := n.store.LastIndex()
	if err != nil {
		t.Fatal(err)
	}
	closeNode(t, n)
	s, err := openLogStore(filepath.Join(cfg.Dir, "raft.db"), lockTimeout, nil)
	if err != nil {
		t.Fatal(err)
	}
	future := sum([]byte{commandVersion + 1})
	if err := s.StoreLog(&raft.Log{Index: last + 1, Term: 9, Type: raft.LogCommand, Data: future}); err != nil {
		t.Fatal(err)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(cfg, Deps{}); !errors.Is(err, ErrVersion) {
		t.Errorf("opened: %v", err)
	}
}

func TestTwoProcessesCannotShareADirectory(t *testing.T) {
	cfg := Config{Dir: t.TempDir(), NodeID: 1, lockTimeout: 100 * time.Millisecond}
	openNode(t, cfg, Deps{})
	if _, err := Open(cfg, Deps{}); !errors.Is(err, bbolterrors.ErrTimeout) {
		t.Errorf("opened: %v", err)
	}
}

func TestADirectoryKeepsToItsNode(t *testing.T) {
	cfg := Config{Dir: t.TempDir(), NodeID: 1}
	n := openNode(t, cfg, Deps{})
	id := n.Image().ClusterID
	closeNode(t, n)
	other := cfg
	other.NodeID = 2
	if _, err := Open(other, Deps{}); err == nil || !strings.Contains(err.Error(), "belongs to node 1") {
		t.Errorf("opened as node 2: %v", err)
	}
	other = cfg
	other.ClusterID = "AAAAAAAAAAAAAAAAAAAAAQ"
	if _, err := Open(other, Deps{}); !errors.Is(err, ErrInconsistentCluster) {
		t.Errorf("opened for another cluster: %v", err)
	}
	other.ClusterID = id
	closeNode(t, openNode(t, other, Deps{}))
}

// TestKillLoop kills a process over and over while it creates topics, and
// checks that every topic it reported is there afterwards.
func TestKillLoop(t *testing.T) {
	if dir := os.Getenv("VARVE_META_KILL_DIR"); dir != "" {
		killMe(t, dir) // which has no time to remove a directory of its own
		return
	}
	dir := t.TempDir()
	known := 0
	for round := range 5 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKillLoop$", "-test.v")
		cmd.Env = append(os.Environ(), "VARVE_META_KILL_DIR="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		reported := readReports(out, 3+2*round, cmd.Process)
		_ = cmd.Wait() // killed
		if reported <= known && round > 0 {
			t.Fatalf("round %d made no topics", round)
		}
		known = max(known, reported)
		n := openNode(t, Config{Dir: dir, NodeID: 1}, Deps{})
		for i := 1; i <= known; i++ {
			if n.Image().Topic(fmt.Sprintf("topic-%d", i)) == nil {
				t.Errorf("round %d: topic %d of %d is lost", round, i, known)
			}
		}
		closeNode(t, n)
	}
}

// readReports reads the numbers of created topics until there are n of them,
// then kills the process, and reads on: what was written before the kill counts.
func readReports(out io.Reader, n int, p *os.Process) int {
	last, count := 0, 0
	buf := make([]byte, 1)
	line := ""
	for {
		if _, err := out.Read(buf); err != nil {
			return last
		}
		if buf[0] != '\n' {
			line += string(buf)
			continue
		}
		if v, ok := strings.CutPrefix(line, "created "); ok {
			last, _ = strconv.Atoi(v)
			if count++; count == n {
				_ = p.Kill()
			}
		}
		line = ""
	}
}

func killMe(t *testing.T, dir string) {
	n, err := Open(Config{Dir: dir, NodeID: 1, SnapshotEntries: 5, TrailingEntries: 2}, Deps{})
	if err != nil {
		t.Fatal(err)
	}
	register(t, n)
	for i := n.Image().TopicCount() + 1; ; i++ {
		createTopic(t, n, fmt.Sprintf("topic-%d", i), 1)
		fmt.Printf("created %d\n", i)
	}
}

// heldStore holds every write until it is released, and says whether the store
// was closed meanwhile.
type heldStore struct {
	store
	hold    atomic.Bool
	held    chan struct{} // told of a write that waits
	release chan struct{}
	closed  chan struct{}
}

func (s *heldStore) StoreLogs(l []*raft.Log) error {
	if s.hold.Load() {
		s.held <- struct{}{}
		<-s.release
	}
	return s.store.StoreLogs(l)
}

func (s *heldStore) Close() error {
	close(s.closed)
	return s.store.Close()
}

// Closing a store that raft still writes to makes bbolt panic. raft says that
// it has stopped through the future of the first Shutdown alone.
func TestTheStoreStaysOpenUntilRaftIsDoneWithIt(t *testing.T) {
	s := &heldStore{held: make(chan struct{}, 1), release: make(chan struct{}), closed: make(chan struct{})}
	n := openNode(t, Config{faults: func(under store) store { s.store = under; return s }}, Deps{})
	s.hold.Store(true)
	var calls sync.WaitGroup
	calls.Go(func() {
		if _, err := n.RegisterBroker(context.Background(), Registration{ID: 1, Host: "h", Port: 1}); err == nil {
			t.Error("a node that had failed registered a broker")
		}
	})
	<-s.held
	n.fail(errDisk) // raft is told to stop
	waitFor(t, func() bool { return n.raft.State() == raft.Shutdown })
	calls.Go(func() { closeNode(t, n) }) // and told again
	select {
	case <-s.closed:
		t.Error("the store was closed under a write")
	case <-time.After(200 * time.Millisecond):
	}
	s.hold.Store(false)
	close(s.release)
	calls.Wait()
	<-s.closed
}
