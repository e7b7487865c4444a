package meta

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// highestLevel is the level that a release needs to start on a directory: it reads the newest snapshot and the whole log.
func highestLevel(t *testing.T, dir string) int16 {
	t.Helper()
	s, err := openLogStore(filepath.Join(dir, "raft.db"), lockTimeout, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	first, err := s.FirstIndex()
	if err != nil {
		t.Fatal(err)
	}
	last, err := s.LastIndex()
	if err != nil {
		t.Fatal(err)
	}
	level := levelOneNode
	for i := max(first, 1); i <= last; i++ {
		var l raft.Log
		if err := s.GetLog(i, &l); err != nil {
			t.Fatal(err)
		}
		if l.Type != raft.LogCommand {
			continue
		}
		c, err := DecodeCommand(l.Data)
		if err != nil {
			t.Fatal(err)
		}
		level = max(level, levelOf(c.Changes))
	}
	snapshots, err := openSnapshots(filepath.Join(dir, "snapshots"))
	if err != nil {
		t.Fatal(err)
	}
	ids, err := snapshots.names()
	if err != nil || len(ids) == 0 {
		return level
	}
	_, b, err := snapshots.read(ids[0])
	if err != nil {
		t.Fatal(err)
	}
	img, err := DecodeSnapshot(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range img.Brokers {
		if len(b.Endpoints) > 0 {
			level = max(level, levelListeners)
		}
	}
	return level
}

// Once the level is lowered, the release before can start on the directory: neither its snapshot nor its log, nor what is left of that
// behind the snapshot, has anything of the higher level.
func TestAfterALoweredLevelNothingOfItIsLeft(t *testing.T) {
	ctx := context.Background()
	cfg := Config{Dir: t.TempDir(), NodeID: 1}
	r := Registration{ID: 1, Host: "h", Port: 1, Endpoints: []Endpoint{{Name: "SSL", Host: "h", Port: 1, Protocol: SSL}}}
	start := func() *Node {
		t.Helper()
		n, err := Open(cfg, Deps{})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	lower := func(n *Node) {
		t.Helper()
		if err := n.UpdateFeatures(ctx, []FeatureUpdate{{VersionFeature, levelMax, UpgradeFeature}}, false); err != nil {
			t.Fatal(err)
		}
		if _, err := n.RegisterBroker(ctx, r); err != nil {
			t.Fatal(err)
		}
		if err := n.UpdateFeatures(ctx, []FeatureUpdate{{VersionFeature, levelClusters, SafelyDowngradeFeature}}, false); err != nil {
			t.Fatal(err)
		}
	}
	n := start()
	lower(n)
	closeNode(t, n) // at once
	if got := highestLevel(t, cfg.Dir); got > levelClusters {
		t.Errorf("at level %d the directory needs a release of level %d", levelClusters, got)
	}

	// A crash between the snapshot and the end of the entries before it leaves those behind: the next start takes them away.
	n = start()
	waitFor(t, func() bool { return n.shed.did.Load() == n.shed.to.Load() }) // what this start asks for is done, and does not do it for what follows
	n.fsm.lowered = func() {}
	for i := range 3 {
		createTopic(t, n, fmt.Sprint("topic-", i), 1)
	}
	lower(n)
	if err := n.raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	want := string(n.Image().EncodeSnapshot())
	closeNode(t, n)
	if got := highestLevel(t, cfg.Dir); got <= levelClusters {
		t.Fatal("nothing was left behind")
	}
	closeNode(t, start())
	if got := highestLevel(t, cfg.Dir); got > levelClusters {
		t.Errorf("after a crash the directory needs a release of level %d", got)
	}
	n = start()
	defer closeNode(t, n)
	if got := string(n.Image().EncodeSnapshot()); got != want {
		t.Error("the image is another one")
	}
	createTopic(t, n, "last", 1)
}

// The state machine gets past changes of the quorum's members, or raft would take no snapshot after one.
func TestASnapshotIsTakenAfterAChangeOfMembers(t *testing.T) {
	n := openNode(t, Config{}, Deps{})
	register(t, n)
	if err := n.admit(t.Context(), Registration{ID: 2, RaftAddress: "127.0.0.1:1"}); err != nil {
		t.Fatal(err)
	}
	if err := n.raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
}

// TestTheTimeoutsLeaveTheTrailAsItIs has two goroutines change raft's settings, as a node that stands or leads while it sheds its log.
func TestTheTimeoutsLeaveTheTrailAsItIs(t *testing.T) {
	n := openNode(t, Config{}, Deps{})
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				n.setPulse(time.Second + time.Duration(i%2)*nudge)
			}
		}
	}()
	defer func() { <-done }()
	defer close(stop)
	for i := range uint64(50_000) {
		if err := n.keepTrailing(i % 2); err != nil {
			t.Fatal(err)
		}
		if got := n.raft.ReloadableConfig().TrailingLogs; got != i%2 {
			t.Fatalf("a snapshot leaves %d entries, not %d, after %d changes", got, i%2, i)
		}
	}
}
