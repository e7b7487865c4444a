package batch

// Limits bounds what inflating one batch may produce. The zero value means
// the defaults.
type Limits struct {
	// MaxBytes is the most bytes a batch's records may inflate to
	// (max.decompressed.message.bytes); 0 means 2147483639.
	MaxBytes int64
	// MaxRatio is the most a batch may inflate to, as a multiple of its
	// compressed length; 0 means 1000. It never cuts below RatioFloor.
	MaxRatio int64
}

const (
	// DefaultMaxBytes is Kafka's default of max.decompressed.message.bytes.
	DefaultMaxBytes int64 = 2147483639
	// DefaultMaxRatio lets through every honest batch seen so far: codecs
	// reach four digits only on runs of one byte.
	DefaultMaxRatio int64 = 1000
	// RatioFloor is the inflated length in bytes below which the ratio is not
	// looked at: a small batch of zeros is honest.
	RatioFloor int64 = 16 << 20
	// zstdWindowMax is the most history in bytes a zstd decoder keeps. The
	// format's own recommendation, and what levels up to 19 use.
	zstdWindowMax = 8 << 20
)

// bytesMax is the most bytes that compressed ones may inflate to.
func (l Limits) bytesMax(compressed int) int64 {
	most := l.MaxBytes
	if most <= 0 {
		most = DefaultMaxBytes
	}
	ratio := l.MaxRatio
	if ratio <= 0 {
		ratio = DefaultMaxRatio
	}
	byRatio := RatioFloor
	if int64(compressed) > RatioFloor/ratio {
		byRatio = int64(compressed) * ratio // compressed < 2^31 and ratio sane: no overflow
	}
	if ratio > 1<<32 {
		byRatio = most
	}
	return min(most, byRatio)
}
