package hot

import (
	"testing"

	"github.com/varvelog/varve/hot/vfs"
)

func TestBrokerEpochOutlivesPowerLossAndNothingElseIsTakenForIt(t *testing.T) {
	mem := vfs.NewMem(1)
	s := openStore(t, mem, "data")
	if s.BrokerEpoch() != NoBrokerEpoch {
		t.Fatalf("a new directory says epoch %d", s.BrokerEpoch())
	}
	for _, epoch := range []int64{7, 4_000_000_000} {
		if err := s.SetBrokerEpoch(epoch); err != nil {
			t.Fatal(err)
		}
	}
	s.Abandon()
	for seed := range uint64(20) {
		image := mem.CrashSeed(seed)
		s := openStore(t, image, "data")
		if s.BrokerEpoch() != 4_000_000_000 {
			t.Fatalf("seed %d: epoch %d", seed, s.BrokerEpoch())
		}
		s.Abandon()
	}
	good := formatBrokerEpoch(12)
	for i := range len(good) {
		bad := []byte(good)
		bad[i] ^= 1
		if err := vfs.WriteFileAtomic(mem, "data/"+brokerEpochName, bad); err != nil {
			t.Fatal(err)
		}
		if epoch, err := readBrokerEpoch(mem, "data"); err != nil || epoch != NoBrokerEpoch {
			t.Fatalf("%q is read as epoch %d, %v", bad, epoch, err)
		}
	}
}
