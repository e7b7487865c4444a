package broker

import (
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/replica"
)

// Fetch sessions (KIP-227). A client names its partitions once; later fetches of the session name only what changed, and
// answers leave out partitions with nothing new.

const (
	sessionNone  int32 = 0  // session id: none
	epochInitial int32 = 0  // session epoch: a full fetch that wants a session
	epochFinal   int32 = -1 // session epoch: a full fetch that wants none
)

// partKey names a partition within a session: by id from version 13 on, by name before.
type partKey struct {
	id    topic.ID
	name  string
	index int32
}

// sessionPart is one partition of a session: what the client asked for, and what it was told last.
type sessionPart struct {
	key              partKey
	offset           int64
	maxBytes         int32
	currentEpoch     int32
	lastFetchedEpoch int32
	logStart         int64              // of a follower
	complaint        *replica.Complaint // of a follower's own damage, nil: none
	toldHW           int64              // -1 forces the partition into the next answer
	toldLogStart     int64
	toldRemoteEnd    int64
	prev, next       *sessionPart // the session's order
}

// session is one client's fetch session.
type session struct {
	id      int32
	usesIDs bool
	replica int32 // the broker whose follower it is; replica.NoReplica: a client's
	created int64 // millis

	mu    sync.Mutex // guards the following
	epoch int32      // expected of the next fetch
	parts map[partKey]*sessionPart
	order sessionPart // ring through prev and next; partitions that got data go last

	// Guarded by sessions.mu.
	used             int64 // millis
	size             int   // partitions, counted in sessions.parts
	lruPrev, lruNext *session
}

// sessionPartsPerSlot is how many partitions a slot stands for: all sessions together hold at most slots times as many,
// whatever any one of them holds. A partition takes about 250 bytes, and its topic's name before version 13: with the default of
// 1000 slots some 50 MB, 100 MB at the very most.
const sessionPartsPerSlot = 200

// sessions is the bounded set of fetch sessions: least recently used first. Both the sessions and their partitions are
// bounded; what finds no room is fetched without a session.
//
// Followers' sessions stand apart: no client's session can take their room, whatever the bound is. There are at most
// replicaSessionsMax for each broker of the cluster.
type sessions struct {
	slots       int
	evictMillis int64

	mu       sync.Mutex // guards the following
	parts    int        // of clients' sessions
	byID     map[int32]*session
	lru      session              // clients' sessions: ring through lruPrev and lruNext
	replicas map[int32][]*session // followers' sessions by broker, oldest first
}

// replicaSessionsMax bounds the sessions of one follower: it has one connection, whatever num.replica.fetchers says, and
// those of connections that were cut take a while to go.
const replicaSessionsMax = 16

func newSessions(slots int, evictMillis int64) *sessions {
	c := &sessions{slots: slots, evictMillis: evictMillis, byID: map[int32]*session{}, replicas: map[int32][]*session{}}
	c.lru.lruPrev, c.lru.lruNext = &c.lru, &c.lru
	return c
}

func (c *sessions) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.byID)
}

// get finds a session without touching it.
func (c *sessions) get(id int32) *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byID[id]
}

// partsMax bounds the partitions of all sessions together.
func (c *sessions) partsMax() int { return c.slots * sessionPartsPerSlot }

// grow makes room for x to have size partitions, evicting others as add does. It reports false when there is none: x is
// as large as it was then.
func (c *sessions) grow(x *session, size int, now int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byID[x.id] != x || x.replica != replica.NoReplica {
		return true // evicted meanwhile: it holds nothing of the bound
	}
	x.used = now
	c.unlink(x)
	c.link(x) // youngest, so that it is the last to be evicted
	for c.parts-x.size+size > c.partsMax() {
		if c.lru.lruNext == x || !c.evictLocked(size, now) {
			return false
		}
		if c.byID[x.id] != x {
			return false
		}
	}
	c.parts += size - x.size
	x.size = size
	return true
}

// touch moves a session to the young end and notes its size.
func (c *sessions) touch(x *session, size int, now int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byID[x.id] != x || x.replica != replica.NoReplica {
		return // evicted meanwhile
	}
	c.parts += size - x.size
	x.used, x.size = now, size
	c.unlink(x)
	c.link(x)
}

// remove closes a session.
func (c *sessions) remove(id int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if x := c.byID[id]; x != nil {
		c.dropLocked(x)
	}
}

// add gives x an id and a slot, evicting another session when that is allowed: one unused for evictMillis, or, among those
// at least that old, the smallest if it is smaller than x. It reports false when there is no room.
func (c *sessions) add(x *session, size int, now int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if x.replica != replica.NoReplica {
		c.addReplicaLocked(x)
		return true
	}
	for c.clientsLocked() >= c.slots || c.parts+size > c.partsMax() {
		if size > c.partsMax() || !c.evictLocked(size, now) {
			return false
		}
	}
	c.nameLocked(x)
	x.created, x.used, x.size = now, now, size
	c.parts += size
	c.link(x)
	return true
}

// nameLocked gives x an id that no other session has.
func (c *sessions) nameLocked(x *session) {
	for {
		x.id = rand.Int32N(1<<31-2) + 1
		if c.byID[x.id] == nil {
			c.byID[x.id] = x
			return
		}
	}
}

func (c *sessions) addReplicaLocked(x *session) {
	for len(c.replicas[x.replica]) >= replicaSessionsMax {
		c.dropLocked(c.replicas[x.replica][0])
	}
	c.nameLocked(x)
	c.replicas[x.replica] = append(c.replicas[x.replica], x)
}

// clientsLocked counts the sessions of clients.
func (c *sessions) clientsLocked() int {
	n := len(c.byID)
	for _, list := range c.replicas {
		n -= len(list)
	}
	return n
}

func (c *sessions) evictLocked(size int, now int64) bool {
	oldest := c.lru.lruNext
	if oldest == &c.lru {
		return false
	}
	if now-oldest.used > c.evictMillis {
		c.dropLocked(oldest)
		return true
	}
	var smallest *session
	for x := c.lru.lruNext; x != &c.lru; x = x.lruNext {
		if now-x.created >= c.evictMillis && (smallest == nil || x.size < smallest.size) {
			smallest = x
		}
	}
	if smallest == nil || smallest.size >= size {
		return false
	}
	c.dropLocked(smallest)
	return true
}

func (c *sessions) dropLocked(x *session) {
	delete(c.byID, x.id)
	if x.replica != replica.NoReplica {
		rest := slices.DeleteFunc(c.replicas[x.replica], func(o *session) bool { return o == x })
		if c.replicas[x.replica] = rest; len(rest) == 0 {
			delete(c.replicas, x.replica)
		}
		return
	}
	c.parts -= x.size
	c.unlink(x)
}

func (c *sessions) link(x *session) {
	last := c.lru.lruPrev
	x.lruPrev, x.lruNext = last, &c.lru
	last.lruNext, c.lru.lruPrev = x, x
}

func (c *sessions) unlink(x *session) {
	x.lruPrev.lruNext, x.lruNext.lruPrev = x.lruNext, x.lruPrev
	x.lruPrev, x.lruNext = nil, nil
}

func newSession(usesIDs bool) *session {
	x := &session{usesIDs: usesIDs, replica: replica.NoReplica, parts: map[partKey]*sessionPart{}, epoch: epochInitial + 1}
	x.order.prev, x.order.next = &x.order, &x.order
	return x
}

func (x *session) addLocked(p *sessionPart) {
	x.parts[p.key] = p
	x.appendLocked(p)
}

func (x *session) appendLocked(p *sessionPart) {
	last := x.order.prev
	p.prev, p.next = last, &x.order
	last.next, x.order.prev = p, p
}

func (x *session) unlinkLocked(p *sessionPart) {
	p.prev.next, p.next.prev = p.next, p.prev
	p.prev, p.next = nil, nil
}

// dropLocked forgets a partition.
func (x *session) dropLocked(key partKey) {
	if p := x.parts[key]; p != nil {
		delete(x.parts, key)
		x.unlinkLocked(p)
	}
}

// lastLocked moves a partition that got data behind the others, so that none starves when answers are cut short.
func (x *session) lastLocked(p *sessionPart) {
	x.unlinkLocked(p)
	x.appendLocked(p)
}

// nextEpoch follows e: 1, 2, …, 2^31-1, 1.
func nextEpoch(e int32) int32 {
	if e == 1<<31-1 {
		return 1
	}
	return e + 1
}
