package meta

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/varvelog/varve/meta/boltfile"
)

// sealVersion begins the seal in raft.Log.Extensions. Format: do not renumber.
const sealVersion = 1

// logStore is raft's log and vote in bbolt. It adds two things: every entry
// carries a seal, a checksum over all of it, which is compared whenever the
// entry is read; and the first error is final, because raft itself goes on
// after one, and a retried fsync may succeed without having written anything.
type logStore struct {
	db    store
	fatal func(error)

	mu     sync.Mutex // guards the following
	failed error
}

// store is what raft-boltdb offers; tests put faults in between.
type store interface {
	raft.LogStore
	raft.StableStore
	Close() error
}

func openLogStore(path string, wait time.Duration, fatal func(error)) (s *logStore, err error) {
	defer func() {
		// bbolt panics on pages that make no sense.
		if r := recover(); r != nil {
			s, err = nil, fmt.Errorf("%w: %s: %v", ErrCorrupt, path, r)
		}
	}()
	options := *bbolt.DefaultOptions
	options.NoFreelistSync = true // found again by a scan on open; halves what a commit writes
	options.FreelistType = bbolt.FreelistMapType
	options.Timeout = wait
	err = boltfile.Check(path, options)
	if errors.Is(err, boltfile.ErrDamaged) {
		return nil, fmt.Errorf("%w: metadata log: %w", ErrCorrupt, err)
	}
	if errors.Is(err, bbolterrors.ErrTimeout) {
		return nil, fmt.Errorf("open metadata log %s: another process holds it: %w", path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open metadata log %s: %w", path, err)
	}
	db, err := raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: &options})
	if errors.Is(err, bbolterrors.ErrTimeout) {
		return nil, fmt.Errorf("open metadata log %s: another process holds it: %w", path, err)
	}
	if errors.Is(err, bbolterrors.ErrInvalid) || errors.Is(err, bbolterrors.ErrChecksum) || errors.Is(err, bbolterrors.ErrVersionMismatch) ||
		errors.Is(err, bbolterrors.ErrIncompatibleValue) { // what should be a bucket is none
		return nil, fmt.Errorf("%w: open metadata log %s: %w", ErrCorrupt, path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open metadata log %s: %w", path, err)
	}
	return &logStore{db: db, fatal: fatal}, nil
}

func (s *logStore) close() error { return s.db.Close() }

// do runs one operation of the store and makes its first error final.
func (s *logStore) do(what string, fn func() error) error {
	if err := s.err(); err != nil {
		return err
	}
	err := protect(fn)
	if err == nil || errors.Is(err, raft.ErrLogNotFound) || errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return err
	}
	err = fmt.Errorf("%s: %w", what, err)
	s.mu.Lock()
	first := s.failed == nil
	if first {
		s.failed = err
	}
	s.mu.Unlock()
	if first && s.fatal != nil {
		go s.fatal(err)
	}
	return err
}

func (s *logStore) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

func protect(fn func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", ErrCorrupt, r)
		}
	}()
	return fn()
}

// seal writes the checksum over index, term, type and data.
func seal(l *raft.Log) []byte {
	b := make([]byte, 0, 5)
	b = append(b, sealVersion)
	return binary.BigEndian.AppendUint32(b, sealSum(l))
}

func sealSum(l *raft.Log) uint32 {
	var head [17]byte
	binary.BigEndian.PutUint64(head[0:], l.Index)
	binary.BigEndian.PutUint64(head[8:], l.Term)
	head[16] = byte(l.Type)
	return crc32.Update(crc32.Checksum(head[:], castagnoli), castagnoli, l.Data)
}

func checkSeal(index uint64, l *raft.Log) error {
	if l.Index != index {
		return fmt.Errorf("%w: log entry %d says it is %d", ErrCorrupt, index, l.Index)
	}
	if len(l.Extensions) != 5 {
		return fmt.Errorf("%w: log entry %d has no seal", ErrCorrupt, index)
	}
	if v := l.Extensions[0]; v != sealVersion {
		return fmt.Errorf("%w: log entry %d has a seal of version %d, this release reads %d", ErrVersion, index, v, sealVersion)
	}
	if got, want := sealSum(l), binary.BigEndian.Uint32(l.Extensions[1:]); got != want {
		return fmt.Errorf("%w: log entry %d: checksum %08x, want %08x", ErrCorrupt, index, got, want)
	}
	return nil
}

// The following implement raft.LogStore and raft.StableStore.

func (s *logStore) FirstIndex() (n uint64, err error) {
	err = s.do("first log index", func() error { n, err = s.db.FirstIndex(); return err })
	return n, err
}

func (s *logStore) LastIndex() (n uint64, err error) {
	err = s.do("last log index", func() error { n, err = s.db.LastIndex(); return err })
	return n, err
}

func (s *logStore) GetLog(index uint64, l *raft.Log) error {
	return s.do("read log", func() error {
		if err := s.db.GetLog(index, l); err != nil {
			return err
		}
		return checkSeal(index, l)
	})
}

func (s *logStore) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

func (s *logStore) StoreLogs(logs []*raft.Log) error {
	return s.do("store logs", func() error {
		sealed := make([]*raft.Log, len(logs))
		for i, l := range logs {
			c := *l
			c.Extensions = seal(&c)
			sealed[i] = &c
		}
		return s.db.StoreLogs(sealed)
	})
}

func (s *logStore) DeleteRange(low, high uint64) error {
	return s.do("delete logs", func() error { return s.db.DeleteRange(low, high) })
}

func (s *logStore) Set(k, v []byte) error {
	return s.do("store vote", func() error { return s.db.Set(k, v) })
}

func (s *logStore) Get(k []byte) (v []byte, err error) {
	err = s.do("read vote", func() error { v, err = s.db.Get(k); return err })
	return v, err
}

func (s *logStore) SetUint64(k []byte, v uint64) error {
	return s.do("store term", func() error { return s.db.SetUint64(k, v) })
}

func (s *logStore) GetUint64(k []byte) (v uint64, err error) {
	err = s.do("read term", func() error { v, err = s.db.GetUint64(k); return err })
	return v, err
}

var (
	_ raft.LogStore    = (*logStore)(nil)
	_ raft.StableStore = (*logStore)(nil)
)

// trim deletes the entries up to the one at which the newest snapshot ends.
func (s *logStore) trim(snapshot uint64) error {
	first, err := s.FirstIndex()
	if err != nil {
		return err
	}
	last, err := s.LastIndex()
	if err != nil || first == 0 || first > snapshot {
		return err
	}
	return s.DeleteRange(first, min(last, snapshot))
}

// verify reads every entry and decodes every command, so that a node with a
// damaged log, or one of a later release, does not start. after is the index
// of the newest snapshot, which the log must reach back to.
func (s *logStore) verify(after uint64) error {
	first, err := s.FirstIndex()
	if err != nil {
		return err
	}
	last, err := s.LastIndex()
	if err != nil {
		return err
	}
	if first > after+1 {
		return fmt.Errorf("%w: the log begins at %d but the newest snapshot ends at %d", ErrCorrupt, first, after)
	}
	for i := max(first, 1); i <= last; i++ {
		var l raft.Log
		if err := s.db.GetLog(i, &l); err != nil {
			return fmt.Errorf("%w: log entry %d of %d to %d: %w", ErrCorrupt, i, first, last, err)
		}
		if err := checkSeal(i, &l); err != nil {
			return err
		}
		if l.Type != raft.LogCommand {
			continue
		}
		if _, err := DecodeCommand(l.Data); err != nil {
			return fmt.Errorf("log entry %d: %w", i, err)
		}
	}
	return nil
}
