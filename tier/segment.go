package tier

import (
	"io"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/lineage"
)

// Segment is a sealed local segment, as the tiering side needs to see it. Its
// bytes never change while a caller holds it.
type Segment interface {
	BaseOffset() int64
	EndOffset() int64 // exclusive
	SizeBytes() int64
	MaxTimestamp() int64 // over data batches, -1 when none has one
	Modified() int64     // wall clock ms of the last write to it
	// Open returns the segment's bytes, a plain run of batches. What it returns is
	// an io.ReaderAt too, and stays readable when the segment is deleted meanwhile.
	Open() (io.ReadCloser, error)
	// AbortedTxns returns the aborted transactions whose markers lie in the segment.
	AbortedTxns() ([]batch.AbortedTxn, error)
	// ProducerSnapshot returns the producer state at EndOffset, opaque to tier.
	ProducerSnapshot() ([]byte, error)
	// ProducersAt returns the producer state at an offset within the segment, opaque
	// to tier.
	ProducersAt(offset int64) ([]byte, error)
	// Suspect says that what Open returned is not what was written. The log looks
	// for itself, and offers the segment again when it is whole.
	Suspect() error
	// Lineage returns the leader epochs of the segment's own offsets.
	Lineage() lineage.Chain
}

// SegmentID names one object of a partition. It is never reused.
type SegmentID struct {
	Base   int64
	Epoch  int32 // leader epoch of the upload
	Random uint64
}

// RemoteSegment is one committed segment of the archive.
type RemoteSegment struct {
	ID           SegmentID
	End          int64 // exclusive; the base is ID.Base
	RawBytes     int64 // sum of the batches
	StoredBytes  int64 // size of the object
	MinTimestamp int64 // over data batches; NoTimestamp when there is none
	MaxTimestamp int64 // over data batches; NoTimestamp when there is none
	Created      int64 // upload time, ms, cut to the second
	HasAborted   bool  // the object has a transaction index with entries
	ObjectCRC    uint32

	lookupAt    int64 // where the object's lookup region starts
	lookupBytes int64
}

// NoTimestamp stands for "no data record here".
const NoTimestamp = -1 << 63

// TimeOffset is the answer of a time lookup.
type TimeOffset struct {
	Offset    int64
	Timestamp int64
	Epoch     int32
}
