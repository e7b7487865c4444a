package history

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
)

// lineBytesMax bounds one event in a file.
const lineBytesMax = 64 << 20

// Writer writes events, one a line. It is safe for concurrent use.
type Writer struct {
	mu  sync.Mutex // guards the following
	out *bufio.Writer
	err error
}

// NewWriter writes to w.
func NewWriter(w io.Writer) *Writer { return &Writer{out: bufio.NewWriterSize(w, 1<<16)} }

// Add writes one event. An error is kept for Flush.
func (w *Writer) Add(e Event) {
	line, err := json.Marshal(e)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return
	}
	if err == nil {
		_, err = w.out.Write(append(line, '\n'))
	}
	w.err = err
}

// Flush gives the first error there was.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	return w.out.Flush()
}

// Read reads events until r ends.
func Read(r io.Reader) ([]Event, error) {
	var events []Event
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 1<<16), lineBytesMax)
	for n := 1; lines.Scan(); n++ {
		var e Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		events = append(events, e)
	}
	return events, lines.Err()
}

// ReadFile reads a history from a file.
func ReadFile(path string) ([]Event, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	events, err := Read(f)
	if err != nil {
		return nil, fmt.Errorf("history %s: %w", path, err)
	}
	return events, nil
}
