package hot

import (
	"encoding/binary"
	"hash/crc32"
	"io"

	"github.com/varvelog/varve/meta/topic"
)

// The file of the shared log, big-endian. It counts only beside a journal of
// version 2. It is filled with zeros before it is used; the headers take its first
// and its last block (sharedheader.go), a round begins at a block's start.
//
//	offset size field of a round
//	     0    4  CRC-32C of bytes 4..47 and of the entries' heads
//	     4    4  number of entries
//	     8    8  generation
//	    16    8  salt
//	    24    8  sequence: one more than the round's before
//	    32    4  bytes of all entries
//	    36    4  bytes of earlier heads
//	    40    4  CRC-32C of the earlier heads
//	    44    4  reserved, 0
//	    48       heads of the entries, then the bytes of the entries one after the
//	             other, then earlier heads, then zeros up to the next block
//
//	offset size field of an entry's head
//	     0   16  topic id
//	    16    4  partition
//	    20    4  number of bytes; 0: a place that was not needed
//	    24    8  cut, as the journal has it: an entry of an earlier one is void
//	    32    8  base offset of the segment
//	    40    4  position of the bytes in it
//	    44    4  CRC-32C of the bytes
//
// Earlier heads say once more whose the rounds before this one were, the latest
// first: the sequence of the round 8, the number of its heads 4, its heads. The
// round just before is always among them, unless its heads take more than
// sharedOlderMax; others are as far as they fit into the last block. So of a round
// whose heads are damaged it is known what it had.
//
// The salt keeps what producers sent from passing for a round, the generation what
// is left of an earlier one. A round shares no block with the one before, so that
// writing it cannot tear what is durable.
const (
	sharedRoundHead = 48
	sharedEntryHead = 48
	sharedGroupHead = 12
	sharedRoundMax  = 1 << 20  // bytes of entries with their heads
	sharedOlderMax  = 64 << 10 // bytes of earlier heads
)

// sharedEntry is a run of one segment's bytes.
type sharedEntry struct {
	key  journalKey
	cut  uint64
	base int64
	pos  uint32
	size uint32
	sum  uint32 // checksum of the bytes
}

func (e *sharedEntry) put(b []byte) {
	copy(b, e.key.id[:])
	binary.BigEndian.PutUint32(b[16:], uint32(e.key.index))
	binary.BigEndian.PutUint32(b[20:], e.size)
	binary.BigEndian.PutUint64(b[24:], e.cut)
	binary.BigEndian.PutUint64(b[32:], uint64(e.base))
	binary.BigEndian.PutUint32(b[40:], e.pos)
	binary.BigEndian.PutUint32(b[44:], e.sum)
}

func parseSharedEntry(b []byte) sharedEntry {
	u := binary.BigEndian.Uint32
	return sharedEntry{
		key:  keyOf(topic.Partition{ID: topic.ID(b[:16]), Index: int32(u(b[16:]))}),
		size: u(b[20:]), cut: binary.BigEndian.Uint64(b[24:]), base: int64(binary.BigEndian.Uint64(b[32:])),
		pos: u(b[40:]), sum: u(b[44:]),
	}
}

// finishRound completes a round: its head, for which there is room, the heads of n
// entries, the bytes of these and, last, earlier heads.
func (g sharedGeneration) finishRound(b []byte, seq uint64, n, older int) []byte {
	bytes := len(b) - sharedRoundHead - n*sharedEntryHead - older
	u32, u64 := binary.BigEndian.PutUint32, binary.BigEndian.PutUint64
	u32(b[4:], uint32(n))
	u64(b[8:], g.number)
	u64(b[16:], g.salt)
	u64(b[24:], seq)
	u32(b[32:], uint32(bytes))
	u32(b[36:], uint32(older))
	u32(b[40:], crc32.Checksum(b[len(b)-older:], castagnoli))
	u32(b[44:], 0)
	u32(b, crc32.Checksum(b[4:sharedRoundHead+n*sharedEntryHead], castagnoli))
	if over := len(b) % sharedBlock; over > 0 {
		b = append(b, make([]byte, sharedBlock-over)...)
	}
	return b
}

// appendGroup appends heads of a round as a later one has them.
func appendGroup(dst []byte, seq uint64, heads []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, seq)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(heads)/sharedEntryHead))
	return append(dst, heads...)
}

// sharedRound is a round in the file, whose heads are whole.
type sharedRound struct {
	at       int64
	gen, seq uint64
	entries  int64
	bytes    int64
	older    int64
	olderSum uint32
}

func (q *sharedRound) bytesAt() int64 { return q.at + sharedRoundHead + q.entries*sharedEntryHead }
func (q *sharedRound) olderAt() int64 { return q.bytesAt() + q.bytes }

// end is where the next round begins.
func (q *sharedRound) end() int64 {
	return (q.olderAt() + q.older + sharedBlock - 1) / sharedBlock * sharedBlock
}

// sharedReader reads the rounds in a file.
type sharedReader struct {
	f    io.ReaderAt
	lost func(from, to int64) bool // bytes that could not be read, nil when there are none
	size int64
	salt uint64

	broken []int64 // blocks where a round could begin that cannot be read
	heads  []byte
	buf    []byte
}

// scan finds every round of the file's salt.
func (r *sharedReader) scan() (rounds []sharedRound, err error) {
	newest := uint64(0)
	for at := int64(sharedBlock); at < r.size-sharedBlock; {
		q, _, ok, err := r.round(at)
		if err != nil {
			return nil, err
		}
		at += sharedBlock
		if !ok {
			continue
		}
		rounds = append(rounds, q)
		if q.gen >= newest { // what is left of an earlier generation may have been written into
			newest, at = q.gen, q.end()
		}
	}
	return rounds, nil
}

// isLost says whether some of a part of the file could not be read.
func (r *sharedReader) isLost(from, to int64) bool { return r.lost != nil && r.lost(from, to) }

// round reads what comes before the bytes of the round at a position: heads are
// valid until the next call. ok is false when there is none that is whole.
func (r *sharedReader) round(at int64) (q sharedRound, heads []byte, ok bool, err error) {
	var h [sharedRoundHead]byte
	if _, err := r.f.ReadAt(h[:], at); err != nil {
		return q, nil, false, err
	}
	u := binary.BigEndian.Uint32
	if r.isLost(at, at+sharedRoundHead) {
		r.broken = append(r.broken, at)
		return q, nil, false, nil
	}
	if binary.BigEndian.Uint64(h[16:]) != r.salt {
		return q, nil, false, nil
	}
	q = sharedRound{
		at: at, gen: binary.BigEndian.Uint64(h[8:]), seq: binary.BigEndian.Uint64(h[24:]),
		entries: int64(u(h[4:])), bytes: int64(u(h[32:])), older: int64(u(h[36:])), olderSum: u(h[40:]),
	}
	if q.entries*sharedEntryHead > sharedRoundMax || q.bytes > sharedRoundMax || q.older > sharedOlderMax || q.end() > r.size-sharedBlock {
		return q, nil, false, nil
	}
	if heads, err = r.read(&r.heads, at+sharedRoundHead, q.entries*sharedEntryHead); err != nil {
		return q, nil, false, err
	}
	if r.isLost(at, q.bytesAt()) {
		r.broken = append(r.broken, at)
		return q, nil, false, nil
	}
	sum := crc32.Update(crc32.Checksum(h[4:], castagnoli), castagnoli, heads)
	return q, heads, sum == u(h[:]), nil
}

// read reads a part of the file into a buffer that is kept.
func (r *sharedReader) read(buf *[]byte, at, n int64) ([]byte, error) {
	if int64(cap(*buf)) < n {
		*buf = make([]byte, n)
	}
	b := (*buf)[:n]
	if n == 0 {
		return b, nil
	}
	_, err := r.f.ReadAt(b, at)
	return b, err
}

// entries gives a round's entries to visit, with where their bytes are.
func (r *sharedReader) entries(q *sharedRound, visit func(e sharedEntry, at int64) error) error {
	_, heads, ok, err := r.round(q.at)
	if err != nil || !ok {
		return err
	}
	at, end := q.bytesAt(), q.olderAt()
	for ; len(heads) > 0; heads = heads[sharedEntryHead:] {
		e := parseSharedEntry(heads)
		if e.size == 0 {
			continue
		}
		if at+int64(e.size) > end {
			return nil // never written so
		}
		if err := visit(e, at); err != nil {
			return err
		}
		at += int64(e.size)
	}
	return nil
}

// bytes reads an entry's bytes, which are valid until the next call; whole says
// that they are what was written, and lost that they cannot be read.
func (r *sharedReader) bytes(e *sharedEntry, at int64) (b []byte, whole, lost bool, err error) {
	if b, err = r.read(&r.buf, at, int64(e.size)); err != nil {
		return nil, false, false, err
	}
	if r.isLost(at, at+int64(e.size)) {
		return nil, false, true, nil
	}
	return b, crc32.Checksum(b, castagnoli) == e.sum, false, nil
}

// earlier gives the heads that a round has of those before it to visit, entry by
// entry, after told was told of each round.
func (r *sharedReader) earlier(q *sharedRound, told func(seq uint64), visit func(seq uint64, e sharedEntry)) error {
	b, err := r.read(&r.buf, q.olderAt(), q.older)
	if err != nil || r.isLost(q.olderAt(), q.olderAt()+q.older) || crc32.Checksum(b, castagnoli) != q.olderSum {
		return err
	}
	for len(b) >= sharedGroupHead {
		seq, n := binary.BigEndian.Uint64(b), int64(binary.BigEndian.Uint32(b[8:]))
		b = b[sharedGroupHead:]
		if n*sharedEntryHead > int64(len(b)) {
			return nil // never written so
		}
		told(seq)
		for ; n > 0; n-- {
			if e := parseSharedEntry(b); e.size > 0 {
				visit(seq, e)
			}
			b = b[sharedEntryHead:]
		}
	}
	return nil
}
