package broker

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/replica"
)

// openSession makes a session over all partitions and returns its id.
func openSession(t *testing.T, c *client, q *kmsg.FetchRequest) int32 {
	t.Helper()
	q.SessionID, q.SessionEpoch = 0, 0
	resp := c.ask(q).(*kmsg.FetchResponse)
	if resp.ErrorCode != 0 || resp.SessionID == 0 {
		t.Fatalf("no session: %+v", resp)
	}
	return resp.SessionID
}

func incremental(version int16, id, epoch int32, name string, tid topic.ID, parts ...wanted) *kmsg.FetchRequest {
	q := fetchRequest(version, name, tid, parts...)
	q.SessionID, q.SessionEpoch = id, epoch
	return q
}

// named lists the partitions an answer names.
func named(resp *kmsg.FetchResponse) []int32 {
	var list []int32
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			list = append(list, p.Partition)
		}
	}
	return list
}

func TestIncrementalFetchOmitsPartitionsWithoutNews(t *testing.T) {
	s := startServer(t, nil)
	id := s.parts.add("events", 3)
	ps := s.parts.byName["events"]
	c := dial(t, s.addr)
	sid := openSession(t, c, fetchRequest(13, "", id, wanted{index: 0}, wanted{index: 1}, wanted{index: 2}))
	ask := func(epoch int32, parts ...wanted) *kmsg.FetchResponse {
		return c.ask(incremental(13, sid, epoch, "", id, parts...)).(*kmsg.FetchResponse)
	}
	if got := named(ask(1)); len(got) != 0 {
		t.Fatalf("nothing is new, yet the answer names %v", got)
	}
	ps[1].append(t, "a")
	if got := named(ask(2)); len(got) != 1 || got[0] != 1 {
		t.Fatalf("named %v, want the partition with data", got)
	}
	if got := named(ask(3, wanted{index: 1, offset: 1})); len(got) != 0 {
		t.Fatalf("position moved past the data, yet %v", got)
	}
	ps[2].mu.Lock()
	ps[2].err = replica.ErrNotLeader
	ps[2].mu.Unlock()
	for epoch := int32(4); epoch < 6; epoch++ {
		if got := named(ask(epoch)); len(got) != 1 || got[0] != 2 {
			t.Fatalf("an error is always named: %v", got)
		}
	}
	ps[2].mu.Lock()
	ps[2].err = nil
	ps[2].mu.Unlock()
	if got := named(ask(6)); len(got) != 1 || got[0] != 2 {
		t.Fatalf("after an error the partition is named again: %v", got)
	}
	ps[0].mu.Lock()
	ps[0].logStart = 0
	ps[0].end, ps[0].logStart = 5, 5
	ps[0].mu.Unlock()
	if got := named(ask(7, wanted{index: 0, offset: 5})); len(got) != 1 || got[0] != 0 {
		t.Fatalf("a moved log start is news: %v", got)
	}
	if got := named(ask(8)); len(got) != 0 {
		t.Fatalf("told once: %v", got)
	}
}

func TestSessionErrors(t *testing.T) {
	s := startServer(t, nil)
	id := s.parts.add("events", 1)
	c := dial(t, s.addr)
	sid := openSession(t, c, fetchRequest(13, "", id, wanted{}))
	code := func(q *kmsg.FetchRequest) int16 {
		resp := c.ask(q).(*kmsg.FetchResponse)
		if resp.ErrorCode != 0 && (resp.SessionID != 0 || len(resp.Topics) != 0) {
			t.Fatalf("a session error names nothing: %+v", resp)
		}
		return resp.ErrorCode
	}
	if got := code(incremental(13, sid+1, 1, "", id)); got != codeFetchSessionIDNotFound {
		t.Fatalf("wrong id: %d", got)
	}
	if got := code(incremental(13, sid, 7, "", id)); got != codeInvalidFetchSessionEpoch {
		t.Fatalf("wrong epoch: %d", got)
	}
	if got := code(incremental(12, sid, 1, "events", id)); got != codeFetchSessionTopicIDError {
		t.Fatalf("names in a session of ids: %d", got)
	}
	if got := code(incremental(13, sid, 1, "", id)); got != 0 {
		t.Fatalf("the session survives errors: %d", got)
	}
}

func TestFinalEpochClosesSession(t *testing.T) {
	s := startServer(t, nil)
	id := s.parts.add("events", 1)
	c := dial(t, s.addr)
	sid := openSession(t, c, fetchRequest(13, "", id, wanted{}))
	resp := c.ask(incremental(13, sid, -1, "", id, wanted{})).(*kmsg.FetchResponse)
	if resp.SessionID != 0 || len(resp.Topics) != 1 || s.sessions.len() != 0 {
		t.Fatalf("%+v, %d sessions", resp, s.sessions.len())
	}
}

func TestEmptiedSessionBecomesSessionless(t *testing.T) {
	s := startServer(t, nil)
	id := s.parts.add("events", 1)
	c := dial(t, s.addr)
	sid := openSession(t, c, fetchRequest(13, "", id, wanted{}))
	q := incremental(13, sid, 1, "", id)
	f := kmsg.NewFetchRequestForgottenTopic()
	f.TopicID, f.Partitions = id, []int32{0}
	q.ForgottenTopics = append(q.ForgottenTopics, f)
	resp := c.ask(q).(*kmsg.FetchResponse)
	if resp.ErrorCode != 0 || resp.SessionID != 0 || s.sessions.len() != 0 {
		t.Fatalf("%+v, %d sessions", resp, s.sessions.len())
	}
}

func TestPartitionWithDataGoesLastInItsSession(t *testing.T) {
	s := startServer(t, nil)
	id := s.parts.add("events", 2)
	for _, p := range s.parts.byName["events"] {
		for range 4 {
			p.append(t, "x")
		}
	}
	c := dial(t, s.addr)
	q := fetchRequest(13, "", id, wanted{index: 0}, wanted{index: 1})
	q.MaxBytes = 10
	q.SessionID, q.SessionEpoch = 0, 0
	resp := c.ask(q).(*kmsg.FetchResponse)
	if len(resp.Topics[0].Partitions[0].RecordBatches) == 0 {
		t.Fatal("partition 0 is first")
	}
	next := incremental(13, resp.SessionID, 1, "", id)
	next.MaxBytes = 10
	got := c.ask(next).(*kmsg.FetchResponse)
	if len(named(got)) != 1 || named(got)[0] != 1 {
		t.Fatalf("named %v: partition 1 must have its turn", named(got))
	}
}

func TestSessionSlotsAreBoundedAndStaleOnesEvicted(t *testing.T) {
	c := newSessions(2, 100)
	a, b, d := newSession(true), newSession(true), newSession(true)
	if !c.add(a, 1, 0) || !c.add(b, 5, 0) {
		t.Fatal("there is room for two")
	}
	if c.add(d, 9, 50) {
		t.Fatal("nobody is stale and nobody old enough to give way")
	}
	c.touch(b, 5, 140)
	c.touch(a, 1, 150)
	if !c.add(d, 9, 160) || c.get(a.id) != nil || c.get(b.id) == nil {
		t.Fatal("the smallest of the old ones gives way to a larger one")
	}
	e := newSession(true)
	if !c.add(e, 1, 300) || c.get(b.id) != nil {
		t.Fatal("one unused for long gives way to anyone")
	}
	if c.len() != 2 {
		t.Fatalf("%d sessions", c.len())
	}
}

func TestPartitionsOfAllSessionsAreBounded(t *testing.T) {
	c := newSessions(2, 100)
	a, b := newSession(true), newSession(true)
	most := c.partsMax()
	if c.add(newSession(true), most+1, 0) {
		t.Fatal("one session holds more than all may")
	}
	if !c.add(a, most-10, 0) || c.add(b, 11, 50) {
		t.Fatal("room for ten more, and nobody old enough to give way")
	}
	if !c.add(b, 10, 50) || c.grow(b, 11, 60) || c.parts != most {
		t.Fatalf("%d partitions are held, %d may be", c.parts, most)
	}
	if !c.grow(b, 11, 200) || c.get(a.id) != nil || c.parts != 11 {
		t.Fatalf("a stale session gives way to growth; %d partitions are held", c.parts)
	}
	c.touch(b, 4, 210)
	c.remove(b.id)
	if c.parts != 0 {
		t.Fatalf("%d partitions are held by no session", c.parts)
	}
}

// A client that names ever more partitions, which need not exist, is sent back to a full fetch, and that gets no session.
func TestASessionDoesNotGrowWithoutBound(t *testing.T) {
	s := startServer(t, func(c *Config) { c.FetchSessionSlots = 1 })
	id := s.parts.add("events", 1)
	c := dial(t, s.addr)
	sid := openSession(t, c, fetchRequest(13, "", id, wanted{index: 0}))
	var more []wanted
	for i := range int32(sessionPartsPerSlot) {
		more = append(more, wanted{index: i})
	}
	if got := c.ask(incremental(13, sid, 1, "", id, more...)).(*kmsg.FetchResponse); got.ErrorCode != codeNone {
		t.Fatalf("within the bound: code %d", got.ErrorCode)
	}
	got := c.ask(incremental(13, sid, 2, "", id, wanted{index: sessionPartsPerSlot})).(*kmsg.FetchResponse)
	if got.ErrorCode != codeFetchSessionIDNotFound {
		t.Fatalf("beyond the bound: code %d", got.ErrorCode)
	}
	if n := s.Server.sessions.len(); n != 0 {
		t.Fatalf("%d sessions are held", n)
	}
	q := fetchRequest(13, "", id, append(more, wanted{index: sessionPartsPerSlot})...)
	q.SessionID, q.SessionEpoch = 0, 0
	full := c.ask(q).(*kmsg.FetchResponse)
	if full.ErrorCode != codeNone || full.SessionID != sessionNone || len(named(full)) != len(more)+1 {
		t.Fatalf("full fetch: code %d, session %d, %d partitions", full.ErrorCode, full.SessionID, len(named(full)))
	}
}
