package coordinator

import (
	"testing"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/topic"
)

// What somebody asks for may depend on a change that was answered a moment ago and that the subscription has yet to tell.
func TestTheViewIsOfTheNewestImage(t *testing.T) {
	m := newMemMetadata(t, 1)
	c := &service{meta: m, wake: make(chan struct{}, 1)}
	c.image(nil, nil)
	before := c.view()
	m.topic(t, "new", topic.ID{9}, 1) // nobody is told
	now := c.view()
	if now.byName("new") == nil || now.version != before.version+1 {
		t.Fatalf("version %d after %d, topic %v", now.version, before.version, now.byName("new"))
	}
	if again := c.view(); again != now {
		t.Fatal("an image that is the same makes another view")
	}
	c.image(nil, meta.NewImage()) // told late
	if c.view() != now {
		t.Fatal("the view went back")
	}
}
