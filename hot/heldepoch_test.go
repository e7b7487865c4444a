package hot

import (
	"testing"

	"github.com/varvelog/varve/hot/vfs"
)

// TestLogWhoseDirectoryIsGoneKnowsItsLatestEpoch has a follower's log get records of some epochs, has the journal be written for
// something else before the next checkpoint, and removes the directory.
func TestLogWhoseDirectoryIsGoneKnowsItsLatestEpoch(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, mem *vfs.Mem, s *Store, l *Log) (*Store, *Log)
		want   int32
	}{
		"the watermark moves": {func(t *testing.T, _ *vfs.Mem, s *Store, l *Log) (*Store, *Log) {
			l.SetHighWatermark(l.Offsets().End)
			s.journalWatermarks()
			return s, l
		}, 7},
		"the log start moves": {func(t *testing.T, _ *vfs.Mem, s *Store, l *Log) (*Store, *Log) {
			l.SetHighWatermark(l.Offsets().End)
			if err := l.AdvanceLogStart(4); err != nil {
				t.Fatal(err)
			}
			return s, l
		}, 7},
		"a later epoch": {func(t *testing.T, _ *vfs.Mem, s *Store, l *Log) (*Store, *Log) {
			followEpoch(t, l, 9, 1)
			return s, l
		}, 9},
		"a later epoch after a checkpoint, and the watermark": {func(t *testing.T, _ *vfs.Mem, s *Store, l *Log) (*Store, *Log) {
			if err := s.checkpoint([]*Log{l}, false); err != nil {
				t.Fatal(err)
			}
			followEpoch(t, l, 9, 1)
			l.SetHighWatermark(l.Offsets().End)
			s.journalWatermarks()
			return s, l
		}, 9},
		"a later epoch within one append": {func(t *testing.T, _ *vfs.Mem, s *Store, l *Log) (*Store, *Log) {
			b := records(3, 40, 1)
			b.SetBaseOffset(l.Offsets().End)
			b.SetLeaderEpoch(8)
			next := records(3, 40, 1)
			next.SetBaseOffset(b.NextOffset())
			next.SetLeaderEpoch(9)
			mustAppend(t, l, append(b[:len(b):len(b)], next...), func(o *AppendOptions) { o.Origin = Follower })
			waitDurable(t, l, l.Offsets().End)
			return s, l
		}, 9},
		"all of it is cut, and it begins again": {func(t *testing.T, _ *vfs.Mem, s *Store, l *Log) (*Store, *Log) {
			if err := l.TruncateTo(0); err != nil {
				t.Fatal(err)
			}
			followEpoch(t, l, 9, 1)
			return s, l
		}, 9},
		"it goes on elsewhere": {func(t *testing.T, _ *vfs.Mem, s *Store, l *Log) (*Store, *Log) {
			if err := l.ResetTo(100, nil, nil); err != nil {
				t.Fatal(err)
			}
			followEpoch(t, l, 9, 1)
			return s, l
		}, 9},
		"the latest epoch is cut": {func(t *testing.T, _ *vfs.Mem, s *Store, l *Log) (*Store, *Log) {
			end := l.Offsets().End
			followEpoch(t, l, 9, 1)
			if err := l.TruncateTo(end); err != nil {
				t.Fatal(err)
			}
			return s, l
		}, 7},
		"the journal was lost": {func(t *testing.T, mem *vfs.Mem, s *Store, l *Log) (*Store, *Log) {
			s.Abandon()
			if err := mem.Remove("data/" + journalName); err != nil {
				t.Fatal(err)
			}
			s = openStore(t, mem, "data", rarely)
			return s, openLog(t, s)
		}, 7},
	} {
		mem := vfs.NewMem(1)
		s := openStore(t, mem, "data", rarely)
		l := openLog(t, s)
		followEpoch(t, l, 7, 2)
		s, l = c.change(t, mem, s, l)
		chain, start := l.Lineage(), l.Offsets().LogStart
		dir, after := l.Dir(), mem.Clone()
		s.Abandon()
		again := openLog(t, openStore(t, after.Clone(), "data", rarely))
		if got := again.Lineage().TruncateStart(start); !got.Equal(chain) {
			t.Errorf("%s: epochs %v, they were %v", name, got, chain)
		}
		if err := after.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			s = openStore(t, after, "data", rarely)
			if _, epoch, lost := openLog(t, s).Lost(); !lost || epoch != c.want {
				t.Errorf("%s: lost %t of epoch %d, it had %d", name, lost, epoch, c.want)
			}
			s.Abandon()
		}
	}
}
