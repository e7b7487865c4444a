package replica

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestCommitsRunInOffsetOrderOnceWhenTheWatermarkPasses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c commits
		type state struct{ registered, cancelled, ran bool }
		states := map[int64]*state{}
		entries := map[int64]*commit{}
		var ran []int64
		hw := int64(0)
		for range 200 {
			switch rapid.IntRange(0, 3).Draw(t, "op") {
			case 0, 1:
				offset := hw + rapid.Int64Range(0, 1000).Draw(t, "offset")
				if states[offset] != nil {
					continue
				}
				states[offset] = &state{registered: true}
				entries[offset] = c.add(offset, func(error) { ran = append(ran, offset) })
			case 2:
				for offset, e := range entries {
					if rapid.Bool().Draw(t, "cancel") && !states[offset].ran {
						states[offset].cancelled = true
						c.cancel(e)
					}
					break
				}
			case 3:
				hw += rapid.Int64Range(0, 300).Draw(t, "advance")
				ran = ran[:0]
				for _, fn := range c.take(hw, nil) {
					fn(nil)
				}
				if !slices.IsSorted(ran) {
					t.Fatalf("ran out of order: %v", ran)
				}
				for _, offset := range ran {
					st := states[offset]
					if st.ran || st.cancelled || offset >= hw {
						t.Fatalf("offset %d ran wrongly at watermark %d: %+v", offset, hw, *st)
					}
					st.ran = true
				}
			}
			waiting := 0
			for offset, st := range states {
				if offset < hw && !st.ran && !st.cancelled && entries[offset].fn == nil {
					t.Fatalf("offset %d lost", offset)
				}
				if !st.ran && !st.cancelled {
					waiting++
				}
			}
			if c.len() != waiting {
				t.Fatalf("len %d, want %d", c.len(), waiting)
			}
		}
		rest := 0
		for _, fn := range c.takeAll(nil) {
			fn(ErrNotLeader)
			rest++
		}
		if c.len() != 0 || len(c.takeAll(nil)) != 0 {
			t.Fatal("entries left after takeAll")
		}
	})
}

func TestCancelledCommitsDoNotPileUp(t *testing.T) {
	var c commits
	for i := range 100000 {
		c.cancel(c.add(int64(i), func(error) {}))
	}
	if n := len(c.queue); n > 1000 {
		t.Fatalf("%d cancelled entries kept", n)
	}
}
