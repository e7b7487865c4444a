package hot

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/varvelog/varve/hot/vfs"
	"github.com/varvelog/varve/meta/topic"
)

// Boot file (boot), text:
//
//	<run>               what names a run of the kernel (/proc/sys/kernel/random/boot_id)
//	<topic id>-<n>      a log that was not written or recovered in it, each
//	                    on a line of its own, with a line break before it
//
// Every other log of the directory was last written, or recovered, in that run.
// It need not be synced: when power is lost so is the run that it names. A file
// that cannot be read so names no run.
//
// So a start in another run first makes it name that one when the logs that it
// found are opened. Those that are not, for nobody asks for them or they are
// offline, keep nobody else from being of the run: what is bad in one of them may
// be a tail that power loss has torn, whatever the run in which the process was
// killed since.
const (
	bootBytesMax = 4096 // older programs read no more
	bootLogsMax  = 100  // that fit; with more that are not opened the file stays as it is
)

// boot is which run of the kernel it is, and whose logs are of it.
type boot struct {
	run string // "" not known

	writeMu sync.Mutex // one write at a time, of what is so when it begins. It comes before Store.mu

	// Guarded by Store.mu. unopened are the logs that Open found and nobody has
	// recovered in this run.
	unopened map[journalKey]struct{}
	noted    int // how many the file names; -1: it names another run
	before   int // how many there were a tick ago
}

// readBoot finds out which logs were last used in this run of the kernel, and
// notes the run at once when there are none. It comes after find.
func (s *Store) readBoot(run string) error {
	text, err := vfs.ReadFile(s.fs, s.bootPath(), bootBytesMax)
	if err != nil && !errors.Is(err, vfs.ErrNotExist) {
		return fmt.Errorf("read the kernel's run: %w", err)
	}
	last, unopened, ok := parseBoot(string(text))
	if run == "" && len(text) == 0 {
		return nil
	}
	b := &s.boot
	b.run, b.unopened, b.noted, b.before = run, map[journalKey]struct{}{}, -1, -1
	if ok && run != "" && last == run {
		b.noted = len(unopened)
		for _, k := range unopened {
			if _, there := s.onDisk[k]; there {
				b.unopened[k] = struct{}{}
			}
		}
		return nil
	}
	if len(s.onDisk) == 0 || run == "" {
		return s.writeBoot()
	}
	for k := range s.onDisk {
		b.unopened[k] = struct{}{}
	}
	return nil
}

func formatBoot(run string, unopened map[journalKey]struct{}) string {
	var b strings.Builder
	b.WriteString(run)
	for k := range unopened {
		b.WriteString("\n" + k.id.String() + "-" + strconv.Itoa(int(k.index)))
	}
	return b.String()
}

func parseBoot(text string) (run string, unopened []journalKey, ok bool) {
	run, rest, more := strings.Cut(text, "\n")
	for more {
		var line string
		line, rest, more = strings.Cut(rest, "\n")
		if len(line) < idTextSize+2 || line[idTextSize] != '-' {
			return "", nil, false
		}
		id, err := topic.ParseID(line[:idTextSize])
		n, nerr := strconv.ParseInt(line[idTextSize+1:], 10, 32)
		if err != nil || nerr != nil {
			return "", nil, false
		}
		unopened = append(unopened, journalKey{id, int32(n)})
	}
	return run, unopened, true
}

func (s *Store) bootPath() string { return filepath.Join(s.config.Dir, bootName) }

// inThisRun says whether a log that Open found, and that is being opened, was last
// used in this run of the kernel: what the process had written is all there.
func (s *Store) inThisRun(k journalKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, not := s.boot.unopened[k]
	return s.boot.run != "" && !not
}

// recoveredLocked notes that what Open found of a log is recovered, or gone, and
// says whether it was the last. It needs mu.
func (s *Store) recoveredLocked(k journalKey) (last bool) {
	if _, ok := s.boot.unopened[k]; !ok {
		return false
	}
	delete(s.boot.unopened, k)
	return len(s.boot.unopened) == 0
}

// settleBoot notes the run of the kernel when no log that was found is being
// opened any more, as far as a tick can tell.
func (s *Store) settleBoot() {
	b := &s.boot
	s.mu.Lock()
	n := len(b.unopened)
	due := b.run != "" && n != b.noted && n == b.before && n <= bootLogsMax
	b.before = n
	s.mu.Unlock()
	if due {
		s.noteBoot()
	}
}

func (s *Store) writeBoot() error {
	b := &s.boot
	b.writeMu.Lock()
	defer b.writeMu.Unlock()
	s.mu.Lock()
	n, text := len(b.unopened), formatBoot(b.run, b.unopened)
	s.mu.Unlock()
	if err := s.replaceFile(bootName, []byte(text)); err != nil {
		return fmt.Errorf("note the kernel's run: %w", err)
	}
	s.mu.Lock()
	b.noted = n
	s.mu.Unlock()
	return nil
}

// noteBoot notes the run of the kernel. Without that the next start is careful.
func (s *Store) noteBoot() {
	if err := s.writeBoot(); err != nil {
		s.logger.Warn("the kernel's run cannot be noted", "err", err)
	}
}
