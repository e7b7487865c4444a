package coordinator

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
	"unicode/utf16"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/topic"
)

// Deps are what the coordinator works with.
type Deps struct {
	Log      Log
	Metadata Metadata
	Logger   *slog.Logger
}

// Metadata is the metadata quorum as the coordinator uses it; *meta.Node is one.
type Metadata interface {
	Image() *meta.Image
	Subscribe(func(prev, next *meta.Image)) (cancel func())
	CreateTopics(ctx context.Context, topics []meta.NewTopic, validateOnly bool) ([]meta.CreatedTopic, error)
}

var _ Metadata = (*meta.Node)(nil)

// Coordinator coordinates the groups whose partition of the offsets topic this broker leads.
type Coordinator struct {
	cfg    Config
	deps   Deps
	logger *slog.Logger
	ctx    context.Context
	cancel context.CancelFunc
	began  time.Time     // see now
	stop   chan struct{} // closed when Close begins
	// stopped is closed when every shard has ended and answered those who waited.
	stopped     chan struct{}
	wg          sync.WaitGroup
	unsubscribe func()
	wake        chan struct{} // the metadata has changed

	mu       sync.Mutex // guards the following
	shards   map[int32]*shard
	creating bool
	closed   bool
}

// Open starts the coordinator. Partitions that this broker leads already are read back in the background.
func Open(cfg Config, deps Deps) (*Coordinator, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Coordinator{
		cfg: cfg, deps: deps, logger: deps.Logger, stop: make(chan struct{}), stopped: make(chan struct{}),
		began: time.Now(), wake: make(chan struct{}, 1), shards: make(map[int32]*shard),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.wg.Go(c.follow)
	c.unsubscribe = deps.Metadata.Subscribe(c.image)
	return c, nil
}

// Close ends every shard. Requests that wait are told ErrClosed. It is idempotent.
func (c *Coordinator) Close(ctx context.Context) error {
	c.mu.Lock()
	first := !c.closed
	c.closed = true
	c.mu.Unlock()
	if first {
		c.unsubscribe()
		c.cancel()
		close(c.stop)
		go func() {
			c.wg.Wait()
			close(c.stopped)
		}()
	}
	select {
	case <-c.stopped:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// now is milliseconds that pass evenly, whatever becomes of the time of day.
func (c *Coordinator) now() int64 { return int64(time.Since(c.began) / time.Millisecond) }

// image takes a new metadata image.
func (c *Coordinator) image(prev, next *meta.Image) {
	select {
	case c.wake <- struct{}{}:
	default:
	}
	if prev == nil {
		return
	}
	for _, t := range prev.Topics() {
		if next.TopicByID(t.ID) != nil || topic.IsInternal(t.Name) {
			continue
		}
		gone := topicGone{topic: t.Name}
		if now := next.Topic(t.Name); now != nil {
			gone.keep = now.ID
		}
		c.each(func(s *shard) {
			// A shard that is not ready reads the offsets back later; they expire like any that nobody needs, and are not
			// given out for the topic that has the name then.
			for range 3 {
				if !s.ready() {
					return
				}
				if _, err := s.do(c.ctx, gone); err == nil {
					return
				}
			}
		})
	}
}

// each calls fn for every shard in turn, until the coordinator closes.
func (c *Coordinator) each(fn func(*shard)) {
	c.mu.Lock()
	list := make([]*shard, 0, len(c.shards))
	for _, s := range c.shards {
		list = append(list, s)
	}
	c.mu.Unlock()
	slices.SortFunc(list, func(a, b *shard) int { return int(a.index - b.index) })
	for _, s := range list {
		if c.ctx.Err() != nil {
			return
		}
		fn(s)
	}
}

// follow starts a shard for every partition that the metadata has this broker lead, and has shards look again until they are
// ready: the metadata names a leader before that leader serves. It stops with the coordinator.
func (c *Coordinator) follow() {
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	wait := 20 * time.Millisecond
	for {
		select {
		case <-c.stop:
			return
		case <-c.wake:
			wait = 20 * time.Millisecond
		case <-t.C:
		}
		if c.lookAround() {
			t.Reset(time.Minute)
			continue
		}
		t.Reset(wait)
		wait = min(2*wait, time.Second)
	}
}

// lookAround nudges every shard that is not in the state that the metadata wants, and reports whether there was none.
func (c *Coordinator) lookAround() bool {
	t := c.deps.Metadata.Image().Topic(topic.ConsumerOffsets)
	if t == nil {
		return true
	}
	settled := true
	for i := range t.Partitions {
		if t.Partitions[i].Leader != c.cfg.NodeID {
			c.mu.Lock()
			s := c.shards[int32(i)]
			c.mu.Unlock()
			if s != nil && s.served.Load() >= 0 {
				s.nudge()
			}
			continue
		}
		s := c.shard(int32(i))
		if s != nil && !s.ready() {
			s.nudge()
			settled = false
		}
	}
	return settled
}

// shard finds or starts a shard; nil when the coordinator is closed.
func (c *Coordinator) shard(index int32) *shard {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	s := c.shards[index]
	if s == nil {
		s = newShard(c, index)
		c.shards[index] = s
		c.wg.Go(s.run)
	}
	return s
}

// Partition is the partition of the offsets topic that a group belongs to, out of n: the absolute value of what Java's
// String.hashCode gives, as every Kafka has it; of the one number whose absolute value does not exist, 0.
func Partition(group string, n int32) int32 {
	h := int32(0)
	for _, u := range utf16.Encode([]rune(group)) {
		h = 31*h + int32(u)
	}
	return max(h, -h, 0) % n
}

// of finds the shard of a group.
func (c *Coordinator) of(group string) (*shard, error) {
	t := c.deps.Metadata.Image().Topic(topic.ConsumerOffsets)
	if t == nil {
		return nil, ErrNotCoordinator
	}
	index := Partition(group, int32(len(t.Partitions)))
	if _, leading := c.deps.Log.Epoch(index); !leading {
		return nil, ErrNotCoordinator
	}
	s := c.shard(index)
	if s == nil {
		return nil, ErrClosed
	}
	return s, nil
}

// ask has the shard of a group take body.
func ask[T any](ctx context.Context, c *Coordinator, group string, body any) (T, error) {
	var none T
	s, err := c.of(group)
	if err != nil {
		return none, err
	}
	result, err := s.do(ctx, body)
	if r, ok := result.(T); ok {
		return r, err
	}
	return none, err
}

// Locate finds the broker that coordinates a group. The first call has the offsets topic created. ErrNotAvailable until
// there is a coordinator that serves.
func (c *Coordinator) Locate(ctx context.Context, group string) (broker int32, err error) {
	t := c.deps.Metadata.Image().Topic(topic.ConsumerOffsets)
	if t == nil {
		c.create()
		return -1, ErrNotAvailable
	}
	index := Partition(group, int32(len(t.Partitions)))
	leader := t.Partitions[index].Leader
	if leader == meta.NoLeader {
		return -1, ErrNotAvailable
	}
	if leader == c.cfg.NodeID {
		s := c.shard(index)
		if s == nil {
			return -1, ErrClosed
		}
		if !s.ready() {
			s.nudge()
			return -1, ErrNotAvailable
		}
	}
	return leader, nil
}

// create has the offsets topic created, in the background and once at a time.
func (c *Coordinator) create() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.creating {
		return
	}
	c.creating = true
	c.wg.Go(func() {
		ctx, cancel := context.WithTimeout(c.ctx, 30*time.Second)
		defer cancel()
		value := func(s string) *string { return &s }
		made, err := c.deps.Metadata.CreateTopics(ctx, []meta.NewTopic{{
			Name: topic.ConsumerOffsets, Partitions: c.cfg.TopicPartitions, ReplicationFactor: c.cfg.TopicReplicas,
			Configs: []meta.ConfigValue{
				{Name: "cleanup.policy", Value: value("compact")},
				{Name: "compression.type", Value: value("producer")},
				{Name: "segment.bytes", Value: value(fmt.Sprint(c.cfg.TopicSegmentBytes))},
			},
		}}, false)
		if err == nil && len(made) == 1 {
			err = made[0].Err
		}
		if err != nil && c.ctx.Err() == nil {
			c.logger.Warn("offsets topic not created", "err", err)
		}
		c.mu.Lock()
		c.creating = false
		c.mu.Unlock()
	})
}

// Join is JoinGroup. It blocks until the group's join phase has ended. The result is set with an error too.
func (c *Coordinator) Join(ctx context.Context, q *JoinRequest) (*JoinResult, error) {
	r, err := ask[*JoinResult](ctx, c, q.Group, q)
	if r == nil {
		r = joinFailed(q.MemberID)
	}
	return r, err
}

// Sync is SyncGroup. It blocks until the leader has assigned.
func (c *Coordinator) Sync(ctx context.Context, q *SyncRequest) (*SyncResult, error) {
	r, err := ask[*SyncResult](ctx, c, q.Group, q)
	if r == nil {
		r = &SyncResult{}
	}
	return r, err
}

// Heartbeat is Heartbeat.
func (c *Coordinator) Heartbeat(ctx context.Context, q *HeartbeatRequest) error {
	_, err := ask[any](ctx, c, q.Group, q)
	return err
}

// Leave is LeaveGroup.
func (c *Coordinator) Leave(ctx context.Context, q *LeaveRequest) (*LeaveResult, error) {
	return ask[*LeaveResult](ctx, c, q.Group, q)
}

// Commit is OffsetCommit. The caller has checked that the partitions exist. When the error is not nil, it is that of every
// partition.
func (c *Coordinator) Commit(ctx context.Context, q *CommitRequest) (*CommitResult, error) {
	return ask[*CommitResult](ctx, c, q.Group, q)
}

// FetchOffsets is OffsetFetch for one group.
func (c *Coordinator) FetchOffsets(ctx context.Context, q *FetchOffsetsRequest) ([]CommittedOffset, error) {
	return ask[[]CommittedOffset](ctx, c, q.Group, q)
}

// DeleteOffsets is OffsetDelete.
func (c *Coordinator) DeleteOffsets(ctx context.Context, q *DeleteOffsetsRequest) (*DeleteOffsetsResult, error) {
	return ask[*DeleteOffsetsResult](ctx, c, q.Group, q)
}

// Describe describes a group. Of a group that does not exist, the error is ErrUnknownGroup.
func (c *Coordinator) Describe(ctx context.Context, group string) (*Description, error) {
	return ask[*Description](ctx, c, group, describe{group})
}

// Delete deletes a group without members, and its offsets.
func (c *Coordinator) Delete(ctx context.Context, group string) error {
	_, err := ask[any](ctx, c, group, remove{group})
	return err
}

// List lists the groups that this broker coordinates. It is ErrLoading while some of them are being read back.
func (c *Coordinator) List(ctx context.Context) ([]Listed, error) {
	t := c.deps.Metadata.Image().Topic(topic.ConsumerOffsets)
	if t == nil {
		return nil, nil
	}
	var all []Listed
	for i := range t.Partitions {
		if _, leading := c.deps.Log.Epoch(int32(i)); !leading {
			continue
		}
		s := c.shard(int32(i))
		if s == nil {
			return nil, ErrClosed
		}
		result, err := s.do(ctx, list{})
		if err == ErrNotCoordinator {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, result.([]Listed)...)
	}
	return all, nil
}

// newUUID is a random UUID of version 4, as Kafka's member ids end in.
func newUUID() string {
	var u [16]byte
	rand.Read(u[:])
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}
