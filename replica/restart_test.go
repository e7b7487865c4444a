package replica

import (
	"context"
	"testing"

	"github.com/varvelog/varve/hot"
	"github.com/varvelog/varve/hot/vfs"
)

// A directory that may lack what its broker has acknowledged names no epoch of it, and so its broker is in no in-sync set and in no
// ELR when it registers: one that is new, was wiped, or, where acknowledged records need not be synced, was not left in order.
func TestDirectoryThatMayLackRecordsSaysSo(t *testing.T) {
	for _, c := range []struct {
		durability hot.Durability
		clean      bool
		want       int64
	}{
		{hot.Fsync, true, 7}, {hot.Fsync, false, 7}, {hot.Replicated, true, 7}, {hot.Replicated, false, NoBrokerEpoch},
	} {
		open := func(fs vfs.FS) *hot.Store {
			config := hot.DefaultConfig("/data")
			config.Durability = c.durability
			s, err := hot.Open(config, hot.Deps{FS: fs})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		disk := vfs.NewMem(1)
		s := open(disk)
		if got := PreviousEpoch(s); got != NoBrokerEpoch {
			t.Errorf("%s: a new directory says %d", c.durability, got)
		}
		if err := s.SetBrokerEpoch(7); err != nil {
			t.Fatal(err)
		}
		if c.clean {
			if err := s.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
		} else {
			s.Abandon()
		}
		s = open(disk)
		if got := PreviousEpoch(s); got != c.want {
			t.Errorf("%s, left in order %t: the directory says %d, want %d", c.durability, c.clean, got, c.want)
		}
		s.Abandon()
		s = open(vfs.NewMem(2))
		if got := PreviousEpoch(s); got != NoBrokerEpoch {
			t.Errorf("%s: a wiped directory says %d", c.durability, got)
		}
		s.Abandon()
	}
}
