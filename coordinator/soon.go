package coordinator

// Who speaks a newer protocol (KIP-848, KIP-932, KIP-1071) learns what it may read from the answers to its heartbeats. Each answer
// says when the next is to come, and clients go by that: so one that waits for something which others bring about in a moment is
// asked back soon, instead of leaving a partition that has become free unread until its regular heartbeat, five seconds later.
// Apache Kafka always says the regular interval.
const (
	// soonMillis is when a member that waits is to ask again.
	soonMillis int64 = 500
	// soonMillisMin is the least that any member is told: what is due in a moment need not be asked for at once by all.
	soonMillisMin int64 = 50
)

// waiting is what a member may be waiting for when its heartbeat is answered.
type waiting struct {
	members int   // of its group
	others  bool  // others have to move first: to give up what it is to have, or to make it ready
	due     int64 // milliseconds until its group's assignment is worked out; negative: nothing is due
}

// interval is when the member's next heartbeat is to come, of a group whose regular one is given. However many wait, a group's
// members do not send more than about a thousand heartbeats a second for it.
func (w waiting) interval(regular int64) int32 {
	if w.others {
		regular = min(regular, max(soonMillis, int64(w.members)))
	}
	if w.due >= 0 {
		regular = min(regular, max(w.due, soonMillisMin, int64(w.members)))
	}
	return int32(regular)
}

// untilAssignment is how long it is until a group whose epoch is newer than its assignment may have another one, which is worked
// out when the next heartbeat after that comes; negative: it is not waiting for one.
func (c *core) untilAssignment(epoch, targetEpoch int32, at, interval int64) int64 {
	switch {
	case targetEpoch >= epoch:
		return -1
	case c.view == nil:
		return soonMillis // the topics are not known yet
	}
	return max(at+interval-c.wall(), 0)
}

// untilTimer is how long it is until a timer fires; negative: it is not set.
func (c *core) untilTimer(key timerKey) int64 {
	at, ok := c.timers.at(key)
	if !ok {
		return -1
	}
	return max(at-c.now, 0)
}
