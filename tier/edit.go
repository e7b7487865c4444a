package tier

import "github.com/varvelog/varve/hot/lineage"

// Edit is one atomic change of a partition's manifest. Its parts apply in the
// order of the fields; parts left zero change nothing.
type Edit struct {
	// LeaderEpoch is the epoch the caller leads in. The edit is refused with
	// ErrFenced when the manifest is claimed by a newer one.
	LeaderEpoch int32

	// Purge drops marks whose objects have been deleted from the store. It comes
	// first, so that the room it makes serves the marks of the same edit.
	Purge []MarkID

	// Add appends segments in offset order. The first must start exactly at the
	// archive's end (or hold its start when the archive is empty), each other at
	// the end of the one before.
	Add []AddSegment

	// Replace puts one segment in the place of a run of committed ones with the
	// same range; the replaced objects are marked for deletion at MarkedAt.
	Replace *ReplaceSegments

	// RenewPage, when set, puts a manifest page anew, under a new name and with the same
	// entries; the old one is marked at MarkedAt.
	RenewPage *SegmentID

	// AdvanceStart raises the archive's start; lower values change nothing.
	AdvanceStart int64

	// MarkBelowStart marks segments that lie wholly below the start for deletion,
	// as many as the head has room for (MaxMarked in all), stamped MarkedAt.
	MarkBelowStart bool

	// MarkedAt is the wall clock in ms for marks made by this edit.
	MarkedAt int64

	// Drop gives up the archive's data as a whole (tiering switched off): the start
	// moves to the end, and nothing can be added until a Reset.
	Drop bool

	// Reset ends a drop once no segment is left: the archive is as if none had ever
	// been added, and the next one may begin anywhere. ErrConflict otherwise.
	Reset bool

	// Topic, when set, stores the topic's name and settings in the head, so that
	// the bucket alone is enough to restore it.
	Topic *TopicInfo

	// Retire ends the partition for good: nothing may be added any more, readers
	// get ErrBelowStart, and collectors may delete everything under its prefix
	// after the grace, the head last. Used for deleted topics.
	Retire bool
}

// AddSegment is an uploaded object, as Object.Add describes it.
type AddSegment struct {
	Segment RemoteSegment
	Lineage lineage.Chain // leader epochs of the segment's own offsets
}

// ReplaceSegments is a rewrite of a run of committed segments.
type ReplaceSegments struct {
	Old []SegmentID
	New AddSegment
}

// TopicInfo is what the head remembers of the topic.
type TopicInfo struct {
	Name    string
	Configs map[string]string
}

// MaxMarked is the number of objects a head may hold marked for deletion.
const MaxMarked = 1024

// MarkID names a marked object: a segment, or a manifest page that became empty.
type MarkID struct {
	Kind KeyKind // KeySegment or KeyPage
	ID   SegmentID
}

// Marked is an object that is to be deleted once the grace is over.
type Marked struct {
	MarkID
	Key   string
	At    int64 // when it was marked, ms
	Bytes int64 // stored bytes
}

// State is a partition's archive in numbers.
type State struct {
	Start       int64 // first readable offset; -1 when nothing was ever committed
	End         int64 // exclusive; -1 when nothing was ever committed
	LeaderEpoch int32 // the epoch that holds the manifest; -1 when unclaimed
	EndEpoch    int32 // the leader epoch of the last offset; -1 when there is no live segment
	Segments    int64 // live segments
	RawBytes    int64 // of live segments
	StoredBytes int64 // of live segments
	Marked      int   // objects waiting for deletion
	Retired     bool
	Dropped     bool   // given up as a whole and not reset yet
	Sequence    uint64 // of the manifest; rises with every commit
}
