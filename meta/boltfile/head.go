// Package boltfile checks the file of a bbolt database before it is opened. It is a leaf.
//
// bbolt trusts its file: what a page says of itself and of others it follows through its mapping, partly in a goroutine of its own,
// so that a damaged page ends the process by a fault that nobody can catch; and of two heads it opens with the one that is left. Who
// wants to refuse a damaged file, or to set it aside, asks Check first.
//
// What keys and values hold is not checked: those who keep them there give them checksums.
package boltfile

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

// ErrDamaged is returned when the file is not what bbolt wrote.
var ErrDamaged = errors.New("bbolt file is damaged")

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

// Check checks both heads of the file and its pages, if there is a file, while no other process writes to it. It waits for such
// a process as long as options say: bbolt's ErrTimeout.
func Check(path string, options bbolt.Options) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	options.ReadOnly, options.PreLoadFreelist = true, false
	db, err := bbolt.Open(path, 0, &options)
	switch {
	case errors.Is(err, bbolterrors.ErrInvalid) || errors.Is(err, bbolterrors.ErrChecksum) || errors.Is(err, bbolterrors.ErrVersionMismatch):
		return fmt.Errorf("%w: %s: %w", ErrDamaged, path, err)
	case err != nil:
		return fmt.Errorf("open %s to check it: %w", path, err)
	}
	return errors.Join(readHeads(path), db.Close())
}

func readHeads(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read from
	first, err := readHead(f, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	second, err := readHead(f, first.pageBytes)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if first.transaction != second.transaction+1 && second.transaction != first.transaction+1 {
		return fmt.Errorf("%w: %s: its heads are of transactions %d and %d", ErrDamaged, path, first.transaction, second.transaction)
	}
	newest := first
	if second.transaction > first.transaction {
		newest = second
	}
	if err := checkPages(f, newest); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// head is what one of the two heads says.
type head struct {
	pageBytes   int64
	root, end   uint64 // the page of the outermost bucket, and the first page that was never used
	free        uint64 // the page that lists what is free, or noPage
	transaction uint64
}

// readHead reads the head of the page at offset at.
func readHead(f *os.File, at int64) (head, error) {
	var b [headBytes]byte
	if _, err := f.ReadAt(b[:], at+headOffset); err != nil {
		return head{}, fmt.Errorf("%w: head at %d: %w", ErrDamaged, at, err)
	}
	sum := fnv.New64a()
	_, _ = sum.Write(b[:headBytes-8])
	if binary.LittleEndian.Uint32(b[:]) != headMagic || binary.LittleEndian.Uint64(b[headBytes-8:]) != sum.Sum64() {
		return head{}, fmt.Errorf("%w: the head at %d is damaged", ErrDamaged, at)
	}
	return head{
		pageBytes:   int64(binary.LittleEndian.Uint32(b[8:])),
		root:        binary.LittleEndian.Uint64(b[16:]),
		free:        binary.LittleEndian.Uint64(b[32:]),
		end:         binary.LittleEndian.Uint64(b[40:]),
		transaction: binary.LittleEndian.Uint64(b[48:]),
	}, nil
}
