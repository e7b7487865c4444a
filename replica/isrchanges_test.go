package replica

import "testing"

func TestInSyncSetsThatShrinkAndGrowAreCounted(t *testing.T) {
	var c isrChanges
	c.note([]int32{1, 2, 3}, []int32{1, 2})
	c.note([]int32{1, 2}, []int32{2, 1, 3})
	c.note([]int32{1, 2}, []int32{2, 1})
	c.note([]int32{1, 2}, []int32{1, 4})
	if c.shrinks.Load() != 2 || c.expands.Load() != 2 {
		t.Errorf("%d shrinks and %d expands, want 2 and 2", c.shrinks.Load(), c.expands.Load())
	}
}
