package hot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/varvelog/varve/meta/topic"
)

// The file of the shared log, big-endian. It counts only beside a journal of
// version 2. It is filled with zeros before it is used; the header takes the
// first block, a round begins at a block's start.
//
//	offset size field of the header
//	     0    8  "VARVESHL"
//	     8    4  version
//	    12    4  state: 0 in use, 1 retired: what follows is void
//	    16    8  generation: rises by one whenever the file is begun anew
//	    24    8  salt: random in every generation
//	    32    8  sequence of the first round
//	    40    4  CRC-32C of bytes 0..39
//
//	offset size field of a round
//	     0    4  CRC-32C of bytes 4..39
//	     4    4  CRC-32C of the entries
//	     8    8  generation
//	    16    8  salt
//	    24    8  sequence: one more than the round's before
//	    32    4  bytes of entries
//	    36    4  number of entries
//	    40       entries, then zeros up to the next block
//
//	offset size field of an entry
//	     0   16  topic id
//	    16    4  partition
//	    20    4  number of bytes
//	    24    8  cut, as the journal has it: an entry of another one is void
//	    32    8  base offset of the segment
//	    40    4  position of the bytes in it
//	    44    4  reserved, 0
//	    48       bytes
//
// The salt keeps what producers sent, or an earlier generation left, from
// passing for a round. A round shares no block with the one before, so that
// writing it cannot tear what is durable.
const (
	sharedMagic      = "VARVESHL"
	sharedVersion    = 1
	sharedBlock      = 4096
	sharedHeaderSize = 44
	sharedRoundHead  = 40
	sharedEntryHead  = 48
	sharedRoundMax   = 1 << 20 // bytes of entries
	sharedBytesMin   = 64 << 10
)

var (
	// errSharedDamage is returned when a round of the shared log is not what
	// was written although a later one is whole.
	errSharedDamage = errors.New("damaged round in the middle of the shared log")

	// errSharedHeader is returned when the header of a file of the shared log
	// is not whole: the file is not in use.
	errSharedHeader = errors.New("file of the shared log has no header")

	// errSharedVersion is returned when a later version wrote the file.
	errSharedVersion = errors.New("unknown version of the shared log")
)

// sharedGeneration is one use of a file.
type sharedGeneration struct {
	number, salt, first uint64
	retired             bool
}

// sharedEntry is a run of one segment's bytes.
type sharedEntry struct {
	key   journalKey
	cut   uint64
	base  int64
	pos   uint32
	bytes []byte
}

func (g sharedGeneration) append(dst []byte) []byte {
	at := len(dst)
	dst = append(dst, sharedMagic...)
	dst = binary.BigEndian.AppendUint32(dst, sharedVersion)
	state := uint32(0)
	if g.retired {
		state = 1
	}
	dst = binary.BigEndian.AppendUint32(dst, state)
	dst = binary.BigEndian.AppendUint64(dst, g.number)
	dst = binary.BigEndian.AppendUint64(dst, g.salt)
	dst = binary.BigEndian.AppendUint64(dst, g.first)
	return binary.BigEndian.AppendUint32(dst, crc32.Checksum(dst[at:], castagnoli))
}

func parseSharedHeader(b []byte) (g sharedGeneration, err error) {
	if len(b) < sharedHeaderSize || string(b[:8]) != sharedMagic ||
		crc32.Checksum(b[:40], castagnoli) != binary.BigEndian.Uint32(b[40:]) {
		return g, errSharedHeader
	}
	if v := binary.BigEndian.Uint32(b[8:]); v != sharedVersion {
		return g, fmt.Errorf("version %d: %w", v, errSharedVersion)
	}
	u := binary.BigEndian.Uint64
	return sharedGeneration{u(b[16:]), u(b[24:]), u(b[32:]), binary.BigEndian.Uint32(b[12:]) != 0}, nil
}

// appendRound appends a round to dst, whole blocks.
func (g sharedGeneration) appendRound(dst []byte, seq uint64, entries []sharedEntry) []byte {
	at := len(dst)
	dst = append(dst, make([]byte, sharedRoundHead)...)
	for i := range entries {
		dst = append(entries[i].appendHead(dst, len(entries[i].bytes)), entries[i].bytes...)
	}
	return g.finishRound(dst, at, seq, len(entries))
}

// finishRound completes the round that begins at a place in dst: room for its
// head and n entries.
func (g sharedGeneration) finishRound(dst []byte, at int, seq uint64, n int) []byte {
	h, body := dst[at:], dst[at+sharedRoundHead:]
	binary.BigEndian.PutUint32(h[4:], crc32.Checksum(body, castagnoli))
	binary.BigEndian.PutUint64(h[8:], g.number)
	binary.BigEndian.PutUint64(h[16:], g.salt)
	binary.BigEndian.PutUint64(h[24:], seq)
	binary.BigEndian.PutUint32(h[32:], uint32(len(body)))
	binary.BigEndian.PutUint32(h[36:], uint32(n))
	binary.BigEndian.PutUint32(h, crc32.Checksum(h[4:sharedRoundHead], castagnoli))
	if over := (len(dst) - at) % sharedBlock; over > 0 {
		dst = append(dst, make([]byte, sharedBlock-over)...)
	}
	return dst
}

// appendHead appends what comes before an entry's bytes.
func (e *sharedEntry) appendHead(dst []byte, size int) []byte {
	dst = append(dst, e.key.id[:]...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(e.key.index))
	dst = binary.BigEndian.AppendUint32(dst, uint32(size))
	dst = binary.BigEndian.AppendUint64(dst, e.cut)
	dst = binary.BigEndian.AppendUint64(dst, uint64(e.base))
	dst = binary.BigEndian.AppendUint32(dst, e.pos)
	return binary.BigEndian.AppendUint32(dst, 0)
}

// sharedReader walks the rounds of one generation.
type sharedReader struct {
	f    io.ReaderAt
	size int64
	g    sharedGeneration
	buf  []byte
}

// walk gives every whole round's entries to visit, in sequence, and returns
// the sequence after the last. The bytes are visit's until it returns. The
// first round that is not whole is the end, unless a later one is.
func (r *sharedReader) walk(visit func(seq uint64, e sharedEntry) error) (next uint64, err error) {
	next = r.g.first
	for at := int64(sharedBlock); at < r.size; {
		body, n, seq, err := r.round(at)
		if err != nil {
			return next, err
		}
		if body == nil || seq != next {
			return next, r.nothingFrom(at, next)
		}
		if err := eachSharedEntry(body, n, func(e sharedEntry) error { return visit(seq, e) }); err != nil {
			return next, err
		}
		next++
		at += (sharedRoundHead + int64(len(body)) + sharedBlock - 1) / sharedBlock * sharedBlock
	}
	return next, nil
}

// nothingFrom looks for a whole round of this generation at or after at.
func (r *sharedReader) nothingFrom(at int64, want uint64) error {
	for p := at; p < r.size; p += sharedBlock {
		body, _, seq, err := r.round(p)
		if err != nil {
			return err
		}
		if body != nil {
			return fmt.Errorf("round %d at %d, round %d at %d is whole: %w", want, at, seq, p, errSharedDamage)
		}
	}
	return nil
}

// round reads the round at a position; body is nil when there is none.
func (r *sharedReader) round(at int64) (body []byte, n uint32, seq uint64, err error) {
	var h [sharedRoundHead]byte
	if r.size-at < sharedRoundHead {
		return nil, 0, 0, nil
	}
	if _, err := r.f.ReadAt(h[:], at); err != nil {
		return nil, 0, 0, err
	}
	if crc32.Checksum(h[4:], castagnoli) != binary.BigEndian.Uint32(h[:]) ||
		binary.BigEndian.Uint64(h[8:]) != r.g.number || binary.BigEndian.Uint64(h[16:]) != r.g.salt {
		return nil, 0, 0, nil
	}
	size := int64(binary.BigEndian.Uint32(h[32:]))
	if size > sharedRoundMax || size > r.size-at-sharedRoundHead {
		return nil, 0, 0, nil
	}
	if int64(cap(r.buf)) < size || r.buf == nil {
		r.buf = make([]byte, size)
	}
	body = r.buf[:size]
	if _, err := r.f.ReadAt(body, at+sharedRoundHead); err != nil && size > 0 {
		return nil, 0, 0, err
	}
	if crc32.Checksum(body, castagnoli) != binary.BigEndian.Uint32(h[4:]) {
		return nil, 0, 0, nil
	}
	return body, binary.BigEndian.Uint32(h[36:]), binary.BigEndian.Uint64(h[24:]), nil
}

// eachSharedEntry takes a round apart. Its checksum holds, so entries that do
// not fit were never written so.
func eachSharedEntry(body []byte, n uint32, visit func(sharedEntry) error) error {
	for ; n > 0; n-- {
		if len(body) < sharedEntryHead {
			return fmt.Errorf("entry of %d bytes: %w", len(body), errSharedDamage)
		}
		size := binary.BigEndian.Uint32(body[20:])
		if int64(size) > int64(len(body)-sharedEntryHead) {
			return fmt.Errorf("entry says %d bytes: %w", size, errSharedDamage)
		}
		e := sharedEntry{
			cut:  binary.BigEndian.Uint64(body[24:]),
			base: int64(binary.BigEndian.Uint64(body[32:])),
			pos:  binary.BigEndian.Uint32(body[40:]),
		}
		e.key = keyOf(topic.Partition{ID: topic.ID(body[:16]), Index: int32(binary.BigEndian.Uint32(body[16:]))})
		e.bytes, body = body[sharedEntryHead:sharedEntryHead+int(size)], body[sharedEntryHead+int(size):]
		if err := visit(e); err != nil {
			return err
		}
	}
	if len(body) > 0 {
		return fmt.Errorf("%d bytes after the last entry: %w", len(body), errSharedDamage)
	}
	return nil
}
