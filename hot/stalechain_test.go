package hot

import (
	"testing"

	"github.com/varvelog/varve/hot/lineage"
	"github.com/varvelog/varve/hot/vfs"
)

// TestChainThatWasCutToNothingDoesNotComeBack cuts a log to nothing, has it begin further on under a later epoch, and lets the
// process die: the file still has the chain that was cut.
func TestChainThatWasCutToNothingDoesNotComeBack(t *testing.T) {
	mem := vfs.NewMem(1)
	s := openStore(t, mem, "data", rarely)
	l := openLog(t, s)
	followEpoch(t, l, 0, 2)
	if err := s.checkpoint([]*Log{l}, false); err != nil {
		t.Fatal(err)
	}
	if err := l.TruncateTo(0); err != nil {
		t.Fatal(err)
	}
	if err := l.ResetTo(10, nil, nil); err != nil {
		t.Fatal(err)
	}
	followEpoch(t, l, 1, 2)
	s.Abandon()
	l = openLog(t, openStore(t, mem, "data", rarely))
	if got, want := l.Lineage(), (lineage.Chain{{Epoch: 1, Start: 10}}); !got.Equal(want) {
		t.Fatalf("epochs %v, want %v", got, want)
	}
}
