package broker

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/replica"
	"github.com/varvelog/varve/replica/peer"
)

// Fetch (1): versions 4–18.
//
//	v4  isolation level             v5  log start offset
//	v7  sessions (KIP-227)          v9  current leader epoch (KIP-320)
//	v10 zstd                        v11 rack and preferred replica (KIP-392)
//	v12 flexible, last fetched epoch (KIP-595)   v13 topic ids (KIP-516)
//	v15 replica state               v16 node endpoints (KIP-951)
//	v17 replica directory id        v18 high watermark of the replica (both: between brokers)
//
// The answer's header bytes are written here (fetch_encode.go) and the records write themselves.
var apiFetch = api{key: 1, name: "Fetch", min: 4, max: 18, handle: (*Server).fetch}

// fetchTarget is one partition of one fetch, with what was found.
type fetchTarget struct {
	key              partKey
	offset           int64
	maxBytes         int32
	currentEpoch     int32
	lastFetchedEpoch int32
	logStart         int64              // of a follower
	complaint        *replica.Complaint // of a follower, nil: none
	missing          int64              // where what a broker with damage asks for ends; 0: it asks for nothing
	inSession        *sessionPart
	told             int64 // high watermark that the session's last answer told; -1: none

	part      Partition
	res       replica.ReadResult
	code      int16
	cold      int // bytes it may read from the bucket
	leader    leaderHint
	preferred int32         // the replica that the reader is sent to
	held      time.Duration // how long the follower's throttle holds the records back
	wasCold   bool          // read from the bucket
	include   bool
	known     bool // res holds the partition's offsets
	absent    bool // what is missing is not here either
}

// fetchOp is the scratch of one fetch, pooled.
type fetchOp struct {
	req         kmsg.FetchRequest
	targets     []fetchTarget
	index       map[partKey]int // of targets, once there are many
	session     *session
	epoch       int32         // that the session must still expect when the answer is made
	id          int32         // session id of the answer
	full        bool          // every partition is in the answer
	err         int16         // of the session as a whole
	replica     int32         // replica.NoReplica for clients
	brokerEpoch int64         // its broker epoch
	held        time.Duration // the shortest wait of a partition that the throttle holds back; 0: none
	counted     int           // bytes taken from the throttle
	throttle    time.Duration // for which the client has to wait: then the answer is empty
	bytes       int
	settled     bool // something in the results asks for an answer at once
	parked      bool // the request's bytes are gone
}

var fetchOps = sync.Pool{New: func() any { return new(fetchOp) }}

func (op *fetchOp) free() {
	clear(op.targets)
	clear(op.req.Topics)
	clear(op.req.ForgottenTopics)
	op.req.Topics, op.req.ForgottenTopics = op.req.Topics[:0], op.req.ForgottenTopics[:0]
	op.req.Rack, op.req.ClusterID = "", nil
	*op = fetchOp{req: op.req, targets: op.targets[:0]}
	fetchOps.Put(op)
}

// fetch reads, waits for more when the client wants that and nothing is urgent, and answers.
func (s *Server) fetch(r *request) error {
	op := fetchOps.Get().(*fetchOp)
	defer op.free()
	op.req.SetVersion(r.version)
	if err := decodeUnsafe(r, &op.req); err != nil {
		return err
	}
	q := &op.req
	op.replica, op.brokerEpoch = q.ReplicaID, replica.NoBrokerEpoch
	if r.version >= 15 {
		op.replica, op.brokerEpoch = q.ReplicaState.ID, q.ReplicaState.Epoch
	}
	if op.replica >= 0 && r.c.door.ClientsOnly {
		return fmt.Errorf("%w: a follower's fetch at listener %s, which is for clients", errUnsupported, r.c.door.Name)
	}
	now := s.nowMillis()
	if q.IsolationLevel < 0 || q.IsolationLevel > 1 {
		op.err = codeInvalidRequest
	} else {
		s.fetchContext(r, op, now)
	}
	maxBytes := min(int(max(q.MaxBytes, 0)), s.cfg.FetchBytesMax)
	minBytes := min(int(q.MinBytes), maxBytes)
	t := s.quotas.table.Load()
	if op.replica >= 0 || r.exempt {
		t = nil
	}
	if op.replica < 0 {
		s.stats.fetched.Add(int64(len(op.targets)))
		if t != nil {
			maxBytes = s.fetchMost(r, t, maxBytes)
			minBytes = min(minBytes, maxBytes)
		}
	}
	if op.err == codeNone && len(op.targets) > 0 {
		deadline := time.Now().Add(time.Duration(max(q.MaxWaitMillis, 0)) * time.Millisecond)
		if err := s.fetchUntil(r, op, minBytes, maxBytes, deadline); err != nil {
			op.release()
			return err
		}
	}
	if t != nil {
		s.throttleFetch(r, op, t)
	}
	s.fetchSelect(r, op, now)
	p := newReply()
	s.encodeFetch(p, r, op)
	return r.reply(p)
}

// release gives back the records of an answer that will not be sent, or not yet.
func (op *fetchOp) release() {
	for i := range op.targets {
		t := &op.targets[i]
		if t.res.Records != nil {
			t.res.Records.Release()
			t.res.Records = nil
		}
	}
}

// refetchesMax bounds how often one fetch reads anew because its waiter fired without there being enough: then it answers
// with what there is.
const refetchesMax = 8

// fetchUntil reads until there is enough, the deadline has passed, or the connection ends.
func (s *Server) fetchUntil(r *request, op *fetchOp, minBytes, maxBytes int, deadline time.Time) error {
	for range refetchesMax {
		if s.fetchOnce(r, op, minBytes, maxBytes, deadline) {
			return nil
		}
		left := time.Until(deadline)
		if left <= 0 {
			return nil
		}
		op.release()
		timedOut, err := s.fetchWait(r, op, minBytes, left)
		if err != nil {
			return err
		}
		if timedOut {
			break
		}
	}
	s.fetchOnce(r, op, 0, maxBytes, deadline)
	return nil
}

// fetchWait parks the fetch until its partitions have minBytes, or change, or the time is up.
func (s *Server) fetchWait(r *request, op *fetchOp, minBytes int, left time.Duration) (timedOut bool, err error) {
	var held <-chan time.Time
	op.letGo(r)
	w := s.deps.Partitions.NewWaiter(minBytes)
	defer w.Close()
	news := op.replica >= 0 && s.rackAware()
	for i := range op.targets {
		t := &op.targets[i]
		if t.part == nil {
			continue
		}
		if t.held == 0 {
			w.Watch(t.part, t.offset, op.isolation())
		}
		if news && t.inSession != nil {
			w.Watch(t.part, max(t.told, 0), replica.ReadUncommitted) // the high watermark is news of its own
		}
	}
	if op.held > 0 && op.held < left {
		timer := time.NewTimer(op.held)
		defer timer.Stop()
		held = timer.C
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	defer r.parks(time.Now())
	select {
	case <-w.C():
		return false, nil
	case <-held:
		return false, nil
	case <-timer.C:
		return true, nil
	case <-s.draining:
		return true, nil
	case <-r.ctx.Done():
		return false, errClosed
	}
}

// letGo gives the request's bytes back before a wait, which may be long and which many may do at once: what is still
// needed of them is copied, and that is little.
func (op *fetchOp) letGo(r *request) {
	if op.parked {
		return
	}
	op.parked = true
	op.req.Rack = strings.Clone(op.req.Rack)
	name := ""
	for i := range op.targets {
		t := &op.targets[i]
		if t.inSession != nil || t.key.name == "" {
			continue // a session's keys are its own
		}
		if t.key.name != name { // one copy for a topic's run of partitions
			name = strings.Clone(t.key.name)
		}
		t.key.name = name
	}
	clear(op.req.Topics)
	clear(op.req.ForgottenTopics)
	r.body = nil
	r.c.letGo()
}

// isolationLogEnd is how far replicas see: to the end of the log.
const isolationLogEnd int8 = 2

func (op *fetchOp) isolation() int8 {
	switch {
	case op.replica >= 0:
		return isolationLogEnd
	case op.req.IsolationLevel == replica.ReadCommitted:
		return replica.ReadCommitted
	}
	return replica.ReadUncommitted
}

// fetchOnce reads every partition in request order within maxBytes, cold ones last and all at once. It reports whether
// the fetch is to be answered: enough bytes, an error, a diverging log (KafkaApis and ReplicaManager name the same list).
//
// Cold partitions together may reserve half of the answer before the hot ones behind them have had their turn, so that
// neither kind starves the other; what the hot ones leave is theirs too.
func (s *Server) fetchOnce(r *request, op *fetchOp, minBytes, maxBytes int, deadline time.Time) bool {
	if op.counted > 0 {
		s.followers.Take(-op.counted) // what an earlier look found was not sent
	}
	op.bytes, op.settled, op.held, op.counted = 0, false, 0, 0
	left, forCold, minOne, cold := maxBytes, maxBytes/2, true, 0
	for i := range op.targets {
		t := &op.targets[i]
		s.readOne(r, op, t, left, minOne)
		if t.res.Records != nil {
			n := t.res.Records.Len()
			op.bytes += n
			left = max(0, left-n)
			minOne = false
		}
		if t.res.Cold {
			cold++
			t.cold = min(int(max(t.maxBytes, 0)), left, forCold)
			left, forCold = left-t.cold, forCold-t.cold
		}
		if t.code != codeNone || t.res.Diverging != nil || t.preferred != replica.NoReplica || s.behind(op, t) {
			op.settled = true
		}
		if t.held > 0 && (op.held == 0 || t.held < op.held) {
			op.held = t.held
		}
	}
	if cold == 0 {
		return op.settled || op.bytes >= minBytes
	}
	for i := range op.targets {
		if t := &op.targets[i]; t.res.Cold {
			more := min(int(max(t.maxBytes, 0))-t.cold, left)
			t.cold, left = t.cold+more, left-more
		}
	}
	s.fetchCold(r, op, minBytes)
	return true
}

// readOne reads one partition from its local log, or notes that it is cold.
func (s *Server) readOne(r *request, op *fetchOp, t *fetchTarget, left int, minOne bool) {
	t.res, t.code, t.cold, t.wasCold, t.known, t.leader = replica.ReadResult{}, codeNone, 0, false, false, noLeader
	t.held, t.preferred, t.absent = 0, replica.NoReplica, false
	p, err := s.lookup(t.key, r.version >= 13)
	if err != nil {
		s.fetchError(r, op, t, err)
		return
	}
	t.part = p
	counts := false
	if t.held, counts = s.throttled(op, t); t.held > 0 || s.prefer(op, t) {
		left, minOne = 0, false // the offsets alone
	}
	t.res, err = p.Read(op.readRequest(t, left, minOne))
	t.absent = t.res.Absent
	if counts && t.res.Records != nil {
		op.counted += t.res.Records.Len()
		s.followers.Take(t.res.Records.Len())
	}
	if t.preferred != replica.NoReplica {
		t.res.Cold = false
	}
	s.fetchError(r, op, t, err)
}

func (op *fetchOp) readRequest(t *fetchTarget, left int, minOne bool) replica.ReadRequest {
	return replica.ReadRequest{
		Offset: t.offset, MaxBytes: min(int(max(t.maxBytes, 0)), left), MinOne: minOne, Isolation: op.req.IsolationLevel,
		CurrentEpoch: t.currentEpoch, LastFetchedEpoch: t.lastFetchedEpoch, ReplicaID: op.replica, ReplicaEpoch: op.brokerEpoch,
		AnyReplica: op.req.Version >= 11, LogStart: t.logStart, Complaint: t.complaint, Missing: t.missing,
	}
}

// lookup finds a partition by topic id or by name.
func (s *Server) lookup(k partKey, byID bool) (Partition, error) {
	if byID {
		return s.deps.Partitions.PartitionByID(k.id, k.index)
	}
	return s.deps.Partitions.Partition(k.name, k.index)
}

// fetchError notes err as the target's code; with an error no offsets are told, as in Kafka.
func (s *Server) fetchError(r *request, op *fetchOp, t *fetchTarget, err error) {
	if op.replica < 0 {
		t.res.RemoteEnd = replica.NoOffset // it is for replicas
	}
	if err == nil {
		t.known = true
		return
	}
	if op.replica < 0 {
		s.stats.fetchFailed.Add(1)
	}
	t.code = s.codeOf(r, err)
	offsets := t.res
	t.res, t.preferred = replica.ReadResult{}, replica.NoReplica
	if op.tells(t.code) {
		t.known = true
		t.res.HighWatermark, t.res.LastStable, t.res.LogStart, t.res.RemoteEnd = offsets.HighWatermark, offsets.LastStable, offsets.LogStart, offsets.RemoteEnd
	}
	if t.code == codeStorageError {
		s.logFailure("fetch failed", t.key.name, t.key.id, t.key.index, t.code, err)
	}
	if r.version >= 16 && (t.code == codeNotLeaderOrFollower || t.code == codeFencedLeaderEpoch) {
		t.leader = s.leaderOf(t.key.name, t.key.id, t.key.index)
	}
}

// fetchContext turns the request into targets, by way of its session.
func (s *Server) fetchContext(r *request, op *fetchOp, now int64) {
	q := &op.req
	op.full = true
	if r.version < 7 || q.SessionEpoch == epochFinal || q.SessionEpoch == epochInitial {
		if r.version >= 7 && q.SessionID != sessionNone {
			s.sessions.remove(q.SessionID) // a full fetch closes the session it names
		}
		op.fromRequest()
		if r.version >= 7 && q.SessionEpoch == epochInitial {
			op.open(s, r.version >= 13, now)
		}
		return
	}
	x := s.sessions.get(q.SessionID)
	if x == nil {
		op.err = codeFetchSessionIDNotFound
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.epoch != q.SessionEpoch:
		op.err = codeInvalidFetchSessionEpoch
		return
	case x.usesIDs != (r.version >= 13):
		op.err = codeFetchSessionTopicIDError
		return
	}
	if n := x.additionsLocked(q); n > 0 && !s.sessions.grow(x, len(x.parts)+n, now) {
		s.sessions.remove(x.id)
		op.err = codeFetchSessionIDNotFound // the client starts anew with a full fetch, which goes without a session if there is no room
		return
	}
	x.updateLocked(q)
	if len(x.parts) == 0 { // emptied: the session is over
		s.sessions.remove(x.id)
		op.fromRequest()
		return
	}
	x.epoch = nextEpoch(x.epoch)
	s.sessions.touch(x, len(x.parts), now)
	op.session, op.epoch, op.id, op.full = x, x.epoch, x.id, false
	for p := x.order.next; p != &x.order; p = p.next {
		op.targets = append(op.targets, fetchTarget{
			key: p.key, offset: p.offset, maxBytes: p.maxBytes, currentEpoch: p.currentEpoch,
			lastFetchedEpoch: p.lastFetchedEpoch, logStart: p.logStart, complaint: p.complaint, inSession: p, told: p.toldHW,
		})
		p.complaint = lasting(p.complaint)
	}
}

// fromRequest makes targets of the partitions that the request names, each once: of a partition named twice the later
// position holds.
func (op *fetchOp) fromRequest() {
	for i := range op.req.Topics {
		t := &op.req.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			target := fetchTarget{
				key:    partKey{id: topic.ID(t.TopicID), name: t.Topic, index: p.Partition},
				offset: p.FetchOffset, maxBytes: p.PartitionMaxBytes,
				currentEpoch: p.CurrentLeaderEpoch, lastFetchedEpoch: p.LastFetchedEpoch,
			}
			target.logStart, target.complaint = p.LogStartOffset, complaintOf(p)
			target.missing, _ = peer.Int64(&p.UnknownTags, peer.TagMissing)
			if at, again := op.find(target.key); again {
				op.targets[at] = target
				continue
			}
			op.targets = append(op.targets, target)
		}
	}
}

// complaintOf is what a follower says of damage, in tags of ours: in its own copy, and in what it got from here.
func complaintOf(p *kmsg.FetchRequestTopicPartition) *replica.Complaint {
	if p.UnknownTags.Len() == 0 {
		return nil
	}
	damaged, is := peer.Int64(&p.UnknownTags, peer.TagDamaged)
	refused, was := peer.Int64(&p.UnknownTags, peer.TagRefused)
	c := replica.Complaint{Damaged: replica.NoOffset, Refused: replica.NoOffset}
	if is {
		c.Damaged = damaged
	}
	if was {
		c.Refused = refused
	}
	if !is && !was {
		return nil
	}
	return &c
}

// lasting is what of a complaint holds for later fetches of the session: its own damage does until it says otherwise, a refusal is said once.
func lasting(c *replica.Complaint) *replica.Complaint {
	if c == nil || c.Damaged == replica.NoOffset {
		return nil
	}
	return &replica.Complaint{Damaged: c.Damaged, Refused: replica.NoOffset}
}

// findByMap is how many targets a search from end to end is still cheaper for than a map.
const findByMap = 32

// find looks for a partition among the targets and notes its place if it is not there.
func (op *fetchOp) find(key partKey) (at int, ok bool) {
	if len(op.targets) < findByMap {
		for i := range op.targets {
			if op.targets[i].key == key {
				return i, true
			}
		}
		return 0, false
	}
	if op.index == nil {
		op.index = make(map[partKey]int, 4*len(op.targets))
		for i := range op.targets {
			op.index[op.targets[i].key] = i
		}
	}
	if at, ok = op.index[key]; !ok {
		op.index[key] = len(op.targets)
	}
	return at, ok
}

// open makes a session of a full fetch, if there is room for one.
func (op *fetchOp) open(s *Server, usesIDs bool, now int64) {
	if len(op.targets) == 0 {
		return
	}
	x := newSession(usesIDs)
	if s.isBroker(op.replica) {
		x.replica = op.replica
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range op.targets {
		t := &op.targets[i]
		key := t.key
		key.name = string([]byte(key.name)) // the frame's bytes do not outlive the request
		if p := x.parts[key]; p != nil {
			x.dropLocked(key)
		}
		p := &sessionPart{
			key: key, offset: t.offset, maxBytes: t.maxBytes, currentEpoch: t.currentEpoch,
			lastFetchedEpoch: t.lastFetchedEpoch, logStart: t.logStart, complaint: lasting(t.complaint), toldHW: -1, toldLogStart: -1, toldRemoteEnd: replica.NoOffset,
		}
		x.addLocked(p)
		t.key, t.inSession = key, p
	}
	if !s.sessions.add(x, len(x.parts), now) {
		return
	}
	op.session, op.epoch, op.id = x, x.epoch, x.id
}

// additionsLocked counts the partitions that an incremental fetch names for the first time.
func (x *session) additionsLocked(q *kmsg.FetchRequest) (n int) {
	for i := range q.Topics {
		t := &q.Topics[i]
		for j := range t.Partitions {
			if x.parts[partKey{id: topic.ID(t.TopicID), name: t.Topic, index: t.Partitions[j].Partition}] == nil {
				n++
			}
		}
	}
	return n
}

// updateLocked applies what an incremental fetch changes: partitions named anew or with new positions, and forgotten ones.
func (x *session) updateLocked(q *kmsg.FetchRequest) {
	for i := range q.Topics {
		t := &q.Topics[i]
		for j := range t.Partitions {
			a := &t.Partitions[j]
			key := partKey{id: topic.ID(t.TopicID), name: t.Topic, index: a.Partition}
			p := x.parts[key]
			if p == nil {
				key.name = string([]byte(key.name))
				p = &sessionPart{key: key, toldHW: -1, toldLogStart: -1, toldRemoteEnd: replica.NoOffset}
				x.addLocked(p)
			}
			p.offset, p.maxBytes = a.FetchOffset, a.PartitionMaxBytes
			p.currentEpoch, p.lastFetchedEpoch = a.CurrentLeaderEpoch, a.LastFetchedEpoch
			p.logStart, p.complaint = a.LogStartOffset, complaintOf(a)
		}
	}
	for i := range q.ForgottenTopics {
		t := &q.ForgottenTopics[i]
		for _, index := range t.Partitions {
			x.dropLocked(partKey{id: topic.ID(t.TopicID), name: t.Topic, index: index})
		}
	}
}

// fetchSelect decides which partitions the answer names, and notes in the session what the client is told.
func (s *Server) fetchSelect(r *request, op *fetchOp, now int64) {
	if op.err != codeNone {
		return
	}
	x := op.session
	if x == nil {
		for i := range op.targets {
			op.targets[i].include = op.throttle == 0
		}
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.epoch != op.epoch { // another fetch of the session overtook this one
		op.release()
		op.err, op.id = codeInvalidFetchSessionEpoch, sessionNone
		return
	}
	for i := range op.targets {
		if op.throttle > 0 {
			break // the session has told nothing
		}
		t := &op.targets[i]
		t.include = t.inSession.tell(t) || op.full
		if t.res.Records != nil && x.parts[t.inSession.key] == t.inSession {
			x.lastLocked(t.inSession)
		}
	}
}

// tell notes what the client is about to learn, and reports whether that is news: records, an error, another high
// watermark or log start, a diverging log. After an error the partition is named again when the error is gone.
func (p *sessionPart) tell(t *fetchTarget) bool {
	hw, logStart := int64(-1), int64(-1)
	if t.known {
		hw, logStart = t.res.HighWatermark, t.res.LogStart
	}
	news := t.res.Records != nil || t.res.Diverging != nil || t.preferred != replica.NoReplica
	if t.known && p.toldRemoteEnd != t.res.RemoteEnd {
		p.toldRemoteEnd, news = t.res.RemoteEnd, true
	} else {
		t.res.RemoteEnd = replica.NoOffset // it knows
	}
	if p.toldHW != hw {
		p.toldHW, news = hw, true
	}
	if p.toldLogStart != logStart {
		p.toldLogStart, news = logStart, true
	}
	if t.code != codeNone {
		p.toldHW, news = -1, true
	}
	return news
}
