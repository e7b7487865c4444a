package isr

import "github.com/varvelog/varve/hot/lineage"

// View is one consistent look at a replica's log.
type View struct {
	// LogStart is the first offset of the partition, LocalStart the first of the local log.
	LogStart, LocalStart int64
	End                  int64
	// Counted is the end that may count as progress: the durable end with varve.durability=fsync, the end otherwise (29).
	Counted       int64
	HighWatermark int64
	Lineage       lineage.Chain
	Tiered        bool // the bucket may hold what local disks do not
}

// Position is what a replica's fetch says of its sender's log (19, KIP-595).
type Position struct {
	Offset       int64 // it has everything below, durably where durability asks for that
	CurrentEpoch int32 // the leader epoch it follows
	LastEpoch    int32 // of the last record below Offset; lineage.NoEpoch of an empty log
}

// Divergence says that two logs agree at most below End, where Epoch ended.
type Divergence struct {
	Epoch int32
	End   int64
}

// Verdict is a leader's judgement of a Position.
type Verdict int

// The verdicts of Judge.
const (
	InLine     Verdict = iota // the records below Offset are the leader's own
	Diverges                  // they are not: the sender has to truncate first
	OutOfRange                // the leader's log cannot tell
)

// Judge compares a reader's position with the leader's log: the lineage has to hold its last epoch, and to have ended it no
// earlier. A position that diverges counts for nothing (20).
func Judge(v View, at Position) (Divergence, Verdict) {
	if at.LastEpoch == lineage.NoEpoch {
		return Divergence{}, InLine
	}
	epoch, end := v.Lineage.EndOffsetFor(at.LastEpoch, v.End)
	switch {
	case epoch == lineage.NoEpoch || end == lineage.NoOffset || at.Offset < v.LogStart:
		return Divergence{}, OutOfRange
	case epoch < at.LastEpoch || end < at.Offset:
		return Divergence{Epoch: epoch, End: end}, Diverges
	}
	return Divergence{}, InLine
}
