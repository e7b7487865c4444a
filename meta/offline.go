package meta

import (
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
)

// Offline is the metadata of a node that is stopped, for auditors.
type Offline struct {
	NodeID    int32
	ClusterID string
	// SnapshotIndex is where the newest snapshot ends, 0 without one.
	SnapshotIndex uint64
	// Entries are the log's, in order; those at or below SnapshotIndex are in
	// the snapshot as well.
	Entries []OfflineEntry
	// Voters are the quorum's members as of the newest entry that changes them.
	Voters []int32

	snapshot *Image
	commands map[uint64]Command
}

// OfflineEntry is one entry of the log.
type OfflineEntry struct {
	Index, Term uint64
	Sum         uint32 // CRC-32C over type and data
}

// offlineWait bounds the wait for a lock that only a running node holds.
const offlineWait = 500 * time.Millisecond

// ReadOffline reads the metadata in dir and changes nothing there. A damaged
// log or snapshot gives ErrCorrupt, as it would when the node starts.
func ReadOffline(dir string) (*Offline, error) {
	who, any, err := readIdentity(dir, 0)
	if err != nil {
		return nil, err
	}
	if !any {
		return nil, fmt.Errorf("%w: %s has no %s", ErrCorrupt, dir, identityFile)
	}
	o := &Offline{NodeID: who.nodeID, ClusterID: who.clusterID, snapshot: newImage(), commands: map[uint64]Command{}}
	snapshots := &snapshotStore{dir: filepath.Join(dir, "snapshots")}
	ids, err := snapshots.names()
	if err != nil {
		return nil, err
	}
	var quorum raft.Configuration
	if len(ids) > 0 {
		m, b, err := snapshots.read(ids[0])
		if err != nil {
			return nil, err
		}
		if o.snapshot, err = DecodeSnapshot(b); err != nil {
			return nil, fmt.Errorf("snapshot %s: %w", m.ID, err)
		}
		o.SnapshotIndex, quorum = m.Index, m.Configuration
	}
	if err := o.readLog(filepath.Join(dir, "raft.db"), &quorum); err != nil {
		return nil, err
	}
	for _, s := range quorum.Servers {
		id, err := nodeID(s.ID)
		if err != nil {
			return nil, err
		}
		if s.Suffrage == raft.Voter {
			o.Voters = append(o.Voters, id)
		}
	}
	return o, nil
}

func (o *Offline) readLog(path string, quorum *raft.Configuration) (err error) {
	options := *bbolt.DefaultOptions
	options.ReadOnly, options.Timeout, options.NoFreelistSync = true, offlineWait, true
	var db *raftboltdb.BoltStore
	if err := protect(func() error {
		db, err = raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: &options})
		return err
	}); err != nil {
		return fmt.Errorf("open metadata log %s (is the node stopped?): %w", path, err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	s := &logStore{db: db}
	if err := s.verify(o.SnapshotIndex); err != nil {
		return err
	}
	first, err := s.FirstIndex()
	if err != nil {
		return err
	}
	last, err := s.LastIndex()
	if err != nil {
		return err
	}
	for i := max(first, 1); i <= last; i++ {
		var l raft.Log
		if err := s.GetLog(i, &l); err != nil {
			return err
		}
		sum := crc32.Update(crc32.Checksum([]byte{byte(l.Type)}, castagnoli), castagnoli, l.Data)
		o.Entries = append(o.Entries, OfflineEntry{Index: i, Term: l.Term, Sum: sum})
		switch {
		case i <= o.SnapshotIndex:
		case l.Type == raft.LogConfiguration:
			if *quorum, err = decodeQuorum(l.Data); err != nil {
				return err
			}
		case l.Type == raft.LogCommand:
			if o.commands[i], err = DecodeCommand(l.Data); err != nil {
				return fmt.Errorf("log entry %d: %w", i, err)
			}
		}
	}
	return nil
}

// Image is the metadata as of a committed index: which one that is, a node
// alone does not know, but a majority of voters does. Commands that do not
// fit the image any more change nothing, as on a running node.
func (o *Offline) Image(committed uint64) *Image {
	img := o.snapshot
	for i := o.SnapshotIndex + 1; i <= committed; i++ {
		c, any := o.commands[i]
		if !any {
			continue
		}
		if next, err := img.Apply(c, i); err == nil {
			img = next
		}
	}
	return img
}

// End is the index of the newest entry.
func (o *Offline) End() uint64 {
	if n := len(o.Entries); n > 0 {
		return max(o.Entries[n-1].Index, o.SnapshotIndex)
	}
	return o.SnapshotIndex
}

// Entry is the entry at an index, if the log reaches it.
func (o *Offline) Entry(index uint64) (OfflineEntry, bool) {
	if len(o.Entries) == 0 || index < o.Entries[0].Index || index > o.End() {
		return OfflineEntry{}, false
	}
	at := index - o.Entries[0].Index
	if at >= uint64(len(o.Entries)) {
		return OfflineEntry{}, false
	}
	return o.Entries[at], true
}
