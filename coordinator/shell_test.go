package coordinator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/topic"
)

// memLog is the offsets topic in memory.
type memLog struct {
	mu      sync.Mutex // guards the following
	batches map[int32][][]byte
	ends    map[int32]int64 // the next offset
	epochs  map[int32]int32 // led partitions
	appends int
	lose    int // that many appends fail and leave nothing behind
	mislead int // that many appends fail although the records are in the log
	hold    chan struct{}
	reading chan struct{} // reads wait for it
	alone   bool          // without a lease
}

var errDisk = errors.New("disk gone")

func newMemLog(partitions int32) *memLog {
	l := &memLog{batches: map[int32][][]byte{}, ends: map[int32]int64{}, epochs: map[int32]int32{}}
	for i := range partitions {
		l.epochs[i] = 1
	}
	return l
}

func (l *memLog) Epoch(p int32) (int32, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.epochs[p]
	return e, ok
}

func (l *memLog) Leased() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.alone
}

func (l *memLog) Append(ctx context.Context, p, epoch int32, records batch.Batch) error {
	l.mu.Lock()
	hold := l.hold
	l.appends++
	l.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if now, ok := l.epochs[p]; !ok || now != epoch {
		return errors.New("deposed")
	}
	if l.lose > 0 {
		l.lose--
		return errDisk
	}
	records.SetBaseOffset(l.ends[p])
	l.ends[p] = records.LastOffset() + 1
	l.batches[p] = append(l.batches[p], slices.Clone(records))
	if l.mislead > 0 {
		l.mislead--
		return errDisk
	}
	return nil
}

func (l *memLog) Read(ctx context.Context, p int32, fn func(batch.Batch) error) error {
	l.mu.Lock()
	list, reading := slices.Clone(l.batches[p]), l.reading
	l.mu.Unlock()
	if reading != nil {
		select {
		case <-reading:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for _, b := range list {
		if err := fn(slices.Clone(b)); err != nil {
			return err
		}
	}
	return nil
}

// Cut removes whole batches below offset.
func (l *memLog) Cut(_ context.Context, p int32, offset int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.batches[p] = slices.DeleteFunc(l.batches[p], func(b []byte) bool { return batch.Batch(b).LastOffset() < offset })
	return nil
}

func (l *memLog) set(fn func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fn()
}

// memMetadata is the metadata quorum in memory, of one broker with id 1.
type memMetadata struct {
	mu     sync.Mutex // guards the following
	img    *meta.Image
	subs   map[int]func(prev, next *meta.Image)
	index  uint64
	create []meta.NewTopic
}

func newMemMetadata(t testing.TB, partitions int) *memMetadata {
	m := &memMetadata{img: &meta.Image{}, subs: map[int]func(prev, next *meta.Image){}}
	if partitions > 0 {
		m.topic(t, topic.ConsumerOffsets, topic.ID{1}, partitions)
	}
	return m
}

func (m *memMetadata) Image() *meta.Image {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.img
}

func (m *memMetadata) Subscribe(fn func(prev, next *meta.Image)) (cancel func()) {
	m.mu.Lock()
	id := len(m.subs)
	m.subs[id] = fn
	img := m.img
	m.mu.Unlock()
	fn(nil, img)
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.subs, id)
	}
}

func (m *memMetadata) CreateTopics(_ context.Context, topics []meta.NewTopic, _ bool) ([]meta.CreatedTopic, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.create = append(m.create, topics...)
	return []meta.CreatedTopic{{}}, nil
}

func (m *memMetadata) apply(t testing.TB, changes ...meta.Change) {
	t.Helper()
	m.mu.Lock()
	m.index++
	prev := m.img
	next, err := prev.Apply(meta.Command{Base: prev.Index, Changes: changes}, m.index)
	if err != nil {
		m.mu.Unlock()
		t.Fatal(err)
	}
	m.img = next
	subs := slices.Collect(maps.Values(m.subs))
	m.mu.Unlock()
	for _, fn := range subs {
		fn(prev, next)
	}
}

func (m *memMetadata) topic(t testing.TB, name string, id topic.ID, partitions int) {
	list := make([]meta.Partition, partitions)
	for i := range list {
		list[i] = meta.Partition{Leader: 1, Replicas: []int32{1}, ISR: []int32{1}}
	}
	m.apply(t, meta.CreateTopic{Name: name, ID: id, Partitions: list})
}

// rig is a coordinator over a log in memory, inside a bubble of fake time.
type rig struct {
	t    *testing.T
	log  *memLog
	meta *memMetadata
	cfg  Config
	*Coordinator
}

func bubble(t *testing.T, fn func(r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.NodeID = 1
		r := &rig{t: t, log: newMemLog(2), meta: newMemMetadata(t, 2), cfg: cfg}
		r.open()
		fn(r)
		r.close()
	})
}

func (r *rig) open() {
	r.t.Helper()
	c, err := Open(r.cfg, Deps{Log: r.log, Metadata: r.meta})
	if err != nil {
		r.t.Fatal(err)
	}
	r.Coordinator = c
	synctest.Wait()
}

func (r *rig) close() {
	r.t.Helper()
	if err := r.Close(context.Background()); err != nil {
		r.t.Fatal(err)
	}
	if err := r.Close(context.Background()); err != nil {
		r.t.Fatalf("closed again: %v", err)
	}
}

func (r *rig) join(group, id string) (*JoinResult, error) {
	return r.Join(context.Background(), &JoinRequest{
		Group: group, MemberID: id, ClientID: "c", SessionMillis: 10_000, RebalanceMillis: 30_000, ProtocolType: consumerProtocol,
		Protocols: []Protocol{{Name: "range", Metadata: []byte("m")}},
	})
}

// stable makes a group of one member.
func (r *rig) stable(group string) (id string, generation int32) {
	r.t.Helper()
	j, err := r.join(group, "")
	if err != nil {
		r.t.Fatal(err)
	}
	s, err := r.Sync(context.Background(), &SyncRequest{
		Group: group, MemberID: j.MemberID, Generation: j.Generation, Assignments: []Assignment{{j.MemberID, []byte("mine")}},
	})
	if err != nil || string(s.Assignment) != "mine" {
		r.t.Fatalf("sync: %+v, %v", s, err)
	}
	return j.MemberID, j.Generation
}

func (r *rig) heartbeat(group, id string, generation int32) error {
	return r.Heartbeat(context.Background(), &HeartbeatRequest{Group: group, MemberID: id, Generation: generation})
}

func (r *rig) commit(ctx context.Context, group string, at int64) error {
	res, err := r.Commit(ctx, &CommitRequest{
		Group: group, Generation: NoGeneration, RetentionMillis: -1, Partitions: []CommitPartition{{Topic: "t", Offset: at}},
	})
	if err != nil {
		return err
	}
	return res.Errs[0]
}

func (r *rig) fetched(group string) int64 {
	r.t.Helper()
	got, err := r.FetchOffsets(context.Background(), &FetchOffsetsRequest{Group: group, Partitions: []OffsetPartition{{Topic: "t"}}})
	if err != nil {
		r.t.Fatalf("fetch: %v", err)
	}
	return got[0].Offset
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func TestGroupsAndOffsetsSurviveARestart(t *testing.T) {
	bubble(t, func(r *rig) {
		id, gen := r.stable("g")
		r.must(r.commit(context.Background(), "h", 42))
		r.close()
		r.log.set(func() { r.log.epochs[0], r.log.epochs[1] = 2, 2 })
		r.open()
		r.must(r.heartbeat("g", id, gen))
		s, err := r.Sync(context.Background(), &SyncRequest{Group: "g", MemberID: id, Generation: gen})
		if err != nil || string(s.Assignment) != "mine" {
			t.Errorf("assignment %q, %v", s.Assignment, err)
		}
		if at := r.fetched("h"); at != 42 {
			t.Errorf("offset %d", at)
		}
		groups, err := r.List(context.Background())
		if err != nil || len(groups) != 2 {
			t.Errorf("groups %v, %v", groups, err)
		}
		time.Sleep(11 * time.Second) // its session, counted from the restart
		if err := r.heartbeat("g", id, gen); !errors.Is(err, ErrUnknownMember) {
			t.Errorf("heartbeat after the session: %v", err)
		}
	})
}

func TestAppendThatFailsIsNotAnsweredAsDone(t *testing.T) {
	for _, c := range []struct {
		name          string
		lose, mislead int
		want          int64
	}{{"and leaves nothing", 1, 0, 1}, {"and is in the log all the same", 0, 1, 2}} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				group := sibling("h", "g", "g2", "g3", "g4", "g5")
				r.must(r.commit(context.Background(), group, 1))
				id, gen := r.stable("h")
				waits := make(chan error)
				go func() {
					_, err := r.join("h", "") // waits for the member to rejoin
					waits <- err
				}()
				synctest.Wait()
				r.log.set(func() { r.log.lose, r.log.mislead = c.lose, c.mislead })
				if err := r.commit(context.Background(), group, 2); !errors.Is(err, ErrNotAvailable) {
					t.Fatalf("commit: %v", err)
				}
				if err := <-waits; !errors.Is(err, ErrNotAvailable) {
					t.Errorf("the join that waited: %v", err)
				}
				if at := r.fetched(group); at != c.want {
					t.Errorf("offset %d, want %d", at, c.want)
				}
				r.must(r.heartbeat("h", id, gen)) // the rebalance was never written
			})
		})
	}
}

// sibling is one of names that has the same partition of two.
func sibling(of string, names ...string) string {
	for _, n := range names {
		if Partition(n, 2) == Partition(of, 2) {
			return n
		}
	}
	panic("no sibling")
}

func TestAppendThatHangsIsGivenUp(t *testing.T) {
	bubble(t, func(r *rig) {
		r.log.set(func() { r.log.hold = make(chan struct{}) })
		began := time.Now()
		if err := r.commit(context.Background(), "g", 1); !errors.Is(err, ErrNotAvailable) {
			t.Errorf("commit: %v", err)
		}
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("given up after %v", took)
		}
		r.log.set(func() { r.log.hold = nil })
		if at := r.fetched("g"); at != NoOffset {
			t.Errorf("offset %d", at)
		}
	})
}

func TestNewLeadershipReadsWhatTheLastOneWrote(t *testing.T) {
	bubble(t, func(r *rig) {
		p := Partition("g", 2)
		r.must(r.commit(context.Background(), "g", 1))
		waits := make(chan error)
		id, _ := r.stable("g")
		go func() {
			_, err := r.join("g", "")
			waits <- err
		}()
		synctest.Wait()
		// Another broker leads for a while and takes a commit; then this one leads again.
		other := newCore(&r.cfg, 0)
		other.step(event{ticket: 1, body: &CommitRequest{Group: "g", Generation: -1, RetentionMillis: -1, Partitions: []CommitPartition{{Topic: "t", Offset: 9}}}}, 0)
		b := batch.NewBuilder(batch.Options{})
		for _, rec := range other.take().records {
			r.must(b.Append(0, rec.key, rec.value, nil))
		}
		r.log.set(func() {
			r.log.epochs[p] = 3
			r.log.batches[p] = append(r.log.batches[p], slices.Clone(b.Bytes()))
		})
		if at := r.fetched("g"); at != 9 {
			t.Errorf("offset %d", at)
		}
		if err := <-waits; !errors.Is(err, ErrNotCoordinator) {
			t.Errorf("a join of the old leadership: %v", err)
		}
		r.must(r.heartbeat("g", id, 1))
	})
}

func TestDeposedCoordinatorSaysSo(t *testing.T) {
	bubble(t, func(r *rig) {
		id, gen := r.stable("g")
		waits := make(chan error)
		go func() {
			_, err := r.join("g", "")
			waits <- err
		}()
		synctest.Wait()
		r.log.set(func() { clear(r.log.epochs) })
		if err := r.heartbeat("g", id, gen); !errors.Is(err, ErrNotCoordinator) {
			t.Errorf("heartbeat: %v", err)
		}
		gone := meta.ChangePartitions{ID: topic.ID{1}}
		for i := range int32(2) {
			gone.Changes = append(gone.Changes, meta.PartitionChange{Index: i, Set: meta.SetLeader, Leader: meta.NoLeader})
		}
		r.meta.apply(t, gone)
		if err := <-waits; !errors.Is(err, ErrNotCoordinator) {
			t.Errorf("the join that waited: %v", err)
		}
	})
}

// The metadata names another leader before the log here has been told to stop.
func TestACoordinatorThatLearnsLateIsDeposedAllTheSame(t *testing.T) {
	bubble(t, func(r *rig) {
		r.stable("g")
		waits := make(chan error)
		go func() {
			_, err := r.join("g", "") // waits for the member to join again
			waits <- err
		}()
		synctest.Wait()
		gone := meta.ChangePartitions{ID: topic.ID{1}}
		for i := range int32(2) {
			gone.Changes = append(gone.Changes, meta.PartitionChange{Index: i, Set: meta.SetLeader, Leader: meta.NoLeader})
		}
		r.meta.apply(t, gone)
		time.Sleep(300 * time.Millisecond)
		r.log.set(func() { clear(r.log.epochs) })
		began := time.Now()
		if err := <-waits; !errors.Is(err, ErrNotCoordinator) {
			t.Errorf("the join that waited: %v", err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("it was told after %v", took)
		}
	})
}

func TestRequestsWaitAWhileForTheLogToBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, log: newMemLog(2), meta: newMemMetadata(t, 2), cfg: testConfig()}
		r.cfg.NodeID = 1
		r.log.reading = make(chan struct{})
		r.open()
		defer r.close()
		began := time.Now()
		if err := r.commit(context.Background(), "g", 1); !errors.Is(err, ErrLoading) {
			t.Errorf("commit: %v", err)
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("told so after %v", took)
		}
		if _, err := r.Locate(context.Background(), "g"); !errors.Is(err, ErrNotAvailable) {
			t.Errorf("locate: %v", err)
		}
		if _, err := r.List(context.Background()); !errors.Is(err, ErrLoading) {
			t.Errorf("list: %v", err)
		}
		patient := make(chan error)
		go func() { patient <- r.commit(context.Background(), "g", 2) }()
		synctest.Wait()
		close(r.log.reading)
		r.must(<-patient)
		if at := r.fetched("g"); at != 2 {
			t.Errorf("offset %d: a commit that was refused has been made", at)
		}
		synctest.Wait()
		if b, err := r.Locate(context.Background(), "g"); err != nil || b != 1 {
			t.Errorf("locate: %d, %v", b, err)
		}
	})
}

func TestLeadershipThatChangesWhileTheLogIsReadIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, log: newMemLog(2), meta: newMemMetadata(t, 2), cfg: testConfig()}
		r.cfg.NodeID = 1
		reading := make(chan struct{})
		r.log.reading = reading
		r.open()
		defer r.close()
		got := make(chan int64)
		go func() {
			q := &FetchOffsetsRequest{Group: "g", Partitions: []OffsetPartition{{Topic: "t"}}}
			list, err := r.FetchOffsets(context.Background(), q)
			for errors.Is(err, ErrLoading) {
				time.Sleep(100 * time.Millisecond)
				list, err = r.FetchOffsets(context.Background(), q)
			}
			if err != nil {
				t.Errorf("fetch: %v", err)
				close(got)
				return
			}
			got <- list[0].Offset
		}()
		synctest.Wait()
		p := Partition("g", 2)
		o := offset{offset: 9, committed: 1, expires: -1}
		rec := offsetRecord("g", "t", 0, &o)
		b := batch.NewBuilder(batch.Options{})
		r.must(b.Append(0, rec.key, rec.value, nil))
		r.log.set(func() {
			r.log.batches[p] = [][]byte{slices.Clone(b.Bytes())}
			r.log.epochs[p] = 3
			r.log.reading = nil
		})
		close(reading)
		if at := <-got; at != 9 {
			t.Errorf("offset %d: what the leadership in between wrote is missing", at)
		}
	})
}

func TestCommitsThatComeTogetherShareAnAppend(t *testing.T) {
	bubble(t, func(r *rig) {
		hold := make(chan struct{})
		r.log.set(func() { r.log.hold = hold })
		var wg sync.WaitGroup
		const n = 100
		for i := range n {
			wg.Go(func() { r.must(r.commit(context.Background(), "g", int64(i))) })
			if i == 0 {
				synctest.Wait() // the first is being written when the others come
			}
		}
		synctest.Wait()
		r.log.set(func() { r.log.hold = nil })
		close(hold)
		wg.Wait()
		if r.log.appends != 2 {
			t.Errorf("%d appends for %d commits", r.log.appends, n)
		}
	})
}

func TestQueueIsBoundedAndWaitingCanBeGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, log: newMemLog(2), meta: newMemMetadata(t, 2), cfg: testConfig()}
		r.cfg.NodeID, r.cfg.QueueMax = 1, 2
		r.open()
		hold := make(chan struct{})
		r.log.set(func() { r.log.hold = hold })
		ctx, cancel := context.WithCancel(context.Background())
		errs := make(chan error, 10)
		for i := range 10 {
			go func() { errs <- r.commit(ctx, "g", int64(i)) }()
			if i == 0 {
				synctest.Wait() // the first is being written when the others come
			}
		}
		synctest.Wait()
		if n := len(r.groups.shards[Partition("g", 2)].queue); n != 2 {
			t.Errorf("%d in the queue", n)
		}
		cancel()
		for range 10 {
			if err := <-errs; !errors.Is(err, context.Canceled) {
				t.Errorf("commit: %v", err)
			}
		}
		close(hold)
		synctest.Wait()
		if r.log.appends != 1 {
			t.Errorf("%d appends: what was given up has been done", r.log.appends)
		}
		r.close()
	})
}

func TestCloseAnswersThoseWhoWait(t *testing.T) {
	bubble(t, func(r *rig) {
		r.stable("g")
		waits := make(chan error)
		go func() {
			_, err := r.join("g", "")
			waits <- err
		}()
		synctest.Wait()
		r.close()
		if err := <-waits; !errors.Is(err, ErrClosed) {
			t.Errorf("join: %v", err)
		}
		if err := r.commit(context.Background(), "g", 1); !errors.Is(err, ErrClosed) {
			t.Errorf("commit: %v", err)
		}
	})
}

func TestBigCommitIsWrittenInSeveralBatches(t *testing.T) {
	bubble(t, func(r *rig) {
		const n = 30_000
		q := &CommitRequest{Group: "g", Generation: NoGeneration, RetentionMillis: -1}
		for i := range int32(n) {
			q.Partitions = append(q.Partitions, CommitPartition{Topic: "t", Partition: i, Offset: int64(i), Metadata: "some metadata"})
		}
		if _, err := r.Commit(context.Background(), q); err != nil {
			t.Fatal(err)
		}
		if r.log.appends < 2 {
			t.Errorf("%d appends", r.log.appends)
		}
		for _, b := range r.log.batches[Partition("g", 2)] {
			if len(b) > r.cfg.BatchBytesMax {
				t.Errorf("a batch of %d bytes", len(b))
			}
		}
		r.log.set(func() { r.log.epochs[Partition("g", 2)] = 2 })
		all, err := r.FetchOffsets(context.Background(), &FetchOffsetsRequest{Group: "g", All: true})
		if err != nil || len(all) != n {
			t.Errorf("%d offsets, %v", len(all), err)
		}
	})
}

func TestOffsetsOfADeletedTopicAreDropped(t *testing.T) {
	bubble(t, func(r *rig) {
		r.meta.topic(t, "t", topic.ID{2}, 1)
		r.must(r.commit(context.Background(), "g", 5))
		r.meta.apply(t, meta.DeleteTopic{ID: topic.ID{2}})
		synctest.Wait()
		if at := r.fetched("g"); at != NoOffset {
			t.Errorf("offset %d", at)
		}
	})
}

func TestOffsetsTopicIsCreatedWhenItIsFirstNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, log: newMemLog(50), meta: newMemMetadata(t, 0), cfg: testConfig()}
		r.cfg.NodeID = 1
		r.open()
		defer r.close()
		if groups, err := r.List(context.Background()); err != nil || len(groups) != 0 || len(r.meta.create) != 0 {
			t.Errorf("list: %v, %v, created %v", groups, err, r.meta.create)
		}
		if err := r.commit(context.Background(), "g", 1); !errors.Is(err, ErrNotCoordinator) {
			t.Errorf("commit: %v", err)
		}
		if _, err := r.Locate(context.Background(), "g"); !errors.Is(err, ErrNotAvailable) {
			t.Errorf("locate: %v", err)
		}
		synctest.Wait()
		if len(r.meta.create) != 1 {
			t.Fatalf("created %v", r.meta.create)
		}
		made := r.meta.create[0]
		settings := map[string]string{}
		for _, c := range made.Configs {
			settings[c.Name] = *c.Value
		}
		want := map[string]string{"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"}
		if made.Name != topic.ConsumerOffsets || made.Partitions != 50 || made.ReplicationFactor != 1 || !maps.Equal(settings, want) {
			t.Errorf("created %+v with %v", made, settings)
		}
		r.meta.topic(t, topic.ConsumerOffsets, topic.ID{1}, 50)
		time.Sleep(time.Second)
		if b, err := r.Locate(context.Background(), "g"); err != nil || b != 1 {
			t.Errorf("locate: %d, %v", b, err)
		}
		r.must(r.commit(context.Background(), "g", 1))
	})
}

func TestPartitionOfAGroupIsKafkas(t *testing.T) {
	// The hashes are what Java prints for "…".hashCode().
	for group, hash := range map[string]int64{
		"": 0, "a": 97, "hello": 99162322, "foo": 101574, "readers": 1080410128, "Привет": 1177014952, "😀": 1772899,
		"orders.v2": -390712795, "polygenelubricants": -2147483648,
	} {
		want := hash
		if want < 0 {
			want = -want
		}
		if hash == -2147483648 {
			want = 0
		}
		if got := Partition(group, 50); int64(got) != want%50 {
			t.Errorf("%q: partition %d, want %d", group, got, want%50)
		}
	}
}

func TestMemberIDsEndInUUIDs(t *testing.T) {
	a, b := newUUID(), newUUID()
	var parts [5]uint64
	if n, err := fmt.Sscanf(a, "%8x-%4x-4%3x-%4x-%12x", &parts[0], &parts[1], &parts[2], &parts[3], &parts[4]); n != 5 || err != nil || len(a) != 36 {
		t.Errorf("%q: %v", a, err)
	}
	if a == b {
		t.Error("the same twice")
	}
}

// TestCoordinatorWithoutALeaseShowsNothing: another may coordinate the group by now, and have later offsets and other members. A member
// that was told old offsets read, and committed, from there.
func TestCoordinatorWithoutALeaseShowsNothing(t *testing.T) {
	bubble(t, func(r *rig) {
		id, gen := r.stable("g")
		r.must(r.commit(context.Background(), "g2", 42))
		r.log.set(func() { r.log.alone = true })
		if err := r.heartbeat("g", id, gen); !errors.Is(err, ErrNotCoordinator) {
			t.Errorf("a heartbeat: %v", err)
		}
		_, err := r.FetchOffsets(context.Background(), &FetchOffsetsRequest{Group: "g2", Partitions: []OffsetPartition{{Topic: "t"}}})
		if !errors.Is(err, ErrNotCoordinator) {
			t.Errorf("offsets: %v", err)
		}
		if err := r.heartbeat("nobody", "x", 1); !errors.Is(err, ErrNotCoordinator) {
			t.Errorf("a member that is not known here: %v", err)
		}
		r.must(r.commit(context.Background(), "g2", 43)) // a log that takes it is still this one's
		r.log.set(func() { r.log.alone = false })
		r.must(r.heartbeat("g", id, gen))
		if at := r.fetched("g2"); at != 43 {
			t.Fatalf("offset %d", at)
		}
	})
}
