package meta

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/varvelog/varve/meta/topic"
)

func TestOnlyAVoterThatIsKnownFounds(t *testing.T) {
	a, b, c, other := topic.ID{1}, topic.ID{2}, topic.ID{3}, topic.ID{9}
	voters := []Voter{{NodeID: 1}, {NodeID: 2}, {NodeID: 3}}
	fresh := func(d topic.ID) greeting { return greeting{Directory: d} }
	formed := func(self topic.ID, votes ...int32) greeting {
		return greeting{Directory: b, Formed: true, Founders: map[int32]topic.ID{1: self, 2: b, 3: c}, Voters: votes}
	}
	for _, test := range []struct {
		name    string
		answers map[int32]greeting
		want    formation
	}{
		{"nobody answers", nil, formWait},
		{"one is missing", map[int32]greeting{2: fresh(b)}, formWait},
		{"all are new", map[int32]greeting{2: fresh(b), 3: fresh(c)}, formFound},
		{"another has founded with this directory", map[int32]greeting{2: formed(a)}, formFound},
		{"another votes already", map[int32]greeting{2: formed(a, 1, 2, 3), 3: fresh(c)}, formFound},
		{"another directory was there", map[int32]greeting{2: formed(other, 1, 2, 3)}, formRefuse},
		{"they disagree", map[int32]greeting{2: formed(a), 3: formed(other)}, formRefuse},
		{"its vote was taken away", map[int32]greeting{2: formed(other, 2, 3)}, formJoin},
		{"it was removed before it began", map[int32]greeting{2: formed(a, 2, 3)}, formJoin},
		{"a cluster that grew", map[int32]greeting{2: {Formed: true, Voters: []int32{2}}}, formJoin},
		{"a cluster that grew, where it votes", map[int32]greeting{2: {Formed: true, Voters: []int32{1, 2, 3}}}, formRefuse},
	} {
		got, founders := decideFormation(1, a, voters, test.answers)
		if got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
		if got == formFound && (len(founders) != 3 || founders[1] != a || founders[2] != b || founders[3] != c) {
			t.Errorf("%s: founders %v", test.name, founders)
		}
	}
}

func TestGreetingsSurviveTheWire(t *testing.T) {
	g := greeting{NodeID: 7, Directory: topic.ID{1}, Formed: true, ClusterID: "c", Founders: map[int32]topic.ID{1: {2}, 7: {1}}, Voters: []int32{1, 7}, Brokers: []string{"a:1", "b:2"}}
	old, err := readGreeting(bytes.NewReader(g.encodeAs(1)))
	if err != nil || len(old.Voters) != 2 || old.Brokers != nil || old.version != 1 {
		t.Fatalf("of the release before: %+v, %v", old, err)
	}
	got, err := readGreeting(bytes.NewReader(g.encode()))
	if err != nil || got.NodeID != 7 || !got.Formed || got.ClusterID != "c" || len(got.Founders) != 2 || got.Founders[7] != g.Directory || len(got.Voters) != 2 || !slices.Equal(got.Brokers, g.Brokers) {
		t.Fatalf("%+v, %v", got, err)
	}
	b := g.encode()
	for i := range b {
		damaged := bytes.Clone(b)
		damaged[i] ^= 0x10
		if _, err := readGreeting(bytes.NewReader(damaged)); err == nil {
			t.Errorf("read with byte %d damaged", i)
		}
	}
}

func TestANodeThatCannotJoinSaysWhatToSet(t *testing.T) {
	brokers := brokersOf(map[int32]greeting{2: {Brokers: []string{"b:1", "a:1"}}, 1: {Brokers: []string{"a:1"}}})
	if !slices.Equal(brokers, []string{"a:1", "b:1"}) {
		t.Errorf("brokers are %v", brokers)
	}
	for _, there := range []bool{true, false} {
		n := &Node{cfg: Config{NodeID: 3}, log: slog.New(slog.DiscardHandler), deps: Deps{Existing: func(got []string) bool { return there }}}
		err := n.joinThrough(brokers)
		if there && err != nil || !there && (!errors.Is(err, ErrNoWayIn) || !strings.Contains(err.Error(), "controller.quorum.bootstrap.servers")) {
			t.Errorf("somebody to ask %t: %v", there, err)
		}
	}
}

// listen opens a transport on a port of its own.
func listen(t *testing.T, over TLS) *transport {
	t.Helper()
	tr, err := ListenTLS("127.0.0.1:0", "localhost:0", over, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tr.(raft.WithClose).Close(); err != nil {
			t.Error(err)
		}
	})
	return tr.(*transport)
}

// wired is a cluster over TCP.
type wired struct {
	t      *testing.T
	voters []Voter
	dirs   []string

	heartbeat time.Duration

	nodes []*Node
	fatal []chan error
}

func newWired(t *testing.T, size int, over TLS) *wired {
	return (&wired{t: t}).start(size, over)
}

func (w *wired) start(size int, over TLS) *wired {
	t := w.t
	transports := make([]*transport, size)
	for i := range size {
		transports[i] = listen(t, over)
		w.voters = append(w.voters, Voter{NodeID: int32(i + 1), Address: string(transports[i].LocalAddr())})
		w.dirs = append(w.dirs, t.TempDir())
	}
	for i := range size {
		w.nodes = append(w.nodes, nil)
		w.fatal = append(w.fatal, make(chan error, 1))
		w.open(i, transports[i])
	}
	return w
}

func (w *wired) open(i int, tr raft.Transport) {
	w.t.Helper()
	n, err := Open(Config{Dir: w.dirs[i], NodeID: int32(i + 1), Voters: w.voters, Broker: silent(w.t, nil), Heartbeat: w.heartbeat, ProposeTimeout: 5 * time.Second},
		Deps{Transport: tr, Fatal: func(err error) { w.fatal[i] <- err }})
	if err != nil {
		w.t.Fatal(err)
	}
	w.nodes[i] = n
	w.t.Cleanup(func() { closeNode(w.t, n) })
}

// reopen starts node i on its old address.
func (w *wired) reopen(i int) {
	w.t.Helper()
	address := w.voters[i].Address
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		w.t.Fatal(err)
	}
	var tr raft.Transport
	waitFor(w.t, func() bool { // while the node was away somebody's connection may have got its port
		tr, err = Listen("127.0.0.1:"+port, address, nil)
		return !errors.Is(err, syscall.EADDRINUSE)
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.open(i, tr)
}

func TestAClusterFormsAndAReplacedDirectoryDoesNotVote(t *testing.T) {
	w := newWired(t, 3, TLS{})
	leader := leaderOf(t, w.nodes)
	agree(t, w.nodes, leader.Image().Index)
	gone := 0
	if w.nodes[0] == leader {
		gone = 1
	}
	closeNode(t, w.nodes[gone])
	w.reopen(gone) // with its directory it comes back
	onLeader(t, w.nodes, func(n *Node) error { return n.alterGroup("a") })
	agree(t, w.nodes, leader.Image().Index)

	closeNode(t, w.nodes[gone])
	w.dirs[gone] = t.TempDir()
	w.reopen(gone)
	select {
	case err := <-w.fatal[gone]:
		if !errors.Is(err, ErrDirectoryReplaced) {
			t.Fatal(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the node without its directory was not refused")
	}
	if n := w.nodes[gone]; n.raft.LastIndex() != 0 || n.raft.CurrentTerm() != 0 {
		t.Errorf("it took part: index %d, term %d", n.raft.LastIndex(), n.raft.CurrentTerm())
	}

	// With its vote taken away it may begin again, as an observer.
	id := int32(gone + 1)
	rest := append(append([]*Node{}, w.nodes[:gone]...), w.nodes[gone+1:]...)
	onLeader(t, rest, func(n *Node) error { return n.RemoveVoter(context.Background(), id) })
	closeNode(t, w.nodes[gone])
	if err := os.RemoveAll(w.dirs[gone]); err != nil {
		t.Fatal(err)
	}
	w.reopen(gone)
	onLeader(t, rest, func(n *Node) error {
		// As the controller's side of the broker's registration does.
		_, err := n.Local().RegisterBroker(context.Background(), Registration{ID: id, Host: "h", Port: 1, Incarnation: topic.ID{1}, RaftAddress: w.voters[gone].Address})
		return err
	})
	w.nodes[gone].openGate() // which the answer to the registration does
	agree(t, w.nodes, 1)
	if w.nodes[gone].IsController() {
		t.Error("an observer leads")
	}
}

// alterGroup makes a change that needs no broker.
func (n *Node) alterGroup(group string) error {
	value := "50000"
	_, err := n.AlterConfigs(context.Background(), []ConfigChange{{
		ConfigResource: ConfigResource{Kind: GroupConfig, Name: group},
		Edits:          []ConfigEdit{{Name: "consumer.session.timeout.ms", Value: &value}},
	}}, false)
	return err
}

// TestALeaderWhoseProcessIsGoneIsReplacedAtOnce has an election timeout that
// nobody waits for.
func TestALeaderWhoseProcessIsGoneIsReplacedAtOnce(t *testing.T) {
	w := (&wired{t: t, heartbeat: 10 * time.Minute}).start(3, TLS{})
	waitFor(t, func() bool {
		for _, n := range w.nodes {
			if _, has := n.founding.get(); !has {
				return false
			}
		}
		return true
	})
	w.nodes[0].stand()
	leader := leaderOf(t, w.nodes)
	if leader != w.nodes[0] {
		t.Fatalf("node %d leads", leader.NodeID())
	}
	agree(t, w.nodes, leader.Image().Index)
	rest := w.nodes[1:]
	waitFor(t, func() bool { return rest[0].Image().ControllerID == 1 && rest[1].Image().ControllerID == 1 })

	// A lost connection alone says nothing.
	rest[0].standIn(rest[0].deps.Transport.(*transport).stream)
	if !leader.IsController() || rest[0].IsController() {
		t.Fatal("the leader was replaced although it is there")
	}

	// All that is seen of a killed process: its connections and its listener end.
	began := time.Now()
	if err := w.nodes[0].deps.Transport.(*transport).stream.Close(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return rest[0].IsController() || rest[1].IsController() })
	t.Logf("another node led after %v", time.Since(began))
	onLeader(t, rest, func(n *Node) error { return n.alterGroup("a") })
	t.Logf("and decided after %v", time.Since(began))
}
