package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/replica/peer"
)

// Controller makes calls on the node that leads the metadata quorum, over Kafka's protocol: for the broker itself, as
// meta.Controller, and for clients whose requests are forwarded. It is safe for concurrent use.
type Controller struct {
	pool  *peer.Pool
	image atomic.Pointer[func() *meta.Image]

	mu        sync.Mutex // guards the following
	bootstrap []string
	hint      string // the controller's address, as a broker that was asked has named it
	next      int    // of bootstrap
}

var _ meta.Controller = (*Controller)(nil)

// NewController makes one on a pool, which stays the caller's. bootstrap are the addresses of brokers to ask while nothing
// else is known.
func NewController(pool *peer.Pool, bootstrap []string) *Controller {
	return &Controller{pool: pool, bootstrap: bootstrap}
}

// Watch lets calls end early when the image names another controller than the one they wait for.
func (c *Controller) Watch(image func() *meta.Image) { c.image.Store(&image) }

// AddBootstrap names further brokers to ask, and reports whether there is anybody to ask at all.
func (c *Controller) AddBootstrap(addresses []string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, address := range addresses {
		if !slices.Contains(c.bootstrap, address) {
			c.bootstrap = append(slices.Clip(c.bootstrap), address)
		}
	}
	return len(c.bootstrap) > 0
}

// attemptMax bounds one call: beyond it whoever was asked is taken for gone, and the caller tries again.
const attemptMax = 5 * time.Second

// errMoved ends a call to a controller that no longer is one.
var errMoved = errors.New("another node became controller")

// moveCheck is how often a call that waits looks whether there is another controller.
const moveCheck = 100 * time.Millisecond

// watched is ctx, ended after attemptMax or when the image names a controller other than id.
func (c *Controller) watched(ctx context.Context, id int32, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, end := context.WithTimeout(ctx, limit)
	image := c.image.Load()
	if image == nil || id < 0 {
		return ctx, end
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var check *time.Timer
	var mu sync.Mutex // guards check, which its first run may find unset
	mu.Lock()
	defer mu.Unlock()
	check = time.AfterFunc(moveCheck, func() {
		if now := (*image)().ControllerID; now >= 0 && now != id {
			cancel(errMoved)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() == nil {
			check.Reset(moveCheck)
		}
	})
	return ctx, func() { mu.Lock(); check.Stop(); mu.Unlock(); cancel(nil); end() }
}

// call sends a request to the controller and returns its answer, or ErrNotController and ErrUnknownOutcome as
// meta.Controller says. tell reads an answer's error code and tags.
func call[R kmsg.Response](ctx context.Context, c *Controller, to meta.Broker, lane peer.Lane, req kmsg.Request,
	tell func(R) (int16, *kmsg.Tags)) (R, error) {
	return callWithin(ctx, c, to, lane, attemptMax, req, tell)
}

// callWithin is call with another bound on the time that whoever is asked may take.
func callWithin[R kmsg.Response](ctx context.Context, c *Controller, to meta.Broker, lane peer.Lane, limit time.Duration, req kmsg.Request,
	tell func(R) (int16, *kmsg.Tags)) (R, error) {
	var none R
	var failed error
	asked := map[string]bool{}
	for {
		address := c.address(to, asked)
		if address == "" {
			if failed == nil {
				failed = errors.New("nobody to ask who it is")
			}
			return none, fmt.Errorf("%w: %w", meta.ErrNotController, failed)
		}
		asked[address] = true
		once, cancel := c.watched(ctx, to.ID, limit)
		got, err := c.pool.Do(once, address, lane, req)
		cancel()
		switch {
		case errors.Is(err, peer.ErrUnsupported):
			return none, err
		case errors.Is(err, peer.ErrNotSent):
			failed = err
			c.forget(address)
			continue
		case err != nil:
			return none, fmt.Errorf("%w: %w", meta.ErrUnknownOutcome, err)
		}
		resp, ok := got.(R)
		if !ok {
			return none, fmt.Errorf("%w: answer is a %T", peer.ErrMalformed, got)
		}
		code, tags := tell(resp)
		if code != codeNotController {
			return resp, metaError(code)
		}
		failed = fmt.Errorf("%s is not the controller", address)
		c.forget(address)
		if b, ok := peer.Controller(tags); ok {
			c.remember(b.Address())
		}
	}
}

// address is whom to ask next: the controller, if it is known, else where the last broker asked said it was, else the
// bootstrap servers in turn. It is "" when all of them have been asked.
func (c *Controller) address(to meta.Broker, asked map[string]bool) string {
	if to.ID >= 0 {
		if at := peer.Address(to.Host, to.Port); !asked[at] {
			return at
		}
		return ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hint != "" && !asked[c.hint] {
		return c.hint
	}
	for range c.bootstrap {
		at := c.bootstrap[c.next%len(c.bootstrap)]
		c.next++
		if !asked[at] {
			return at
		}
	}
	return ""
}

func (c *Controller) remember(address string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hint = address
}

func (c *Controller) forget(address string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hint == address {
		c.hint = ""
	}
}

// The names of listeners in a registration.
const (
	listenerPlain      = "PLAINTEXT"
	listenerController = "CONTROLLER"
)

// RegisterBroker implements meta.Controller with BrokerRegistration (62).
func (c *Controller) RegisterBroker(ctx context.Context, to meta.Broker, r meta.Registration) (epoch int64, err error) {
	req := kmsg.NewPtrBrokerRegistrationRequest()
	req.SetVersion(apiBrokerRegistration.max)
	encodeRegistration(req, r)
	resp, err := call(ctx, c, to, peer.LaneControl, req, func(x *kmsg.BrokerRegistrationResponse) (int16, *kmsg.Tags) {
		return x.ErrorCode, &x.UnknownTags
	})
	if errors.Is(err, meta.ErrStaleBrokerEpoch) {
		err = &meta.StaleRegistration{Epoch: resp.BrokerEpoch}
	}
	if err != nil {
		return -1, fmt.Errorf("register broker: %w", err)
	}
	return resp.BrokerEpoch, nil
}

// Heartbeat implements meta.Controller with BrokerHeartbeat (63).
func (c *Controller) Heartbeat(ctx context.Context, to meta.Broker, h meta.Heartbeat) (meta.HeartbeatReply, error) {
	req := kmsg.NewPtrBrokerHeartbeatRequest()
	req.SetVersion(apiBrokerHeartbeat.max)
	req.BrokerID, req.BrokerEpoch, req.CurrentMetadataOffset = h.ID, h.Epoch, int64(h.Index)
	req.WantFence, req.WantShutdown = h.WantFence, h.WantShutdown
	resp, err := call(ctx, c, to, peer.LaneHeartbeat, req, func(x *kmsg.BrokerHeartbeatResponse) (int16, *kmsg.Tags) {
		return x.ErrorCode, &x.UnknownTags
	})
	if err != nil {
		return meta.HeartbeatReply{}, fmt.Errorf("heartbeat: %w", err)
	}
	return meta.HeartbeatReply{CaughtUp: resp.IsCaughtUp, Fenced: resp.IsFenced, ShouldShutdown: resp.ShouldShutdown}, nil
}

// AlterPartitions implements meta.Controller with AlterPartition (56).
func (c *Controller) AlterPartitions(ctx context.Context, to meta.Broker, leader int32, epoch int64, wishes []meta.AlterPartition) ([]meta.AlteredPartition, error) {
	req := kmsg.NewPtrAlterPartitionRequest()
	req.SetVersion(apiAlterPartition.max)
	req.BrokerID, req.BrokerEpoch = leader, epoch
	encodeAlterPartitions(req, wishes)
	resp, err := call(ctx, c, to, peer.LaneControl, req, tellAlterPartition)
	if err != nil {
		return nil, fmt.Errorf("alter partitions: %w", err)
	}
	return decodeAltered(resp, wishes), nil
}

func tellAlterPartition(x *kmsg.AlterPartitionResponse) (int16, *kmsg.Tags) {
	return x.ErrorCode, &x.UnknownTags
}

// AllocateProducerIDs implements meta.Controller with AllocateProducerIds (67).
func (c *Controller) AllocateProducerIDs(ctx context.Context, to meta.Broker, id int32, epoch int64) (meta.ProducerIDs, error) {
	req := kmsg.NewPtrAllocateProducerIDsRequest()
	req.BrokerID, req.BrokerEpoch = id, epoch
	resp, err := call(ctx, c, to, peer.LaneControl, req, func(x *kmsg.AllocateProducerIDsResponse) (int16, *kmsg.Tags) {
		return x.ErrorCode, &x.UnknownTags
	})
	if err != nil {
		return meta.ProducerIDs{}, fmt.Errorf("allocate producer ids: %w", err)
	}
	return meta.ProducerIDs{First: resp.ProducerIDStart, Count: resp.ProducerIDLen}, nil
}

// ConfirmDeleted implements meta.Controller: Kafka has no such request, so it is an AlterPartition of no partition with a
// tag of ours.
func (c *Controller) ConfirmDeleted(ctx context.Context, to meta.Broker, id topic.ID, broker int32, tier bool) error {
	req := kmsg.NewPtrAlterPartitionRequest()
	req.SetVersion(apiAlterPartition.max)
	req.BrokerID, req.BrokerEpoch = broker, -1
	if broker >= 0 {
		peer.SetIDs(&req.UnknownTags, peer.TagFilesGone, []topic.ID{id})
	}
	if tier {
		peer.SetIDs(&req.UnknownTags, peer.TagBucketClean, []topic.ID{id})
	}
	if _, err := call(ctx, c, to, peer.LaneControl, req, tellAlterPartition); err != nil {
		return fmt.Errorf("confirm deletion: %w", err)
	}
	return nil
}
