package main

import (
	"context"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func TestAReadingToWhichNothingComesSaysWhy(t *testing.T) {
	n := startWith(t)
	createTopic(t, n, "events")
	if err := produceTo(t.Context(), n, "events", numbers(0, 3), &logText{}); err != nil {
		t.Fatal(err)
	}
	c := consumeRun{client: client{bootstrap: n.Kafka, timeout: 5 * time.Second}}
	from := kgo.NewOffset().At(0)
	cl, err := c.dial(t.Context(), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"events": {0: from}}))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	print, err := printer("%v\n")
	if err != nil {
		t.Fatal(err)
	}
	// Its end is further than what will ever be there.
	k := partitionKey{"events", 0}
	r := &reading{starts: map[partitionKey]int64{k: 0}, ends: map[partitionKey]int64{k: 10}, since: math.MinInt64, before: math.MaxInt64}
	closed := make(chan error, 1)
	out := &screen{wrote: func(all string) {
		if strings.HasSuffix(all, "2\n") {
			go func() { closed <- n.Close(context.Background()) }()
		}
	}}
	bar := progress(io.Discard, -1, "reading", true)
	defer bar.Finish()
	p := newPrinting(out, print, r, bar)
	p.patience = 300 * time.Millisecond
	err = c.explain(p.all(t.Context(), cl, nil))
	if printed := out.lines(); len(printed) < 3 {
		t.Fatalf("it ends with %v, having printed %v", err, printed)
	}
	if err == nil || !strings.Contains(err.Error(), "no broker answers at "+n.Kafka) || !strings.Contains(err.Error(), "nothing has come for 300ms") {
		t.Errorf("it ends with %v", err)
	}
	if err := <-closed; err != nil {
		t.Errorf("close the node: %v", err)
	}
}
