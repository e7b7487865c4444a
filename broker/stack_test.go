package broker

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/coordinator"
	"github.com/varvelog/varve/hot"
	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/vfs"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/conf"
	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/replica"
	"github.com/varvelog/varve/tier"
	"github.com/varvelog/varve/tier/objstore"
)

// stack is one whole node over real files and a bucket in memory.
type stack struct {
	*Server
	addr    string
	node    *meta.Node
	manager *replica.Manager
	state   *fakeShareState
}

func startStack(t testing.TB, settings map[string]string) *stack {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	given := map[string]string{"node.id": "1", "varve.tier.store": "mem:"}
	for k, v := range settings {
		given[k] = v
	}
	b, err := conf.ParseBroker(given)
	must(err)
	node, err := meta.Open(meta.Config{Dir: t.TempDir(), NodeID: 1, Broker: b}, meta.Deps{})
	must(err)
	hc := hot.DefaultConfig(t.TempDir())
	if b.VarveDurability == "replicated" {
		hc.Durability = hot.Replicated
	}
	store, err := hot.Open(hc, hot.Deps{FS: vfs.OS()})
	must(err)
	archive, err := tier.OpenArchive(tier.DefaultConfig(), tier.Deps{Store: objstore.NewMem(0)})
	must(err)
	tiering, err := tier.NewManager(tier.DefaultManagerConfig(), archive, tier.ManagerDeps{})
	must(err)
	rc := replica.DefaultConfig()
	rc.Broker = &b
	m, err := replica.NewManager(rc, replica.Deps{Hot: store, Archive: archive, Tier: tiering, Meta: node})
	must(err)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	host, port, _ := net.SplitHostPort(l.Addr().String())
	n, _ := strconv.Atoi(port)
	_, err = node.RegisterBroker(ctx, meta.Registration{ID: 1, Host: host, Port: int32(n), Incarnation: topic.NewID()})
	must(err)
	shares, err := coordinator.OpenShares(coordinator.ConfigFrom(&b), coordinator.ShareDeps{Log: m.Journal(topic.ShareGroupState), Metadata: node})
	must(err)
	groups, err := coordinator.Open(coordinator.ConfigFrom(&b), coordinator.Deps{
		Log: m.Journal(topic.ConsumerOffsets), Metadata: node, Fenced: replica.Fenced, ShareState: NewShareState(1, shares, nil)})
	must(err)
	var s *Server
	txns, err := coordinator.OpenTransactions(coordinator.ConfigFrom(&b), coordinator.TxnDeps{
		Log: m.Journal(topic.TransactionState), Metadata: node, Markers: markersOf{&s},
		ProducerID: func(ctx context.Context) (int64, error) { return s.ProducerID(ctx) }})
	must(err)
	state := newFakeShareState()
	s = New(ConfigFrom(&b), Deps{Partitions: Replicas(m), Metadata: node, Groups: groups, Transactions: txns, Shares: shares, ShareState: state, Settings: &b})
	go s.Serve(l, Door{})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		must(s.Close(ctx))
		must(txns.Close(ctx))
		must(groups.Close(ctx))
		must(shares.Close(ctx))
		must(m.Close(ctx))
		must(tiering.Close(ctx))
		must(store.Close(ctx))
		must(archive.Close(ctx))
		must(node.Close(ctx))
	})
	return &stack{Server: s, addr: l.Addr().String(), node: node, manager: m, state: state}
}

// markersOf stands for a server that is yet to be made.
type markersOf struct{ s **Server }

func (m markersOf) WriteTxnMarkers(ctx context.Context, broker int32, markers []coordinator.TxnMarker) ([][]error, error) {
	return (*m.s).WriteTxnMarkers(ctx, broker, markers)
}

func (s *stack) client(t testing.TB, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(s.addr)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestFranzGoProducesAndFetches(t *testing.T) {
	for _, durability := range []string{"fsync", "replicated"} {
		t.Run(durability, func(t *testing.T) {
			s := startStack(t, map[string]string{"varve.durability": durability})
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			producer := s.client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
			adm := kadm.NewClient(producer)
			if _, err := adm.CreateTopic(ctx, 3, 1, nil, "events"); err != nil {
				t.Fatal(err)
			}
			const n = 3000
			for i := range n {
				producer.Produce(ctx, &kgo.Record{Topic: "events", Partition: int32(i % 3), Value: []byte(fmt.Sprint(i))}, func(_ *kgo.Record, err error) {
					if err != nil {
						t.Error(err)
					}
				})
			}
			if err := producer.Flush(ctx); err != nil {
				t.Fatal(err)
			}
			consumer := s.client(t, kgo.ConsumeTopics("events"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
			seen := map[string]int{}
			next := map[int32]int64{}
			for len(seen) < n {
				f := consumer.PollFetches(ctx)
				if err := f.Err(); err != nil {
					t.Fatal(err)
				}
				f.EachRecord(func(r *kgo.Record) {
					if r.Offset != next[r.Partition] {
						t.Fatalf("partition %d: offset %d, want %d", r.Partition, r.Offset, next[r.Partition])
					}
					next[r.Partition]++
					seen[string(r.Value)]++
				})
			}
			for v, k := range seen {
				if k != 1 {
					t.Fatalf("value %s came %d times", v, k)
				}
			}
			ends, err := adm.ListEndOffsets(ctx, "events")
			if err != nil {
				t.Fatal(err)
			}
			ends.Each(func(o kadm.ListedOffset) {
				if o.Err != nil || o.Offset != n/3 {
					t.Errorf("%+v", o)
				}
			})
		})
	}
}

func TestRetriedBatchGetsItsFirstOffset(t *testing.T) {
	s := startStack(t, nil)
	c := dial(t, s.addr)
	id := c.create(newTopic("events", 1))
	send := func(epoch int16, sequence int32) kmsg.ProduceResponseTopicPartition {
		b := batch.NewBuilder(batch.Options{Producer: &batch.Producer{ID: 77, Epoch: epoch, Sequence: sequence}})
		for range 2 {
			if err := b.Append(time.Now().UnixMilli(), nil, []byte("x"), nil); err != nil {
				t.Fatal(err)
			}
		}
		q := produceRequest(13, -1, "", id, map[int32][]byte{0: b.Bytes()})
		return c.ask(q).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	}
	for i := range int32(6) {
		if got := send(0, 2*i); got.ErrorCode != 0 || got.BaseOffset != int64(2*i) {
			t.Fatalf("batch %d: %+v", i, got)
		}
	}
	for i := int32(1); i < 6; i++ { // the last five again
		if got := send(0, 2*i); got.ErrorCode != 0 || got.BaseOffset != int64(2*i) {
			t.Fatalf("batch %d again: %+v", i, got)
		}
	}
	if got := send(0, 40); got.ErrorCode != codeOutOfOrderSequence || got.BaseOffset != -1 {
		t.Fatalf("a gap: %+v", got)
	}
	if got := send(1, 0); got.ErrorCode != 0 || got.BaseOffset != 12 {
		t.Fatalf("a new epoch: %+v", got)
	}
	if got := send(0, 12); got.ErrorCode != codeInvalidProducerEpoch {
		t.Fatalf("the old epoch: %+v", got)
	}
}
