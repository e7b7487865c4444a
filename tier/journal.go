package tier

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/varvelog/varve/meta/topic"
)

// journal remembers which topic deletions are not done yet. It is a text file of
// lines, each synced before it counts:
//
//   - <topic id> <partition> <topic name>
//   - <topic id> <partition>
//
// Torn tail: a last line without its newline is dropped. Opening rewrites the
// file with what is unfinished.
//
// After a write that failed nobody knows what the file ends in: half a line, or
// one that is not on disk. It is written anew before the next line. A process
// that ends in between, or one of a release that did not do so, leaves half a
// line with a whole one glued to it: then the whole one counts. The half never
// did, as its write was reported to have failed.
type journal struct {
	mu    sync.Mutex // guards the following; serialises writes to the file
	path  string
	file  journalFile
	dirty bool // the last write failed
	open  map[partitionKey]topic.Partition
}

// journalFile is what the journal needs of an os.File opened for appending.
type journalFile interface {
	io.StringWriter
	io.Closer
	Sync() error
}

func openJournal(path string) (*journal, []topic.Partition, error) {
	j := &journal{path: path, open: map[partitionKey]topic.Partition{}}
	if path == "" {
		return j, nil, nil
	}
	content, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	unfinished, err := parseJournal(content)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, p := range unfinished {
		j.open[partitionKey{p.ID, p.Index}] = p
	}
	if err := j.rewrite(); err != nil {
		return nil, nil, err
	}
	return j, unfinished, nil
}

// rewrite puts a file with what is unfinished in the place of the old one, and
// goes on in it.
func (j *journal) rewrite() error {
	lines := make([]string, 0, len(j.open))
	for _, p := range j.open {
		lines = append(lines, journalLine(p))
	}
	slices.Sort(lines)
	if err := replaceFile(j.path, []byte(strings.Join(lines, ""))); err != nil {
		return err
	}
	file, err := os.OpenFile(j.path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	if j.file != nil {
		_ = j.file.Close() // the old file has no name any more, and nothing that counts
	}
	j.file, j.dirty = file, false
	return nil
}

func journalLine(p topic.Partition) string {
	return fmt.Sprintf("+ %s %d %s\n", p.ID, p.Index, p.Topic)
}

// parseJournal returns the deletions that were begun and not ended, in order.
func parseJournal(content []byte) ([]topic.Partition, error) {
	var unfinished []topic.Partition
	for n := 1; ; n++ {
		line, rest, whole := bytes.Cut(content, []byte("\n"))
		if !whole {
			return unfinished, nil // the end, or a torn line
		}
		content = rest
		begun, p, err := parseGlued(string(line))
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		unfinished = slices.DeleteFunc(unfinished, func(q topic.Partition) bool { return q.ID == p.ID && q.Index == p.Index })
		if begun {
			unfinished = append(unfinished, p)
		}
	}
}

// parseGlued reads a line, or what is whole at the end of one that begins with
// half a line.
func parseGlued(line string) (begun bool, p topic.Partition, err error) {
	begun, p, err = parseJournalLine(line)
	half := strings.HasPrefix(line, "+") || strings.HasPrefix(line, "-")
	for at := len(line); err != nil; {
		if at = strings.LastIndexAny(line[:at], "+-"); at < 1 || !half {
			return false, topic.Partition{}, err
		}
		if b, q, suffix := parseJournalLine(line[at:]); suffix == nil {
			return b, q, nil
		}
	}
	return begun, p, nil
}

// parseJournalLine reads a line without its newline.
func parseJournalLine(line string) (begun bool, p topic.Partition, err error) {
	f := strings.Split(line, " ")
	switch {
	case f[0] == "+" && len(f) == 4 && f[3] != "":
		p.Topic = f[3]
	case f[0] == "-" && len(f) == 3:
	default:
		return false, p, fmt.Errorf("%q is not a journal line", line)
	}
	index, err := strconv.ParseInt(f[2], 10, 32)
	if err != nil {
		return false, p, err
	}
	p.Index = int32(index)
	p.ID, err = topic.ParseID(f[1])
	return f[0] == "+", p, err
}

func (j *journal) add(p topic.Partition) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	key := partitionKey{p.ID, p.Index}
	if _, ok := j.open[key]; ok {
		return nil
	}
	if err := j.write(journalLine(p)); err != nil {
		return err
	}
	j.open[key] = p
	return nil
}

func (j *journal) done(p topic.Partition) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.write(fmt.Sprintf("- %s %d\n", p.ID, p.Index)); err != nil {
		return err
	}
	delete(j.open, partitionKey{p.ID, p.Index})
	return nil
}

func (j *journal) write(line string) error {
	if j.file == nil {
		return nil
	}
	if j.dirty {
		if err := j.rewrite(); err != nil {
			return fmt.Errorf("write the journal anew after a failed write: %w", err)
		}
	}
	j.dirty = true
	if _, err := j.file.WriteString(line); err != nil {
		return err
	}
	if err := j.file.Sync(); err != nil {
		return err
	}
	j.dirty = false
	return nil
}

func (j *journal) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return nil
	}
	err := j.file.Close()
	j.file = nil
	return err
}

// replaceFile writes the file anew, whole or not at all.
func replaceFile(path string, content []byte) error {
	tmp := path + ".tmp"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
