package batch

import (
	"fmt"
	"strings"
)

// Codec is a compression codec, numbered as in the attribute bits. Format: do
// not renumber.
type Codec int8

// The codecs of record batches.
const (
	None   Codec = 0
	Gzip   Codec = 1
	Snappy Codec = 2
	LZ4    Codec = 3
	Zstd   Codec = 4
)

// AsProduced as ValidateOptions.Compression keeps whatever codec the producer
// chose (compression.type=producer).
const AsProduced Codec = -1

// Valid reports whether c is an assigned codec.
func (c Codec) Valid() bool { return c >= None && c <= Zstd }

// String is the codec's name as compression.type spells it.
func (c Codec) String() string {
	switch c {
	case AsProduced:
		return "producer"
	case None:
		return "uncompressed"
	case Gzip:
		return "gzip"
	case Snappy:
		return "snappy"
	case LZ4:
		return "lz4"
	case Zstd:
		return "zstd"
	}
	return fmt.Sprintf("codec(%d)", int8(c))
}

// ParseCodec reads a compression.type, in any case; "none" is an alias of
// "uncompressed".
func ParseCodec(name string) (Codec, error) {
	for c := AsProduced; c <= Zstd; c++ {
		if strings.EqualFold(name, c.String()) {
			return c, nil
		}
	}
	if strings.EqualFold(name, "none") {
		return None, nil
	}
	return None, fmt.Errorf("compression %q: %w", name, ErrUnsupportedCompression)
}
