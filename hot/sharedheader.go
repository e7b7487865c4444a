package hot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// The header of the shared log's file, big-endian, stands in the first block of
// the file and in the last. One that is written goes to where the older of the two
// is, so that neither a torn write nor a bad block takes both; the one with the
// higher serial counts.
//
//	offset size field
//	     0    8  "VARVESHL"
//	     8    4  version
//	    12    4  state: 0 in use, 1 retired: what follows is void
//	    16    8  generation: rises by one whenever the file is begun anew
//	    24    8  salt: random, the same as long as there is the file
//	    32    8  sequence of the generation's first round
//	    40    4  CRC-32C of bytes 0..39
//	    44    8  serial: rises by one with every header; even ones are in the
//	             first block, odd ones in the last
//	    52    4  edition of the journal
//	    56    8  bytes of that edition that are durable: a journal that has fewer
//	             has lost its end
//	    64    4  CRC-32C of bytes 44..63
//
// The older header is good enough when the newer one is damaged: rounds of a later
// generation than its own say that there was one, and without any all that its
// generation has is synced in place.
const (
	sharedMagic      = "VARVESHL"
	sharedVersion    = 2
	sharedBlock      = 4096
	sharedHeaderSize = 68
	sharedBytesMin   = 64 << 10
)

var (
	// errSharedHeader is returned when neither header of a file of the shared log
	// is whole.
	errSharedHeader = errors.New("file of the shared log has no header")

	// errSharedVersion is returned when another version wrote the file.
	errSharedVersion = errors.New("unknown version of the shared log; the one that wrote it voids it when it closes cleanly")

	// errSharedOlder is returned with errSharedVersion when an earlier version
	// wrote a header.
	errSharedOlder = errors.New("older shared log")
)

// sharedGeneration is one use of a file.
type sharedGeneration struct {
	number, salt, first uint64
	retired             bool
	serial              uint64
	mark                journalMark
}

// journalMark is how much of the journal was durable at some time. What makes
// bytes of a log wrong that the shared log has is in the journal first, durably, and
// the shared log has a mark beyond that before the bytes change. So a journal that
// reaches the mark tells of everything that is void, and of one that does not
// nobody knows.
type journalMark struct {
	edition uint32
	length  int64
}

// before says whether a later mark makes m needless.
func (m journalMark) before(o journalMark) bool {
	return m.edition < o.edition || m.edition == o.edition && m.length < o.length
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
	dst = binary.BigEndian.AppendUint32(dst, crc32.Checksum(dst[at:], castagnoli))
	dst = binary.BigEndian.AppendUint64(dst, g.serial)
	dst = binary.BigEndian.AppendUint32(dst, g.mark.edition)
	dst = binary.BigEndian.AppendUint64(dst, uint64(g.mark.length))
	return binary.BigEndian.AppendUint32(dst, crc32.Checksum(dst[at+44:], castagnoli))
}

func parseSharedHeader(b []byte) (g sharedGeneration, err error) {
	u := func(at int) uint64 { return binary.BigEndian.Uint64(b[at:]) }
	if len(b) < sharedHeaderSize || string(b[:8]) != sharedMagic ||
		crc32.Checksum(b[:40], castagnoli) != binary.BigEndian.Uint32(b[40:]) {
		return g, errSharedHeader
	}
	if v := binary.BigEndian.Uint32(b[8:]); v != sharedVersion {
		err := fmt.Errorf("version %d: %w", v, errSharedVersion)
		if v < sharedVersion {
			err = fmt.Errorf("%w: %w", errSharedOlder, err)
		}
		return g, err
	}
	if crc32.Checksum(b[44:64], castagnoli) != binary.BigEndian.Uint32(b[64:]) {
		return g, errSharedHeader
	}
	return sharedGeneration{
		number: u(16), salt: u(24), first: u(32), retired: binary.BigEndian.Uint32(b[12:]) != 0,
		serial: u(44), mark: journalMark{binary.BigEndian.Uint32(b[52:]), int64(u(56))},
	}, nil
}

// place is where a header goes in a file of some size.
func (g sharedGeneration) place(size int64) int64 {
	if g.serial%2 == 0 {
		return 0
	}
	return size - sharedBlock
}

// readSharedHeader reads the header that counts. One of an older version beside
// one of ours is of before the file was taken over.
func readSharedHeader(f io.ReaderAt, size int64) (g sharedGeneration, err error) {
	if size < 3*sharedBlock {
		return g, errSharedHeader
	}
	found, none := false, errSharedHeader
	for _, at := range []int64{0, size - sharedBlock} {
		var b [sharedHeaderSize]byte
		if _, err := f.ReadAt(b[:], at); err != nil {
			return g, fmt.Errorf("read header: %w", err)
		}
		one, err := parseSharedHeader(b[:])
		switch {
		case errors.Is(err, errSharedOlder):
			none = err
		case errors.Is(err, errSharedVersion):
			return g, err
		case err == nil && (!found || one.serial > g.serial):
			g, found = one, true
		}
	}
	if !found {
		return g, none
	}
	return g, nil
}
