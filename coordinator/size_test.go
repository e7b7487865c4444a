package coordinator

import (
	"fmt"
	"runtime"
	"testing"
)

// A coordinator may know a hundred thousand groups that are nothing but a
// committed offset.
func TestGroupOfOneOffsetIsSmall(t *testing.T) {
	const groups = 20_000
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	cfg := testConfig()
	c := newCore(&cfg, 0)
	c.loaded(0)
	for i := range groups {
		r := offsetRecord(fmt.Sprint("group-", i), "events", 0, &offset{offset: int64(i)})
		if err := c.replay(noProducer, r.key, r.value); err != nil {
			t.Fatal(err)
		}
	}
	each := (heap() - before) / groups
	t.Logf("%d bytes", each)
	if each > 1200 {
		t.Errorf("a group takes %d bytes", each)
	}
	runtime.KeepAlive(c)
}
