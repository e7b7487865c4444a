package broker

import (
	"context"
	"errors"

	"github.com/varvelog/varve/coordinator"
	"github.com/varvelog/varve/meta/topic"
)

// Share sessions (KIP-932) are like fetch sessions: a member names its partitions once, and then what changes. A member has
// one session on each broker; it ends with a request of the last epoch, or with its connection, and then everything that the
// member holds there is given back.

var (
	// errShareSessionNotFound is returned when a member has no session here.
	errShareSessionNotFound = errors.New("broker: no such share session")
	// errShareSessionEpoch is returned when a request is not the next of its session.
	errShareSessionEpoch = errors.New("broker: not the share session's next epoch")
	// errShareSessionsFull is returned when there are group.share.max.share.sessions already.
	errShareSessionsFull = errors.New("broker: no more share sessions")
)

type shareSessionKey struct{ group, member string }

// shareSession is one member's session. Everything in it is guarded by shares.mu.
type shareSession struct {
	key   shareSessionKey
	epoch int32 // expected of the next request
	parts []sharePartOf
	at    map[coordinator.ShareKey]int // where each is in parts
	conn  *conn                        // it ends with
}

// sharePartOf is one partition of a session.
type sharePartOf struct {
	coordinator.ShareKey
	told bool // an answer has named it
}

// sharePartsPerSession is how many partitions a session stands for when their number over all sessions is bounded.
const sharePartsPerSession = 200

// open begins a session, in place of any that the member has. It waits for that one's end until ctx does.
func (x *shares) open(ctx context.Context, key shareSessionKey, parts []coordinator.ShareKey, c *conn) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	for x.sessions[key] != nil || x.ending[key] != nil { // another may be opened while this one ends
		ending := x.ending[key]
		x.mu.Unlock()
		if ending == nil {
			x.end(key)
		} else {
			select {
			case <-ending: // or what it gives back would be what the new session holds
			case <-ctx.Done():
				x.mu.Lock()
				return ctx.Err()
			}
		}
		x.mu.Lock()
	}
	if len(x.sessions) >= x.slots || x.parts+len(parts) > x.slots*sharePartsPerSession {
		return errShareSessionsFull
	}
	n := &shareSession{key: key, epoch: epochInitial + 1, at: make(map[coordinator.ShareKey]int, len(parts)), conn: c}
	x.sessions[key] = n
	c.shares = true
	for _, p := range parts {
		x.addLocked(n, p)
	}
	return nil
}

func (x *shares) addLocked(n *shareSession, p coordinator.ShareKey) {
	if _, there := n.at[p]; !there {
		n.at[p] = len(n.parts)
		n.parts = append(n.parts, sharePartOf{ShareKey: p})
		x.parts++
		x.refs[p]++
	}
}

func (x *shares) removeLocked(n *shareSession, p coordinator.ShareKey) {
	i, there := n.at[p]
	if !there {
		return
	}
	last := len(n.parts) - 1
	n.parts[i] = n.parts[last]
	n.at[n.parts[i].ShareKey] = i
	n.parts = n.parts[:last]
	delete(n.at, p)
	x.parts--
	if x.refs[p]--; x.refs[p] == 0 {
		delete(x.refs, p)
	}
}

// next checks that a request is the next of its session, and gives the epoch after it. The last of a session leaves it as it is.
func (x *shares) nextLocked(key shareSessionKey, epoch int32) (*shareSession, error) {
	n := x.sessions[key]
	switch {
	case n == nil:
		return nil, errShareSessionNotFound
	case epoch == epochFinal:
		return n, nil
	case epoch != n.epoch:
		return nil, errShareSessionEpoch
	}
	n.epoch = nextEpoch(n.epoch)
	return n, nil
}

// advance checks a request that changes nothing about its session's partitions.
func (x *shares) advance(key shareSessionKey, epoch int32) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	_, err := x.nextLocked(key, epoch)
	return err
}

// update checks a request, adds and takes out partitions, and lists what the session then has: beginning with another each
// time, so that none starves when answers are cut short.
func (x *shares) update(key shareSessionKey, epoch int32, add, forget []coordinator.ShareKey) ([]sharePartOf, error) {
	x.mu.Lock()
	n, err := x.nextLocked(key, epoch)
	if err != nil {
		x.mu.Unlock()
		return nil, err
	}
	for _, p := range add {
		if x.parts >= x.slots*sharePartsPerSession {
			break // the rest is not fetched until there is room
		}
		x.addLocked(n, p)
	}
	var gone []*sharePart
	for _, p := range forget {
		x.removeLocked(n, p)
		if sp := x.byKey[p]; sp != nil && x.refs[p] == 0 {
			gone = append(gone, sp)
		}
	}
	list := make([]sharePartOf, 0, len(n.parts))
	if k := len(n.parts); k > 0 {
		from := int(n.epoch) % k
		list = append(append(list, n.parts[from:]...), n.parts[:from]...)
	}
	x.mu.Unlock()
	for _, p := range gone {
		x.release(p)
	}
	return list, nil
}

// tell notes which partitions an answer names: those that could be asked are named once, whether there is news or not.
func (x *shares) tell(key shareSessionKey, named []coordinator.ShareKey) {
	if len(named) == 0 {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	n := x.sessions[key]
	if n == nil {
		return
	}
	for _, p := range named {
		if i, there := n.at[p]; there {
			n.parts[i].told = true
		}
	}
}

// end ends a member's session and gives back what it holds: one outcome for each of its partitions. false: there is none.
func (x *shares) end(key shareSessionKey) (parts []coordinator.ShareKey, outcomes []<-chan error, ok bool) {
	return x.endOf(key, nil)
}

// endOf is end for the session that a connection brought; nil: whichever it is.
func (x *shares) endOf(key shareSessionKey, c *conn) (parts []coordinator.ShareKey, outcomes []<-chan error, ok bool) {
	x.mu.Lock()
	n := x.sessions[key]
	if n == nil || c != nil && n.conn != c {
		x.mu.Unlock()
		return nil, nil, false
	}
	delete(x.sessions, key)
	done := make(chan struct{})
	x.ending[key] = done // until everything is given back; open lets nobody in before
	defer func() {       // whatever happens meanwhile: who waits for it waits without end
		x.mu.Lock()
		delete(x.ending, key)
		x.mu.Unlock()
		close(done)
	}()
	for _, p := range n.parts {
		parts = append(parts, p.ShareKey)
	}
	held := make([]*sharePart, len(parts))
	for i, p := range parts {
		held[i] = x.byKey[p]
		x.removeLocked(n, p)
	}
	x.mu.Unlock()
	outcomes = make([]<-chan error, len(parts))
	for i, p := range held {
		if p == nil {
			continue
		}
		if c, err := p.leave(key.member); err == nil {
			outcomes[i] = c
		}
		x.release(p)
	}
	return parts, outcomes, true
}

// disconnected ends the sessions that came by a connection.
func (x *shares) disconnected(c *conn) {
	if !c.shares {
		return
	}
	x.mu.Lock()
	var keys []shareSessionKey
	for k, n := range x.sessions {
		if n.conn == c {
			keys = append(keys, k)
		}
	}
	x.mu.Unlock()
	for _, k := range keys {
		if _, _, ok := x.endOf(k, c); ok { // not the one of a member that is back already
			x.stats.evicted.Add(1)
		}
	}
}

// shareKey names a share-partition of a member's group.
func shareKey(group string, id [16]byte, index int32) coordinator.ShareKey {
	return coordinator.ShareKey{Group: group, Topic: topic.ID(id), Partition: index}
}
