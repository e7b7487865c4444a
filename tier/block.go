package tier

import (
	"sync"
	"sync/atomic"
)

// block is the raw bytes of one chunk, with a count of who uses them: the cache,
// the fill that makes it, each read that has it in its answer. The last one to let
// go gives the memory back, so nobody may touch the bytes after its release. Who
// forgets to release costs the pool a buffer, which the collector then takes.
type block struct {
	b    []byte
	pool *blockPool // nil: not of the pool's size
	refs atomic.Int32
}

// hold adds a user, on behalf of one that is there.
func (b *block) hold() { b.refs.Add(1) }

// release ends one use.
func (b *block) release() {
	switch n := b.refs.Add(-1); {
	case n < 0:
		panic("tier: block released twice")
	case n == 0 && b.pool != nil:
		b.pool.put(b)
	}
}

// blockPool keeps the memory of chunks nobody uses any more for those to come:
// a replay goes round in the same pages instead of taking, clearing and
// collecting fresh ones for each chunk. It serves the usual chunk, which is
// closed within a batch of chunkBytes; what is much smaller or larger is the
// collector's. What it keeps beyond keepMax is too.
type blockPool struct {
	keepMax int

	mu   sync.Mutex // guards the following
	free []*block
}

// poison overwrites the memory of blocks that nobody uses any more, so that a use
// of them shows: for everyone with the race detector, and in this room's tests.
var poison = raceDetector

const (
	blockBytes   = chunkBytes + zstdSlack
	blockLeast   = blockBytes * 3 / 4 // smaller chunks would waste the cache's room
	blocksKept   = 16
	poisonedByte = 0xdb
)

// get returns a block with room for n bytes and what a decoder writes beyond, used
// by the caller. Its bytes are not zero.
func (p *blockPool) get(n int) *block {
	if n > chunkBytes || n < blockLeast {
		b := &block{b: make([]byte, n, n+zstdSlack)}
		b.refs.Store(1)
		return b
	}
	p.mu.Lock()
	var b *block
	if last := len(p.free) - 1; last >= 0 {
		b, p.free[last] = p.free[last], nil
		p.free = p.free[:last]
	}
	p.mu.Unlock()
	if b == nil {
		b = &block{b: make([]byte, blockBytes), pool: p}
	}
	b.b = b.b[:n]
	b.refs.Store(1)
	return b
}

// room returns a block for a chunk's stored bytes. Compressed ones are needed for
// no longer than it takes to unpack them, so it does not matter that they are few.
func (p *blockPool) room(c *chunkInfo) *block {
	n := int(c.stored)
	if c.encoding == encodingRaw {
		return p.get(n)
	}
	b := p.get(max(n, blockLeast))
	b.b = b.b[:n]
	return b
}

func (p *blockPool) put(b *block) {
	if poison && len(b.b) > 0 {
		b.b[0] = poisonedByte
		for n := 1; n < len(b.b); n *= 2 {
			copy(b.b[n:], b.b[:n])
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) < p.keepMax {
		p.free = append(p.free, b)
	}
}
