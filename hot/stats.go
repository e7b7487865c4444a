package hot

import "sync/atomic"

// Stats counts what a store did since it was opened.
type Stats struct {
	Appends        atomic.Int64 // appends that wrote
	AppendBytes    atomic.Int64
	Syncs          atomic.Int64 // rounds of group commit
	SyncNanos      atomic.Int64 // time spent in them
	SharedRounds   atomic.Int64 // of them, by the shared log
	SharedBytes    atomic.Int64 // written into it
	SharedRenewed  atomic.Int64 // times that it was full and begun anew
	SharedApplied  atomic.Int64 // bytes that it had at open and a log's own file perhaps not
	Offline        atomic.Int64 // logs that went offline
	Quarantined    atomic.Int64 // segments found damaged
	Repaired       atomic.Int64 // damaged ranges that were replaced with sound bytes
	ScrubBytes     atomic.Int64 // bytes of sealed segments that were checked in the background
	ScrubPasses    atomic.Int64 // times that all of them were
	Reindexed      atomic.Int64 // indexes rebuilt
	Recovered      atomic.Int64 // logs whose tail was scanned at open
	RecoveredBytes atomic.Int64
	CutBytes       atomic.Int64 // bytes cut from torn tails
	Deleted        atomic.Int64 // segments deleted
	Compacted      atomic.Int64 // compaction runs
	CompactOver    atomic.Int64 // of them, beyond the dedupe buffer for one large batch
}

// Usage is what a store holds and what the disk has left.
type Usage struct {
	Partitions int
	OpenFiles  int
	DiskTotal  uint64
	DiskFree   uint64
	Reserve    uint64
	Full       bool // appends are refused
}
