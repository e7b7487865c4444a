package meta

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// wire is a pipeline that counts.
type wire struct {
	raft.AppendPipeline
	sent int
	err  error
}

func (w *wire) AppendEntries(*raft.AppendEntriesRequest, *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	w.sent++
	return nil, w.err
}

// TestAPipelineLeavesOutWhatItHasCarried gives it what raft does.
func TestAPipelineLeavesOutWhatItHasCarried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w wire
		doubts, answers, answered := uint64(0), true, time.Time{}
		p := &pipeline{AppendPipeline: &w, unanswered: 350 * time.Millisecond, follower: func() follower {
			if answers {
				answered = time.Now()
			}
			return follower{doubts: doubts, answered: answered}
		}}
		standing := raft.AppendEntriesRequest{Term: 3, PrevLogEntry: 7, PrevLogTerm: 2, LeaderCommitIndex: 6}
		send := func(want bool, what string) {
			t.Helper()
			before := w.sent
			args := standing
			if _, err := p.AppendEntries(&args, new(raft.AppendEntriesResponse)); err != w.err {
				t.Fatal(err)
			}
			if sent := w.sent > before; sent != want {
				t.Errorf("%s: sent is %t", what, sent)
			}
		}
		send(true, "the first")
		send(false, "the same")
		standing.LeaderCommitIndex = 7
		send(true, "another commit index")
		send(false, "the same commit index")
		standing.Entries = []*raft.Log{{Index: 8, Term: 3}, {Index: 9, Term: 3}}
		send(true, "entries")
		standing.Entries, standing.PrevLogEntry, standing.PrevLogTerm = nil, 9, 3
		send(false, "where the entries ended")
		standing.LeaderCommitIndex = 9
		send(true, "that they are committed")
		standing.PrevLogTerm = 4
		send(true, "another term of the last entry")
		standing.Term = 4
		send(true, "another term")
		doubts++
		send(true, "a follower in doubt")
		send(false, "a follower whose doubt was met")
		standing.Entries = []*raft.Log{{Index: 10, Term: 4}}
		send(true, "an entry")
		send(true, "the same entry again")

		standing.Entries, standing.PrevLogEntry = nil, 10
		before := w.sent
		for range 800 { // a minute
			<-time.After(75 * time.Millisecond)
			if _, err := p.AppendEntries(&standing, new(raft.AppendEntriesResponse)); err != nil {
				t.Fatal(err)
			}
		}
		if n := w.sent - before; n < 10 || n > 12 {
			t.Errorf("%d messages in a minute in which nothing happened", n)
		}

		standing.LeaderCommitIndex, standing.Entries = 10, nil
		send(true, "a commit index")
		answers = false
		<-time.After(300 * time.Millisecond)
		send(false, "what a follower knows that answered 300 ms ago")
		<-time.After(50 * time.Millisecond)
		send(true, "what a follower knows that does not answer")
		send(true, "the same while it does not answer")
		answers = true
		send(false, "the same when it answers")

		w.err = errors.New("broken")
		standing.LeaderCommitIndex = 11
		send(true, "over a connection that breaks")
		send(true, "what that has not carried")
	})
}
