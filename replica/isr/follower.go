package isr

import "github.com/varvelog/varve/hot/lineage"

// Follower decides what a follower does with what its leader answers. It is a value of one leader epoch: a new epoch is a new
// Follower, and answers to an earlier one's fetches fit it no more.
//
// What it keeps, by the numbers of the replication invariants:
//
//   - A fetch says which leader epoch it is for and of which epoch its sender's last record is (19), and only what is counted
//     is said to be there (29).
//   - An answer to a fetch that was sent from another position or in another epoch is ignored (23).
//   - A diverging answer truncates and does nothing else: its high watermark is not taken (20). Truncation goes to the smaller
//     of both ends of the epoch, and the next fetch finds out whether that was enough (21).
//   - The high watermark is raised after the records are appended, never beyond the own end, and never lowered but by a
//     truncation (KAFKA-14704).
//   - Below the high watermark nothing is truncated, unless an unclean election has been recorded since the log's last epoch:
//     a log that would lose committed records to a clean leader stops instead (22).
type Follower struct {
	// Epoch is the leader epoch the controller's image names.
	Epoch int32
	// UncleanEpoch is the leader epoch of the partition's latest unclean election, lineage.NoEpoch when there was none.
	UncleanEpoch int32
}

// Position is what the next fetch has to say. ok is false while the log has something that does not count yet: it has to be
// made durable first.
func (f Follower) Position(v View) (at Position, ok bool) {
	return Position{Offset: v.End, CurrentEpoch: f.Epoch, LastEpoch: v.Lineage.Latest()}, v.Counted >= v.End
}

// Reply is a leader's answer to a fetch, without the records.
type Reply struct {
	Refused       Refusal
	Diverging     *Divergence
	HighWatermark int64
	LogStart      int64 // of the leader
	RemoteEnd     int64 // of the bucket's committed part, −1 not told
	// First and Next are the offsets of the records: the first of them and the one after the last. Equal when there are none.
	First, Next int64
}

// Refusal is why a leader did not serve a fetch.
type Refusal int

// What a leader may say instead of serving.
const (
	Served        Refusal = iota
	NotNow                // another epoch, no leader, a passing error: ask again, with a newer image
	NotInRange            // the offset is not in the leader's log
	MovedToTiered         // the offset is only in the bucket
)

// ActionKind says what a follower has to do.
type ActionKind int

// The kinds of actions.
const (
	Ignore   ActionKind = iota // nothing: the answer is old, or there is nothing in it
	Append                     // append the records, if any, then raise the high watermark and the log start
	Truncate                   // cut the log at To, durably, before the next fetch
	Reset                      // begin anew, with an empty log at To: the leader no longer has what comes before
	Rebuild                    // begin anew where the bucket ends
	Halt                       // stop: the leader lacks records that are committed here
)

// Action is what a follower has to do with its log.
type Action struct {
	Kind          ActionKind
	To            int64
	HighWatermark int64 // of Append, once the records are in the log
	LogStart      int64 // of Append: the log start is raised to it
	Cut           bool  // of Rebuild: though the local log reaches further, for its lineage is not the leader's
}

// Answer decides on the answer to a fetch that was sent from a position; v is the log as it is now.
func (f Follower) Answer(v View, sent Position, r Reply) Action {
	at, _ := f.Position(v)
	switch {
	case sent != at:
		return Action{}
	case r.Refused == MovedToTiered:
		return Action{Kind: Rebuild}
	case r.Refused == NotInRange:
		if sent.Offset >= r.LogStart && (v.End > v.LocalStart || f.UncleanEpoch == lineage.NoEpoch) {
			return Action{} // beyond the leader's end, though its lineage does not say so: it may yet get there
		}
		// Too far behind. Or too far ahead with nothing here, in a history that an unclean election has given up.
		if v.Tiered {
			return Action{Kind: Rebuild, To: r.LogStart} // or a Reset to there, should the bucket have nothing
		}
		return Action{Kind: Reset, To: r.LogStart}
	case r.Refused != Served:
		return Action{}
	case r.Diverging != nil:
		return f.truncate(v, *r.Diverging, r.LogStart)
	case v.Tiered && v.End == v.LocalStart && r.RemoteEnd > v.End:
		return Action{Kind: Rebuild} // empty, as a new replica is: what the bucket has need not be copied (KIP-1023)
	case r.Next > r.First && r.First < v.End:
		return Action{} // not what was asked for; a gap is what compaction leaves
	}
	end := max(v.End, r.Next)
	return Action{Kind: Append, HighWatermark: max(v.HighWatermark, min(r.HighWatermark, end)), LogStart: min(r.LogStart, end)}
}

func (f Follower) truncate(v View, d Divergence, logStart int64) Action {
	to := min(v.End, d.End)
	if epoch, end := v.Lineage.EndOffsetFor(d.Epoch, v.End); epoch != lineage.NoEpoch {
		to = min(to, end)
	}
	if to < v.HighWatermark && f.UncleanEpoch <= v.Lineage.Latest() {
		return Action{Kind: Halt, To: to}
	}
	if to <= logStart && v.LocalStart < logStart {
		// The leader's lineage begins there: that both logs are the same below it is not said, and does not matter any more.
		return Action{Kind: Reset, To: logStart}
	}
	if to < v.LocalStart && v.Tiered {
		return Action{Kind: Rebuild, Cut: true}
	}
	if to < v.LocalStart {
		return Action{Kind: Reset, To: to}
	}
	return Action{Kind: Truncate, To: to}
}
