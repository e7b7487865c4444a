package batch

// Limits bounds what inflating one compressed batch may produce. The zero
// value means the defaults.
type Limits struct {
	// MaxBytes is the most bytes a single record may have
	// (max.decompressed.message.bytes); 0 means 2147483639.
	MaxBytes int64
	// MaxRatio is the most the records of a batch may inflate to together, as
	// a multiple of their compressed length; 0 means 1000. It never cuts
	// below RatioFloor.
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

func (l Limits) maxBytes() int64 {
	if l.MaxBytes <= 0 {
		return DefaultMaxBytes
	}
	return l.MaxBytes
}

func (l Limits) maxRatio() int64 {
	if l.MaxRatio <= 0 {
		return DefaultMaxRatio
	}
	return l.MaxRatio
}

// inflatedMax is the most bytes that so many compressed ones may inflate to.
func (l Limits) inflatedMax(compressed int) int64 {
	ratio := min(l.maxRatio(), 1<<31) // a length is below 2^31: no overflow
	return max(RatioFloor, int64(compressed)*ratio)
}
