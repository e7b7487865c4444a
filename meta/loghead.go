package meta

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
)

// bbolt begins its file with two heads, each on a page of its own, and writes
// them in turn: a commit counts once the newer head is on disk. When one of
// them is damaged it opens with the other, which is right after a torn write
// and wrong after damage: if it was the newer, the last commit is gone, and
// with it a vote or an entry that others count on. A head is 80 bytes within
// one sector, so it is not torn by a crash; a damaged one is taken for damage.
//
//	offset 16   magic u32, version u32, page size u32, flags u32,
//	            root 16 bytes, freelist u64, pages u64, transaction u64,
//	            FNV-1a of all this u64                       (little-endian)
const (
	headOffset = 16
	headBytes  = 64
	headMagic  = 0xED0CDAED
)

// checkHeads checks both heads of the log's file, if there is one, while no
// other process writes to it.
func checkHeads(path string, options bbolt.Options) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open metadata log %s: %w", path, err)
	}
	options.ReadOnly = true
	db, err := bbolt.Open(path, 0, &options)
	if errors.Is(err, bbolterrors.ErrTimeout) {
		return fmt.Errorf("open metadata log %s: another process holds it: %w", path, err)
	}
	if err != nil {
		return fmt.Errorf("%w: open metadata log %s: %w", ErrCorrupt, path, err)
	}
	err = readHeads(path)
	return errors.Join(err, db.Close())
}

func readHeads(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open metadata log: %w", err)
	}
	defer func() { _ = f.Close() }() // only read from
	page, first, err := readHead(f, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	_, second, err := readHead(f, page)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if first != second+1 && second != first+1 {
		return fmt.Errorf("%w: %s: its heads are of transactions %d and %d", ErrCorrupt, path, first, second)
	}
	return nil
}

// readHead reads the head of the page at offset at.
func readHead(f *os.File, at int64) (page int64, transaction uint64, err error) {
	var b [headBytes]byte
	if _, err := f.ReadAt(b[:], at+headOffset); err != nil {
		return 0, 0, fmt.Errorf("%w: head at %d: %w", ErrCorrupt, at, err)
	}
	sum := fnv.New64a()
	_, _ = sum.Write(b[:headBytes-8])
	if binary.LittleEndian.Uint32(b[:]) != headMagic || binary.LittleEndian.Uint64(b[headBytes-8:]) != sum.Sum64() {
		return 0, 0, fmt.Errorf("%w: the head at %d is damaged", ErrCorrupt, at)
	}
	return int64(binary.LittleEndian.Uint32(b[8:])), binary.LittleEndian.Uint64(b[48:]), nil
}
