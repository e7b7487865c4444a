package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/varvelog/varve/hot"
	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/vfs"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/conf"
	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/tier"
	"github.com/varvelog/varve/tier/objstore"
)

// testing is what rapid's and the standard library's tests have in common.
type tester interface {
	Helper()
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
}

// node is a broker's lower half over a memory disk and a memory bucket, with metadata the test dictates.
type node struct {
	t       tester
	disk    *vfs.Mem // the default; crash needs it
	fs      vfs.FS   // instead of disk, when set
	dir     string
	bucket  objstore.Store
	broker  map[string]string
	durable hot.Durability
	run     int // of the kernel

	hot     *hot.Store
	archive *tier.Archive
	tier    *tier.Manager
	m       *Manager
	meta    *fakeMeta
	quorum  *meta.Node // instead of meta, when set

	nodeID      int32 // 1 unless set
	peers       Peers
	brokerEpoch func() int64
	deaf        Metadata // instead of quorum, when set
	lease       func() bool
	logger      *slog.Logger // discards unless set

	callTimeout time.Duration
	interval    time.Duration           // of the retention check
	removed     atomic.Pointer[Manager] // who hears of what the tier manager removed

	cold int // reads that went to the bucket
}

// fakeMeta stands where the metadata node is: it never calls by itself.
type fakeMeta struct {
	confirmed chan topic.ID
}

func (f *fakeMeta) Subscribe(func(prev, next *meta.Image)) (cancel func()) { return func() {} }

func (f *fakeMeta) Image() *meta.Image { return new(meta.Image) }

func (f *fakeMeta) AlterPartitions(context.Context, int32, int64, []meta.AlterPartition) ([]meta.AlteredPartition, error) {
	return nil, meta.ErrNotController
}

func (f *fakeMeta) ConfirmDeleted(_ context.Context, id topic.ID, _ int32, _ bool) error {
	f.confirmed <- id
	return nil
}

func newNode(t tester) *node {
	n := &node{
		t: t, disk: vfs.NewMem(1), dir: "/data", bucket: objstore.NewMem(0), meta: &fakeMeta{confirmed: make(chan topic.ID, 16)},
		broker: map[string]string{"varve.tier.store": "mem:"}, callTimeout: 20 * time.Second,
	}
	n.must(n.disk.MkdirAll("/data"))
	n.must(n.disk.SyncDir("/"))
	return n
}

// start opens everything.
func (n *node) start() *node {
	n.t.Helper()
	b, err := conf.ParseBroker(n.broker)
	n.must(err)
	fs := n.fs
	if fs == nil {
		fs = n.disk
	}
	hc := hot.DefaultConfig(n.dir)
	hc.Durability = n.durable
	hc.CheckpointInterval = 100 * time.Millisecond // compaction works below the last one
	hc.VerifyInterval = 0                          // every read is checked
	n.hot, err = hot.Open(hc, hot.Deps{FS: fs, Boot: fmt.Sprint("run", n.run)})
	n.must(err)
	deps := Deps{Hot: n.hot, Meta: n.meta}
	if n.quorum != nil {
		deps.Meta = n.quorum
	}
	if n.deaf != nil {
		deps.Meta = n.deaf
	}
	if n.bucket != nil {
		n.archive, err = tier.OpenArchive(tier.DefaultConfig(), tier.Deps{Store: n.bucket})
		n.must(err)
		mc := tier.DefaultManagerConfig()
		mc.DeleteGrace = 0
		mc.Seed = 1
		// A removed topic is swept again when the slowest upload must have ended: here that is soon.
		mc.UploadTimeout, mc.UploadTimeoutMax, mc.CallTimeout = n.callTimeout, n.callTimeout, n.callTimeout
		n.tier, err = tier.NewManager(mc, n.archive, tier.ManagerDeps{Removed: func(p topic.Partition) {
			if m := n.removed.Load(); m != nil {
				m.Removed(p)
			}
		}})
		n.must(err)
		deps.Archive, deps.Tier = n.archive, n.tier
	}
	deps.Peers, deps.BrokerEpoch, deps.Lease, deps.Logger = n.peers, n.brokerEpoch, n.lease, n.logger
	c := DefaultConfig()
	c.Broker = &b
	if n.nodeID > 0 {
		c.NodeID = n.nodeID
	}
	if n.interval > 0 {
		c.RetentionCheckInterval = n.interval
	}
	n.m, err = NewManager(c, deps)
	n.must(err)
	n.removed.Store(n.m)
	if n.quorum != nil {
		return n
	}
	n.m.mu.Lock()
	n.m.follow.broker = &b
	n.m.mu.Unlock()
	return n
}

func (n *node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatalf("%v", err)
	}
}

// stop closes everything in the product's order.
func (n *node) stop() {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	n.must(n.m.Close(ctx))
	if n.tier != nil {
		n.must(n.tier.Close(ctx))
	}
	n.must(n.hot.Close(ctx))
	if n.archive != nil {
		n.must(n.archive.Close(ctx))
	}
}

// stopAfterFault closes everything after the disk has failed: the hot store says so, and that is right.
func (n *node) stopAfterFault() {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	n.must(n.m.Close(ctx))
	n.must(n.tier.Close(ctx))
	if err := n.hot.Close(ctx); !errors.Is(err, hot.ErrOffline) {
		n.t.Fatalf("a store with a failed log closed with %v", err)
	}
	n.must(n.archive.Close(ctx))
}

// stopDead closes what is left of a process whose hot store was abandoned.
func (n *node) stopDead() {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	n.must(n.m.Close(ctx))
	if n.tier != nil {
		n.must(n.tier.Close(ctx))
		n.must(n.archive.Close(ctx))
	}
}

// crash cuts the power: the next start sees what was synced.
func (n *node) crash(seed uint64) {
	n.t.Helper()
	after := n.disk.CrashSeed(seed)
	n.stop() // the old process's goroutines end on the old disk
	n.disk, n.run = after, n.run+1
}

// want dictates what an image would: one partition of one topic, led here.
func (n *node) want(name string, id topic.ID, epoch int32, configs map[string]string) *Partition {
	n.t.Helper()
	n.m.mu.Lock()
	n.m.topicLocked(&meta.Topic{Name: name, ID: id, Configs: configs, Partitions: []meta.Partition{{
		Leader: 1, LeaderEpoch: epoch, PartitionEpoch: epoch, Replicas: []int32{1}, ISR: []int32{1},
	}}})
	n.m.mu.Unlock()
	n.wait("the partition to be led", func() bool {
		p, err := n.m.Partition(name, 0)
		if err != nil {
			return false
		}
		got, err := p.Epoch()
		return err == nil && got == epoch
	})
	p, err := n.m.Partition(name, 0)
	n.must(err)
	return p
}

// wait polls until the condition holds.
func (n *node) wait(what string, ok func() bool) {
	n.t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(200 * time.Microsecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			state := ""
			if n.quorum != nil {
				state = fmt.Sprintf("\ntombstones %+v", n.quorum.Image().DeletedTopics())
			}
			for _, p := range n.m.Partitions() {
				d := p.Describe()
				segments, _ := p.log.Segments()
				state += fmt.Sprintf("\n%+v\nlast error %+v\nlineage %v\nsegments %+v", d, d.Offload.LastError, p.log.Lineage(), segments)
			}
			n.t.Fatalf("waited in vain for %s%s", what, state)
		}
		<-tick.C
	}
}

// patience is how long a test waits for what has to come. It says nothing of how long that takes: a busy machine takes its time.
const patience = time.Minute

// record is one record of the model.
type record struct {
	offset, ts int64
	value      string
}

// build makes a batch; offsets are the log's to give.
func build(t tester, codec batch.Codec, records ...record) []byte {
	t.Helper()
	b := batch.NewBuilder(batch.Options{Codec: codec})
	for _, r := range records {
		if err := b.Append(r.ts, []byte("k"), []byte(r.value), nil); err != nil {
			t.Fatalf("%v", err)
		}
	}
	return slices.Clone([]byte(b.Bytes()))
}

// produce appends one batch and waits until it is committed.
func (n *node) produce(p *Partition, codec batch.Codec, records ...record) Appended {
	n.t.Helper()
	a, err := p.Append(build(n.t, codec, records...), AppendRequest{Acks: -1, Version: 12, Now: now()})
	n.must(err)
	done := make(chan error, 1)
	p.OnCommitted(a.LeaderEpoch, a.LastOffset, func(err error) { done <- err })
	select {
	case err := <-done:
		n.must(err)
	case <-time.After(patience):
		n.t.Fatalf("offset %d never committed: %+v", a.LastOffset, p.Describe())
	}
	return a
}

// fetch reads as a consumer does: hot if it can, cold if it must.
func (n *node) fetch(p *Partition, offset int64, maxBytes int, isolation int8) (ReadResult, error) {
	r := ReadRequest{Offset: offset, MaxBytes: maxBytes, MinOne: true, Isolation: isolation,
		CurrentEpoch: NoEpoch, LastFetchedEpoch: NoEpoch, ReplicaID: NoReplica}
	res, err := p.Read(r)
	if err == nil && res.Cold {
		n.cold++
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		res, err = p.ReadCold(ctx, r)
	}
	return res, err
}

// readAll replays the log from an offset to the high watermark and returns every record at or above that offset.
func (n *node) readAll(p *Partition, from int64, maxBytes int) []record {
	n.t.Helper()
	var all []record
	for offset := from; offset < p.log.HighWatermark(); {
		res, err := n.fetch(p, offset, maxBytes, ReadUncommitted)
		if err != nil {
			n.t.Fatalf("read at %d: %v (%+v)", offset, err, p.Describe())
		}
		if res.Records == nil {
			n.t.Fatalf("nothing at %d, high watermark %d", offset, res.HighWatermark)
		}
		var buf writer
		if _, err := res.Records.WriteTo(&buf); err != nil {
			n.t.Fatalf("%v", err)
		}
		if len(buf) != res.Records.Len() {
			n.t.Fatalf("Len %d, wrote %d", res.Records.Len(), len(buf))
		}
		res.Records.Release()
		rest := []byte(buf)
		for len(rest) > 0 {
			var b batch.Batch
			b, rest, err = batch.Next(rest)
			n.must(err)
			n.must(b.VerifyCRC())
			for r, err := range b.Records(batch.Limits{}) {
				n.must(err)
				if r.Offset >= offset {
					all = append(all, record{r.Offset, r.Timestamp, string(r.Value)})
				}
			}
			if next := b.LastOffset() + 1; next > offset {
				offset = next
			}
		}
	}
	return all
}

// decode lists the records of whole batches.
func decode(t tester, rest []byte) (all []record) {
	t.Helper()
	for len(rest) > 0 {
		b, more, err := batch.Next(rest)
		if err == nil {
			err = b.VerifyCRC()
		}
		if err != nil {
			t.Fatalf("%v", err)
		}
		rest = more
		for r, err := range b.Records(batch.Limits{}) {
			if err != nil {
				t.Fatalf("%v", err)
			}
			all = append(all, record{r.Offset, r.Timestamp, string(r.Value)})
		}
	}
	return all
}

type writer []byte

func (w *writer) Write(p []byte) (int, error) { *w = append(*w, p...); return len(p), nil }

func name(i int) string { return fmt.Sprintf("value-%d", i) }

var _ tester = (*testing.T)(nil)
