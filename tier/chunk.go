package tier

import (
	"fmt"
	"io"
	"net"

	"github.com/varvelog/varve/hot/batch"
)

// Chunk is what a read returned: verbatim batches, checked. Its memory is
// shared with the cache: it must not be written to, and not be read any more
// after Release, when it is used for other chunks.
type Chunk struct {
	parts  [][]byte
	blocks []*block // that the parts lie in, each held once
	n      int
	start  int64
	next   int64

	// Most reads have few parts.
	partsIn  [6][]byte
	blocksIn [6]*block
}

// newChunk is an empty one for a read at offset.
func newChunk(offset int64) *Chunk {
	c := &Chunk{start: offset, next: offset}
	c.parts, c.blocks = c.partsIn[:0], c.blocksIn[:0]
	return c
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

// Release ends the caller's use of the bytes. Calling it again does nothing.
func (c *Chunk) Release() {
	for _, b := range c.blocks {
		b.release()
	}
	c.parts, c.blocks, c.n = nil, nil, 0
	c.partsIn, c.blocksIn = [6][]byte{}, [6]*block{}
}

// take appends what fits of a chunk's batches; false when nothing after them can.
// The caller's use of b becomes c's.
func (c *Chunk) take(b *block, maxBytes int, upper int64) bool {
	part, start, next, more := cutBatches(b.b, c.next, maxBytes-c.n, upper, c.n == 0)
	if len(part) == 0 {
		b.release()
		return c.n == 0 && more
	}
	if c.n == 0 {
		c.start = start
	}
	c.parts = append(c.parts, part)
	c.blocks = append(c.blocks, b)
	c.n += len(part)
	c.next = next
	return more && c.n < maxBytes
}

// zstdSlack is how many bytes more than a chunk has the decoder is given: with
// them it copies in large steps to the end.
const zstdSlack = 32

// decodeChunk checks the stored bytes of a chunk, unpacks them and checks every
// batch: framing, order and CRC. The result is stored itself, which the caller
// hands over, or else a block of its own.
func (a *Archive) decodeChunk(c *chunkInfo, end int64, stored *block) (*block, error) {
	if len(stored.b) != int(c.stored) {
		return nil, corrupt("chunk at offset %d has %d bytes, index has %d", c.base, len(stored.b), c.stored)
	}
	if c.encoding == encodingRaw {
		if c.raw != c.stored {
			return nil, corrupt("chunk at offset %d has %d raw bytes, index has %d", c.base, c.stored, c.raw)
		}
		sum, err := checkBatches(c.base, end, stored.b)
		if err == nil && sum != c.crc {
			err = corrupt("chunk at offset %d: CRC is %08x, index has %08x", c.base, sum, c.crc)
		}
		return stored, err
	}
	if sum := crc32c(stored.b); sum != c.crc {
		return nil, corrupt("chunk at offset %d: CRC is %08x, index has %08x", c.base, sum, c.crc)
	}
	raw := a.reader.blocks.get(int(c.raw))
	unpacked, err := a.decoder.DecodeAll(stored.b, raw.b[:0:int(c.raw)+zstdSlack])
	switch {
	case err != nil:
		err = corrupt("chunk at offset %d: %v", c.base, err)
	case len(unpacked) != int(c.raw):
		err = corrupt("chunk at offset %d has %d raw bytes, index has %d", c.base, len(unpacked), c.raw)
	default:
		_, err = checkBatches(c.base, end, unpacked)
	}
	if err != nil {
		raw.release()
		return nil, err
	}
	return raw, nil
}

// checkBatches checks the batches of a chunk that begins with offset base, and
// returns the CRC-32C of all of their bytes. The bytes are gone over once: the
// checksum of the whole is put together from those of the batches.
func checkBatches(base, end int64, raw []byte) (sum uint32, err error) {
	next := base
	for rest := raw; len(rest) > 0; {
		b, after, err := batch.Next(rest)
		if err != nil {
			return 0, corrupt("chunk at offset %d: %v", base, err)
		}
		if b.BaseOffset() < next || (next == base && b.BaseOffset() != next) || b.LastOffsetDelta() < 0 || b.NextOffset() > end {
			return 0, corrupt("chunk at offset %d: batch [%d, %d) where %d is next", base, b.BaseOffset(), b.NextOffset(), next)
		}
		if err := b.VerifyCRC(); err != nil {
			return 0, corrupt("chunk at offset %d: %v", base, err)
		}
		if len(b) < joinLeast {
			sum = crc32cUpdate(sum, b)
		} else {
			sum = joinCRC(crc32cUpdate(sum, b[:batch.ChecksumFrom]), b.CRC(), len(b)-batch.ChecksumFrom)
		}
		next, rest = b.NextOffset(), after
	}
	if next == base {
		return 0, corrupt("chunk at offset %d is empty", base)
	}
	return sum, nil
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
