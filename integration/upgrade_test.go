package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/integration/nodetest"
)

// Three nodes are upgraded to the next release one after the other, while
// records are produced. Until all of them are, the cluster stays at the level
// that both can read; then the level is raised, and the old release is refused,
// until the level is lowered again.
func TestTwoReleasesRunSideBySide(t *testing.T) {
	next := map[int32]bool{}
	c, s := startStreamed(t, nodetest.ClusterOptions{Binary: func(id int32) (string, error) {
		if next[id] {
			return nodetest.NextBinary()
		}
		return nodetest.Binary()
	}})
	level := func(want string) {
		t.Helper()
		nodetest.Eventually(t, 30*time.Second, "varve.version is as it should be", func() error {
			out, err := varve(t, c, "cluster", "features")
			if err == nil && !strings.Contains(strings.Join(strings.Fields(out), " "), "varve.version "+want) {
				err = errFeatures(out)
			}
			return err
		})
	}
	level("4 1 4")
	for _, n := range c.Nodes() {
		s.progress(50)
		if out, err := varve(t, c, "cluster", "features", "set", "varve.version", "5"); err == nil {
			t.Fatalf("the level is raised before node %d can read it:\n%s", n.ID, out)
		}
		n.Stop()
		next[n.ID] = true
		n.Restart()
		c.WaitInSync(time.Minute, "events")
		s.progress(50)
	}
	level("4 1 5")
	mustVarve(t, c, "cluster", "features", "set", "varve.version", "5")
	level("5 1 5")
	s.progress(50)

	// What a start writes now, the old release cannot read: it is refused.
	c.Node(2).Stop()
	c.Node(2).Restart()
	c.WaitInSync(time.Minute, "events")
	next[1] = false
	c.Node(1).Stop()
	c.Node(1).Launch()
	expectEnd(t, c.Node(1), "a newer release has written")
	next[1] = true
	c.Node(1).Restart()
	c.WaitInSync(time.Minute, "events")

	// Once the level is lowered, every node writes its log anew, and the old release takes its place again.
	mustVarve(t, c, "cluster", "features", "set", "varve.version", "4", "--downgrade")
	for _, n := range c.Nodes() {
		s.progress(50)
		n.Stop()
		next[n.ID] = false
		n.Restart()
		c.WaitInSync(time.Minute, "events")
	}
	level("4 1 4")
	s.progress(50)
	s.verify(c)
}

// errFeatures is what the cluster says of its features, as an error.
type errFeatures string

func (e errFeatures) Error() string { return string(e) }
