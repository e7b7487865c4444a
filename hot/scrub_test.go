package hot

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/hot/vfs"
)

// TestScrubberFindsWhatNobodyReads flips a bit of a sealed segment, and measures the pace.
func TestScrubberFindsWhatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pace = 64 << 10
		mem := vfs.NewMem(1)
		s := openStore(t, mem, "data", func(c *Config) { c.ScrubBytesPerSecond = pace })
		defer s.Abandon()
		told := 0
		s.OnDamaged(func(*Log) { told++ })
		l := openLog(t, s, func(c *LogConfig) { c.SegmentBytes, c.RetentionMillis = 1<<20, -1 })
		for range 40 {
			mustAppend(t, l, records(10, 10_000, 1))
		}
		end := l.Offsets().End
		for l.Offsets().Durable < end {
			<-time.After(time.Millisecond)
		}
		<-time.After(2 * time.Second) // segments are finished
		sound := copyOf(readAll(t, l, 1<<20))
		segs := l.list()
		var sealed int64
		for _, seg := range segs[:len(segs)-1] {
			size, err := seg.bytes()
			if err != nil {
				t.Fatal(err)
			}
			sealed += size
		}
		flip(t, mem, segs[1].path(logExt), 70)
		if len(segs) < 4 || len(l.Damaged()) != 0 {
			t.Fatalf("%d segments, damage %+v", len(segs), l.Damaged())
		}
		<-time.After(scrubDelay)
		began := time.Now()
		for s.Stats().ScrubPasses.Load() == 0 {
			<-time.After(time.Second)
		}
		if got, want := time.Since(began).Seconds(), float64(sealed)/pace; got > want+5 || got < want/2 {
			t.Errorf("%d bytes took %.0f s, at %d bytes a second that is %.0f", sealed, got, pace, want)
		}
		d := l.Damaged()
		if len(d) != 1 || d[0].Segment != segs[1].base || told != 1 || s.Stats().Quarantined.Load() != 1 {
			t.Fatalf("damage is %+v, told %d times", d, told)
		}
		if err := l.Repair(d[0], sound.between(d[0].Start, d[0].End)); err != nil {
			t.Fatal(err)
		}
		// Not again on the same day, and the next day again.
		bytes := s.Stats().ScrubBytes.Load()
		<-time.After(scrubPassMin / 2)
		if got := s.Stats().ScrubBytes.Load(); got != bytes {
			t.Errorf("%d bytes were read again on the same day", got-bytes)
		}
		<-time.After(scrubPassMin)
		if got := s.Stats().ScrubBytes.Load(); got != bytes+sealed && s.Stats().ScrubPasses.Load() != 2 {
			t.Errorf("%d bytes of %d were read a day later", got-bytes, sealed)
		}
		if len(l.Damaged()) != 0 {
			t.Errorf("damage is %+v", l.Damaged())
		}
	})
}

func TestScrubberEndsWithTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, vfs.NewMem(1), "data", func(c *Config) { c.ScrubBytesPerSecond = 1 })
		l := openLog(t, s, smallSegments)
		for range 20 {
			mustAppend(t, l, records(3, 40, 1))
		}
		<-time.After(scrubDelay + 10*time.Second)
		if s.Stats().ScrubBytes.Load() == 0 || s.Stats().ScrubPasses.Load() != 0 {
			t.Fatal("it is not in the middle of a pass")
		}
		began := time.Now()
		closeStore(t, s)
		if took := time.Since(began); took > time.Second {
			t.Fatalf("the end took %v", took)
		}
	})
}
