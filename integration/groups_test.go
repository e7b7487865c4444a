package integration

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/integration/nodetest"
)

// reader is one member of a group; it commits what it has counted.
type reader struct {
	client *kgo.Client
	done   chan struct{}

	mu   sync.Mutex // guards seen
	seen map[string]int
}

// clients gives clients of a node or of a cluster.
type clients interface {
	Client(opts ...kgo.Opt) *kgo.Client
}

func startReader(n clients, group, topic string) *reader {
	r := &reader{done: make(chan struct{}), seen: map[string]int{}}
	r.client = n.Client(
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.HeartbeatInterval(200*time.Millisecond), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll())
	go func() {
		defer close(r.done)
		for {
			f := r.client.PollFetches(context.Background())
			if f.IsClientClosed() {
				return
			}
			r.mu.Lock()
			f.EachRecord(func(rec *kgo.Record) { r.seen[string(rec.Value)]++ })
			r.mu.Unlock()
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			_ = r.client.CommitUncommittedOffsets(ctx) // what is not committed is read again
			cancel()
			r.client.AllowRebalance()
		}
	}()
	return r
}

func (r *reader) total() (distinct, all int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.seen {
		all += n
	}
	return len(r.seen), all
}

func (r *reader) stop() {
	r.client.CloseAllowingRebalance()
	<-r.done
}

func produceKeyed(t *testing.T, n clients, topic string, from, to int) {
	t.Helper()
	cl := n.Client(kgo.DefaultProduceTopic(topic))
	defer cl.Close()
	for i := from; i < to; i++ {
		cl.Produce(context.Background(), &kgo.Record{Key: fmt.Append(nil, i), Value: fmt.Append(nil, i)}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	if err := cl.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// TestGroupGoesOnAfterKillNine kills the process under a group of two. The
// members keep their membership and their partitions, and nobody reads again
// what was committed.
func TestGroupGoesOnAfterKillNine(t *testing.T) {
	n := nodetest.Start(t, t.TempDir(), "--store", "file://"+t.TempDir())
	n.CreateTopic("numbers", 4, nil)
	produceKeyed(t, n, "numbers", 0, 400)
	a, b := startReader(n, "readers", "numbers"), startReader(n, "readers", "numbers")
	adm := kadm.NewClient(n.Client())
	describe := func() (kadm.DescribedGroup, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		d, err := adm.DescribeGroups(ctx, "readers")
		if err != nil {
			return kadm.DescribedGroup{}, err
		}
		return d["readers"], d["readers"].Err
	}
	read := func(want int) {
		nodetest.Eventually(t, time.Minute, fmt.Sprintf("%d records are read by two members", want), func() error {
			x, _ := a.total()
			y, _ := b.total()
			d, err := describe()
			if err == nil && (x+y < want || d.State != "Stable" || len(d.Members) != 2) {
				err = fmt.Errorf("read %d and %d, group %s of %d", x, y, d.State, len(d.Members))
			}
			return err
		})
	}
	read(400)
	before, err := describe()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		n.Kill()
		n.Restart()
		produceKeyed(t, n, "numbers", 400+100*i, 500+100*i)
		read(500 + 100*i)
	}
	after, err := describe()
	if err != nil {
		t.Fatal(err)
	}
	ids := func(d kadm.DescribedGroup) map[string]bool {
		out := map[string]bool{}
		for _, m := range d.Members {
			out[m.MemberID] = true
		}
		return out
	}
	for id := range ids(after) {
		if !ids(before)[id] {
			t.Errorf("member %s is new: the group did not outlive the kill", id)
		}
	}
	a.stop()
	b.stop()
	x, all := a.total()
	y, more := b.total()
	if x+y < 700 {
		t.Errorf("%d of 700 records read", x+y)
	}
	// What was fetched and not yet committed when the process died is read again: at most the last poll of each.
	t.Logf("%d records read %d times", 700, all+more)
	fresh := startReader(n, "readers", "numbers")
	produceKeyed(t, n, "numbers", 700, 710)
	nodetest.Eventually(t, time.Minute, "a new member reads what is new", func() error {
		if distinct, _ := fresh.total(); distinct < 10 {
			return fmt.Errorf("read %d", distinct)
		}
		return nil
	})
	fresh.stop()
	if distinct, _ := fresh.total(); distinct != 10 {
		t.Errorf("a new member read %d records, want the 10 new ones: commits were lost", distinct)
	}
}
