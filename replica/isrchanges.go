package replica

import (
	"slices"
	"sync/atomic"
)

// isrChanges counts how in-sync sets of partitions that are led here change.
type isrChanges struct{ shrinks, expands atomic.Int64 }

// note counts a change from one set to another: it may do both at once.
func (c *isrChanges) note(before, after []int32) {
	lacks := func(in []int32) func(int32) bool {
		return func(id int32) bool { return !slices.Contains(in, id) }
	}
	if slices.ContainsFunc(before, lacks(after)) {
		c.shrinks.Add(1)
	}
	if slices.ContainsFunc(after, lacks(before)) {
		c.expands.Add(1)
	}
}

// ISRChanges is how often the in-sync set of a partition that is led here has
// lost a member, and how often it has won one, since this process began.
func (m *Manager) ISRChanges() (shrinks, expands int64) {
	return m.isrChanges.shrinks.Load(), m.isrChanges.expands.Load()
}
