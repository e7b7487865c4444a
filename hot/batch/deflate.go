package batch

import (
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Compression levels as the compression.*.level settings number them; 0 asks
// for the codec's default.
const (
	DefaultGzipLevel = -1
	DefaultLZ4Level  = 9
	DefaultZstdLevel = 3
)

// deflater is a reusable encoder of one codec and level.
type deflater interface {
	io.WriteCloser
	resetTo(w io.Writer)
}

type gzipDeflater struct{ *gzip.Writer }
type lz4Deflater struct{ *lz4.Writer }
type zstdDeflater struct{ *zstd.Encoder }
type snappyDeflater struct{ *snappyWriter }

func (d gzipDeflater) resetTo(w io.Writer)   { d.Reset(w) }
func (d lz4Deflater) resetTo(w io.Writer)    { d.Reset(w) }
func (d zstdDeflater) resetTo(w io.Writer)   { d.Reset(w) }
func (d snappyDeflater) resetTo(w io.Writer) { d.reset(w) }

type deflaterKey struct {
	codec Codec
	level int
}

// deflaters holds a *sync.Pool per deflaterKey. Levels are clamped first, so
// that it stays small.
var deflaters sync.Map

// openDeflater returns an encoder from its pool, and the pool to give it back
// to once closed.
func openDeflater(c Codec, level int, w io.Writer) (deflater, *sync.Pool, error) {
	key := deflaterKey{c, clampLevel(c, level)}
	p, ok := deflaters.Load(key)
	if !ok {
		p, _ = deflaters.LoadOrStore(key, new(sync.Pool))
	}
	pool := p.(*sync.Pool)
	d, _ := pool.Get().(deflater)
	if d == nil {
		var err error
		if d, err = newDeflater(key); err != nil {
			return nil, nil, err
		}
	}
	d.resetTo(w)
	return d, pool, nil
}

// clampLevel maps a level to the one the encoder distinguishes.
func clampLevel(c Codec, level int) int {
	switch c {
	case Gzip:
		if level == 0 {
			return DefaultGzipLevel
		}
		return min(max(level, -1), 9)
	case LZ4:
		// Kafka's default means the fast encoder, others the thorough one.
		if level == 0 || level == DefaultLZ4Level {
			return 0
		}
		return min(max(level, 1), 9)
	case Zstd:
		if level == 0 {
			level = DefaultZstdLevel
		}
		return int(zstd.EncoderLevelFromZstd(level))
	}
	return 0
}

func newDeflater(key deflaterKey) (deflater, error) {
	switch key.codec {
	case Gzip:
		w, err := gzip.NewWriterLevel(nil, key.level)
		return gzipDeflater{w}, err
	case Snappy:
		return snappyDeflater{new(snappyWriter)}, nil
	case LZ4:
		w := lz4.NewWriter(nil)
		level := lz4.Fast
		if key.level > 0 {
			level = lz4.Level1 << (key.level - 1)
		}
		err := w.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.CompressionLevelOption(level), lz4.ChecksumOption(false))
		return lz4Deflater{w}, err
	case Zstd:
		w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true),
			zstd.WithWindowSize(1<<20), zstd.WithEncoderCRC(false),
			zstd.WithEncoderLevel(zstd.EncoderLevel(key.level)))
		return zstdDeflater{w}, err
	}
	return nil, fmt.Errorf("%s: %w", key.codec, ErrUnsupportedCompression)
}
