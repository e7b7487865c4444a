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

// checkHeads checks both heads of the log's file and its pages, if there is one, while no
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
	first, err := readHead(f, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	second, err := readHead(f, first.pageBytes)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if first.transaction != second.transaction+1 && second.transaction != first.transaction+1 {
		return fmt.Errorf("%w: %s: its heads are of transactions %d and %d", ErrCorrupt, path, first.transaction, second.transaction)
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
	transaction uint64
}

// readHead reads the head of the page at offset at.
func readHead(f *os.File, at int64) (head, error) {
	var b [headBytes]byte
	if _, err := f.ReadAt(b[:], at+headOffset); err != nil {
		return head{}, fmt.Errorf("%w: head at %d: %w", ErrCorrupt, at, err)
	}
	sum := fnv.New64a()
	_, _ = sum.Write(b[:headBytes-8])
	if binary.LittleEndian.Uint32(b[:]) != headMagic || binary.LittleEndian.Uint64(b[headBytes-8:]) != sum.Sum64() {
		return head{}, fmt.Errorf("%w: the head at %d is damaged", ErrCorrupt, at)
	}
	return head{
		pageBytes:   int64(binary.LittleEndian.Uint32(b[8:])),
		root:        binary.LittleEndian.Uint64(b[16:]),
		end:         binary.LittleEndian.Uint64(b[40:]),
		transaction: binary.LittleEndian.Uint64(b[48:]),
	}, nil
}
