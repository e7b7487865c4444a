package meta

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/varvelog/varve/meta/balance"
	"github.com/varvelog/varve/meta/conf"
	"github.com/varvelog/varve/meta/topic"
)

// balancePause is how long the balancer waits while replicas move before it
// looks whether it may begin with others.
const balancePause = time.Second

// runBalancer looks, while this node leads the quorum, whether preferred
// leaders are to lead again and whether replicas are to be moved. Close stops
// it. It keeps nothing but how large partitions were when it last asked.
func (n *Node) runBalancer() {
	wake := make(chan struct{}, 1)
	defer n.subs.add(func(prev, next *Image) {
		if prev != nil && !slices.Equal(prev.draining(), next.draining()) {
			select {
			case wake <- struct{}{}:
			default:
			}
		}
	})()
	b := n.Broker()
	preferred := time.NewTimer(leaderCheck(b))
	moves := time.NewTimer(balanceInterval(b))
	defer preferred.Stop()
	defer moves.Stop()
	var sizes sizeCache
	for {
		select {
		case <-preferred.C:
			preferred.Reset(n.balanceLeaders())
		case <-moves.C:
			moves.Reset(n.moveReplicas(&sizes))
		case <-wake:
			moves.Reset(n.moveReplicas(&sizes))
		case <-n.ctx.Done():
			return
		}
	}
}

func leaderCheck(b *conf.Broker) time.Duration {
	return time.Duration(b.LeaderImbalanceCheckIntervalSeconds) * time.Second
}

func balanceInterval(b *conf.Broker) time.Duration {
	return time.Duration(b.VarveBalancerIntervalMillis) * time.Millisecond
}

// balanceLeaders lets preferred leaders lead and returns when to look again.
func (n *Node) balanceLeaders() time.Duration {
	b := n.Broker()
	if !b.AutoLeaderRebalanceEnable || !n.IsController() {
		return leaderCheck(b)
	}
	more := false
	elected := 0
	_, err := n.change(n.ctx, false, func(img *Image, b *conf.Broker) ([]Change, error) {
		var changes []Change
		changes, more = decidePreferred(img, b)
		elected = partitionCount(changes)
		return changes, nil
	})
	switch {
	case err != nil:
		n.reportBalance("leaders could not be balanced", err)
	case elected > 0:
		n.log.Info("preferred leaders elected", "partitions", elected)
	}
	if more && err == nil {
		return time.Millisecond
	}
	return leaderCheck(b)
}

func partitionCount(changes []Change) int {
	total := 0
	for _, c := range changes {
		if p, ok := c.(ChangePartitions); ok {
			total += len(p.Changes)
		}
	}
	return total
}

// moveReplicas begins with moves and returns when to look again.
func (n *Node) moveReplicas(sizes *sizeCache) time.Duration {
	b, img := n.Broker(), n.Image()
	interval := balanceInterval(b)
	if !n.IsController() || !b.VarveBalancerEnable && len(img.draining()) == 0 {
		sizes.forget()
		return interval
	}
	// The plan takes long at many partitions, and other decisions must not wait
	// for it: what it was made on may have changed when its moves are decided.
	moves := nextMoves(img, b, sizes.get(n, interval))
	var begun []balance.Move
	img, err := n.change(n.ctx, false, func(img *Image, b *conf.Broker) ([]Change, error) {
		var changes []Change
		begun, changes = decideMoves(img, b, moves)
		return changes, nil
	})
	if err != nil {
		n.reportBalance("replicas could not be moved", err)
		return interval
	}
	for _, m := range begun {
		n.log.Info("replicas move", "topic", m.Topic, "partition", m.Index, "from", m.From, "to", m.To, "bytes", m.Bytes, "why", string(m.Why))
	}
	if len(begun) > 0 || img.reassigning() > 0 {
		return min(interval, balancePause)
	}
	for _, id := range img.draining() {
		if left := img.Holds(id); left > 0 {
			n.log.Warn("a broker cannot be emptied: what it still holds has no leader, or nobody else can take it", "broker", id, "replicas", left)
		}
	}
	return interval
}

// reportBalance logs what went wrong, unless another node decides now.
func (n *Node) reportBalance(message string, err error) {
	if !errors.Is(err, ErrNotController) && n.ctx.Err() == nil {
		n.log.Warn(message, "err", err)
	}
}

// sizeCache asks for the sizes of partitions no more often than the balancer
// looks by itself.
type sizeCache struct {
	bytes map[topic.Partition]int64
	at    time.Time
}

func (c *sizeCache) forget() { *c = sizeCache{} }

func (c *sizeCache) get(n *Node, maxAge time.Duration) map[topic.Partition]int64 {
	if n.deps.Sizes == nil || !c.at.IsZero() && time.Since(c.at) < maxAge {
		return c.bytes
	}
	ctx, cancel := context.WithTimeout(n.ctx, n.cfg.ProposeTimeout)
	defer cancel()
	bytes, err := n.deps.Sizes(ctx)
	if err != nil {
		// Old sizes, or none, make a worse plan but not a wrong one.
		n.log.Warn("the sizes of partitions are not known", "err", err)
	} else {
		c.bytes = bytes
	}
	c.at = time.Now()
	return c.bytes
}

// BalancePlan returns every move that would even out the cluster as it is now,
// whether or not the balancer is enabled. Nothing is changed.
func (n *Node) BalancePlan(ctx context.Context) ([]balance.Move, error) {
	if err := n.err(); err != nil {
		return nil, err
	}
	var bytes map[topic.Partition]int64
	if n.deps.Sizes != nil {
		var err error
		if bytes, err = n.deps.Sizes(ctx); err != nil {
			return nil, err
		}
	}
	return planBalance(n.Image(), n.Broker(), bytes, true, false), nil
}

// DrainBroker asks for a broker to be emptied, or takes that back. It returns
// at once; Image.Holds says what is left. It is the broker's dynamic setting
// varve.balancer.drain.
func (n *Node) DrainBroker(ctx context.Context, id int32, drain bool) error {
	e := ConfigEdit{Name: DrainSetting, Op: OpDelete}
	if drain {
		value := "true"
		e.Op, e.Value = OpSet, &value
	}
	results, err := n.AlterConfigs(ctx, []ConfigChange{{
		ConfigResource: ConfigResource{Kind: BrokerConfig, Name: brokerName(id)}, Edits: []ConfigEdit{e},
	}}, false)
	if err != nil {
		return err
	}
	return results[0].Err
}
