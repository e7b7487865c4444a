package coordinator

import (
	"fmt"
	"testing"
	"time"
)

// What went wrong with topics that nobody asks for any more makes room for what goes wrong now.
func TestTroubleThatIsOverMakesRoom(t *testing.T) {
	var x internalTopics
	now := time.Now()
	x.take(nil, now)
	for i := range troubleMax + 5 {
		x.note(fmt.Sprint("old", i), "no", now, time.Second)
	}
	if len(x.trouble) != troubleMax {
		t.Fatalf("%d are remembered", len(x.trouble))
	}
	now = now.Add(2 * time.Second)
	x.note("new", "no", now, time.Second)
	if len(x.trouble) != 1 || x.trouble["new"].text != "no" {
		t.Fatalf("%d are remembered, the new one as %v", len(x.trouble), x.trouble["new"])
	}
}
