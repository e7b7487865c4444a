package isr

import (
	"math"
	"slices"
)

// Leader is the pure state that decides a led partition's high watermark and who may be in its in-sync set. It takes events
// (own progress, a follower's fetch, the controller's answers) and holds no lock, clock or file. Offsets are exclusive ends.
//
// What it keeps, by the numbers of the replication invariants:
//
//   - Counted progress is durable progress: the shell reports its own durable end, and a follower's fetch offset is what
//     that follower has made durable (29).
//   - A proposed change of the in-sync set counts at once as well as the committed one, until the controller answers: the
//     maximal set (9, 10). A growing set must hold the watermark back before the controller could elect the new member.
//   - The watermark moves only when every member of the maximal set has fetched past it in this leader epoch, and the
//     committed set is not below the minimum (11).
//   - Progress of replicas outside the maximal set neither moves nor holds the watermark (13).
//   - Progress of anyone outside the in-sync set is forgotten when the leadership or the set changes (17).
type Leader struct {
	self       int32
	epoch      int32 // leader epoch
	epochStart int64 // log end when the epoch was assigned
	minISR     int   // min.insync.replicas as configured

	replicas       []int32
	committed      []int32  // as the controller has it
	elr            []int32  // as the controller has it: those who would be elected after the in-sync set
	proposed       []int32  // the change on its way to the controller; nil when there is none
	members        []Member // of proposed, as the starts of brokers that were judged; a later start of one is another matter
	doubtful       bool     // proposed may have been committed or may still be: an answer is missing
	refused        bool     // doubtful, and a later try was refused
	recovering     bool     // the controller still waits to hear that this log is whole
	partitionEpoch int32

	own       int64              // this replica's counted end
	followers map[int32]follower // nil without followers
	hw        int64
	since     int64 // when the epoch began here, steady milliseconds
}

// follower is what the leader knows of another replica, in this leader epoch only. Times are steady milliseconds.
type follower struct {
	brokerEpoch int64
	logStart    int64
	end         int64
	caughtUp    int64 // the latest time of which it is known that it had then all that the leader had
	fetched     int64 // when it fetched last
	leaderEnd   int64 // the leader's end then
}

// Fetch is a follower's fetch that does not diverge: it has everything below End.
type Fetch struct {
	ID          int32
	BrokerEpoch int64
	LeaderEpoch int32
	End         int64 // with what is damaged there, and what follows it, taken off: it does not have that
	LogStart    int64 // the follower's
	LeaderEnd   int64 // this replica's end, counted or not
	Now         int64 // steady milliseconds
}

// NoProgress is the end of a replica that has not fetched in this epoch.
const NoProgress = int64(-1)

// longAgo is when a replica outside the in-sync set had all that the leader had, as long as nothing is known of it.
const longAgo = int64(math.MinInt64 / 2)

// Leadership is what the controller's image says about who leads a partition that this broker holds. Its slices are the
// image's and are only read.
type Leadership struct {
	Leader         int32 // −1 while there is none
	Epoch          int32
	PartitionEpoch int32
	Replicas       []int32
	ISR            []int32
	ELR            []int32
	MinISR         int
	Recovering     bool  // elected uncleanly, and its log is not whole yet
	Unclean        int32 // leader epoch of the newest unclean election, −1 none
}

// Lead starts a leader epoch at the time given: start is the log's end when the epoch was assigned, hw the high watermark
// carried over.
func Lead(self int32, l Leadership, start, hw, now int64) Leader {
	return Leader{
		self: self, epoch: l.Epoch, epochStart: start, minISR: l.MinISR,
		replicas: l.Replicas, committed: l.ISR, elr: l.ELR, partitionEpoch: l.PartitionEpoch,
		own: NoProgress, hw: hw, since: now, recovering: l.Recovering,
	}
}

// Update takes a newer image of the same leader epoch: the replicas, the committed in-sync set, the configured minimum.
// It reports whether the watermark moved (a shrunk set may let it).
func (s *Leader) Update(l Leadership) bool {
	s.minISR = l.MinISR
	if l.PartitionEpoch > s.partitionEpoch {
		s.partitionEpoch = l.PartitionEpoch
		s.replicas = l.Replicas
		s.committed, s.elr = l.ISR, l.ELR
		s.recovering = l.Recovering
		s.settle() // the controller has moved on: whatever was on its way is decided or stale
		s.forgetOutsiders()
	}
	return s.advance()
}

// settle forgets the proposal: its outcome is known.
func (s *Leader) settle() {
	s.proposed, s.members, s.doubtful, s.refused = nil, nil, false, false
}

// Proposal is a wanted in-sync set, as a compare-and-swap on the partition epoch it was made under.
type Proposal struct {
	LeaderEpoch    int32
	PartitionEpoch int32
	ISR            []Member
	Recovering     bool
	// Lossy are replicas that lack records they had acknowledged. Nobody may elect them for having been in sync.
	Lossy []int32
}

// Member names a broker as of one start; Epoch −1 when it has not fetched in this leader epoch.
type Member struct {
	ID    int32
	Epoch int64
}

// Cluster is what the proposals of in-sync sets depend on.
type Cluster struct {
	// Eligible gives a broker's epoch, and whether it may be in sync: registered, not fenced, not shutting down.
	Eligible  func(id int32) (epoch int64, ok bool)
	SelfEpoch int64
	Now       int64 // steady milliseconds
	LagMax    int64 // replica.lag.time.max.ms
	LeaderEnd int64 // this replica's end, counted or not
}

// Propose works out whether the in-sync set should be another one, and the request for it. From here until the answer both
// sets count. A proposal without an answer is made again as it was, with whom has turned out to lack records by now. When one is refused after an earlier try went
// unanswered, the committed set itself is proposed: that raises the partition epoch, after which nothing of it can happen
// any more. False when there is nothing to ask for.
func (s *Leader) Propose(c Cluster) (Proposal, bool) {
	set := s.proposed
	switch {
	case s.refused:
		set = s.committed
	case set == nil:
		if set = s.wanted(c); set == nil && !s.recovering {
			return Proposal{}, false
		}
		if set == nil {
			set = s.committed
		}
		s.proposed, s.members = slices.Clone(set), s.membersOf(set, c.SelfEpoch)
	}
	p := Proposal{LeaderEpoch: s.epoch, PartitionEpoch: s.partitionEpoch, ISR: slices.Clone(s.members), Lossy: s.losers(set)}
	if s.refused {
		p.ISR = s.membersOf(set, c.SelfEpoch)
	}
	return p, true
}

// Resign is the request of a leader whose own copy is damaged that somebody else in sync leads; false when nobody is.
func (s *Leader) Resign(c Cluster) (Proposal, bool) {
	others := slices.DeleteFunc(slices.Clone(s.committed), func(id int32) bool { return id == s.self || s.lost(id) })
	if len(others) == 0 {
		return Proposal{}, false
	}
	lossy := append([]int32{s.self}, s.losers(others)...)
	return Proposal{LeaderEpoch: s.epoch, PartitionEpoch: s.partitionEpoch, ISR: s.membersOf(others, c.SelfEpoch), Lossy: lossy}, true
}

// losers are the members of the in-sync set and of the ELR, outside a new set, that by their own fetches lack what they had.
func (s *Leader) losers(set []int32) []int32 {
	var list []int32
	for _, of := range [][]int32{s.committed, s.elr} {
		for _, id := range of {
			if s.lost(id) && !slices.Contains(set, id) && !slices.Contains(list, id) {
				list = append(list, id)
			}
		}
	}
	return list
}

// lost says whether a replica has said in this epoch that it has less than is committed. Of a member of the in-sync set or of the
// ELR that is no lag: it had all of it once.
func (s *Leader) lost(id int32) bool {
	f, ok := s.followers[id]
	return ok && f.end < s.hw
}

// membersOf names brokers as of the starts whose fetches are known here (KIP-903).
func (s *Leader) membersOf(set []int32, self int64) []Member {
	list := make([]Member, 0, len(set))
	for _, id := range set {
		m := Member{ID: id, Epoch: -1}
		if f, ok := s.followers[id]; ok {
			m.Epoch = f.brokerEpoch
		} else if id == s.self {
			m.Epoch = self
		}
		list = append(list, m)
	}
	return list
}

// Wants says whether Propose has something to ask for, without noting it.
func (s *Leader) Wants(c Cluster) bool {
	return s.proposed != nil || s.recovering || s.wanted(c) != nil
}

// Misplaced says whether a follower's place in the in-sync set may be wrong as far as its last fetch tells: it is outside, or it
// has less than it had acknowledged.
func (s *Leader) Misplaced(id int32) bool {
	return !slices.Contains(s.committed, id) || s.endOf(id) < s.hw
}

// wanted is the set as it should be, nil when it is right: without those that lag and those that lost what they had, with
// those that have caught up. A recovering leader has to stay alone until the controller knows that it is whole.
func (s *Leader) wanted(c Cluster) []int32 {
	changed := false
	var set []int32
	for _, id := range s.committed {
		if id != s.self && s.lags(id, c) {
			changed = true
			continue
		}
		set = append(set, id)
	}
	for _, id := range s.replicas {
		if s.recovering || slices.Contains(s.committed, id) {
			continue
		}
		if epoch, ok := c.Eligible(id); ok && s.MayJoin(id, epoch) {
			set = append(set, id)
			changed = true
		}
	}
	if !changed && !slices.ContainsFunc(s.elr, s.lost) {
		return nil
	}
	return set
}

// lags says whether a member has to go: for too long it has not had all that this replica had, or it has less than it once
// had acknowledged. The latter is no lag: it has lost what it had, and must not be elected for another moment.
func (s *Leader) lags(id int32, c Cluster) bool {
	if s.lost(id) {
		return true
	}
	return s.endOf(id) < c.LeaderEnd && c.Now-s.caughtUp(id) > c.LagMax
}

// Accepted takes the controller's yes to a proposal: the set and the partition epoch it committed. An answer older than
// what the image already told is ignored. It reports whether the watermark moved.
func (s *Leader) Accepted(set []int32, partitionEpoch int32) bool {
	if partitionEpoch <= s.partitionEpoch {
		return false
	}
	s.partitionEpoch = partitionEpoch
	s.committed = slices.Clone(set)
	s.recovering = false
	s.settle()
	s.forgetOutsiders()
	return s.advance()
}

// Rejected takes the controller's no to the proposal that was made under a partition epoch: it is rolled back. Unless an
// earlier try of it went unanswered: that one may still take place, so both sets go on counting.
func (s *Leader) Rejected(partitionEpoch int32) bool {
	if partitionEpoch != s.partitionEpoch || s.proposed == nil {
		return false
	}
	if s.doubtful {
		s.refused = true
		return false
	}
	s.settle()
	return s.advance()
}

// Unanswered notes that nobody knows what became of the proposal: only a known outcome narrows the maximal set.
func (s *Leader) Unanswered(partitionEpoch int32) {
	if partitionEpoch == s.partitionEpoch && s.proposed != nil {
		s.doubtful = true
	}
}

// Fetched notes a follower's fetch and reports whether the watermark moved. A fetch of another leader epoch, of an unknown
// replica or of an older incarnation of the broker counts for nothing: known is false then.
func (s *Leader) Fetched(f Fetch) (known, moved bool) {
	if f.LeaderEpoch != s.epoch || f.ID == s.self || !slices.Contains(s.replicas, f.ID) {
		return false, false
	}
	old, ok := s.followers[f.ID]
	switch {
	case ok && f.BrokerEpoch < old.brokerEpoch:
		return false, false
	case !ok || f.BrokerEpoch > old.brokerEpoch:
		old = follower{caughtUp: s.caughtUp(f.ID), leaderEnd: NoProgress}
	}
	next := follower{brokerEpoch: f.BrokerEpoch, logStart: f.LogStart, end: f.End, caughtUp: old.caughtUp, fetched: f.Now, leaderEnd: f.LeaderEnd}
	switch {
	case f.End >= f.LeaderEnd:
		next.caughtUp = max(old.caughtUp, f.Now)
	case old.leaderEnd >= 0 && f.End >= old.leaderEnd:
		next.caughtUp = max(old.caughtUp, old.fetched)
	}
	if s.followers == nil {
		s.followers = make(map[int32]follower)
	}
	s.followers[f.ID] = next
	return true, s.advance()
}

// caughtUp is when a replica was last known to have all that the leader had: for a member of the in-sync set that has not
// fetched yet, when the epoch began.
func (s *Leader) caughtUp(id int32) int64 {
	if f, ok := s.followers[id]; ok {
		return f.caughtUp
	}
	if slices.Contains(s.committed, id) {
		return s.since
	}
	return longAgo
}

// MayJoin reports whether a follower may be proposed for the in-sync set: it has fetched in this epoch under the broker
// epoch given, up to the watermark and to the start of the epoch (16).
func (s *Leader) MayJoin(id int32, brokerEpoch int64) bool {
	f, ok := s.followers[id]
	return ok && f.brokerEpoch == brokerEpoch && f.end >= s.hw && f.end >= s.epochStart && !slices.Contains(s.committed, id)
}

// EffectiveMin is min.insync.replicas, but never more than there are replicas, as Kafka has it.
func (s *Leader) EffectiveMin() int { return min(s.minISR, len(s.replicas)) }

// Enough reports whether the committed in-sync set satisfies min.insync.replicas: asked before an acks=all append and again
// before its answer.
func (s *Leader) Enough() bool { return len(s.committed) >= s.EffectiveMin() }

func (s *Leader) forgetOutsiders() {
	for id := range s.followers {
		if !slices.Contains(s.committed, id) {
			delete(s.followers, id)
		}
	}
}

// HighWatermark is the offset below which everything is committed.
func (s *Leader) HighWatermark() int64 { return s.hw }

// Own is this replica's counted end, NoProgress before the first report.
func (s *Leader) Own() int64 { return s.own }

// End is a replica's counted end, NoProgress while none is known in this epoch.
func (s *Leader) End(id int32) int64 { return s.endOf(id) }

// Serves says whether a follower's log, as far as its last fetch in this epoch tells, reaches from an offset or before to there.
func (s *Leader) Serves(id int32, offset int64) bool {
	f, ok := s.followers[id]
	return ok && f.logStart <= offset && offset <= f.end
}

// PartitionEpoch is that of the newest change of the partition known here; a proposal was made under it.
func (s *Leader) PartitionEpoch() int32 { return s.partitionEpoch }

// Maximal is the set over which the watermark is taken: the committed in-sync set and the proposed one.
func (s *Leader) Maximal() []int32 {
	set := slices.Clone(s.committed)
	for _, id := range s.proposed {
		if !slices.Contains(set, id) {
			set = append(set, id)
		}
	}
	return set
}

// InSync is the in-sync set as the controller has committed it, to be read only.
func (s *Leader) InSync() []int32 { return s.committed }
