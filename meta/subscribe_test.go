package meta

import (
	"context"
	"fmt"
	"sync"
	"testing"
)

func TestSubscribersSeeChangesInOrder(t *testing.T) {
	n := openNode(t, Config{}, Deps{})
	register(t, n)
	type step struct{ prev, next *Image }
	steps := make(chan step, 1000)
	block := make(chan struct{})
	first := true
	n.Subscribe(func(prev, next *Image) {
		if first {
			first = false
			<-block // whatever happens meanwhile is joined into one call
		}
		steps <- step{prev, next}
	})
	for i := range 20 {
		createTopic(t, n, fmt.Sprintf("t%d", i), 1)
	}
	close(block)
	createTopic(t, n, "last", 1)
	var last *Image
	for last == nil || last.Topic("last") == nil {
		s := <-steps
		if s.prev != last {
			t.Fatal("a call's prev is not the next of the call before")
		}
		if last != nil && s.next.Index < last.Index {
			t.Fatal("an older image after a newer one")
		}
		last = s.next
	}
}

func TestACancelledSubscriptionIsOver(t *testing.T) {
	n := openNode(t, Config{}, Deps{})
	register(t, n)
	calls := make(chan *Image, 100)
	cancel := n.Subscribe(func(_, next *Image) { calls <- next })
	<-calls
	cancel()
	cancel()
	seen := make(chan struct{})
	see := sync.OnceFunc(func() { close(seen) })
	n.Subscribe(func(_, next *Image) {
		if next.Topic("a") != nil {
			see()
		}
	})
	createTopic(t, n, "a", 1)
	<-seen
	select {
	case img := <-calls:
		if img.Topic("a") != nil {
			t.Error("called after it was cancelled")
		}
	default:
	}
}

func TestDynamicBrokerSettingsReachTopics(t *testing.T) {
	ctx := context.Background()
	n := openNode(t, Config{}, Deps{})
	register(t, n)
	value := "2"
	r, err := n.AlterConfigs(ctx, []ConfigChange{
		{ConfigResource: ConfigResource{Kind: BrokerConfig}, Edits: []ConfigEdit{{Name: "log.retention.ms", Value: &value}}},
	}, false)
	if err != nil || r[0].Err != nil {
		t.Fatal(r, err)
	}
	if text, _, given, ok := n.Broker().Value("log.retention.ms"); text != "2" || !given || !ok {
		t.Errorf("log.retention.ms is %q", text)
	}
	if first, again := n.Broker(), n.Broker(); first != again {
		t.Error("the broker's settings are parsed for every call")
	}
}
