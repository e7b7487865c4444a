package hot

import (
	"testing"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/lineage"
	"github.com/varvelog/varve/hot/vfs"
)

// TestEpochThatBeganInWhatPowerLossTookIsForgotten loses the last records of an epoch, but not the journal's word of the next one,
// which began behind them: what comes back is of the earlier epoch, or of a later one.
func TestEpochThatBeganInWhatPowerLossTookIsForgotten(t *testing.T) {
	replicated := func(c *Config) { c.Durability, c.FlushInterval, c.CheckpointInterval = Replicated, 1<<50, 1<<50 }
	hit := 0
	for seed := range uint64(40) {
		for _, origin := range []Origin{Client, Follower} {
			mem := vfs.NewMem(seed)
			s := openStore(t, mem, "data", replicated)
			l := openLog(t, s)
			followEpoch(t, l, 3, 1)
			followEpoch(t, l, 7, 2)
			s.syncer.flush()
			if err := s.checkpoint([]*Log{l}, false); err != nil {
				t.Fatal(err)
			}
			synced := l.Offsets().End
			if seed%2 == 0 { // and so the tail is scanned
				followEpoch(t, l, 7, 1)
				s.syncer.flush()
				synced = l.Offsets().End
			}
			followEpoch(t, l, 7, 3)
			began := l.Offsets().End
			if origin == Client {
				if err := l.AssignEpoch(9); err != nil {
					t.Fatal(err)
				}
			} else {
				followEpoch(t, l, 9, 1)
			}
			if err := s.journal.sync(); err != nil {
				t.Fatal(err)
			}
			after := mem.CrashSeed(seed)
			s.Abandon()
			l = openLog(t, openStore(t, after, "data", replicated))
			end, chain := l.Offsets().End, l.Lineage()
			if end < synced {
				t.Fatalf("seed %d: end %d, %d was synced", seed, end, synced)
			}
			if want := (lineage.Chain{{Epoch: 3, Start: 0}, {Epoch: 7, Start: 3}, {Epoch: 9, Start: began}}).TruncateEnd(end + 1); !chain.TruncateEnd(end).Equal(want.TruncateEnd(end)) {
				t.Fatalf("seed %d: epochs %v, want %v", seed, chain, want)
			}
			if end >= began {
				continue
			}
			hit++
			epoch := int32(7) // what the others still have
			if seed%3 == 0 {
				epoch = 9
			}
			followEpoch(t, l, epoch, 2)
			if seed%2 == 0 { // the process dies
				l = openLog(t, openStore(t, after.Clone(), "data", replicated))
			}
			err := l.eachBatch(func(b batch.Batch) error {
				if got := l.Lineage().EpochAt(b.BaseOffset()); got != b.LeaderEpoch() {
					t.Errorf("seed %d, origin %d: the records at %d are of epoch %d, the epochs %v say %d", seed, origin, b.BaseOffset(), b.LeaderEpoch(), l.Lineage(), got)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if bad, err := l.CheckAt(end); bad || err != nil {
				t.Errorf("seed %d: damage %+v, %v", seed, l.Damaged(), err)
			}
		}
	}
	if hit == 0 {
		t.Fatal("nothing was ever lost")
	}
}
