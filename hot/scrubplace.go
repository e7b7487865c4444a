package hot

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"

	"github.com/varvelog/varve/hot/vfs"
)

// Scrub file (scrub), big-endian: how far the pass over sealed segments has come.
//
//	offset size field
//	     0    4  magic "VSCB"
//	     4    2  version, 1
//	     6    2  0 in the middle of a pass, 1 after it
//	     8    4  CRC-32C of bytes 4 to 7 and of everything from byte 12 on
//	    12    8  when the pass began, wall clock ms
//	    20   16  topic id of the partition that is next
//	    36    4  its number
//	    40    8  the offset from which its segments are still to be checked
//
// A file that is not whole, or is not there, is the beginning of a pass.
const (
	scrubMagic   = "VSCB"
	scrubVersion = 1
	scrubSize    = 48
)

// scrubPlace is how far a pass has come: by partition, and in one by offset.
type scrubPlace struct {
	began int64
	done  bool
	key   journalKey
	from  int64
}

// reached says whether the place is at or before an offset of a partition.
func (p *scrubPlace) reached(k journalKey, offset int64) bool {
	return cmp.Or(compareKeys(p.key, k), cmp.Compare(p.from, offset)) <= 0
}

func compareKeys(a, b journalKey) int {
	return cmp.Or(bytes.Compare(a.id[:], b.id[:]), cmp.Compare(a.index, b.index))
}

func (p *scrubPlace) encode() []byte {
	b := make([]byte, 12, scrubSize)
	copy(b, scrubMagic)
	binary.BigEndian.PutUint16(b[4:], scrubVersion)
	if p.done {
		b[7] = 1
	}
	b = binary.BigEndian.AppendUint64(b, uint64(p.began))
	b = append(b, p.key.id[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(p.key.index))
	b = binary.BigEndian.AppendUint64(b, uint64(p.from))
	binary.BigEndian.PutUint32(b[8:], scrubSum(b))
	return b
}

func scrubSum(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[4:8], castagnoli), castagnoli, b[12:])
}

func decodeScrubPlace(b []byte) (p scrubPlace, err error) {
	if len(b) != scrubSize || string(b[:4]) != scrubMagic || binary.BigEndian.Uint16(b[4:]) != scrubVersion || scrubSum(b) != binary.BigEndian.Uint32(b[8:]) {
		return p, fmt.Errorf("place of the scrubber is not whole: %w", ErrCorrupt)
	}
	p.done = binary.BigEndian.Uint16(b[6:]) == 1
	p.began = int64(binary.BigEndian.Uint64(b[12:]))
	copy(p.key.id[:], b[20:36])
	p.key.index = int32(binary.BigEndian.Uint32(b[36:]))
	p.from = int64(binary.BigEndian.Uint64(b[40:]))
	return p, nil
}

// scrubPlace is where the last start's scrubber has come to.
func (s *Store) scrubPlace() scrubPlace {
	b, err := vfs.ReadFile(s.fs, filepath.Join(s.config.Dir, scrubName), 4096)
	var p scrubPlace
	if err == nil {
		p, err = decodeScrubPlace(b)
	}
	if err != nil && !errors.Is(err, vfs.ErrNotExist) {
		s.logger.Warn("scrubbing begins anew", "err", err)
	}
	return p
}

// saveScrubPlace is for the next start; without it that begins anew.
func (s *Store) saveScrubPlace(p scrubPlace) {
	if err := s.replaceFile(scrubName, p.encode()); err != nil {
		s.logger.Warn("place of the scrubber is not kept", "err", err)
	}
}
