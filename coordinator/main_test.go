package coordinator

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// The state machine is cheap: the property gets more attempts than rapid's default, unless the command line says how many.
	_ = flag.Set("rapid.checks", "1000")
	_ = flag.Set("rapid.steps", "60")
	goleak.VerifyTestMain(m)
}

// testConfig is the default but for the pause in which a new group waits for
// more members, which would come into every story.
func testConfig() Config {
	c := DefaultConfig()
	c.InitialRebalanceMillis, c.ConsumerAssignmentMillis = 0, 0
	return c
}
