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
		doubts := uint64(0)
		p := &pipeline{AppendPipeline: &w, doubts: func() uint64 { return doubts }}
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

		w.err = errors.New("broken")
		standing.LeaderCommitIndex = 10
		send(true, "over a connection that breaks")
		send(true, "what that has not carried")
	})
}
