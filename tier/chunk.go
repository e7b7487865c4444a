package tier

import (
	"fmt"
	"io"
	"net"

	"github.com/varvelog/varve/hot/batch"
)

// Chunk is what a read returned: verbatim batches, checked. Its memory is
// shared with the cache and must not be written to.
type Chunk struct {
	parts [][]byte
	n     int
	start int64
	next  int64
}

// Len is the number of bytes.
func (c *Chunk) Len() int { return c.n }

// StartOffset is the first batch's base offset, at or below the offset asked for.
func (c *Chunk) StartOffset() int64 { return c.start }

// NextOffset is the offset after the last batch: where a sequential reader goes on.
func (c *Chunk) NextOffset() int64 { return c.next }

// Parts are the bytes in order, without a copy.
func (c *Chunk) Parts() [][]byte { return c.parts }

// Bytes are the bytes in one slice, copied only when there are several parts.
func (c *Chunk) Bytes() []byte {
	if len(c.parts) == 1 {
		return c.parts[0]
	}
	b := make([]byte, 0, c.n)
	for _, p := range c.parts {
		b = append(b, p...)
	}
	return b
}

// WriteTo writes the bytes to w, in one writev when w is a TCP connection.
func (c *Chunk) WriteTo(w io.Writer) (int64, error) {
	buffers := append(net.Buffers(nil), c.parts...)
	return buffers.WriteTo(w)
}

// Release ends the caller's use of the bytes.
func (c *Chunk) Release() { c.parts, c.n = nil, 0 }

// readSummed fills b from r and returns the CRC-32C, computed while the bytes are
// still in the processor's cache.
func readSummed(r io.Reader, b []byte) (uint32, error) {
	const piece = 128 << 10
	var sum uint32
	for len(b) > 0 {
		n := min(piece, len(b))
		if _, err := io.ReadFull(r, b[:n]); err != nil {
			return 0, err
		}
		sum = crc32cUpdate(sum, b[:n])
		b = b[n:]
	}
	return sum, nil
}

// zstdSlack is how many bytes more than a chunk has the decoder is given: with
// them it copies in large steps to the end.
const zstdSlack = 32

// decodeChunk checks the stored bytes of a chunk, whose CRC-32C is sum, unpacks
// them and checks every batch: framing, order and CRC. The result may alias
// stored.
func (a *Archive) decodeChunk(c *chunkInfo, end int64, stored []byte, sum uint32) ([]byte, error) {
	if len(stored) != int(c.stored) || sum != c.crc {
		return nil, corrupt("chunk at offset %d: CRC is %08x, index has %08x", c.base, sum, c.crc)
	}
	raw := stored
	if c.encoding == encodingZstd {
		var err error
		if raw, err = a.decoder.DecodeAll(stored, make([]byte, 0, int(c.raw)+zstdSlack)); err != nil {
			return nil, corrupt("chunk at offset %d: %v", c.base, err)
		}
	}
	if len(raw) != int(c.raw) {
		return nil, corrupt("chunk at offset %d has %d raw bytes, index has %d", c.base, len(raw), c.raw)
	}
	next := c.base
	for rest := raw; len(rest) > 0; {
		b, after, err := batch.Next(rest)
		if err != nil {
			return nil, corrupt("chunk at offset %d: %v", c.base, err)
		}
		if b.BaseOffset() < next || (next == c.base && b.BaseOffset() != next) || b.LastOffsetDelta() < 0 || b.NextOffset() > end {
			return nil, corrupt("chunk at offset %d: batch [%d, %d) where %d is next", c.base, b.BaseOffset(), b.NextOffset(), next)
		}
		if err := b.VerifyCRC(); err != nil {
			return nil, corrupt("chunk at offset %d: %v", c.base, err)
		}
		next, rest = b.NextOffset(), after
	}
	if next == c.base {
		return nil, corrupt("chunk at offset %d is empty", c.base)
	}
	return raw, nil
}

// cutBatches takes whole batches from raw: from the first one that ends above offset,
// as far as they fit maxBytes, none that ends above upper. The first is taken
// whatever its size when minOne is set.
func cutBatches(raw []byte, offset int64, maxBytes int, upper int64, minOne bool) (part []byte, start, next int64, more bool) {
	from, to := -1, 0
	pos := 0
	for rest := raw; len(rest) > 0; {
		b, after, err := batch.Next(rest)
		if err != nil {
			panic(fmt.Sprintf("tier: checked chunk does not frame: %v", err))
		}
		size := len(b)
		if from < 0 && b.NextOffset() <= offset {
			pos, rest = pos+size, after
			continue
		}
		if b.NextOffset() > upper {
			return slice(raw, from, to), start, next, false
		}
		if from < 0 {
			if size > maxBytes && !minOne {
				return nil, 0, 0, false
			}
			from, start = pos, b.BaseOffset()
		} else if pos+size-from > maxBytes {
			return slice(raw, from, to), start, next, false
		}
		pos, rest = pos+size, after
		to, next = pos, b.NextOffset()
	}
	return slice(raw, from, to), start, next, true
}

func slice(raw []byte, from, to int) []byte {
	if from < 0 {
		return nil
	}
	return raw[from:to:to]
}
