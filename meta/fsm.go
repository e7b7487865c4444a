package meta

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// fsm is raft's view of the image: it applies commands, and makes and restores
// snapshots. raft calls it from one goroutine at a time.
type fsm struct {
	current atomic.Pointer[Image]
	// published is called after current has changed.
	published func()
	// full is called when a snapshot is due.
	full func()
	// lowered is called when the log may hold what the release before cannot
	// read, though the cluster is at a level that it can.
	lowered func()
	// failed is called when a committed command cannot be read: going on
	// without it would make this node's image differ from the others'.
	failed func(error)
	// rejected is told of commands that contradict the image.
	rejected func(index uint64, err error)

	snapshotEntries uint64
	snapshotBytes   int64

	mu         sync.Mutex // guards the following and orders changes of current
	controller int32
	entries    uint64 // since the newest snapshot
	bytes      int64
}

func newFSM(cfg *Config) *fsm {
	f := &fsm{controller: -1, snapshotEntries: cfg.SnapshotEntries, snapshotBytes: cfg.SnapshotBytes}
	f.current.Store(newImage())
	return f
}

// applied is what Apply returns through raft's future.
type applied struct {
	image *Image
	err   error
}

// Apply implements raft.FSM.
func (f *fsm) Apply(l *raft.Log) any {
	command, err := DecodeCommand(l.Data)
	if err != nil {
		err = fmt.Errorf("log entry %d: %w", l.Index, err)
		f.failed(err)
		return applied{err: err}
	}
	f.mu.Lock()
	level := f.current.Load().level()
	next, err := f.current.Load().Apply(command, l.Index)
	lowered := err == nil && next.level() < level
	if err == nil {
		next.ControllerID = f.controller
		f.current.Store(next)
	}
	f.entries++
	f.bytes += int64(len(l.Data))
	due := f.entries >= f.snapshotEntries || f.bytes >= f.snapshotBytes
	f.mu.Unlock()
	if due {
		f.full()
	}
	if lowered {
		f.lowered()
	}
	if err != nil {
		if !errors.Is(err, ErrStale) {
			f.rejected(l.Index, err)
		}
		return applied{err: err}
	}
	f.published()
	return applied{image: next}
}

// setController publishes who leads the quorum.
func (f *fsm) setController(id int32) {
	f.mu.Lock()
	changed := f.controller != id
	if changed {
		f.controller = id
		next := f.current.Load().clone()
		next.ControllerID = id
		f.current.Store(next)
	}
	f.mu.Unlock()
	if changed {
		f.published()
	}
}

// Snapshot implements raft.FSM. An image is immutable, so a pointer is enough.
func (f *fsm) Snapshot() (raft.FSMSnapshot, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &fsmSnapshot{image: f.current.Load(), fsm: f, entries: f.entries, bytes: f.bytes}, nil
}

// Restore implements raft.FSM.
func (f *fsm) Restore(r io.ReadCloser) error {
	defer func() { _ = r.Close() }() // only read from
	b, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("read snapshot: %w", err)
	}
	img, err := DecodeSnapshot(b)
	if err != nil {
		return fmt.Errorf("restore snapshot: %w", err)
	}
	f.mu.Lock()
	img.ControllerID = f.controller
	f.current.Store(img)
	f.entries, f.bytes = 0, 0
	f.mu.Unlock()
	if img.level() < levelMax {
		f.lowered() // a snapshot that came instead of entries may have left some
	}
	f.published()
	return nil
}

// StoreConfiguration implements raft.ConfigurationStore. It keeps nothing: raft
// takes a snapshot only where the state machine has got past every change of its
// members, and counts those only if it is told of them.
func (f *fsm) StoreConfiguration(uint64, raft.Configuration) {}

var _ raft.ConfigurationStore = (*fsm)(nil)

type fsmSnapshot struct {
	image   *Image
	fsm     *fsm
	entries uint64
	bytes   int64
}

// Persist implements raft.FSMSnapshot.
func (s *fsmSnapshot) Persist(sink raft.SnapshotSink) error {
	if _, err := sink.Write(s.image.EncodeSnapshot()); err != nil {
		return errors.Join(fmt.Errorf("write snapshot: %w", err), sink.Cancel())
	}
	if err := sink.Close(); err != nil {
		return fmt.Errorf("finish snapshot: %w", err)
	}
	s.fsm.mu.Lock()
	s.fsm.entries -= s.entries
	s.fsm.bytes -= s.bytes
	s.fsm.mu.Unlock()
	return nil
}

// Release implements raft.FSMSnapshot.
func (s *fsmSnapshot) Release() {}
