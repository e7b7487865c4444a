package batch

import (
	"encoding/binary"
	"errors"
	"io"

	"github.com/klauspost/compress/snappy"
)

// Snappy in Kafka is xerial's framing around raw blocks, which Java's client
// writes, or one bare raw block, which some others write; both are read:
//
//	0   8  magic 82 'S' 'N' 'A' 'P' 'P' 'Y' 00
//	8   4  version, 1
//	12  4  oldest compatible version, 1
//	16  …  blocks: 4 bytes length, that many bytes of raw snappy
//
// Batches built here use the framing with blocks of 32 KiB, as Java does.
var xerialHeader = [16]byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1}

const (
	xerialMagicSize = 8
	xerialBlock     = 32 << 10
	// A raw block's densest element is three bytes that copy 64.
	snappyExpansion = 64 / 3
	// snappyKeep is the largest block buffer in bytes a pooled reader keeps.
	snappyKeep = 256 << 10
)

var (
	errSnappyBlock  = errors.New("snappy block is cut short")
	errSnappyLength = errors.New("snappy block declares a length it cannot have")
)

// snappyReader yields the inflated blocks of a snappy run.
type snappyReader struct {
	in     []byte
	framed bool
	raw    bool // in is one bare block, not read yet
	out    []byte
	block  []byte // reused for inflated blocks
}

func (s *snappyReader) reset(in []byte) {
	s.in, s.out = in, nil
	if cap(s.block) > snappyKeep {
		s.block = nil
	}
	s.framed = len(in) >= len(xerialHeader) && string(in[:xerialMagicSize]) == string(xerialHeader[:xerialMagicSize])
	s.raw = !s.framed && len(in) > 0
	if s.framed {
		s.in = in[len(xerialHeader):]
	}
}

func (s *snappyReader) Read(p []byte) (int, error) {
	for len(s.out) == 0 {
		if len(s.in) == 0 {
			return 0, io.EOF
		}
		if err := s.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, s.out)
	s.out = s.out[n:]
	return n, nil
}

func (s *snappyReader) next() error {
	var block []byte
	if s.raw {
		block, s.in, s.raw = s.in, nil, false
	} else {
		if len(s.in) < 4 {
			return errSnappyBlock
		}
		size := binary.BigEndian.Uint32(s.in)
		if uint64(size) > uint64(len(s.in)-4) {
			return errSnappyBlock
		}
		block, s.in = s.in[4:4+size], s.in[4+size:]
		if size == 0 {
			return nil
		}
	}
	n, err := snappy.DecodedLen(block)
	if err != nil {
		return err
	}
	if n > len(block)*(snappyExpansion+1) {
		return errSnappyLength
	}
	if cap(s.block) < n {
		s.block = make([]byte, n)
	}
	s.out, err = snappy.Decode(s.block[:n], block)
	return err
}

// snappyWriter frames what is written to it into blocks.
type snappyWriter struct {
	w       io.Writer
	begun   bool
	pending []byte
	block   []byte
}

func (s *snappyWriter) reset(w io.Writer) {
	s.w, s.begun, s.pending = w, false, s.pending[:0]
}

func (s *snappyWriter) Write(p []byte) (int, error) {
	total := len(p)
	for len(p) > 0 {
		n := min(len(p), xerialBlock-len(s.pending))
		s.pending = append(s.pending, p[:n]...)
		p = p[n:]
		if len(s.pending) == xerialBlock {
			if err := s.flush(); err != nil {
				return 0, err
			}
		}
	}
	return total, nil
}

func (s *snappyWriter) flush() error {
	if !s.begun {
		s.begun = true
		if _, err := s.w.Write(xerialHeader[:]); err != nil {
			return err
		}
	}
	if len(s.pending) == 0 {
		return nil
	}
	if need := 4 + snappy.MaxEncodedLen(len(s.pending)); cap(s.block) < need {
		s.block = make([]byte, need)
	}
	body := snappy.Encode(s.block[4:cap(s.block)], s.pending)
	binary.BigEndian.PutUint32(s.block[:4], uint32(len(body)))
	s.pending = s.pending[:0]
	_, err := s.w.Write(s.block[:4+len(body)])
	return err
}

func (s *snappyWriter) Close() error { return s.flush() }
