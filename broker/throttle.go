package broker

import (
	"math"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/broker/secure"
)

// What is done to who is beyond a quota: its answer says for how long, and meanwhile nothing is read from its connection
// (KIP-219). So what it sends on stays in the socket, and costs nobody memory.

// exempt says that a request is of a broker, or begins every connection: quotas do not count it. Followers' fetches are told
// apart when they are decoded.
func (a *api) exempt(version int16) bool {
	switch a.key {
	case keyApiVersions, apiWriteTxnMarkers.key:
		return true
	case apiAddPartitionsToTxn.key:
		return version >= 4 // many transactions at once: a leader asks
	}
	return a.betweenBrokers()
}

// waitingKeys are the keys whose handlers wait for others while they hold the connection's goroutine: that is no work, and is not
// counted for request_percentage. Those of the controller wait as well.
var waitingKeys = map[int16]bool{
	apiListOffsets.key: true, apiOffsetCommit.key: true, apiOffsetFetch.key: true, apiFindCoordinator.key: true, apiJoinGroup.key: true,
	apiHeartbeat.key: true, apiLeaveGroup.key: true, apiSyncGroup.key: true, apiDeleteGroups.key: true, apiOffsetDelete.key: true,
	apiDeleteRecords.key: true, apiInitProducerID.key: true, apiAddPartitionsToTxn.key: true, apiAddOffsetsToTxn.key: true,
	apiEndTxn.key: true, apiTxnOffsetCommit.key: true, apiMetadata.key: true, apiConsumerGroupHeartbeat.key: true,
	apiShareAcknowledge.key: true, apiShareGroupHeartbeat.key: true, apiStreamsGroupHeartbeat.key: true, apiStreamsTopologyUpdate.key: true,
	apiDescribeShareOffsets.key: true, apiAlterShareOffsets.key: true, apiDeleteShareOffsets.key: true,
}

// parks notes that a request's handler has waited since then.
func (r *request) parks(since time.Time) { r.parked += time.Since(since) }

// grants are a connection's quotas, as its last requests found them. They are its reading goroutine's.
type grants struct {
	table  *quotaTable
	client string
	of     [quotaKinds]grant
}

// grant is the quota of one kind that counts for a connection's requests.
func (c *conn) grant(t *quotaTable, kind quotaKind, client string) *grant {
	if c.granted.table != t || c.granted.client != client {
		c.granted = grants{table: t, client: client}
	}
	g := &c.granted.of[kind]
	if !g.known {
		*g = c.srv.quotas.grant(t, kind, c.user, client)
	}
	return g
}

// grant looks for the quota of a client, and opens its account.
func (q *quotas) grant(t *quotaTable, kind quotaKind, user, client string) grant {
	g := grant{known: true}
	if bound, key, ok := t.find(kind, user, client); ok {
		g.bound, g.key, g.acct = bound, key, q.account(key, q.now())
	}
	return g
}

// requestTime counts the time that a request has taken so far, and returns how long its client has to wait for it: for one
// sample's time at most, as in Kafka.
func (s *Server) requestTime(r *request, t *quotaTable, now time.Duration) time.Duration {
	g := r.c.grant(t, quotaRequest, r.client)
	if g.acct == nil || r.since.IsZero() {
		return 0
	}
	took := max(time.Since(r.since)-r.parked, 0)
	return min(s.quotas.spend(g, now, 100*took.Seconds(), false), s.quotas.size)
}

// mute has nothing read from a connection for a while, once what is at hand is answered.
func (c *conn) mute(kind quotaKind, now, wait time.Duration) {
	if wait > 0 {
		c.srv.quotas.note(kind, wait)
		c.muted = max(c.muted, now+wait)
	}
}

// throttle counts an ordinary request and tells its client to wait if it must.
func (s *Server) throttle(r *request, t *quotaTable, resp kmsg.Response) {
	if r.exempt {
		return
	}
	now := s.quotas.now()
	kind, wait := quotaRequest, s.requestTime(r, t, now)
	if r.held > wait {
		kind, wait = quotaMutation, r.held
	}
	if wait > 0 {
		setThrottle(resp, wait)
		r.c.mute(kind, now, wait)
	}
}

func setThrottle(resp kmsg.Response, wait time.Duration) {
	if x, ok := resp.(kmsg.SetThrottleResponse); ok {
		x.SetThrottle(millisOf(wait))
	}
}

// millisOf is a wait as the protocol names it; one that is none stays none.
func millisOf(wait time.Duration) int32 {
	return int32(min((wait+time.Millisecond-1)/time.Millisecond, math.MaxInt32))
}

// throttleProduce counts a Produce, and returns until when its client has to wait. Where there is no answer its time does not
// count, as in Kafka.
func (s *Server) throttleProduce(r *request, t *quotaTable, unanswered bool) (until time.Duration) {
	now := s.quotas.now()
	kind, wait := quotaProduce, s.quotas.spend(r.c.grant(t, quotaProduce, r.client), now, float64(r.size), false)
	if !unanswered {
		if d := s.requestTime(r, t, now); d > wait {
			kind, wait = quotaRequest, d
		}
	}
	if wait <= 0 {
		return 0
	}
	r.c.mute(kind, now, wait)
	return now + wait
}

// throttleMillis is what is left of the wait when the answer is written, which may be long after the request was counted.
func (op *produceOp) throttleMillis() int32 {
	if op.muted == 0 {
		return 0
	}
	return millisOf(max(op.muted-op.c.srv.quotas.now(), 0))
}

// fetchMost bounds an answer by what the client's quota bears at once.
func (s *Server) fetchMost(r *request, t *quotaTable, most int) int {
	g := r.c.grant(t, quotaFetch, r.client)
	if g.acct == nil {
		return most
	}
	return int(min(float64(most), g.bound*s.quotas.size.Seconds()*float64(max(s.quotas.samples-1, 1))))
}

// throttleFetch counts the records of a client's fetch. Where they are too many for its quota, or the request took too long
// for another, the answer is empty, and they are not counted: the client will ask again when it has waited (KIP-219).
func (s *Server) throttleFetch(r *request, op *fetchOp, t *quotaTable) {
	now := s.quotas.now()
	request := s.requestTime(r, t, now)
	g := r.c.grant(t, quotaFetch, r.client)
	kind, wait := quotaFetch, s.quotas.spend(g, now, float64(op.bytes), true)
	if request > wait {
		if wait == 0 {
			s.quotas.spend(g, now, -float64(op.bytes), false)
		}
		kind, wait = quotaRequest, request
	}
	if wait <= 0 {
		return
	}
	op.throttle = wait
	r.c.mute(kind, now, wait)
	op.release()
	if op.session != nil && op.full {
		s.sessions.remove(op.id) // it has told nothing yet: the client begins anew
		op.session, op.id = nil, sessionNone
	}
}

// shareWaitOfLock is which part of the time for which its records are locked the client of a share fetch may have to wait: then
// there is time left to say what became of them.
const shareWaitOfLock = 3

// shareWaitMost is how long that is; 0: nothing is locked.
func (s *Server) shareWaitMost(op *shareFetchOp) time.Duration {
	return time.Duration(s.shareLockMillis(op)) * time.Millisecond / shareWaitOfLock
}

// shareFetchMost bounds the answer of a share fetch by what the client's quota bears at once, and by what it can wait for.
func (s *Server) shareFetchMost(r *request, op *shareFetchOp) int {
	t := s.quotas.table.Load()
	if t == nil || r.exempt || op.bytes <= 0 {
		return op.bytes
	}
	most := s.fetchMost(r, t, op.bytes)
	if g := r.c.grant(t, quotaFetch, r.client); g.acct != nil {
		most = int(min(float64(most), g.bound*s.shareWaitMost(op).Seconds()))
	}
	return max(most, 1) // one batch comes all the same
}

// throttleShareFetch counts the records of a share fetch. They are in the answer all the same: the member holds them now. What it
// owes beyond the longest wait it waits for later.
func (s *Server) throttleShareFetch(r *request, op *shareFetchOp) int32 {
	t := s.quotas.table.Load()
	if t == nil || r.exempt {
		return 0
	}
	bytes := 0
	for i := range op.targets {
		if x := op.targets[i].records; x != nil {
			bytes += x.Len()
		}
	}
	now := s.quotas.now()
	kind, wait := quotaFetch, s.quotas.spend(r.c.grant(t, quotaFetch, r.client), now, float64(bytes), false)
	if d := s.requestTime(r, t, now); d > wait {
		kind, wait = quotaRequest, d
	}
	if most := s.shareWaitMost(op); most > 0 {
		wait = min(wait, most)
	}
	r.c.mute(kind, now, wait)
	return millisOf(wait)
}

// rest reads nothing from a connection until its client has waited, or the quotas let it. It returns net.ErrClosed when the
// connection has ended: what the client sent before that is not read any more, although the socket may be open still.
func (c *conn) rest() error {
	s := c.srv
	c.handleMillis.Store(s.nowMillis()) // so that the sweeper looks whether the client is there still
	defer func() {
		c.muted = 0
		c.handleMillis.Store(0)
		c.activeMillis.Store(s.nowMillis())
	}()
	for {
		t := s.quotas.table.Load()
		wait := c.muted - s.quotas.now()
		if t == nil || wait <= 0 {
			return nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-t.replaced:
			timer.Stop()
			c.muted = min(c.muted, s.quotas.now()+c.owes())
		case <-s.draining:
			timer.Stop()
			return nil
		case <-c.ctx.Done():
			timer.Stop()
			return net.ErrClosed
		}
	}
}

// owes is how long a connection's client has to wait under the quotas that are in force now.
func (c *conn) owes() (wait time.Duration) {
	q := c.srv.quotas
	t := q.table.Load()
	if t == nil {
		return 0
	}
	for _, kind := range []quotaKind{quotaProduce, quotaFetch, quotaRequest} {
		wait = max(wait, q.spend(c.grant(t, kind, c.client), q.now(), 0, false))
	}
	return wait
}

// throttleRelayed counts a request that the controller has answered, and tells the client the longer of two waits: for its
// time here, and for what the controller's quota says.
func (s *Server) throttleRelayed(r *request, t *quotaTable, data []byte) []byte {
	if r.exempt || t.bounds[quotaRequest] == nil && t.bounds[quotaMutation] == nil {
		return data
	}
	body, ok := answerBody(data, r.flexible)
	resp := kmsg.ResponseForKey(r.api.key)
	if !ok || resp == nil {
		return data
	}
	resp.SetVersion(r.version)
	x, ok := resp.(kmsg.ThrottleResponse)
	if !ok || resp.ReadFrom(body) != nil {
		return data
	}
	told, _ := x.Throttle()
	r.held = time.Duration(max(told, 0)) * time.Millisecond
	s.throttle(r, t, resp)
	return resp.AppendTo(data[: len(data)-len(body) : len(data)-len(body)])
}

// principalData is a user as envelopes carry it (KIP-590).
func principalData(user string) []byte {
	p := kmsg.NewDefaultPrincipalData()
	p.Type, p.Name = "User", user
	return p.AppendTo(nil)
}

// principalOf reads it back; there is none in what brokers want for themselves.
func principalOf(b []byte) string {
	var p kmsg.DefaultPrincipalData
	if len(b) == 0 || p.ReadFrom(b) != nil || p.Name == "" {
		return secure.Anonymous
	}
	return p.Name
}

// delayedMax bounds the connections that wait for their end.
const delayedMax = 1000

// tooMany says that a connection just accepted is beyond its address's quota (KIP-612). As in Kafka it is closed, after a
// while, in which its client does not try again; it is not counted.
func (q *quotas) tooMany(s *Server, nc net.Conn, d *Door) bool {
	t := q.table.Load()
	if t == nil || d.BrokersOnly || t.bounds[quotaConnection] == nil {
		return false
	}
	bound, key, ok := t.findAddress(remoteIP(nc))
	if !ok {
		return false
	}
	now := q.now()
	g := grant{bound: bound, key: key, acct: q.account(key, now)}
	wait := min(q.spend(&g, now, 1, true), q.size)
	if wait <= 0 {
		return false
	}
	q.note(quotaConnection, wait)
	s.closeLater(nc, wait)
	return true
}

// closeLater closes a connection that nobody serves. With too many of them, or at the server's end, it is closed at once.
func (s *Server) closeLater(nc net.Conn, wait time.Duration) {
	reset(nc)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.delayed) >= delayedMax {
		nc.Close()
		return
	}
	s.delayed[nc] = time.AfterFunc(wait, func() {
		nc.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.delayed, nc)
	})
}

// dropDelayedLocked closes them all.
func (s *Server) dropDelayedLocked() {
	for nc, t := range s.delayed {
		t.Stop()
		nc.Close()
	}
	clear(s.delayed)
}

// Throttled is what the quotas of one kind have held back since the start.
type Throttled struct {
	Requests int64 // or connections
	Waits    time.Duration
}

func (q *quotas) statistics() map[string]Throttled {
	out := make(map[string]Throttled, quotaKinds)
	for kind, name := range quotaKindNames {
		out[name] = Throttled{q.throttled[kind].Load(), time.Duration(q.waits[kind].Load())}
	}
	return out
}
