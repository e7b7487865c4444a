package meta

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// repeatAfter is how long a follower that has been told everything is told
// nothing but heartbeats. Nothing rests on the repetition: it bounds what a
// connection that has vanished without a sign could hide.
const repeatAfter = 5 * time.Second

// AppendEntries implements raft.Transport. A heartbeat that fails, or that
// another term answers, says that the follower may not be what it was: it is
// told again where the log stands.
func (t *transport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	err := t.NetworkTransport.AppendEntries(id, target, args, resp)
	if err != nil || !resp.Success || resp.Term != args.Term {
		t.doubts.raise(id)
	}
	return err
}

// AppendEntriesPipeline implements raft.Transport.
func (t *transport) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	p, err := t.NetworkTransport.AppendEntriesPipeline(id, target)
	if err != nil {
		return nil, err
	}
	return &pipeline{AppendPipeline: p, doubts: func() uint64 { return t.doubts.of(id) }}, nil
}

// pipeline is raft's pipeline to one follower without its repetitions. Raft
// sends where the log stands every 50 to 100 ms, that the commit index may not
// wait for the next entry. What the same connection has carried already is left
// out: it has arrived, or the connection has failed and the pipeline with it. No
// answer is made up for it, so that a follower counts as heard from only when it
// was. Its one user is raft's goroutine for the follower.
type pipeline struct {
	raft.AppendPipeline
	doubts func() uint64

	sent    standing
	at      time.Time // zero: nothing was sent
	doubted uint64
}

// standing is what a message without entries says.
type standing struct{ term, previous, previousTerm, commit uint64 }

// AppendEntries implements raft.AppendPipeline.
func (p *pipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	now, doubts := time.Now(), p.doubts()
	s := standing{args.Term, args.PrevLogEntry, args.PrevLogTerm, args.LeaderCommitIndex}
	if n := len(args.Entries); n > 0 {
		s.previous, s.previousTerm = args.Entries[n-1].Index, args.Entries[n-1].Term
	} else if s == p.sent && doubts == p.doubted && !p.at.IsZero() && now.Sub(p.at) < repeatAfter {
		return unsent{args, resp, now}, nil
	}
	f, err := p.AppendPipeline.AppendEntries(args, resp)
	if err == nil {
		p.sent, p.at, p.doubted = s, now, doubts
	}
	return f, err
}

// unsent is the future of a message that said nothing new. The Consumer never
// has it.
type unsent struct {
	args *raft.AppendEntriesRequest
	resp *raft.AppendEntriesResponse
	at   time.Time
}

// Error implements raft.Future.
func (unsent) Error() error { return nil }

// Start implements raft.AppendFuture.
func (u unsent) Start() time.Time { return u.at }

// Request implements raft.AppendFuture.
func (u unsent) Request() *raft.AppendEntriesRequest { return u.args }

// Response implements raft.AppendFuture.
func (u unsent) Response() *raft.AppendEntriesResponse { return u.resp }

// doubts counts for each follower how often its state became doubtful.
type doubts struct {
	mu sync.Mutex               // guards the following
	n  map[raft.ServerID]uint64 // of members of the quorum only
}

func (d *doubts) raise(id raft.ServerID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.n == nil {
		d.n = make(map[raft.ServerID]uint64)
	}
	d.n[id]++
}

func (d *doubts) of(id raft.ServerID) uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.n[id]
}
