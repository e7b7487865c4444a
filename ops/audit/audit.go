package audit

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/tier/objstore"
)

// Input says what to audit.
type Input struct {
	// Dirs are the data directories (log.dirs) of the stopped nodes: all of
	// them, or some; what is missing is not compared.
	Dirs []string
	// Store is the bucket; nil leaves it out.
	Store objstore.Store
	// Prefix is varve.tier.prefix.
	Prefix string
	// OrphanAge is how old an object must be to be taken for an orphan; younger
	// ones may be the last uploads before the stop.
	OrphanAge time.Duration
	// Skim leaves the objects' contents out: they must be there and as long as
	// the manifest says.
	Skim bool
}

// node is one directory.
type node struct {
	dir  string
	meta *meta.Offline
	logs map[logKey]*replicaLog
}

func (n *node) id() int32 { return n.meta.NodeID }

// logKey names a partition by its topic's id.
type logKey struct {
	id    topic.ID
	index int32
}

// auditor is one run.
type auditor struct {
	in     Input
	report *Report
	nodes  []*node
	image  *meta.Image
}

// Run audits. An error means that the audit could not be made; what is wrong
// with the data is in the report.
func Run(ctx context.Context, in Input) (*Report, error) {
	a := &auditor{in: in, report: &Report{Findings: []Finding{}, Nodes: []int32{}}}
	if len(in.Dirs) == 0 {
		return nil, errors.New("no data directory to audit")
	}
	for _, dir := range in.Dirs {
		if err := a.readNode(dir); err != nil {
			return nil, err
		}
	}
	if len(a.nodes) == 0 { // their metadata cannot be read, which is found already
		return a.report, nil
	}
	slices.SortFunc(a.nodes, func(x, y *node) int { return int(x.id() - y.id()) })
	for i, n := range a.nodes {
		a.report.Nodes = append(a.report.Nodes, n.id())
		if i > 0 && a.nodes[i-1].id() == n.id() {
			return nil, fmt.Errorf("%s and %s are both of node %d", a.nodes[i-1].dir, n.dir, n.id())
		}
	}
	a.compareMetadata()
	for _, n := range a.nodes {
		if err := a.readLogs(ctx, n); err != nil {
			return nil, err
		}
	}
	buckets, err := a.readBucket(ctx)
	if err != nil {
		return nil, err
	}
	for _, t := range a.image.Topics() {
		for i := range t.Partitions {
			a.comparePartition(t, int32(i), buckets[logKey{t.ID, int32(i)}])
		}
	}
	a.strays()
	a.report.sort()
	return a.report, nil
}

func (a *auditor) readNode(dir string) error {
	m, err := meta.ReadOffline(filepath.Join(dir, "meta"))
	if errors.Is(err, meta.ErrCorrupt) {
		a.report.flaw(Metadata, -1, "", -1, "%s: %v", dir, err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the metadata of %s: %w", dir, err)
	}
	a.nodes = append(a.nodes, &node{dir: dir, meta: m, logs: map[logKey]*replicaLog{}})
	return nil
}

// compareMetadata holds the nodes' logs against each other and makes the image
// of what is committed.
func (a *auditor) compareMetadata() {
	first := a.nodes[0]
	a.report.ClusterID = first.meta.ClusterID
	for _, n := range a.nodes[1:] {
		if n.meta.ClusterID != first.meta.ClusterID {
			a.report.flaw(Metadata, n.id(), "", -1, "is of cluster %s, node %d of %s", n.meta.ClusterID, first.id(), first.meta.ClusterID)
		}
	}
	committed := a.committed()
	a.report.Committed = committed
	for i, n := range a.nodes {
		for _, other := range a.nodes[:i] {
			a.compareEntries(n, other, committed)
		}
	}
	// Whoever has the most of what is committed gives the image.
	best := a.nodes[0]
	for _, n := range a.nodes {
		if min(n.meta.End(), committed) > min(best.meta.End(), committed) {
			best = n
		}
	}
	a.image = best.meta.Image(committed)
	for _, n := range a.nodes {
		if n.meta.End() >= committed && n.meta.SnapshotIndex <= committed {
			if img := n.meta.Image(committed); string(img.EncodeSnapshot()) != string(a.image.EncodeSnapshot()) {
				a.report.flaw(Metadata, n.id(), "", -1, "makes another image of the same log than node %d", best.id())
			}
		}
	}
	a.report.Topics, a.report.Partitions = a.image.TopicCount(), a.image.PartitionCount()
}

func (a *auditor) compareEntries(n, other *node, committed uint64) {
	for _, e := range n.meta.Entries {
		o, any := other.meta.Entry(e.Index)
		switch {
		case !any:
		case o.Term == e.Term && o.Sum != e.Sum:
			a.report.flaw(Metadata, n.id(), "", -1, "entry %d of term %d differs from node %d's", e.Index, e.Term, other.id())
			return
		case o.Term != e.Term && e.Index <= committed:
			a.report.flaw(Metadata, n.id(), "", -1, "entry %d is of term %d, node %d's of term %d, and a majority has it", e.Index, e.Term, other.id(), o.Term)
			return
		}
	}
}

// committed is the highest index that a majority of the voters agrees on. With
// fewer directories than that the longest log is taken at its word.
func (a *auditor) committed() uint64 {
	voters := a.nodes[0].meta.Voters
	for _, n := range a.nodes {
		if n.meta.End() > a.nodes[0].meta.End() {
			voters = n.meta.Voters
		}
	}
	var voting []*node
	for _, n := range a.nodes {
		if slices.Contains(voters, n.id()) {
			voting = append(voting, n)
		}
	}
	most := uint64(0)
	for _, n := range a.nodes {
		most = max(most, n.meta.End())
	}
	if len(voting) <= len(voters)/2 {
		a.report.note(Metadata, -1, "", "the directories of %d of %d voters are here: the longest metadata log is taken for committed", len(voting), len(voters))
		return most
	}
	for index := most; index > 0; index-- {
		for _, n := range voting {
			if agree := a.agreeing(voting, n, index); agree > len(voters)/2 {
				return index
			}
		}
	}
	return 0
}

// agreeing counts who has n's entry at index, in the log or under a snapshot.
func (a *auditor) agreeing(voting []*node, n *node, index uint64) int {
	e, any := n.meta.Entry(index)
	if !any {
		if n.meta.SnapshotIndex < index {
			return 0
		}
		return len(voting) // a snapshot is of committed entries only
	}
	agree := 0
	for _, v := range voting {
		o, has := v.meta.Entry(index)
		if has && o.Term == e.Term || !has && v.meta.SnapshotIndex >= index {
			agree++
		}
	}
	return agree
}

// strays are replicas on disks that the metadata does not know.
func (a *auditor) strays() {
	for _, n := range a.nodes {
		for key, l := range n.logs {
			t, p := a.image.PartitionByID(key.id, key.index)
			switch _, deleted := a.image.Deleted(key.id); {
			case t == nil && deleted:
				a.report.note(Stray, n.id(), l.name, "the topic is deleted, its files go when the node runs")
			case t == nil || p == nil:
				a.report.flaw(Stray, n.id(), l.name, -1, "the metadata has no such topic")
			case !slices.Contains(p.Replicas, n.id()):
				a.report.note(Stray, n.id(), l.name, "this node is none of the replicas %v", p.Replicas)
			}
		}
	}
}
