package tier

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/klauspost/compress/zstd"
)

// objectBody is an upload body that takes no disk space, whatever the object's
// size: an upload is what makes room on a full disk, so it must not need any.
//
// Compressed chunks are kept in memory as long as the archive's budget for that
// lasts. The others are made a second time from the local segment when they are
// sent, and so are all chunks that are stored as they are, which costs a read from
// the page cache. Every chunk that is made again is compared with the checksum
// from the first time.
type objectBody struct {
	name    string // of the segment
	src     io.ReaderAt
	closer  io.Closer
	encoder *zstd.Encoder
	budget  *byteBudget
	pieces  []piece // contiguous, in order
	size    int64
	held    int64 // bytes taken from the budget
	closed  sync.Once

	mu     sync.Mutex // guards the following, and nothing else: it is held while a chunk is made
	raw    []byte     // scratch
	packed []byte     // scratch
	made   int        // the piece that ready holds, −1 none
	ready  []byte
}

// piece is a run of the object's bytes.
type piece struct {
	at, n int64
	kept  []byte // the bytes, or nil when they are to be made:
	from  int64  // from here in the segment
	raw   int64  // so many bytes,
	zstd  bool   // compressed or as they are
	crc   uint32
}

func (b *objectBody) add(p piece) {
	p.at = b.size
	b.size += p.n
	b.pieces = append(b.pieces, p)
}

// keep adds bytes that stay in memory, copied.
func (b *objectBody) keep(data []byte) {
	b.add(piece{n: int64(len(data)), kept: append([]byte(nil), data...)})
}

// Size implements objstore.Body.
func (b *objectBody) Size() int64 { return b.size }

// ReadAt implements objstore.Body.
func (b *objectBody) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off >= b.size {
		return 0, io.EOF
	}
	i := b.find(off)
	done := 0
	for done < len(p) && i < len(b.pieces) {
		n, err := b.readPiece(i, p[done:], off+int64(done)-b.pieces[i].at)
		done += n
		if err != nil {
			return done, err
		}
		i++
	}
	if done < len(p) {
		return done, io.EOF
	}
	return done, nil
}

// find is the index of the piece that holds off.
func (b *objectBody) find(off int64) int {
	lo, hi := 0, len(b.pieces)-1
	for lo < hi {
		mid := (lo + hi + 1) / 2
		if b.pieces[mid].at <= off {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	return lo
}

func (b *objectBody) readPiece(i int, p []byte, skip int64) (int, error) {
	if kept := b.pieces[i].kept; kept != nil {
		return copy(p, kept[skip:]), nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.made != i {
		if err := b.makeLocked(i); err != nil {
			return 0, err
		}
	}
	return copy(p, b.ready[skip:]), nil
}

// makeLocked makes a chunk's stored bytes again.
func (b *objectBody) makeLocked(i int) error {
	pc := &b.pieces[i]
	b.made = -1
	if int64(cap(b.raw)) < pc.raw {
		b.raw = make([]byte, pc.raw)
	}
	b.raw = b.raw[:pc.raw]
	if _, err := io.ReadFull(io.NewSectionReader(b.src, pc.from, pc.raw), b.raw); err != nil {
		return fmt.Errorf("read %s again at %d: %w", b.name, pc.from, err)
	}
	b.ready = b.raw
	if pc.zstd {
		b.packed = b.encoder.EncodeAll(b.raw, b.packed[:0])
		b.ready = b.packed
	}
	if int64(len(b.ready)) != pc.n || crc32c(b.ready) != pc.crc {
		return &CorruptError{Key: b.name, Offset: pc.from, Reason: "reads otherwise than a moment ago"}
	}
	b.made = i
	return nil
}

func (b *objectBody) close() error {
	var err error
	b.closed.Do(func() {
		b.budget.give(b.held)
		err = b.closer.Close()
	})
	return err
}

// byteBudget is memory that several may share.
type byteBudget struct {
	limit int64
	used  atomic.Int64
}

// take reserves n bytes, or nothing.
func (b *byteBudget) take(n int64) bool {
	if b.used.Add(n) > b.limit {
		b.used.Add(-n)
		return false
	}
	return true
}

func (b *byteBudget) give(n int64) { b.used.Add(-n) }
