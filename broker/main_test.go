package broker

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// Raft hands leadership over in a goroutine that outlives its node until the call has timed out, when the node that it
	// calls is gone already.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/hashicorp/raft.(*Raft).leaderLoop.func2"))
}
