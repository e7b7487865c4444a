package coordinator

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/topic"
)

// shareScript drives one shareCore from a file of testdata/share. Its output is what the core did: replies, records with their
// offsets in the log, and where the log is cut off.
//
//	topics t=PARTITIONS …                             the topics there are; t is topic id 1, and so on
//	init p=N state=EPOCH start=OFFSET                  InitializeShareGroupState of group g, topic t
//	read p=N leader=EPOCH                              ReadShareGroupState
//	write p=N state=EPOCH leader=EPOCH start=OFFSET done=N b=FIRST-LAST/STATE/COUNT,…
//	summary p=N | delete p=N | gone                    ReadShareGroupStateSummary, DeleteShareGroupState; the topic is deleted
//	advance ms=MILLIS | reload | state
type shareScript struct {
	t    *testing.T
	cfg  Config
	core *shareCore
	now  int64
	seq  uint64
	log  []record
	cut  int64
}

func shareView(t interface{ Fatal(...any) }, partitions map[string]int) *topicsView {
	img := &meta.Image{}
	for i, name := range []string{"t", "u"} {
		n, ok := partitions[name]
		if !ok {
			continue
		}
		list := make([]meta.Partition, n)
		for i := range list {
			list[i] = meta.Partition{Leader: 1, Replicas: []int32{1}, ISR: []int32{1}}
		}
		next, err := img.Apply(meta.Command{Base: img.Index, Changes: []meta.Change{meta.CreateTopic{Name: name, ID: topic.ID{15: byte(i + 1)}, Partitions: list}}}, img.Index+1)
		if err != nil {
			t.Fatal(err)
		}
		img = next
	}
	return (*topicsView)(nil).next(img)
}

func TestShareStateScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/share", func(t *testing.T, path string) {
		s := &shareScript{t: t, cfg: DefaultConfig(), now: scriptStart}
		s.cfg.ShareSnapshotUpdates = 3
		s.core = newShareCore(&s.cfg, s.now)
		s.core.setTopics(shareView(t, nil))
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return s.run(d) })
	})
}

func (s *shareScript) run(d *datadriven.TestData) string {
	a := args{}
	for _, x := range d.CmdArgs {
		a[x.Key] = strings.Join(x.Vals, ",")
	}
	k := ShareKey{Group: "g", Topic: topic.ID{15: 1}, Partition: int32(a.int("p", 0))}
	switch d.Cmd {
	case "topics":
		n := map[string]int{}
		for name := range a {
			n[name] = int(a.int(name, 1))
		}
		s.core.setTopics(shareView(s.t, n))
		return ""
	case "init":
		return s.step(&ShareInitialize{ShareKey: k, StateEpoch: int32(a.int("state", 0)), Start: a.int("start", NoOffset)})
	case "read":
		return s.step(&ShareRead{ShareKey: k, LeaderEpoch: int32(a.int("leader", 0))})
	case "write":
		q := &ShareWrite{
			ShareKey: k, StateEpoch: int32(a.int("state", 0)), LeaderEpoch: int32(a.int("leader", 0)), Start: a.int("start", NoOffset),
			DeliveryCompleteCount: int32(a.int("done", -1)),
		}
		if a["b"] != "" {
			for _, text := range strings.Split(a["b"], ",") {
				var b ShareBatch
				if _, err := fmt.Sscanf(text, "%d-%d/%d/%d", &b.First, &b.Last, &b.State, &b.DeliveryCount); err != nil {
					d.Fatalf(s.t, "%s: %v", text, err)
				}
				q.Batches = append(q.Batches, b)
			}
		}
		return s.step(q)
	case "summary":
		return s.step(k)
	case "delete":
		return s.step(shareDelete{k})
	case "gone":
		return s.step(shareTopicGone{k.Topic})
	case "advance":
		var out string
		s.now, out = advanceMachine(s.core, s.now, a.int("ms", 0), s.effects)
		return out
	case "reload":
		s.core = reloadShares(s.t, &s.cfg, s.core.view, s.log, s.cut, s.now)
		return s.state()
	case "state":
		return s.state()
	}
	d.Fatalf(s.t, "unknown command")
	return ""
}

// reloadShares reads a log back from where it was cut off.
func reloadShares(t interface{ Fatal(...any) }, cfg *Config, view *topicsView, log []record, cut, now int64) *shareCore {
	c := newShareCore(cfg, now)
	c.setTopics(view)
	for i, r := range log {
		if int64(i) < cut {
			continue
		}
		if err := c.replay(noProducer, r.key, r.value); err != nil {
			t.Fatal(err)
		}
		c.placed(r.key, int64(i))
	}
	c.loaded(now)
	return c
}

func (s *shareScript) step(body any) string {
	s.seq++
	s.core.step(event{ticket: s.seq, body: body}, s.now)
	return s.effects()
}

func (s *shareScript) effects() string {
	var out strings.Builder
	e := s.core.take()
	for _, r := range e.records {
		s.core.placed(r.key, int64(len(s.log)))
		fmt.Fprintf(&out, "write @%d %s\n", len(s.log), showShareState(r))
		s.log = append(s.log, r)
	}
	for _, r := range e.replies {
		out.WriteString(showShareReply(r) + "\n")
	}
	if e.cut {
		s.cut = s.core.redundant()
		fmt.Fprintf(&out, "cut off below %d\n", s.cut)
	}
	return out.String()
}

func (s *shareScript) state() string {
	var out strings.Builder
	for _, k := range s.core.keys() {
		p := s.core.parts[k]
		fmt.Fprintf(&out, "%d: snapshot %d state %d leader %d (fence %d) start %d done %d%s updates %d\n", k.Partition, p.snapshot, p.stateEpoch,
			p.leaderEpoch, p.fence, p.start, p.done, showShareBatches(p.batches), p.updates)
	}
	return out.String()
}

func showShareBatches(list []ShareBatch) (out string) {
	for _, b := range list {
		out += fmt.Sprintf(" %d-%d/%d/%d", b.First, b.Last, b.State, b.DeliveryCount)
	}
	return out
}

func showShareState(r record) string {
	kind, k, err := readShareStateKey(r.key)
	if err != nil {
		panic(err)
	}
	c := newShareCore(&Config{ShareCutMillis: 1}, 0)
	c.parts[k] = &sharePartition{start: NoOffset, done: NoDeliveryCount}
	if err := c.replay(noProducer, r.key, r.value); err != nil {
		panic(err)
	}
	p := c.parts[k]
	switch {
	case p == nil:
		return fmt.Sprintf("%d deleted", k.Partition)
	case kind == keyShareUpdate:
		return fmt.Sprintf("%d update leader=%d start=%d done=%d%s", k.Partition, p.leaderEpoch, p.start, p.done, showShareBatches(p.batches))
	}
	return fmt.Sprintf("%d snapshot %d state=%d leader=%d start=%d done=%d%s", k.Partition, p.snapshot, p.stateEpoch, p.leaderEpoch, p.start, p.done, showShareBatches(p.batches))
}

func showShareReply(r reply) string {
	if r.err != nil {
		return showErr(r.err)
	}
	switch x := r.result.(type) {
	case *ShareReadResult:
		return fmt.Sprintf("state=%d start=%d%s", x.StateEpoch, x.Start, showShareBatches(x.Batches))
	case *ShareSummary:
		return fmt.Sprintf("state=%d leader=%d start=%d done=%d", x.StateEpoch, x.LeaderEpoch, x.Start, x.DeliveryCompleteCount)
	}
	return "ok"
}

// TestShareBatchesJoinAsOffsetByOffset holds the merge against one that knows each offset's state.
func TestShareBatchesJoinAsOffsetByOffset(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	draw := func() []ShareBatch {
		list := make([]ShareBatch, rnd.IntN(6))
		for i := range list {
			first := rnd.Int64N(30)
			list[i] = ShareBatch{First: first, Last: first + rnd.Int64N(8) - 1, State: ShareDelivery(2 * rnd.IntN(3)), DeliveryCount: int16(rnd.IntN(3))}
		}
		return list
	}
	for range 20_000 {
		known, news, start := draw(), draw(), rnd.Int64N(20)-1
		var want []ShareBatch
		for at := max(start, 0); at < 40; at++ {
			var best *ShareBatch
			for _, b := range append(append([]ShareBatch{}, known...), news...) {
				if b.First <= at && at <= b.Last && (best == nil || b.rank(best) > 0) {
					best = &b
				}
			}
			if best != nil {
				want = appendShareBatch(want, ShareBatch{First: at, Last: at, State: best.State, DeliveryCount: best.DeliveryCount})
			}
		}
		got := mergeShareBatches(known, news, start)
		if len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
			t.Fatalf("%v and %v from %d:\ngot  %v\nwant %v", known, news, start, got, want)
		}
	}
}

// TestShareStateIsWhatItsLogSays does anything in any order, cuts the log off when the machine says so, and reads it back.
func TestShareStateIsWhatItsLogSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := DefaultConfig()
		cfg.ShareSnapshotUpdates = int32(rapid.IntRange(0, 4).Draw(t, "updates"))
		now, cut := int64(scriptStart), int64(0)
		c := newShareCore(&cfg, now)
		c.setTopics(shareView(t, map[string]int{"t": 3, "u": 2}))
		var log []record
		epoch := func(name string) int32 { return rapid.Int32Range(-1, 3).Draw(t, name) }
		steps := rapid.IntRange(1, 120).Draw(t, "steps")
		for step := range steps {
			k := ShareKey{Group: rapid.SampledFrom([]string{"g", "h"}).Draw(t, "group"), Topic: topic.ID{15: byte(rapid.IntRange(1, 3).Draw(t, "topic"))},
				Partition: rapid.Int32Range(-1, 3).Draw(t, "partition")}
			before := c.parts[k]
			var body any
			switch rapid.IntRange(0, 11).Draw(t, "what") {
			case 0, 1, 2:
				body = &ShareInitialize{ShareKey: k, StateEpoch: epoch("state"), Start: rapid.Int64Range(-1, 20).Draw(t, "start")}
			case 3:
				body = &ShareRead{ShareKey: k, LeaderEpoch: epoch("leader")}
			case 4:
				body = shareDelete{k}
			case 5:
				now += rapid.Int64Range(0, 2*cfg.ShareCutMillis).Draw(t, "millis")
				c.tick(now)
			case 6:
				body = k
			default:
				w := &ShareWrite{ShareKey: k, StateEpoch: epoch("state"), LeaderEpoch: epoch("leader"), Start: rapid.Int64Range(-1, 20).Draw(t, "start"),
					DeliveryCompleteCount: rapid.Int32Range(-1, 9).Draw(t, "done")}
				for range rapid.IntRange(0, 3).Draw(t, "batches") {
					first := rapid.Int64Range(0, 30).Draw(t, "first")
					w.Batches = append(w.Batches, ShareBatch{First: first, Last: first + rapid.Int64Range(0, 5).Draw(t, "n"),
						State: rapid.SampledFrom([]ShareDelivery{0, 2, 4}).Draw(t, "state of"), DeliveryCount: rapid.Int16Range(0, 3).Draw(t, "count")})
				}
				body = w
			}
			if body != nil {
				c.step(event{ticket: 1, body: body}, now)
			}
			out := c.take()
			for _, r := range out.records {
				c.placed(r.key, int64(len(log)))
				log = append(log, r)
			}
			if out.cut {
				cut = c.redundant()
			}
			if w, ok := body.(*ShareWrite); ok && out.replies[0].err == nil {
				checkShareWrite(t, before, c.parts[k], w)
			}
			if step != steps-1 && rapid.IntRange(0, 19).Draw(t, "reload") > 0 {
				continue
			}
			got := reloadShares(t, &cfg, c.view, log, cut, now)
			if len(c.parts) != len(got.parts) {
				t.Fatalf("the log says %d share-partitions, there are %d", len(got.parts), len(c.parts))
			}
			for k, p := range c.parts {
				g := *got.parts[k]
				g.fence = p.fence // what it was before a cut is forgotten with what was fenced
				if !reflect.DeepEqual(g.batches, p.batches) && len(g.batches)+len(p.batches) > 0 {
					t.Fatalf("%v: the log says %v, the state is %v", k, g.batches, p.batches)
				}
				g.batches = p.batches
				if !reflect.DeepEqual(&g, p) {
					t.Fatalf("%v: the log says %+v, the state is %+v", k, g, *p)
				}
			}
		}
	})
}

// checkShareWrite holds that nothing acknowledged or archived is taken back, and that the start never falls.
func checkShareWrite(t *rapid.T, before, after *sharePartition, w *ShareWrite) {
	if after.start < before.start || after.stateEpoch != before.stateEpoch || w.StateEpoch < before.stateEpoch || w.LeaderEpoch < before.fence {
		t.Fatalf("%+v let %+v become %+v", *w, *before, *after)
	}
	for _, b := range before.batches {
		for at := max(b.First, after.start); at <= b.Last; at++ {
			kept := false
			for _, x := range after.batches {
				kept = kept || x.First <= at && at <= x.Last && x.rank(&b) >= 0
			}
			if !kept {
				t.Fatalf("%+v takes %d of %+v back: %+v", *w, at, *before, *after)
			}
		}
	}
}
