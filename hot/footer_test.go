package hot

import (
	"testing"

	"github.com/varvelog/varve/hot/vfs"
)

// TestFooterIsNotWrittenByACheckpointUnderWay rolls the segment between the
// checkpoint's look at it and its write of the index, to the moment where the
// footer is in memory. It says that every byte of the segment is synced, which
// nobody has seen to yet, so it must not get into the file.
func TestFooterIsNotWrittenByACheckpointUnderWay(t *testing.T) {
	mem := vfs.NewMem(1)
	s := openStore(t, mem, "data")
	l := openLog(t, s)
	waitDurable(t, l, mustAppend(t, l, records(3, 40, 1)).LastOffset+1)
	l.maintMu.Lock()
	defer l.maintMu.Unlock()
	c, err := l.capture(false)
	if err != nil || c == nil {
		t.Fatal(c, err)
	}
	mustAppend(t, l, records(3, 40, 1))
	l.appendMu.Lock()
	l.tail.ix.footer()
	l.appendMu.Unlock()
	if err := l.write(c, false); err != nil {
		t.Fatal(err)
	}
	seg := l.active()
	if footed, err := l.hasFooter(seg); err != nil || footed {
		t.Fatalf("the index has its footer, the checkpoint saw %d of %d bytes: %v", c.state.position, seg.size.Load(), err)
	}
	if ix := l.readIndexFile(seg, seg.size.Load()); ix.len() != c.to {
		t.Fatalf("%d entries are in the file, %d were captured", ix.len(), c.to)
	}
}
