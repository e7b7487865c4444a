package tier

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
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
type journal struct {
	mu   sync.Mutex // guards the following; serialises writes to the file
	path string
	file *os.File
	open map[partitionKey]topic.Partition
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
	var b bytes.Buffer
	for _, p := range unfinished {
		j.open[partitionKey{p.ID, p.Index}] = p
		b.WriteString(journalLine(p))
	}
	if err := replaceFile(path, b.Bytes()); err != nil {
		return nil, nil, err
	}
	j.file, err = os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return nil, nil, err
	}
	return j, unfinished, nil
}

func journalLine(p topic.Partition) string {
	return fmt.Sprintf("+ %s %d %s\n", p.ID, p.Index, p.Topic)
}

// parseJournal returns the deletions that were begun and not ended, in order.
func parseJournal(content []byte) ([]topic.Partition, error) {
	var unfinished []topic.Partition
	r := bufio.NewReader(bytes.NewReader(content))
	for n := 1; ; n++ {
		line, err := r.ReadString('\n')
		if err != nil {
			return unfinished, nil // the end, or a torn line
		}
		f := strings.Fields(line)
		if len(f) < 3 || f[0] != "+" && f[0] != "-" || f[0] == "+" && len(f) != 4 {
			return nil, fmt.Errorf("line %d is not a journal line", n)
		}
		id, err1 := topic.ParseID(f[1])
		index, err2 := strconv.ParseInt(f[2], 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		unfinished = slices.DeleteFunc(unfinished, func(p topic.Partition) bool {
			return p.ID == id && p.Index == int32(index)
		})
		if f[0] == "+" {
			unfinished = append(unfinished, topic.Partition{Topic: f[3], ID: id, Index: int32(index)})
		}
	}
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
	if _, err := j.file.WriteString(line); err != nil {
		return err
	}
	return j.file.Sync()
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
