package broker

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/replica"
)

// fakePartitions is a set of partitions in memory.
type fakePartitions struct {
	mu     sync.Mutex
	byName map[string][]*fakePartition
	byID   map[topic.ID][]*fakePartition
}

func newFakePartitions() *fakePartitions {
	return &fakePartitions{byName: map[string][]*fakePartition{}, byID: map[topic.ID][]*fakePartition{}}
}

func (f *fakePartitions) add(name string, n int) topic.ID {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := topic.NewID()
	for i := range n {
		p := &fakePartition{id: topic.Partition{Topic: name, ID: id, Index: int32(i)}, committed: true}
		f.byName[name] = append(f.byName[name], p)
	}
	f.byID[id] = f.byName[name]
	return id
}

func (f *fakePartitions) Partition(name string, index int32) (Partition, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ps := f.byName[name]
	if index < 0 || int(index) >= len(ps) {
		return nil, replica.ErrUnknownPartition
	}
	return ps[index], nil
}

func (f *fakePartitions) PartitionByID(id topic.ID, index int32) (Partition, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ps, ok := f.byID[id]
	if !ok {
		return nil, replica.ErrUnknownTopicID
	}
	if index < 0 || int(index) >= len(ps) {
		return nil, replica.ErrUnknownPartition
	}
	return ps[index], nil
}

func (f *fakePartitions) Ready(name string, index int32) bool {
	p, err := f.Partition(name, index)
	return err == nil && p.(*fakePartition).failure() == nil
}

func (p *fakePartition) TxnGuard(int64, int16) (int32, bool, error) { return 1, true, nil }

func (f *fakePartitions) Held() []Partition {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []Partition
	for _, ps := range f.byName {
		for _, p := range ps {
			list = append(list, p)
		}
	}
	return list
}

func (f *fakePartitions) NewWaiter(minBytes int) Waiter {
	return &fakeWaiter{min: minBytes, c: make(chan struct{}, 1)}
}

// fakePartition holds batches; below localStart they are cold.
type fakePartition struct {
	id topic.Partition

	mu         sync.Mutex
	err        error
	appendErr  error
	recErrors  []batch.RecordError
	batches    [][]byte
	end        int64
	logStart   int64
	localStart int64
	hwLag      int64
	committed  bool // commits at once; otherwise by commit()
	waits      []func(error)
	waiters    []*fakeWaiter
	isolation  int8          // of the newest
	coldGate   chan struct{} // ReadCold waits for it
	coldReads  int
	coldPanic  bool // ReadCold and ListOffset panic
	diverging  *replica.Diverging
	aborted    []batch.AbortedTxn
	lastFetch  []replica.ReadRequest
	preferred  map[string]int32 // by rack
	remoteEnd  int64            // told to replicas when above 0
	lacks      int64            // what is missing elsewhere is not here either from this offset on; 0: it is
	released   int
	handed     int
}

func (p *fakePartition) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

func (p *fakePartition) ID() topic.Partition { return p.id }

func (p *fakePartition) Epoch() (int32, error) { return 1, p.failure() }

func (p *fakePartition) Append(records []byte, r replica.AppendRequest) (replica.Appended, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil || p.appendErr != nil {
		return replica.Appended{RecordErrors: p.recErrors}, cmpOr(p.err, p.appendErr)
	}
	b := batch.Batch(records)
	b.SetBaseOffset(p.end)
	kept := slices.Clone(records)
	p.batches = append(p.batches, kept)
	base := p.end
	p.end += int64(b.LastOffsetDelta()) + 1
	if p.committed {
		for _, w := range p.waiters {
			w.fire()
		}
	}
	return replica.Appended{BaseOffset: base, LastOffset: p.end - 1, LogAppendTime: -1, LogStart: p.logStart, LeaderEpoch: 1}, nil
}

func cmpOr(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

func (p *fakePartition) OnCommitted(epoch int32, offset int64, fn func(error)) func() {
	p.mu.Lock()
	if p.committed {
		p.mu.Unlock()
		fn(nil)
		return func() {}
	}
	p.waits = append(p.waits, fn)
	p.mu.Unlock()
	return func() {}
}

// commit finishes every waiting acknowledgement.
func (p *fakePartition) commit(err error) {
	p.mu.Lock()
	waits := p.waits
	p.waits = nil
	p.mu.Unlock()
	for _, fn := range waits {
		fn(err)
	}
}

func (p *fakePartition) waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.waits)
}

func (p *fakePartition) Read(r replica.ReadRequest) (replica.ReadResult, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastFetch = append(p.lastFetch, r)
	absent := p.lacks > 0 && r.Missing > p.lacks
	if p.err != nil {
		return replica.ReadResult{Absent: absent}, p.err
	}
	res := replica.ReadResult{Absent: absent, HighWatermark: p.end - p.hwLag, LastStable: p.end - p.hwLag, LogStart: p.logStart, Diverging: p.diverging, RemoteEnd: p.remoteEnd}
	if p.diverging != nil {
		return res, nil
	}
	if r.Offset < p.logStart || r.Offset > p.end {
		return res, replica.ErrOffsetOutOfRange
	}
	if r.Offset < p.localStart {
		res.Cold = true
		return res, nil
	}
	p.fill(r, &res)
	return res, nil
}

func (p *fakePartition) fill(r replica.ReadRequest, res *replica.ReadResult) {
	if r.Isolation == 1 {
		res.Aborted = append([]batch.AbortedTxn{}, p.aborted...)
	}
	var out []byte
	upper := res.HighWatermark
	if r.ReplicaID >= 0 {
		upper = p.end
	}
	for _, b := range p.batches {
		x := batch.Batch(b)
		if x.LastOffset() < r.Offset || x.LastOffset() >= upper {
			continue
		}
		if len(out)+len(b) > r.MaxBytes && !(r.MinOne && len(out) == 0) {
			break
		}
		out = append(out, b...)
	}
	if len(out) > 0 {
		p.handed++
		res.Records = &fakeRecords{b: out, p: p}
	}
}

func (p *fakePartition) ReadCold(ctx context.Context, r replica.ReadRequest) (replica.ReadResult, error) {
	p.mu.Lock()
	p.coldReads++
	gate, bad := p.coldGate, p.coldPanic
	p.mu.Unlock()
	if bad {
		panic("cold read")
	}
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return replica.ReadResult{}, ctx.Err()
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	res := replica.ReadResult{HighWatermark: p.end, LastStable: p.end, LogStart: p.logStart}
	p.fill(r, &res)
	return res, nil
}

func (p *fakePartition) ListOffset(ctx context.Context, ts int64, isolation int8, replicaID, currentEpoch int32) (replica.TimeOffset, error) {
	p.mu.Lock()
	gate := p.coldGate
	p.coldReads++
	err, bad := p.err, p.coldPanic
	p.mu.Unlock()
	if bad {
		panic("lookup")
	}
	if err != nil {
		return replica.TimeOffset{}, err
	}
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return replica.TimeOffset{}, ctx.Err()
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch ts {
	case replica.TimeLatest:
		return replica.TimeOffset{Offset: p.end - p.hwLag, Timestamp: -1, LeaderEpoch: 1}, nil
	case replica.TimeEarliest:
		return replica.TimeOffset{Offset: p.logStart, Timestamp: -1, LeaderEpoch: 1}, nil
	}
	return replica.TimeOffset{Offset: ts, Timestamp: ts, LeaderEpoch: currentEpoch}, nil
}

func (p *fakePartition) EndOffsetForEpoch(currentEpoch, epoch int32) (int32, int64, error) {
	if err := p.failure(); err != nil {
		return -1, -1, err
	}
	if epoch > 1 {
		return -1, -1, nil
	}
	return epoch, p.end, nil
}

func (p *fakePartition) PreferredReplica(rack string, offset int64) int32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if id, ok := p.preferred[rack]; ok && offset < p.end {
		return id
	}
	return replica.NoReplica
}

func (p *fakePartition) DeleteRecords(_ context.Context, offset int64) (int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if offset == -1 {
		offset = p.end
	}
	if offset > p.end {
		return 0, replica.ErrOffsetOutOfRange
	}
	p.logStart = offset
	return offset, p.err
}

func (p *fakePartition) SizeBytes() (int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, b := range p.batches {
		n += len(b)
	}
	return int64(n), nil
}

func (p *fakePartition) Producers() ([]Producer, error) {
	return []Producer{{ID: 7, Epoch: 1, LastSequence: 3, LastTimestamp: 5, CoordinatorEpoch: -1, TxnStart: -1}}, p.failure()
}

type fakeRecords struct {
	b []byte
	p *fakePartition
}

func (r *fakeRecords) Len() int { return len(r.b) }
func (r *fakeRecords) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(r.b)
	return int64(n), err
}
func (r *fakeRecords) Release() {
	r.p.mu.Lock()
	r.p.released++
	r.p.mu.Unlock()
}

type fakeWaiter struct {
	min   int
	once  sync.Once
	c     chan struct{}
	parts []*fakePartition
}

func (w *fakeWaiter) fire() { w.once.Do(func() { w.c <- struct{}{} }) }

func (w *fakeWaiter) Watch(x Partition, offset int64, isolation int8) {
	p := x.(*fakePartition)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiters, p.isolation = append(p.waiters, w), isolation
	w.parts = append(w.parts, p)
	if offset < p.end-p.hwLag || isolation == isolationLogEnd && offset < p.end {
		w.fire()
	}
}
func (w *fakeWaiter) C() <-chan struct{} { return w.c }
func (w *fakeWaiter) Close() {
	for _, p := range w.parts {
		p.mu.Lock()
		p.waiters = slices.DeleteFunc(p.waiters, func(x *fakeWaiter) bool { return x == w })
		p.mu.Unlock()
	}
}

// watchedAs is the isolation of the newest long poll.
func (p *fakePartition) watchedAs() int8 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.isolation
}

// watched is how many long polls watch p.
func (p *fakePartition) watched() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.waiters)
}

// testServer is a server on a loopback port, over fakes.
type testServer struct {
	*Server
	parts *fakePartitions
	addr  string
}

func startServer(t testing.TB, change func(*Config)) *testServer {
	t.Helper()
	return startServerWith(t, change, Deps{})
}

// startServerWith is startServer over fake partitions and other things given.
func startServerWith(t testing.TB, change func(*Config), deps Deps) *testServer {
	t.Helper()
	cfg := DefaultConfig()
	if change != nil {
		change(&cfg)
	}
	parts := newFakePartitions()
	deps.Partitions = parts
	s := New(cfg, deps)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l, Door{}) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := <-served; err != ErrServerClosed {
			t.Errorf("serve: %v", err)
		}
		if used := s.budgets.used(); used != 0 {
			t.Errorf("request budget: %d bytes never given back", used)
		}
	})
	return &testServer{s, parts, l.Addr().String()}
}

// client speaks raw kmsg to a server.
type client struct {
	t    testing.TB
	nc   net.Conn
	corr int32
}

func dial(t testing.TB, addr string) *client {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	return &client{t: t, nc: nc}
}

// turnedAway dials a server that resets whoever comes now, which may show before the dial is done. Clients come again after a reset,
// and take an orderly end at their first read for final.
func turnedAway(t testing.TB, addr string) {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err == nil {
		defer nc.Close()
		nc.SetReadDeadline(time.Now().Add(30 * time.Second))
		_, err = nc.Read(make([]byte, 1))
	}
	if !isReset(err) {
		t.Fatalf("the connection was not reset: %v", err)
	}
}

var formatter = kmsg.NewRequestFormatter(kmsg.FormatterClientID("test"))

// send writes one request and returns its correlation id.
func (c *client) send(req kmsg.Request) int32 {
	c.t.Helper()
	c.corr++
	if _, err := c.nc.Write(formatter.AppendRequest(nil, req, c.corr)); err != nil {
		c.t.Fatalf("send: %v", err)
	}
	return c.corr
}

// receive reads one frame and returns correlation id and the rest.
func (c *client) receive() (int32, []byte, error) {
	c.nc.SetReadDeadline(time.Now().Add(time.Minute))
	var size [4]byte
	if _, err := io.ReadFull(c.nc, size[:]); err != nil {
		return 0, nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(c.nc, b); err != nil {
		return 0, nil, err
	}
	return int32(binary.BigEndian.Uint32(b)), b[4:], nil
}

// response reads the answer to req.
func (c *client) response(req kmsg.Request, corr int32) kmsg.Response {
	c.t.Helper()
	got, b, err := c.receive()
	if err != nil {
		c.t.Fatalf("receive: %v", err)
	}
	if got != corr {
		c.t.Fatalf("correlation id %d, want %d", got, corr)
	}
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	if resp.IsFlexible() && req.Key() != keyApiVersions {
		if b[0] != 0 {
			c.t.Fatalf("response header tags: %x", b[0])
		}
		b = b[1:]
	}
	if err := resp.ReadFrom(b); err != nil {
		c.t.Fatalf("decode answer: %v", err)
	}
	if again := resp.AppendTo(nil); !bytes.Equal(again, b) {
		c.t.Fatalf("answer is not what kmsg writes:\n got %x\nkmsg %x", b, again)
	}
	return resp
}

// ask sends req and reads its answer, which must be byte for byte what kmsg makes of it.
func (c *client) ask(req kmsg.Request) kmsg.Response {
	c.t.Helper()
	return c.response(req, c.send(req))
}

// closed waits until the server has closed the connection.
func (c *client) closed() {
	c.t.Helper()
	if _, _, err := c.receive(); err == nil {
		c.t.Fatal("the connection is still open")
	} else if ne, ok := err.(net.Error); ok && ne.Timeout() {
		c.t.Fatal("the connection is still open")
	}
}

// isReset waits for the server to reset the connection: clients come again then, and take an orderly end for final.
func (c *client) isReset() {
	c.t.Helper()
	if _, _, err := c.receive(); !isReset(err) {
		c.t.Fatalf("the connection was not reset: %v", err)
	}
}

// oneBatch is a batch of records with the given values.
func oneBatch(t testing.TB, values ...string) []byte {
	t.Helper()
	b := batch.NewBuilder(batch.Options{})
	for _, v := range values {
		b.Append(time.Now().UnixMilli(), nil, []byte(v), nil)
	}
	return slices.Clone([]byte(b.Bytes()))
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
		<-tick.C
	}
}
