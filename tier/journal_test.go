package tier

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/varvelog/varve/meta/topic"
)

func TestJournalSurvivesATornTailAndRefusesNonsense(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deletions")
	a, b := rigPartition(1), rigPartition(2)
	j, open, err := openJournal(path)
	if err != nil || len(open) != 0 {
		t.Fatal(open, err)
	}
	for _, p := range []topic.Partition{a, b, a} {
		if err := j.add(p); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.done(a); err != nil {
		t.Fatal(err)
	}
	if err := j.write("+ torn"); err != nil {
		t.Fatal(err)
	}
	if err := j.close(); err != nil {
		t.Fatal(err)
	}
	j, open, err = openJournal(path)
	if err != nil || len(open) != 1 || open[0] != b {
		t.Fatalf("unfinished %v, %v, want %v", open, err, b)
	}
	if err := j.add(a); err != nil {
		t.Fatal(err)
	}
	if err := j.write("nonsense\n"); err != nil {
		t.Fatal(err)
	}
	if err := j.close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := openJournal(path); err == nil {
		t.Error("a journal with a line that is none was taken")
	}
}

// fullDisk takes so many bytes more and fails then, as a disk does.
type fullDisk struct {
	journalFile
	room int
	sync error
}

var errNoSpace = errors.New("no space left on device")

func (d *fullDisk) WriteString(s string) (int, error) {
	n, err := d.journalFile.WriteString(s[:min(len(s), d.room)])
	if d.room -= n; err == nil && n < len(s) {
		err = errNoSpace
	}
	return n, err
}

func (d *fullDisk) Sync() error { return errors.Join(d.sync, d.journalFile.Sync()) }

// TestJournalIsWrittenAnewAfterAFailedWrite: what a full disk left of a line, or
// what a sync did not bring to disk, is in nobody's way afterwards.
func TestJournalIsWrittenAnewAfterAFailedWrite(t *testing.T) {
	a, b, c := rigPartition(1), rigPartition(2), rigPartition(3)
	for name, d := range map[string]fullDisk{
		"nothing written": {room: 0}, "half a sign": {room: 1}, "half an id": {room: 9}, "half a number": {room: 26},
		"half a name": {room: 30}, "all but the end": {room: len(journalLine(b)) - 1}, "not synced": {room: 1 << 20, sync: errNoSpace},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "deletions")
			j, _, err := openJournal(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := j.add(a); err != nil {
				t.Fatal(err)
			}
			d.journalFile = j.file
			j.file = &d
			if err := j.add(b); !errors.Is(err, errNoSpace) {
				t.Fatal(err)
			}
			for _, p := range []topic.Partition{c, b} { // there is room again
				if err := j.add(p); err != nil {
					t.Fatal(err)
				}
			}
			if err := j.done(a); err != nil {
				t.Fatal(err)
			}
			if err := j.close(); err != nil {
				t.Fatal(err)
			}
			_, open, err := openJournal(path)
			if err != nil || len(open) != 2 || !slices.Contains(open, b) || !slices.Contains(open, c) {
				t.Fatalf("unfinished %v, %v, want %v and %v", open, err, c, b)
			}
		})
	}
}

// TestJournalReadsWhatIsGluedToHalfALine: releases before went on behind half a line.
func TestJournalReadsWhatIsGluedToHalfALine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deletions")
	a, b, c := rigPartition(1), rigPartition(2), rigPartition(3)
	c.Topic = "ends-with-+-"
	lines := map[string]string{"a": journalLine(a), "b": journalLine(b), "c": journalLine(c), "done": "- " + b.ID.String() + " 2\n"}
	for _, half := range lines {
		for n := 1; n < len(half); n++ {
			for _, whole := range []topic.Partition{a, b, c} {
				for _, more := range []string{"", half[:n]} {
					if err := os.WriteFile(path, []byte(lines["a"]+half[:n]+more+journalLine(whole)), 0o600); err != nil {
						t.Fatal(err)
					}
					j, open, err := openJournal(path)
					if err != nil || !slices.Contains(open, a) || !slices.Contains(open, whole) || len(open) > 2 {
						t.Fatalf("%q: unfinished %v, %v", half[:n]+more+journalLine(whole), open, err)
					}
					j.close()
				}
			}
		}
	}
	if err := os.WriteFile(path, []byte(lines["a"]+"x"+lines["b"]), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := openJournal(path); err == nil {
		t.Error("what no journal could have written was taken")
	}
}
