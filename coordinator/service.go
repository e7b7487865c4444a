package coordinator

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf16"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/topic"
)

// Metadata is the metadata quorum as the coordinator uses it; *meta.Node is one.
type Metadata interface {
	Image() *meta.Image
	Subscribe(func(prev, next *meta.Image)) (cancel func())
	CreateTopics(ctx context.Context, topics []meta.NewTopic, validateOnly bool) ([]meta.CreatedTopic, error)
}

var _ Metadata = (*meta.Node)(nil)

// service runs the machines of the partitions of one internal topic that this broker leads.
type service struct {
	cfg    *Config
	topic  string
	made   topicSettings
	log    Log
	meta   Metadata
	logger *slog.Logger
	create func(now int64) machine
	// fenced says whether an append failed because its producer or coordinator has been replaced; carryOut ends transactions in
	// their partitions, once that it must be done is committed.
	fenced   func(error) bool
	carryOut func(s *shard, epoch int32, ends []ending)
	// begin has share-partitions of a group begun, once that it is to be is committed.
	begin func(s *shard, begin []ShareInitialize)
	// cut removes the records of a partition below an offset, of a topic whose machines are cutters.
	cut func(ctx context.Context, partition int32, offset int64) error

	ctx    context.Context
	cancel context.CancelFunc
	began  time.Time     // see now
	stop   chan struct{} // closed when close begins

	loads, loadNanos, loadsFailed, writesFailed atomic.Int64 // see Stats
	// stopped is closed when every shard has ended and answered those who waited.
	stopped chan struct{}
	wg      sync.WaitGroup
	wake    chan struct{} // the metadata has changed
	topics  atomic.Pointer[topicsView]

	mu       sync.Mutex // guards the following
	shards   map[int32]*shard
	creating bool
	closed   bool
}

// topicSettings is how an internal topic is created.
type topicSettings struct {
	partitions   int32
	replicas     func(brokers int) int16
	segmentBytes int32
	minISR       func(replicas int16) int32 // nil: the broker's default
	keepAll      bool                       // nothing is compacted or expires: machines cut the log off
}

// start fills in what every service needs and starts looking for partitions led here.
func (c *service) start() {
	c.stop, c.stopped, c.wake = make(chan struct{}), make(chan struct{}), make(chan struct{}, 1)
	c.began, c.shards = time.Now(), make(map[int32]*shard)
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.wg.Go(c.follow)
}

// close ends every shard. Requests that wait are told ErrClosed. It is idempotent.
func (c *service) close(ctx context.Context) error {
	c.mu.Lock()
	first := !c.closed
	c.closed = true
	c.mu.Unlock()
	if first {
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
func (c *service) now() int64 { return int64(time.Since(c.began) / time.Millisecond) }

// view is the topics as of the newest image. Machines go by that and not by what the subscription told last: who has changed a
// setting or made a topic, and heard that it is done, may ask on the next line for what depends on it.
func (c *service) view() *topicsView {
	for {
		img, was := c.meta.Image(), c.topics.Load()
		if was != nil && (was.img == img || was.img.Index >= img.Index) {
			return was
		}
		if next := was.next(img); c.topics.CompareAndSwap(was, next) {
			return next
		}
	}
}

// image takes a new metadata image.
func (c *service) image(*meta.Image, *meta.Image) {
	c.view()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// deleted has every shard take an event for each topic that is gone since prev. A shard that is not ready hears nothing of it;
// what it keeps of the topic must do no harm.
func (c *service) deleted(prev, next *meta.Image, gone func(*meta.Topic) any) {
	if prev == nil {
		return
	}
	for _, t := range prev.Topics() {
		if next.TopicByID(t.ID) != nil || topic.IsInternal(t.Name) {
			continue
		}
		body := gone(t)
		c.each(func(s *shard) {
			for range 3 {
				if !s.ready() {
					return
				}
				if _, err := s.do(c.ctx, body); err == nil {
					return
				}
			}
		})
	}
}

// each calls fn for every shard in turn, until the service closes.
func (c *service) each(fn func(*shard)) {
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
func (c *service) follow() {
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
func (c *service) lookAround() bool {
	t := c.meta.Image().Topic(c.topic)
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
				s.nudge() // the log may not have heard yet: then it takes another look
				settled = false
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

// shard finds or starts a shard; nil when the service is closed.
func (c *service) shard(index int32) *shard {
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

// Partition is the partition of its internal topic that a group or transactional id belongs to, out of n: the absolute value of what Java's
// String.hashCode gives, as every Kafka has it; of the one number whose absolute value does not exist, 0.
func Partition(key string, n int32) int32 {
	h := int32(0)
	for _, u := range utf16.Encode([]rune(key)) {
		h = 31*h + int32(u)
	}
	return max(h, -h, 0) % n
}

// of finds the shard of a group or transactional id.
func (c *service) of(key string) (*shard, error) {
	t := c.meta.Image().Topic(c.topic)
	if t == nil {
		return nil, ErrNotCoordinator
	}
	index := Partition(key, int32(len(t.Partitions)))
	if _, leading := c.log.Epoch(index); !leading {
		return nil, ErrNotCoordinator
	}
	s := c.shard(index)
	if s == nil {
		return nil, ErrClosed
	}
	return s, nil
}

// locate finds the broker that coordinates a group or transactional id. The first call has the topic created. ErrNotAvailable until
// there is a coordinator that serves.
func (c *service) locate(key string) (broker int32, err error) {
	t := c.meta.Image().Topic(c.topic)
	if t == nil {
		c.createTopic()
		return -1, ErrNotAvailable
	}
	index := Partition(key, int32(len(t.Partitions)))
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

// cutOff removes what a partition no longer needs, in the background. When that fails, the next time does it.
func (c *service) cutOff(index int32, offset int64) {
	c.wg.Go(func() {
		ctx, cancel := context.WithTimeout(c.ctx, 30*time.Second)
		defer cancel()
		if err := c.cut(ctx, index, offset); err != nil && c.ctx.Err() == nil {
			c.logger.Warn("internal topic not cut off", "topic", c.topic, "partition", index, "offset", offset, "err", err)
		}
	})
}

// background runs fn beside everything else, unless the service is closed. fn ends soon after its context does.
func (c *service) background(fn func(ctx context.Context)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.wg.Go(func() { fn(c.ctx) })
	return true
}

// createTopic has the topic created, in the background and once at a time.
func (c *service) createTopic() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.creating {
		return
	}
	c.creating = true
	c.wg.Go(func() {
		ctx, cancel := context.WithTimeout(c.ctx, 30*time.Second)
		defer cancel()
		if err := c.makeTopic(ctx); err != nil && c.ctx.Err() == nil {
			c.logger.Warn("internal topic not created", "topic", c.topic, "err", err)
		}
		c.mu.Lock()
		c.creating = false
		c.mu.Unlock()
	})
}

func (c *service) makeTopic(ctx context.Context) error {
	value := func(s string) *string { return &s }
	policy := "compact"
	if c.made.keepAll {
		policy = "delete"
	}
	settings := []meta.ConfigValue{
		{Name: "cleanup.policy", Value: value(policy)},
		{Name: "compression.type", Value: value("producer")},
		{Name: "segment.bytes", Value: value(fmt.Sprint(c.made.segmentBytes))},
	}
	replicas := c.made.replicas(len(c.meta.Image().Brokers))
	if c.made.keepAll {
		settings = append(settings, meta.ConfigValue{Name: "retention.ms", Value: value("-1")}, meta.ConfigValue{Name: "retention.bytes", Value: value("-1")})
	}
	if c.made.minISR != nil {
		settings = append(settings, meta.ConfigValue{Name: "min.insync.replicas", Value: value(fmt.Sprint(c.made.minISR(replicas)))})
	}
	made, err := c.meta.CreateTopics(ctx, []meta.NewTopic{{
		Name: c.topic, Partitions: c.made.partitions, ReplicationFactor: replicas, Configs: settings,
	}}, false)
	if err == nil && len(made) == 1 {
		err = made[0].Err
	}
	return err
}

// ask has the shard of a group or transactional id take body.
func ask[T any](ctx context.Context, c *service, key string, body any) (T, error) {
	var none T
	s, err := c.of(key)
	if err != nil {
		return none, err
	}
	result, err := s.do(ctx, body)
	if r, ok := result.(T); ok {
		return r, err
	}
	return none, err
}

// gather has every shard that leads take body, and joins their lists. It is ErrLoading while some are being read back.
func gather[T any](ctx context.Context, c *service, body any) ([]T, error) {
	t := c.meta.Image().Topic(c.topic)
	if t == nil {
		return nil, nil
	}
	var all []T
	for i := range t.Partitions {
		if _, leading := c.log.Epoch(int32(i)); !leading {
			continue
		}
		s := c.shard(int32(i))
		if s == nil {
			return nil, ErrClosed
		}
		result, err := s.do(ctx, body)
		if err == ErrNotCoordinator {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, result.([]T)...)
	}
	return all, nil
}
