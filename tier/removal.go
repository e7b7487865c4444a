package tier

import (
	"slices"
	"strings"

	"github.com/varvelog/varve/meta/topic"
)

// Removal says how the removal of a deleted partition from the bucket stands.
type Removal struct {
	Partition topic.Partition
	// LastError is the last failure; nil when all is well.
	LastError *Problem
	// Blocked is set when it waits for an operator: the manifest is there and cannot
	// be read. The log names the object and says what to do.
	Blocked bool
}

// Removals lists the deleted partitions that this broker has yet to remove from the
// bucket, in order of topic and partition.
func (m *Manager) Removals() []Removal {
	var out []Removal
	m.inspect(func(c *core, _ instant) {
		for id, g := range c.graves {
			r := Removal{Partition: id}
			if g.problem != nil {
				pr := *g.problem
				r.LastError, r.Blocked = &pr, unreadable(pr.Err)
			}
			out = append(out, r)
		}
	})
	slices.SortFunc(out, func(a, b Removal) int {
		if c := strings.Compare(a.Partition.Topic, b.Partition.Topic); c != 0 {
			return c
		}
		return int(a.Partition.Index) - int(b.Partition.Index)
	})
	return out
}
