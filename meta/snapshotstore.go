package meta

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/raft"
)

const (
	// snapshotsKept is how many snapshots stay on disk. The older one is never
	// used to start from: the log may no longer reach back to it.
	snapshotsKept = 2

	// snapshotFileMagic and snapshotFileVersion begin a snapshot file. Format:
	// do not renumber.
	snapshotFileMagic   = "VARVESNAP"
	snapshotFileVersion = 1

	snapshotSuffix = ".snap"
	partialSuffix  = ".tmp"
)

// snapshotStore keeps snapshots as single files whose every byte is under a
// checksum. raft's own store does not check what it says about a snapshot
// (who is in the quorum, for example), and passes over a damaged snapshot to
// the one before, which could make a node forget what it has voted for.
type snapshotStore struct{ dir string }

// openSnapshots opens the store and removes what a crash left unfinished.
func openSnapshots(dir string) (*snapshotStore, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("open snapshots: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("open snapshots: %w", err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), partialSuffix) {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return nil, fmt.Errorf("open snapshots: %w", err)
			}
		}
	}
	return &snapshotStore{dir: dir}, nil
}

// names returns the snapshots' ids, the newest first.
func (s *snapshotStore) names() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	var ids []string
	for _, e := range entries {
		if id, ok := strings.CutSuffix(e.Name(), snapshotSuffix); ok {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	slices.Reverse(ids)
	return ids, nil
}

func (s *snapshotStore) path(id string) string { return filepath.Join(s.dir, id+snapshotSuffix) }

// read reads one snapshot whole and checks it.
func (s *snapshotStore) read(id string) (*raft.SnapshotMeta, []byte, error) {
	b, err := os.ReadFile(s.path(id))
	if err != nil {
		return nil, nil, fmt.Errorf("read snapshot %s: %w", id, err)
	}
	return decodeSnapshotFile(id, b)
}

// decodeSnapshotFile checks a snapshot's file and takes its image out of it.
func decodeSnapshotFile(id string, b []byte) (*raft.SnapshotMeta, []byte, error) {
	if len(b) < len(snapshotFileMagic)+1 || string(b[:len(snapshotFileMagic)]) != snapshotFileMagic {
		return nil, nil, fmt.Errorf("%w: snapshot %s is none", ErrCorrupt, id)
	}
	if v := b[len(snapshotFileMagic)]; v != snapshotFileVersion {
		return nil, nil, fmt.Errorf("%w: snapshot %s has version %d, this release reads %d", ErrVersion, id, v, snapshotFileVersion)
	}
	body, err := checkSum(b)
	if err != nil {
		return nil, nil, fmt.Errorf("snapshot %s: %w", id, err)
	}
	d := decoder{b: body[len(snapshotFileMagic)+1:]}
	m := &raft.SnapshotMeta{Version: raft.SnapshotVersionMax, ID: id, Index: d.uint(), Term: d.uint(), ConfigurationIndex: d.uint()}
	m.Configuration, err = decodeQuorum(d.take(d.count(1)))
	if err := errors.Join(d.err, err); err != nil {
		return nil, nil, fmt.Errorf("snapshot %s: %w", id, err)
	}
	if snapshotID(m.Index, m.Term) != id {
		return nil, nil, fmt.Errorf("%w: snapshot %s says it is %s", ErrCorrupt, id, snapshotID(m.Index, m.Term))
	}
	m.Size = int64(len(d.b))
	return m, d.b, nil
}

// snapshotID sorts as text in the order of the indexes.
func snapshotID(index, term uint64) string { return fmt.Sprintf("%020d-%020d", index, term) }

// List implements raft.SnapshotStore: the newest only, the one raft may use.
func (s *snapshotStore) List() ([]*raft.SnapshotMeta, error) {
	ids, err := s.names()
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	m, _, err := s.read(ids[0])
	if err != nil {
		return nil, err
	}
	return []*raft.SnapshotMeta{m}, nil
}

// Open implements raft.SnapshotStore.
func (s *snapshotStore) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	m, b, err := s.read(id)
	if err != nil {
		return nil, nil, err
	}
	return m, io.NopCloser(bytes.NewReader(b)), nil
}

// Create implements raft.SnapshotStore.
func (s *snapshotStore) Create(_ raft.SnapshotVersion, index, term uint64, quorum raft.Configuration, quorumIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	id := snapshotID(index, term)
	f, err := os.Create(filepath.Join(s.dir, id+partialSuffix))
	if err != nil {
		return nil, fmt.Errorf("create snapshot: %w", err)
	}
	sink := &snapshotSink{store: s, id: id, f: f}
	e := encoder{b: []byte(snapshotFileMagic)}
	e.u8(snapshotFileVersion)
	e.uint(index)
	e.uint(term)
	e.uint(quorumIndex)
	e.bytes(raft.EncodeConfiguration(quorum))
	if _, err := sink.Write(e.b); err != nil {
		return nil, errors.Join(err, sink.Cancel())
	}
	return sink, nil
}

// reap removes all but the newest snapshots.
func (s *snapshotStore) reap() error {
	ids, err := s.names()
	if err != nil {
		return err
	}
	for _, id := range ids[min(len(ids), snapshotsKept):] {
		if err := os.Remove(s.path(id)); err != nil {
			return fmt.Errorf("remove old snapshot: %w", err)
		}
	}
	return nil
}

// newest reads and decodes the newest snapshot and returns the index it ends
// at, 0 if there is none, and the feature level that it is at.
func (s *snapshotStore) newest() (index uint64, level int16, err error) {
	ids, err := s.names()
	if err != nil || len(ids) == 0 {
		return 0, levelOneNode, err
	}
	m, b, err := s.read(ids[0])
	if err != nil {
		return 0, 0, err
	}
	img, err := DecodeSnapshot(b)
	if err != nil {
		return 0, 0, fmt.Errorf("snapshot %s: %w", m.ID, err)
	}
	if img.Index > m.Index {
		return 0, 0, fmt.Errorf("%w: snapshot %s holds change %d", ErrCorrupt, m.ID, img.Index)
	}
	return m.Index, img.level(), nil
}

// snapshotSink writes one snapshot. It counts once Close has renamed it.
type snapshotSink struct {
	store *snapshotStore
	id    string
	f     *os.File
	sum   uint32
	done  bool
}

// Write implements raft.SnapshotSink.
func (k *snapshotSink) Write(b []byte) (int, error) {
	n, err := k.f.Write(b)
	k.sum = crc32.Update(k.sum, castagnoli, b[:n])
	return n, err
}

// ID implements raft.SnapshotSink.
func (k *snapshotSink) ID() string { return k.id }

// Close implements raft.SnapshotSink.
func (k *snapshotSink) Close() error {
	if k.done {
		return nil
	}
	k.done = true
	_, err := k.f.Write(binary.BigEndian.AppendUint32(nil, k.sum))
	if err == nil {
		err = k.f.Sync()
	}
	partial := k.f.Name()
	if err = errors.Join(err, k.f.Close()); err != nil {
		return errors.Join(fmt.Errorf("write snapshot: %w", err), os.Remove(partial))
	}
	if err := os.Rename(partial, k.store.path(k.id)); err != nil {
		return fmt.Errorf("publish snapshot: %w", err)
	}
	if err := syncDir(k.store.dir); err != nil {
		return fmt.Errorf("publish snapshot: %w", err)
	}
	return k.store.reap()
}

// Cancel implements raft.SnapshotSink.
func (k *snapshotSink) Cancel() error {
	if k.done {
		return nil
	}
	k.done = true
	return errors.Join(k.f.Close(), os.Remove(k.f.Name()))
}

var (
	_ raft.SnapshotStore = (*snapshotStore)(nil)
	_ raft.SnapshotSink  = (*snapshotSink)(nil)
)
