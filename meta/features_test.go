package meta

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/varvelog/varve/meta/conf"
	"github.com/varvelog/varve/meta/topic"
)

func atLevel(t *testing.T, level int16, changes ...Change) *Image {
	t.Helper()
	img := newImage()
	if level >= levelClusters {
		changes = append([]Change{SetFeature{Name: VersionFeature, Level: level}}, changes...)
	}
	next, err := img.Apply(Command{Changes: changes}, 1)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

func TestFeaturesMoveOnlyWhereEverybodyCanFollow(t *testing.T) {
	describe := func(id int32, most int16) []Change {
		return []Change{RegisterBroker{ID: id, Host: "h"}, DescribeBroker{ID: id, Features: map[string]FeatureRange{VersionFeature: {Min: 1, Max: most}, "transaction.version": {Max: 2}}}}
	}
	two := append(describe(1, 2), describe(2, 2)...)
	old := append(describe(1, 2), describe(2, 1)...)
	for _, test := range []struct {
		name   string
		img    *Image
		update FeatureUpdate
		want   string // "": it is done; "same": nothing is to be done
	}{
		{"up", atLevel(t, 1, two...), FeatureUpdate{VersionFeature, 2, UpgradeFeature}, ""},
		{"up past a broker", atLevel(t, 1, old...), FeatureUpdate{VersionFeature, 2, UpgradeFeature}, "Broker 2 only supports versions 1-1"},
		{"up past a broker of unknown release", atLevel(t, 1, RegisterBroker{ID: 1}, RegisterBroker{ID: 2}), FeatureUpdate{VersionFeature, 2, UpgradeFeature}, "Broker 2 does not support this feature."},
		{"up past this release", atLevel(t, 2, two...), FeatureUpdate{VersionFeature, 5, UpgradeFeature}, "Local controller 1 only supports versions 1-4"},
		{"stay", atLevel(t, 2, two...), FeatureUpdate{VersionFeature, 2, UpgradeFeature}, "same"},
		{"down by an upgrade", atLevel(t, 2, two...), FeatureUpdate{VersionFeature, 1, UpgradeFeature}, "without setting the upgrade type"},
		{"down with two brokers", atLevel(t, 2, two...), FeatureUpdate{VersionFeature, 1, SafelyDowngradeFeature}, "There are 2 brokers"},
		{"down with one", atLevel(t, 2, describe(1, 2)...), FeatureUpdate{VersionFeature, 1, SafelyDowngradeFeature}, ""},
		{"down unsafely", atLevel(t, 2, two...), FeatureUpdate{VersionFeature, 1, UnsafelyDowngradeFeature}, ""},
		{"up by a downgrade", atLevel(t, 1, two...), FeatureUpdate{VersionFeature, 2, SafelyDowngradeFeature}, "Can't downgrade to a newer version."},
		{"what cannot be done without", atLevel(t, 2, two...), FeatureUpdate{"eligible.leader.replicas.version", 0, UnsafelyDowngradeFeature}, "cannot do without"},
		{"one of Kafka's", atLevel(t, 2, two...), FeatureUpdate{"transaction.version", 1, SafelyDowngradeFeature}, ""},
		{"one of Kafka's too early", atLevel(t, 1, two...), FeatureUpdate{"transaction.version", 1, SafelyDowngradeFeature}, "before varve.version is 2"},
		{"one that nobody has", atLevel(t, 2, two...), FeatureUpdate{"no.such.version", 1, UpgradeFeature}, "does not support this feature"},
	} {
		changes, err := decideFeatures(test.img, 1, []FeatureUpdate{test.update})
		switch {
		case test.want == "" || test.want == "same":
			if err != nil || len(changes) == 0 != (test.want == "same") {
				t.Errorf("%s: %v, %v", test.name, changes, err)
				continue
			}
			next, err := test.img.Apply(Command{Base: test.img.Index, Changes: changes}, 2)
			if err != nil || next.FeatureLevel(test.update.Name) != test.update.Level || checkLevel(test.img, changes) != nil {
				t.Errorf("%s: level %d, %v", test.name, next.FeatureLevel(test.update.Name), err)
			}
		case !errors.Is(err, ErrInvalidUpdateVersion) || !strings.Contains(err.Error(), test.want):
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

// TestBelowALevelNothingOfItIsWritten goes through all that the level brought.
func TestBelowALevelNothingOfItIsWritten(t *testing.T) {
	img := atLevel(t, 1, CreateTopic{Name: "t", ID: idB, Partitions: []Partition{{Leader: 1, Replicas: []int32{1}, ISR: []int32{1}}}})
	for _, c := range everyChange {
		err := checkLevel(img, []Change{c})
		switch c := c.(type) {
		case DescribeBroker, SetFeature, ChangePartitions, SetEndpoints, SetQuotas:
			if !errors.Is(err, ErrUnsupportedLevel) {
				t.Errorf("%T may be written at level 1: %v", c, err)
			}
		default:
			if err != nil {
				t.Errorf("%T: %v", c, err)
			}
		}
	}
	n := openNode(t, Config{}, Deps{})
	register(t, n)
	createTopic(t, n, "a", 1)
	if err := n.UpdateFeatures(context.Background(), []FeatureUpdate{{VersionFeature, 1, SafelyDowngradeFeature}}, false); err != nil {
		t.Fatal(err)
	}
	b, err := n.RegisterBroker(context.Background(), Registration{ID: 1, Host: "h", Port: 1})
	if err != nil || !b.Directory.IsZero() {
		t.Fatalf("%+v, %v", b, err)
	}
	img = n.Image()
	if v := img.EncodeSnapshot()[len(snapshotMagic)]; v != snapshotVersion {
		t.Errorf("a snapshot of version %d at level 1", v)
	}
	if err := n.UpdateFeatures(context.Background(), []FeatureUpdate{{VersionFeature, 2, UpgradeFeature}}, true); err != nil || n.Image().level() != 1 {
		t.Errorf("a dry run: level %d, %v", n.Image().level(), err)
	}
	if err := n.UpdateFeatures(context.Background(), []FeatureUpdate{{VersionFeature, 2, UpgradeFeature}}, false); err != nil || n.Image().level() != 2 {
		t.Errorf("level %d, %v", n.Image().level(), err)
	}
}

func TestABrokerThatCannotReadTheLevelIsRefused(t *testing.T) {
	n := openNode(t, Config{}, Deps{})
	_, err := n.Local().RegisterBroker(context.Background(), Registration{ID: 2, Host: "h", Port: 1, Incarnation: idA, Features: map[string]FeatureRange{VersionFeature: {Min: 1, Max: 1}}})
	if !errors.Is(err, ErrUnsupportedLevel) {
		t.Error(err)
	}
}

func TestABrokersDiskIsJudgedByWhatItServed(t *testing.T) {
	n := openNode(t, Config{}, Deps{})
	register(t, n)
	createTopic(t, n, "a", 1)
	start := func(previous int64) Partition {
		t.Helper()
		if _, err := n.RegisterBroker(context.Background(), Registration{ID: 1, Host: "h", Port: 1, PreviousEpoch: previous, Fenced: true}); err != nil {
			t.Fatal(err)
		}
		return n.Image().Topic("a").Partitions[0]
	}
	served := n.Image().Brokers[1].Epoch
	if p := start(served); len(p.ELR) != 1 {
		t.Fatalf("with all that it had: %s", partitionText(&p))
	}
	// A start that never served has acknowledged nothing: that the disk does
	// not know of it is no loss.
	if p := start(served); len(p.ELR) != 1 {
		t.Fatalf("after a start in vain: %s", partitionText(&p))
	}
	if p := start(-1); len(p.ELR) != 0 || len(p.LastKnownELR) != 1 {
		t.Fatalf("with another disk: %s", partitionText(&p))
	}
}

func TestVotersAreOddInNumber(t *testing.T) {
	var changes []Change
	var servers []raft.Server
	img := newImage()
	for id := range int32(8) {
		id++
		rack := "a"
		if id >= 6 {
			rack = "b"
		}
		changes = append(changes, RegisterBroker{ID: id, Host: "h", Rack: rack}, DescribeBroker{ID: id, RaftAddress: "h", WantVote: id != 3})
		servers = append(servers, raft.Server{ID: raft.ServerID(brokerName(id)), Address: "h", Suffrage: raft.Nonvoter})
	}
	servers[0].Suffrage = raft.Voter
	img, err := img.Apply(Command{Changes: changes}, 1)
	if err != nil {
		t.Fatal(err)
	}
	var order []int32
	for {
		b, ok := decidePromotion(img, servers)
		if !ok {
			break
		}
		order = append(order, b.ID)
		servers[b.ID-1].Suffrage = raft.Voter
	}
	// The rack without a voter first; never the one that does not want to.
	if want := []int32{6, 2, 7, 4}; !slices.Equal(order, want) {
		t.Errorf("promoted %v, want %v", order, want)
	}
	servers = servers[:2]
	servers[1].Suffrage = raft.Nonvoter
	if b, ok := decidePromotion(img, servers); ok {
		t.Errorf("broker %d makes the voters two", b.ID)
	}
}

func TestANodeJoinsGetsAVoteAndIsRemoved(t *testing.T) {
	first := listen(t, TLS{})
	nodes := []*Node{openNode(t, Config{NodeID: 1}, Deps{Transport: first})}
	ctx := context.Background()
	join := func(id int32) *Node {
		tr := listen(t, TLS{})
		n := openNode(t, Config{NodeID: id, Join: true}, Deps{Transport: tr, Controller: throughNodes{&nodes}})
		nodes = append(nodes, n)
		return n
	}
	enter := func(n *Node) {
		t.Helper()
		_, err := n.RegisterBroker(ctx, Registration{ID: n.NodeID(), Host: "h", Port: n.NodeID(), Incarnation: topic.NewID(), RaftAddress: string(n.deps.Transport.LocalAddr()), WantVote: true})
		if err != nil {
			t.Fatal(err)
		}
	}
	enter(nodes[0])
	enter(join(2))
	agree(t, nodes, 1)
	q, err := nodes[0].Quorum()
	if err != nil || len(q.Voters) != 1 || len(q.Observers) != 1 || q.LeaderID != 1 {
		t.Fatalf("%+v, %v", q, err)
	}
	enter(join(3))
	waitFor(t, func() bool {
		q, err := nodes[0].Quorum()
		return err == nil && len(q.Voters) == 3
	})
	for _, m := range mustQuorum(t, nodes[0]).Voters {
		if m.Directory.IsZero() || m.Address == "" {
			t.Errorf("voter %+v", m)
		}
	}
	agree(t, nodes, 1)
	if err := nodes[0].AddVoter(ctx, 2, "h:1"); !errors.Is(err, ErrDuplicateVoter) {
		t.Error(err)
	}
	if err := nodes[0].RemoveVoter(ctx, 9); !errors.Is(err, ErrVoterNotFound) {
		t.Error(err)
	}

	// A vote that was taken stays taken, whoever leads, until it is given again.
	if err := nodes[0].RemoveVoter(ctx, 3); err != nil {
		t.Fatal(err)
	}
	if b, ok := decidePromotion(nodes[0].Image(), mustServers(t, nodes[0])); ok {
		t.Errorf("node %d gets the vote back that was taken away", b.ID)
	}
	if err := nodes[0].AddVoter(ctx, 3, string(nodes[2].deps.Transport.LocalAddr())); err != nil {
		t.Fatal(err)
	}
	if nodes[0].Image().VoteRemoved(nodes[0].Image().Brokers[3]) {
		t.Error("a vote that was given again is noted as removed")
	}
	agree(t, nodes, 1)

	// The leader hands over when it stops; nobody waits for a timeout.
	closeNode(t, nodes[0])
	rest := nodes[1:]
	leader := onLeader(t, rest, func(n *Node) error { return n.alterGroup("a") })

	// A broker that is forgotten has no place in the quorum either.
	onLeader(t, rest, func(n *Node) error {
		if err := n.UnregisterBroker(ctx, 1); !errors.Is(err, ErrUnknownBroker) {
			return err
		}
		return nil
	})
	waitFor(t, func() bool { return len(mustQuorum(t, leaderOf(t, rest)).Voters) == 2 })
	if _, ok := leader.Image().Brokers[1]; ok {
		t.Error("the broker is still registered")
	}
}

func mustServers(t *testing.T, n *Node) []raft.Server {
	t.Helper()
	servers, err := n.servers()
	if err != nil {
		t.Fatal(err)
	}
	return servers
}

// A vote is taken from a node as it is: with another directory it is another
// node, and the one without a known directory is whichever comes.
func TestARemovedVoteStaysRemoved(t *testing.T) {
	servers := []raft.Server{{ID: "1", Address: "h"}, {ID: "2", Address: "h"}, {ID: "3", Address: "h", Suffrage: raft.Nonvoter}}
	img := newImage()
	apply := func(changes ...Change) {
		t.Helper()
		next, err := img.Apply(Command{Base: img.Index, Changes: changes}, img.Index+1)
		if err != nil {
			t.Fatal(err)
		}
		if img, err = DecodeSnapshot(next.EncodeSnapshot()); err != nil {
			t.Fatal(err)
		}
	}
	register := func(dir topic.ID) {
		t.Helper()
		apply(RegisterBroker{ID: 3, Host: "h"}, DescribeBroker{ID: 3, RaftAddress: "h", Directory: dir, WantVote: true})
	}
	promoted := func(when string, want bool) {
		t.Helper()
		if _, ok := decidePromotion(img, servers); ok != want {
			t.Errorf("%s: gets a vote by itself: %v, want %v", when, ok, want)
		}
	}
	apply(SetFeature{Name: VersionFeature, Level: levelClusters})
	register(idA)
	promoted("at first", true)
	apply(img.voteRemoved(3)...)
	promoted("removed", false)
	apply(UnregisterBroker{ID: 3, Epoch: img.Brokers[3].Epoch})
	register(idA)
	promoted("removed, unregistered and back", false)
	register(idB)
	promoted("back with an empty disk", true)
	apply(img.voteRestored(3)...)
	register(idA)
	promoted("given again", true)
	apply(UnregisterBroker{ID: 3, Epoch: img.Brokers[3].Epoch})
	apply(img.voteRemoved(3)...)
	register(idB)
	promoted("removed before it ever came", false)
}

func mustQuorum(t *testing.T, n *Node) Quorum {
	t.Helper()
	q, err := n.Quorum()
	if err != nil && !errors.Is(err, ErrNotController) {
		t.Fatal(err)
	}
	return q
}

func TestSeveralListenersNeedTheLevelThatCanSayThem(t *testing.T) {
	two := []Endpoint{{Name: "INTERNAL", Host: "in", Port: 1, Protocol: SSL}, {Name: "PUBLIC", Host: "out", Port: 2}}
	r := Registration{ID: 1, Host: "in", Port: 1, Incarnation: idA, Endpoints: two}
	register := func(img *Image, r Registration) (*Image, error) {
		changes, err := decideRegister(img, &conf.Broker{}, r, false)
		if err == nil {
			err = checkLevel(img, changes)
		}
		if err != nil {
			return nil, err
		}
		return img.Apply(Command{Base: img.Index, Changes: changes}, img.Index+1)
	}
	if _, err := register(atLevel(t, 2), r); !errors.Is(err, ErrUnsupportedLevel) || !strings.Contains(err.Error(), "needs varve.version=3") {
		t.Errorf("two listeners at level 2: %v", err)
	}
	one := r
	one.Endpoints = two[:1]
	if img, err := register(atLevel(t, 2), one); err != nil || img.Brokers[1].Endpoints != nil || img.Brokers[1].Host != "in" {
		t.Errorf("one listener at level 2: %+v, %v", img, err)
	}
	img, err := register(atLevel(t, 3), r)
	if err != nil || !slices.Equal(img.Brokers[1].Endpoints, two) {
		t.Fatalf("two listeners at level 3: %+v, %v", img, err)
	}
	for listener, want := range map[string]string{"": "in:1", "INTERNAL": "in:1", "PUBLIC": "out:2", "OTHER": ":0"} {
		if host, port, ok := img.Brokers[1].At(listener); fmt.Sprint(host, ":", port) != want || ok == (listener == "OTHER") {
			t.Errorf("at %q: %s:%d %v, want %s", listener, host, port, ok, want)
		}
	}
	back, err := DecodeSnapshot(img.EncodeSnapshot())
	if err != nil || !slices.Equal(back.Brokers[1].Endpoints, two) {
		t.Fatalf("from a snapshot: %+v, %v", back, err)
	}
	if changes, err := decideRegister(img, &conf.Broker{}, r, false); err != nil || len(changes) != 0 {
		t.Errorf("the same once more: %v, %v", changes, err)
	}
	if _, err := decideFeatures(img, 1, []FeatureUpdate{{VersionFeature, 2, SafelyDowngradeFeature}}); err == nil || !strings.Contains(err.Error(), "several listeners") {
		t.Errorf("safely down: %v", err)
	}
	down, err := img.Apply(Command{Base: img.Index, Changes: []Change{SetFeature{Name: VersionFeature, Level: 2}}}, img.Index+1)
	if err != nil || down.Brokers[1].Endpoints != nil || img.Brokers[1].Endpoints == nil {
		t.Errorf("down: %+v, %v", down, err)
	}
}
