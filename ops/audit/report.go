package audit

import (
	"cmp"
	"fmt"
	"slices"
)

// Kind is what sort of flaw a finding is. The names are part of the output.
type Kind string

// The kinds of findings.
const (
	Metadata   Kind = "metadata"
	Missing    Kind = "replica-missing"
	Damaged    Kind = "damaged"
	Gap        Kind = "gap"
	Divergent  Kind = "divergent"
	Short      Kind = "short-isr"
	Epochs     Kind = "epochs"
	Index      Kind = "index"
	Producers  Kind = "producers"
	Checkpoint Kind = "checkpoint"
	Manifest   Kind = "manifest"
	Object     Kind = "object"
	Seam       Kind = "seam"
	Orphan     Kind = "orphan"
	Stray      Kind = "stray"
)

// Finding is one flaw, or a note: something that need not be wrong.
type Finding struct {
	Kind      Kind   `json:"kind"`
	Node      int32  `json:"node"` // whose directory; -1: nobody's, or the bucket's
	Partition string `json:"partition,omitempty"`
	Offset    int64  `json:"offset"` // -1: none
	Detail    string `json:"detail"`
	Note      bool   `json:"note,omitempty"`
}

// Report is what an audit has read and found.
type Report struct {
	Nodes      []int32 `json:"nodes"`
	ClusterID  string  `json:"clusterId"`
	Committed  uint64  `json:"committedMetadata"` // raft index
	Topics     int     `json:"topics"`
	Partitions int     `json:"partitions"` // in the metadata
	Replicas   int     `json:"replicas"`   // on disks
	Batches    int64   `json:"batches"`
	Bytes      int64   `json:"bytes"`
	Objects    int     `json:"objects"` // read and checked
	// Findings are flaws and notes, flaws first; at most findingsMax of a kind.
	Findings []Finding `json:"findings"`
	// Flaws is how many there are in all.
	Flaws int `json:"flaws"`

	kept map[Kind]int
}

// findingsMax bounds how many findings of a kind are kept.
const findingsMax = 50

func (r *Report) add(f Finding) {
	if !f.Note {
		r.Flaws++
	}
	if r.kept == nil {
		r.kept = map[Kind]int{}
	}
	if r.kept[f.Kind]++; r.kept[f.Kind] <= findingsMax {
		r.Findings = append(r.Findings, f)
	}
}

func (r *Report) flaw(kind Kind, node int32, partition string, offset int64, format string, args ...any) {
	r.add(Finding{Kind: kind, Node: node, Partition: partition, Offset: offset, Detail: fmt.Sprintf(format, args...)})
}

func (r *Report) note(kind Kind, node int32, partition string, format string, args ...any) {
	r.add(Finding{Kind: kind, Node: node, Partition: partition, Offset: -1, Detail: fmt.Sprintf(format, args...), Note: true})
}

func (r *Report) sort() {
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		rank := func(f Finding) int {
			if f.Note {
				return 1
			}
			return 0
		}
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Offset, b.Offset))
	})
}
