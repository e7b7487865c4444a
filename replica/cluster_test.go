package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/hot"
	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/vfs"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/conf"
	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/replica/peer"
	"github.com/varvelog/varve/tier/objstore"
)

// cluster is several brokers' lower halves in one process: real metadata by a quorum of one that never fails, memory disks,
// one memory bucket, and fetches by function call.
type cluster struct {
	t      *testing.T
	quorum *meta.Node
	bucket objstore.Store
	nodes  []*member

	undecided atomic.Int64 // answers that damage hides what is asked for

	mu  sync.Mutex
	cut map[[2]int32]bool // fetches from the first broker to the second fail
}

// member is one broker of a cluster.
type member struct {
	*node
	c     *cluster
	id    int32
	rack  string
	ears  *deafness
	epoch atomic.Int64 // the manager of a life that has ended may still ask
	up    bool         // c.mu guards it, and node.m
}

// deafness is the metadata of a broker that may stop hearing of it, as one that is cut off from the quorum does.
type deafness struct {
	Metadata

	mu sync.Mutex  // guards the following
	at *meta.Image // the last it heard of; nil while it hears
}

// Subscribe implements Metadata.
func (d *deafness) Subscribe(fn func(prev, next *meta.Image)) (cancel func()) {
	return d.Metadata.Subscribe(func(prev, next *meta.Image) {
		if d.image() == nil {
			fn(prev, next)
		}
	})
}

// Image implements Metadata.
func (d *deafness) Image() *meta.Image {
	if img := d.image(); img != nil {
		return img
	}
	return d.Metadata.Image()
}

// AlterPartitions implements Metadata.
func (d *deafness) AlterPartitions(ctx context.Context, leader int32, epoch int64, wishes []meta.AlterPartition) ([]meta.AlteredPartition, error) {
	if d.image() != nil {
		return nil, meta.ErrNotController
	}
	return d.Metadata.AlterPartitions(ctx, leader, epoch, wishes)
}

func (d *deafness) image() *meta.Image {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.at
}

// stop has the broker hear nothing more.
func (d *deafness) stop() {
	img := d.Metadata.Image()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at = img
}

// hear has the next life of the broker hear again.
func (d *deafness) hear() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at = nil
}

// start has the broker hear again, from the newest image on.
func (d *deafness) start(m *Manager) {
	d.hear()
	m.image(nil, d.Metadata.Image())
}

// running is the broker's manager, nil while it is down.
func (m *member) running() *Manager {
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	if !m.up {
		return nil
	}
	return m.m
}

func (m *member) set(up bool) {
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	m.up = up
}

// lagging are the settings of a cluster in which who does not follow soon leaves the in-sync set. In others nobody does for being slow: on
// a busy machine a follower may be, and its leader would take no records.
var lagging = map[string]string{"replica.lag.time.max.ms": "1000"}

func startCluster(t *testing.T, n int, d hot.Durability, settings map[string]string) *cluster {
	t.Helper()
	c := &cluster{t: t, bucket: objstore.NewMem(0), cut: make(map[[2]int32]bool)}
	all := map[string]string{"varve.tier.store": "mem:", "replica.fetch.backoff.ms": "50", "replica.lag.time.max.ms": "3600000", "replica.fetch.wait.max.ms": "200", "broker.session.timeout.ms": "3600000"}
	for k, v := range settings {
		all[k] = v
	}
	b, err := conf.ParseBroker(all)
	if err != nil {
		t.Fatal(err)
	}
	c.quorum, err = meta.Open(meta.Config{Dir: t.TempDir(), NodeID: 1, Broker: b}, meta.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.quorum.Close(context.Background()) })
	for i := range n {
		m := &member{node: newNode(t), c: c, id: int32(i + 1)}
		m.durable = d
		m.broker, m.bucket, m.quorum, m.callTimeout, m.nodeID, m.peers = all, c.bucket, c.quorum, time.Second, m.id, clusterPeers{c, m.id}
		m.brokerEpoch = func() int64 { return m.epoch.Load() }
		m.ears = &deafness{Metadata: c.quorum}
		m.deaf = m.ears
		c.nodes = append(c.nodes, m)
		m.boot(false)
	}
	t.Cleanup(func() {
		for _, m := range c.nodes {
			if m.up {
				m.stop()
			}
		}
	})
	return c
}

// boot registers the broker anew and starts it.
func (m *member) boot(lossy bool) {
	m.t.Helper()
	b, err := m.c.quorum.RegisterBroker(context.Background(), meta.Registration{
		ID: m.id, Host: "localhost", Port: 9092 + m.id, Incarnation: topic.NewID(), MayLackRecords: lossy, Rack: m.rack,
	})
	m.must(err)
	m.epoch.Store(b.Epoch)
	m.start()
	m.set(true)
}

// kill ends the broker as the death of its process would; power says that what was not synced is lost too.
func (m *member) kill(power bool, seed uint64) {
	m.t.Helper()
	m.set(false)
	m.must(m.c.quorum.FenceBroker(context.Background(), m.id, m.epoch.Load()))
	if power {
		m.crash(seed)
		return
	}
	m.hot.Abandon()
	m.stopDead()
}

// wipe replaces a dead broker's disk by an empty one.
func (m *member) wipe() {
	m.t.Helper()
	m.disk = vfs.NewMem(1)
	m.must(m.disk.MkdirAll("/data"))
	m.must(m.disk.SyncDir("/"))
}

// held is a broker's partition.
func (c *cluster) held(id int32, name string) *Partition {
	c.t.Helper()
	var p *Partition
	c.wait("the partition to be open", func() (ok bool) {
		m := c.nodes[id-1].running()
		if m == nil {
			return false
		}
		var err error
		p, err = m.Partition(name, 0)
		return err == nil
	})
	return p
}

// produceAll has that many records acknowledged, and adds them to what was.
func (c *cluster) produceAll(name string, n int, acked map[int64]string) {
	c.t.Helper()
	for range n {
		value := fmt.Sprintf("value-%d-%0100d", len(acked), len(acked))
		offset, err := c.acked(name, value)
		if err != nil {
			c.t.Fatal(err)
		}
		acked[offset] = value
	}
}

// remoteEnd is the bucket's committed end of a partition.
func (c *cluster) remoteEnd(p *Partition) int64 {
	s, err := p.remote.Refresh(context.Background())
	if err != nil {
		return NoOffset
	}
	return s.End
}

// topic creates a topic whose replicas are the brokers given, the first the preferred leader.
func (c *cluster) topic(name string, replicas []int32, configs ...string) topic.ID {
	c.t.Helper()
	nt := meta.NewTopic{Name: name, Partitions: -1, ReplicationFactor: -1, Assignment: []meta.Assignment{{Partition: 0, Brokers: replicas}}}
	for i := 0; i < len(configs); i += 2 {
		nt.Configs = append(nt.Configs, meta.ConfigValue{Name: configs[i], Value: &configs[i+1]})
	}
	made, err := c.quorum.CreateTopics(context.Background(), []meta.NewTopic{nt}, false)
	if err == nil {
		err = made[0].Err
	}
	if err != nil {
		c.t.Fatal(err)
	}
	c.leader(name)
	return made[0].ID
}

func (c *cluster) state(name string) meta.Partition {
	_, p := c.quorum.Image().Partition(name, 0)
	return *p
}

// leader waits until the image's leader serves the partition.
func (c *cluster) leader(name string) (*member, *Partition) {
	c.t.Helper()
	var m *member
	var p *Partition
	c.wait("the partition to be led", func() bool {
		s := c.state(name)
		if s.Leader < 0 {
			return false
		}
		m = c.nodes[s.Leader-1]
		r := m.running()
		if r == nil {
			return false
		}
		var err error
		if p, err = r.Partition(name, 0); err != nil {
			return false
		}
		epoch, err := p.Epoch()
		return err == nil && epoch == s.LeaderEpoch
	})
	return m, p
}

func (c *cluster) wait(what string, ok func() bool) {
	c.t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(500 * time.Microsecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			state := ""
			for _, t := range c.quorum.Image().Topics() {
				state += fmt.Sprintf("\n%s %+v", t.Name, t.Partitions)
			}
			for _, m := range c.nodes {
				r := m.running()
				if r == nil {
					continue
				}
				for _, p := range r.Partitions() {
					state += fmt.Sprintf("\nbroker %d: %+v lineage %v", m.id, p.Describe(), p.log.Lineage())
				}
			}
			c.t.Fatalf("waited in vain for %s%s", what, state)
		}
		<-tick.C
	}
}

// inSync waits until the in-sync set has that many members and they have all that the leader has.
func (c *cluster) inSync(name string, n int) {
	c.t.Helper()
	c.wait(fmt.Sprintf("%d replicas in sync", n), func() bool {
		s := c.state(name)
		if len(s.ISR) != n || s.Leader < 0 {
			return false
		}
		lead, err := c.nodes[s.Leader-1].m.Partition(name, 0)
		if err != nil {
			return false
		}
		for _, id := range s.ISR {
			p, err := c.nodes[id-1].m.Partition(name, 0)
			if err != nil || p.log.Offsets().End != lead.log.Offsets().End || p.log.HighWatermark() != lead.log.HighWatermark() {
				return false
			}
		}
		return true
	})
}

// acked appends one record and waits for the acknowledgement of acks=all.
func (c *cluster) acked(name, value string) (int64, error) {
	c.t.Helper()
	return c.ackedWithin(patience, name, value)
}

// ackedWithin is acked for records whose acknowledgement may not come.
func (c *cluster) ackedWithin(limit time.Duration, name, value string) (int64, error) {
	c.t.Helper()
	_, p := c.leader(name)
	a, err := p.Append(build(c.t, batch.None, record{ts: now(), value: value}), AppendRequest{Acks: -1, Version: 12, Now: now()})
	if err != nil {
		return 0, err
	}
	done := make(chan error, 1)
	p.OnCommitted(a.LeaderEpoch, a.LastOffset, func(err error) { done <- err })
	select {
	case err := <-done:
		return a.LastOffset, err
	case <-time.After(limit):
		return 0, errPending
	}
}

// errPending is returned for a record that was neither committed nor given up in time.
var errPending = errors.New("not acknowledged yet")

// holds checks that every replica has the records given at their offsets.
func (c *cluster) holds(name string, want map[int64]string) {
	c.t.Helper()
	for _, id := range c.state(name).Replicas {
		m := c.nodes[id-1]
		p := m.partition(name, 0)
		got := make(map[int64]string)
		o := p.log.Offsets()
		for at := o.LocalStart; at < o.End; {
			s, err := p.log.Read(at, 1<<20, o.End, true)
			if err != nil {
				c.t.Fatal(err)
			}
			err = s.Batches(func(b batch.Batch) error {
				for r, err := range b.Records(batch.Limits{}) {
					if err != nil {
						return err
					}
					got[r.Offset] = string(r.Value)
				}
				return nil
			})
			if err != nil {
				c.t.Fatal(err)
			}
			at = s.NextOffset()
			s.Release()
		}
		for offset, value := range want {
			if offset >= o.LocalStart && got[offset] != value {
				c.t.Fatalf("broker %d has %q at %d, acknowledged was %q (%+v)", id, got[offset], offset, value, p.Describe())
			}
		}
	}
}

// same compares the bytes of all replicas from the largest local start on.
func (c *cluster) same(name string) {
	c.t.Helper()
	var want []byte
	start, replicas := int64(0), c.state(name).Replicas
	for _, id := range replicas {
		p := c.nodes[id-1].partition(name, 0)
		start = max(start, p.log.Offsets().LocalStart)
	}
	for i, id := range replicas {
		p := c.nodes[id-1].partition(name, 0)
		var got bytes.Buffer
		o := p.log.Offsets()
		for at := start; at < o.End; {
			s, err := p.log.Read(at, 1<<20, o.End, true)
			if err != nil {
				c.t.Fatal(err)
			}
			if _, err := s.WriteTo(&got); err != nil {
				c.t.Fatal(err)
			}
			at = s.NextOffset()
			s.Release()
		}
		if i == 0 {
			want = got.Bytes()
			continue
		}
		if !bytes.Equal(got.Bytes(), want) {
			c.t.Fatalf("replica %d of %s has other bytes than %d: %d against %d", id, name, replicas[0], got.Len(), len(want))
		}
	}
}

// part makes every fetch of a broker from another fail, or heals that.
func (c *cluster) part(from, to int32, broken bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut[[2]int32{from, to}] = broken
}

func (c *cluster) broken(from, to int32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cut[[2]int32{from, to}]
}

// clusterPeers are the connections of one broker.
type clusterPeers struct {
	c    *cluster
	self int32
}

var errCut = errors.New("connection is cut")

func (x clusterPeers) Dial(_ context.Context, b meta.Broker) (Peer, error) {
	to := x.c.nodes[b.ID-1]
	m := to.running()
	if x.c.broken(x.self, b.ID) || m == nil {
		return nil, errCut
	}
	return &clusterPeer{c: x.c, self: x.self, to: to, m: m, asked: make(map[replicaKey]kmsg.FetchRequestTopicPartition)}, nil
}

// clusterPeer serves a session of fetches as the front door does.
type clusterPeer struct {
	c     *cluster
	self  int32
	to    *member
	m     *Manager
	epoch int32
	asked map[replicaKey]kmsg.FetchRequestTopicPartition
}

func (x *clusterPeer) Close() error { return nil }

func (x *clusterPeer) Fetch(ctx context.Context, r *kmsg.FetchRequest) (*kmsg.FetchResponse, error) {
	if r.SessionEpoch <= 0 {
		clear(x.asked)
		x.epoch = r.SessionEpoch
	}
	if r.SessionEpoch != x.epoch {
		return nil, fmt.Errorf("session epoch %d, want %d", r.SessionEpoch, x.epoch)
	}
	x.epoch++
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			x.asked[replicaKey{t.TopicID, p.Partition}] = p
		}
	}
	for _, t := range r.ForgottenTopics {
		for _, i := range t.Partitions {
			delete(x.asked, replicaKey{t.TopicID, i})
		}
	}
	deadline := time.After(time.Duration(r.MaxWaitMillis) * time.Millisecond)
	for last := false; ; {
		if x.c.broken(x.self, x.to.id) || x.to.running() != x.m {
			return nil, errCut
		}
		w := x.m.NewWaiter(1)
		resp, urgent := x.read(r, w)
		if urgent || last {
			w.Close()
			return resp, nil
		}
		select {
		case <-w.C():
		case <-deadline:
			last = true
		case <-ctx.Done():
			w.Close()
			return nil, ctx.Err()
		}
		w.Close()
	}
}

func (x *clusterPeer) read(r *kmsg.FetchRequest, w *Waiter) (resp *kmsg.FetchResponse, urgent bool) {
	resp = &kmsg.FetchResponse{SessionID: 7}
	for key, a := range x.asked {
		out := kmsg.NewFetchResponseTopicPartition()
		out.Partition = key.index
		p, err := x.m.PartitionByID(key.id, key.index)
		var res ReadResult
		if err == nil {
			w.Watch(p, a.FetchOffset, readLogEnd)
			res, err = p.Read(ReadRequest{
				Offset: a.FetchOffset, MaxBytes: int(a.PartitionMaxBytes), MinOne: true, CurrentEpoch: a.CurrentLeaderEpoch,
				LastFetchedEpoch: a.LastFetchedEpoch, ReplicaID: r.ReplicaState.ID, ReplicaEpoch: r.ReplicaState.Epoch,
				LogStart:  a.LogStartOffset,
				Complaint: &Complaint{Damaged: tagged(&a.UnknownTags, peer.TagDamaged), Refused: tagged(&a.UnknownTags, peer.TagRefused)}, AnyReplica: true, Missing: tagged(&a.UnknownTags, peer.TagMissing),
			})
			if res.Absent {
				peer.SetInt64(&out.UnknownTags, peer.TagAbsent, tagged(&a.UnknownTags, peer.TagMissing))
			}
			damaged := tagged(&a.UnknownTags, peer.TagDamaged)
			if a.UnknownTags = (kmsg.Tags{}); damaged != NoOffset { // refusals are said once
				peer.SetInt64(&a.UnknownTags, peer.TagDamaged, damaged)
			}
			x.asked[key] = a
		}
		out.HighWatermark, out.LogStartOffset = res.HighWatermark, res.LogStart
		switch {
		case err == nil:
		case errors.Is(err, ErrOffsetOutOfRange):
			out.ErrorCode = wireOffsetOutOfRange
		case errors.Is(err, ErrMovedToTiered):
			out.ErrorCode = wireMovedToTiered
		case errors.Is(err, ErrOffsetNotAvailable):
			out.ErrorCode = 78
			x.c.undecided.Add(1)
		default:
			out.ErrorCode = 6
		}
		if res.RemoteEnd >= 0 {
			peer.SetInt64(&out.UnknownTags, peer.TagRemoteEnd, res.RemoteEnd)
		}
		if res.Diverging != nil {
			out.DivergingEpoch.Epoch, out.DivergingEpoch.EndOffset = res.Diverging.Epoch, res.Diverging.EndOffset
		}
		if res.Records != nil {
			var buf bytes.Buffer
			_, werr := res.Records.WriteTo(&buf)
			res.Records.Release()
			if werr == nil {
				out.RecordBatches = buf.Bytes()
			}
		}
		urgent = urgent || err != nil || res.Diverging != nil || res.Records != nil
		resp.Topics = append(resp.Topics, kmsg.FetchResponseTopic{TopicID: key.id, Partitions: []kmsg.FetchResponseTopicPartition{out}})
	}
	return resp, urgent
}

// tagged is a number in a tag, NoOffset without it.
func tagged(tags *kmsg.Tags, tag uint32) int64 {
	if v, ok := peer.Int64(tags, tag); ok {
		return v
	}
	return NoOffset
}
