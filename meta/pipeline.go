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

// unansweredAfter is when a follower whose heartbeats are not answered is told
// everything again, until they are: a little longer than from one to the next.
// Theirs is a connection of its own, and it may hang while the pipeline's does
// not.
func unansweredAfter(c pulseConfig) time.Duration { return c.Leading / 4 }

// AppendEntries implements raft.Transport. A heartbeat that fails, or that
// another term answers, says that the follower may not be what it was: it is
// told again where the log stands.
func (t *transport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	err := t.NetworkTransport.AppendEntries(id, target, args, resp)
	if err != nil || !resp.Success || resp.Term != args.Term {
		t.followers.doubt(id)
	}
	if err == nil {
		t.followers.answered(id)
	}
	return err
}

// AppendEntriesPipeline implements raft.Transport.
func (t *transport) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	p, err := t.NetworkTransport.AppendEntriesPipeline(id, target)
	if err != nil {
		return nil, err
	}
	return &pipeline{AppendPipeline: p, follower: func() follower { return t.followers.of(id) }, unanswered: t.unanswered}, nil
}

// pipeline is raft's pipeline to one follower without its repetitions. Raft
// sends where the log stands every 50 to 100 ms, that the commit index may not
// wait for the next entry. What the same connection has carried already is left
// out: it has arrived, or the connection has failed and the pipeline with it. No
// answer is made up for it, so that a follower counts as heard from only when it
// was. Its one user is raft's goroutine for the follower.
type pipeline struct {
	raft.AppendPipeline
	follower   func() follower
	unanswered time.Duration

	sent    standing
	at      time.Time // zero: nothing was sent
	doubted uint64
}

// standing is what a message without entries says.
type standing struct{ term, previous, previousTerm, commit uint64 }

// AppendEntries implements raft.AppendPipeline.
func (p *pipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	now, f := time.Now(), p.follower()
	s := standing{args.Term, args.PrevLogEntry, args.PrevLogTerm, args.LeaderCommitIndex}
	if n := len(args.Entries); n > 0 {
		s.previous, s.previousTerm = args.Entries[n-1].Index, args.Entries[n-1].Term
	} else if s == p.sent && f.doubts == p.doubted && !p.at.IsZero() && now.Sub(p.at) < repeatAfter && now.Sub(f.answered) < p.unanswered {
		return unsent{args, resp, now}, nil
	}
	future, err := p.AppendPipeline.AppendEntries(args, resp)
	if err == nil {
		p.sent, p.at, p.doubted = s, now, f.doubts
	}
	return future, err
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

// follower is what the messages beside the pipeline have told.
type follower struct {
	doubts   uint64    // how often its state became doubtful
	answered time.Time // when it answered last; zero: never
}

// followers has each of them.
type followers struct {
	mu sync.Mutex                  // guards the following
	m  map[raft.ServerID]*follower // of members of the quorum only
}

func (f *followers) doubt(id raft.ServerID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.get(id).doubts++
}

func (f *followers) answered(id raft.ServerID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.get(id).answered = time.Now()
}

func (f *followers) of(id raft.ServerID) follower {
	f.mu.Lock()
	defer f.mu.Unlock()
	return *f.get(id)
}

// get is called with mu held.
func (f *followers) get(id raft.ServerID) *follower {
	have := f.m[id]
	if have == nil {
		if f.m == nil {
			f.m = make(map[raft.ServerID]*follower)
		}
		have = new(follower)
		f.m[id] = have
	}
	return have
}
