package tier

// retainInput is what remote retention decides from.
type retainInput struct {
	wall                    int64
	millis, bytes           int64 // retention.ms and .bytes, −1 = unlimited
	logStart                int64
	start, end              int64 // of the archive; end −1 = empty
	rawBytes                int64 // of the archive's live segments
	oldest                  []RemoteSegment
	oldestComplete          bool
	local                   []localSegment // sealed, above the archive's end
	activeBase, activeBytes int64
	stable                  int64
	highWatermark, logEnd   int64
	broken                  mutant
}

// retainOutput is the new log start (−1: leave it) and when to decide again (wall
// ms, 0: no time).
type retainOutput struct {
	start   int64
	nextDue int64
	more    bool // the window ended before the decision did: read on
}

// retain decides how far the log start may rise. It walks segments from the
// oldest on, archive first, then what is local only, and stops at the first that
// must stay, as Kafka does. Size is the union of both tiers' ranges: the archive's
// live bytes and the local bytes above its end, each once (KAFKA-20732).
func retain(in retainInput) retainOutput {
	out := retainOutput{start: -1}
	total := in.rawBytes
	if in.logEnd <= in.highWatermark && in.activeBase >= in.end {
		total += in.activeBytes
	}
	for _, s := range in.local {
		// A segment that straddles the end is partly in the archive already (segment
		// boundaries differ between replicas; the active one too), and what
		// lies above the high watermark may still be truncated. Their local bytes are
		// left out: too small a sum deletes too little, never too much.
		if s.base >= in.end && s.end <= in.highWatermark || in.broken == mutantDoubleCount {
			total += s.bytes
		}
	}
	if in.broken == mutantDoubleCount {
		total += in.rawBytes
	}
	keep := func(end, bytes, writtenAt int64) bool {
		if end <= in.logStart {
			total -= bytes
			return false
		}
		if in.millis >= 0 {
			due := addMillis(addMillis(writtenAt, in.millis), 1)
			if due <= in.wall {
				total -= bytes
				return false
			}
			out.nextDue = due
		}
		if in.bytes >= 0 && total-bytes >= in.bytes {
			total -= bytes
			out.nextDue = 0
			return false
		}
		return true
	}
	for i, s := range in.oldest {
		out.nextDue = 0
		if keep(s.End, s.RawBytes, in.writtenAt(i)) {
			out.more = s.MaxTimestamp == NoTimestamp && i == len(in.oldest)-1 && !in.oldestComplete
			return in.clamp(out)
		}
		out.start = s.End
	}
	if in.end >= 0 && !in.oldestComplete {
		out.more = true
		return in.clamp(out)
	}
	for _, s := range in.local {
		out.nextDue = 0
		if s.end > in.stable || keep(s.end, s.bytes, s.writtenAt()) {
			break
		}
		out.start = s.end
	}
	return in.clamp(out)
}

// writtenAt is the time the age of the i-th archived segment counts from: the
// largest timestamp of its records, or, when none has one, the time of its upload,
// as Kafka takes that of the file's last write.
//
// A segment of control batches alone holds no record that could go too early, so
// it goes with the segment behind it at the latest: an upload time from a clock
// that was ahead must not hold up what comes after it.
func (in *retainInput) writtenAt(i int) int64 {
	s := &in.oldest[i]
	if s.MaxTimestamp >= 0 {
		return s.MaxTimestamp
	}
	if s.MaxTimestamp == NoTimestamp && i+1 < len(in.oldest) {
		return min(s.Created, in.writtenAt(i+1))
	}
	return s.Created
}

// writtenAt is the same for a local segment.
func (s *localSegment) writtenAt() int64 {
	if s.maxTimestamp >= 0 {
		return s.maxTimestamp
	}
	return s.modified
}

// clamp raises the answer to the log start and drops it when it changes nothing.
func (in retainInput) clamp(out retainOutput) retainOutput {
	out.start = max(out.start, in.logStart)
	if out.start <= max(in.start, 0) {
		out.start = -1
	}
	return out
}
