package hot

import (
	"testing"

	"github.com/varvelog/varve/hot/vfs"
	"github.com/varvelog/varve/meta/topic"
)

// TestLogStartsWhereItStartedWhateverNamesPowerLossLeaves: a log of two segments, of which nothing is synced, whose directory is
// durable because another log began beside it. A log that lost its first segment's name alone would start at the second: a
// replica that leads from there has lost what the others acknowledged below.
func TestLogStartsWhereItStartedWhateverNamesPowerLossLeaves(t *testing.T) {
	for seed := range uint64(64) {
		mem := vfs.NewMem(seed)
		s := openStore(t, mem, "data", func(c *Config) { c.Durability = Replicated })
		l := openLog(t, s)
		mustAppend(t, l, records(2, 100, 1))
		if err := l.Roll(1); err != nil {
			t.Fatal(err)
		}
		mustAppend(t, l, records(2, 100, 1))
		beside, err := s.Log(topic.Partition{Topic: "beside", ID: topic.ID{9}}, DefaultLogConfig())
		if err != nil {
			t.Fatal(err)
		}
		mustAppend(t, beside, records(1, 100, 1))
		image := mem.Crash()
		s.Abandon()
		l = openLog(t, openStore(t, image, "data", func(c *Config) { c.Durability = Replicated }))
		if o := l.Offsets(); o.LogStart != 0 || o.LocalStart != 0 {
			t.Fatalf("seed %d: the log starts at %d, local at %d", seed, o.LogStart, o.LocalStart)
		}
	}
}
