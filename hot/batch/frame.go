package batch

import "fmt"

// PeekHeader checks and returns the header of the first batch in b, for
// scanners that skip bodies: b need not hold more than HeaderSize bytes. The
// result is HeaderSize long; SizeBytes says how far away the next one is. It
// returns ErrShort or a *CorruptError.
func PeekHeader(b []byte) (Batch, error) {
	if len(b) < HeaderSize {
		return nil, ErrShort
	}
	h := Batch(b[:HeaderSize:HeaderSize])
	if h.Magic() != Magic {
		return nil, &CorruptError{BaseOffset: h.BaseOffset(), Reason: fmt.Sprintf("magic %d, want %d", h.Magic(), Magic), Err: ErrUnsupportedVersion}
	}
	if h.length() < HeaderSize-lengthPrefixSize {
		return nil, &CorruptError{BaseOffset: h.BaseOffset(), Reason: fmt.Sprintf("length %d is below the header's own", h.length())}
	}
	return h, nil
}

// Next frames the first batch of b and returns it with the bytes that follow.
// It checks magic and length, not the CRC. It returns ErrShort when b ends
// inside the batch (an empty b included), or a *CorruptError.
func Next(b []byte) (Batch, []byte, error) {
	h, err := PeekHeader(b)
	if err != nil {
		return nil, b, err
	}
	size := h.SizeBytes()
	if size > len(b) {
		return nil, b, ErrShort
	}
	return Batch(b[:size:size]), b[size:], nil
}

// VerifyCRC compares the checksum with the bytes and returns a *CorruptError
// when they differ.
func (b Batch) VerifyCRC() error {
	if got := b.computeCRC(); got != b.CRC() {
		return &CorruptError{BaseOffset: b.BaseOffset(), Reason: fmt.Sprintf("CRC is %08x, stored %08x", got, b.CRC())}
	}
	return nil
}

// AbortedTxn is one aborted transaction as fetch answers and segments list it:
// records of ProducerID from FirstOffset to LastOffset are void. LastStable is
// the last stable offset of the partition once the marker was written.
type AbortedTxn struct {
	ProducerID, FirstOffset, LastOffset, LastStable int64
}
