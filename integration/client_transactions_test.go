package integration

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/integration/nodetest"
)

// copying is one client that copies a topic exactly once.
type copying struct {
	t       *testing.T
	c       *nodetest.Cluster
	in, out string
	group   string
	id      string
	written int
}

func newCopying(t *testing.T, c *nodetest.Cluster, name string) *copying {
	t.Helper()
	k := &copying{t: t, c: c, in: "in-" + name, out: "out-" + name, group: "copy-" + name, id: "copy-" + name}
	c.CreateTopic(k.in, 3, 3, replicated)
	c.CreateTopic(k.out, 3, 3, replicated)
	return k
}

// feed writes n more records, each its number.
func (k *copying) feed(n int) {
	k.t.Helper()
	cl := k.c.Client(kgo.DefaultProduceTopic(k.in))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for range n {
		text := fmt.Append(nil, k.written)
		k.written++
		cl.Produce(ctx, &kgo.Record{Key: text, Value: text}, func(_ *kgo.Record, err error) {
			if err != nil {
				k.t.Error(err)
			}
		})
	}
	if err := cl.Flush(ctx); err != nil {
		k.t.Fatal(err)
	}
}

// exact checks that every record came out once, and that the group is at the
// end of all partitions.
func (k *copying) exact() {
	k.t.Helper()
	times := map[string]int{}
	for _, value := range readTopic(k.t, k.c, k.out, kgo.ReadCommitted()) {
		times[value]++
	}
	for i := range k.written {
		if n := times[strconv.Itoa(i)]; n != 1 {
			k.t.Errorf("record %d came out %d times", i, n)
		}
	}
	if len(times) != k.written {
		k.t.Errorf("%d records came out, %d went in", len(times), k.written)
	}
	if got, err := k.committed(); err != nil || got != int64(k.written) {
		k.t.Errorf("the group has committed %d records of %d (%v)", got, k.written, err)
	}
}

// committed is how many records the group has committed. Each time it asks as
// a new client: one that knows a coordinator goes on asking it when it is dead.
func (k *copying) committed() (sum int64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(k.c.Bootstrap(), ",")...))
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	offsets, err := kadm.NewClient(cl).FetchOffsets(ctx, k.group)
	if err != nil {
		return 0, err
	}
	offsets.Each(func(o kadm.OffsetResponse) { sum += o.At })
	return sum, nil
}

// readTopic reads all values that a topic holds.
func readTopic(t *testing.T, c *nodetest.Cluster, name string, level kgo.IsolationLevel) (values []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cl := c.Client(kgo.ConsumeTopics(name), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(level), kgo.KeepControlRecords(), kgo.FetchMaxWait(100*time.Millisecond))
	ends := map[int32]int64{}
	nodetest.Eventually(t, 30*time.Second, "every transaction is over", func() error {
		high, err := kadm.NewClient(cl).ListEndOffsets(ctx, name)
		if err != nil {
			return err
		}
		stable, err := kadm.NewClient(cl).ListCommittedOffsets(ctx, name)
		if err != nil {
			return err
		}
		high.Each(func(o kadm.ListedOffset) {
			ends[o.Partition] = o.Offset
			if s, ok := stable.Lookup(name, o.Partition); err == nil && (!ok || s.Offset != o.Offset) {
				err = fmt.Errorf("partition %d ends at %d, is stable to %d", o.Partition, o.Offset, s.Offset)
			}
		})
		return err
	})
	left := 0
	for _, end := range ends {
		if end > 0 {
			left++
		}
	}
	for left > 0 {
		f := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("%s: %d partitions are not read to their end %v", name, left, ends)
		}
		f.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				values = append(values, string(r.Value))
			}
			if r.Offset == ends[r.Partition]-1 {
				left--
			}
		})
	}
	return values
}

// transformByClient has a client copy a topic in transactions, of which it
// aborts every fourth.
func transformByClient(t *testing.T, c *nodetest.Cluster, program []string, name, protocol string) {
	k := newCopying(t, c, name)
	k.feed(300)
	p := startClient(t, name, program, "transform", c.Bootstrap(), k.in, k.out, k.group, k.id, protocol, strconv.Itoa(k.written))
	p.wait(2 * time.Minute)
	k.exact()
}

// fenceByClient has a client commit, abort, and be fenced by a second producer
// of the same transactional id.
func fenceByClient(t *testing.T, c *nodetest.Cluster, program []string, name, _ string) {
	topic := "fence-" + name
	c.CreateTopic(topic, 3, 3, replicated)
	if out := runClient(t, program, "fence", c.Bootstrap(), topic, "fence-"+name); strings.TrimSpace(out) != "fenced" {
		t.Errorf("printed %q", out)
	}
	want := func(names ...string) (list []string) {
		for _, name := range names {
			for i := range 10 {
				list = append(list, fmt.Sprintf("%s-%d", name, i))
			}
		}
		slices.Sort(list)
		return list
	}
	for _, read := range []struct {
		level kgo.IsolationLevel
		want  []string
	}{
		{kgo.ReadCommitted(), want("kept", "young")},
		{kgo.ReadUncommitted(), want("kept", "dropped", "zombie", "young")},
	} {
		got := readTopic(t, c, topic, read.level)
		slices.Sort(got)
		if !slices.Equal(got, read.want) {
			t.Errorf("read %v\nwant %v", got, read.want)
		}
	}
}

// transformUnderKills has the Java client copy in both group protocols while
// each node is killed in turn: the coordinators of the groups and of the
// transactions are among them.
func transformUnderKills(t *testing.T, c *nodetest.Cluster, program []string) {
	const portion = 60
	var all []*copying
	var running []*clientProcess
	for _, protocol := range []string{"classic", "consumer"} {
		k := newCopying(t, c, "kills-"+protocol)
		k.feed(portion)
		all = append(all, k)
		running = append(running, startClient(t, protocol, program, "transform", c.Bootstrap(), k.in, k.out, k.group, k.id, protocol,
			strconv.Itoa(7*portion)))
	}
	progress := func(when string) {
		t.Helper()
		for i, k := range all {
			nodetest.Eventually(t, time.Minute, when+": all is copied", func() error {
				got, err := k.committed()
				if err == nil && got != int64(k.written) {
					err = fmt.Errorf("%s is at %d of %d", k.group, got, k.written)
				}
				if err != nil {
					return fmt.Errorf("%w\n%s", err, running[i].complaints())
				}
				return nil
			})
		}
	}
	feed := func() {
		for _, k := range all {
			k.feed(portion)
		}
	}
	for _, n := range c.Nodes() {
		t.Logf("node %d is killed; it coordinates %v", n.ID, coordinated(t, c, n.ID, all))
		feed()
		n.Kill()
		progress("a node is dead")
		feed()
		n.Restart()
		c.WaitInSync(time.Minute)
		progress("it is back")
	}
	for i, k := range all {
		running[i].wait(time.Minute)
		k.exact()
	}
}

// coordinated names the groups and transactional ids that a node coordinates.
func coordinated(t *testing.T, c *nodetest.Cluster, id int32, all []*copying) (names []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	adm := c.Admin()
	for _, k := range all {
		for kind, found := range map[string]kadm.FindCoordinatorResponses{
			"group": adm.FindGroupCoordinators(ctx, k.group), "transactions": adm.FindTxnCoordinators(ctx, k.id),
		} {
			for _, r := range found {
				if r.NodeID == id {
					names = append(names, kind+" "+r.Name)
				}
			}
		}
	}
	slices.Sort(names)
	return names
}
