package meta

import (
	"slices"

	"github.com/varvelog/varve/meta/balance"
	"github.com/varvelog/varve/meta/conf"
	"github.com/varvelog/varve/meta/topic"
)

// DrainSetting asks for a broker to be emptied. It is one of the broker's own
// settings, so that any client can set it and it outlives the controller.
const DrainSetting = "varve.balancer.drain"

// electionsPerStep bounds how many elections and changes of order one command
// of the balancer makes, as in Kafka: it must not keep others waiting.
const electionsPerStep = 1000

// Draining reports whether a broker is to be emptied.
func (img *Image) Draining(id int32) bool { return isTrue(img.BrokerConfigs(id)[DrainSetting]) }

// draining returns the brokers that are to be emptied.
func (img *Image) draining() []int32 {
	var ids []int32
	for _, id := range sortedIDs(img.Brokers) {
		if img.Draining(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// Holds is how many replicas a broker has been given.
func (img *Image) Holds(id int32) int { return img.load[id].holds }

// reassigning is how many partitions are being reassigned.
func (img *Image) reassigning() int {
	n := 0
	for _, t := range img.Topics() {
		for i := range t.Partitions {
			if t.Partitions[i].Reassigning() {
				n++
			}
		}
	}
	return n
}

// balanceCluster is the image as the balancer sees it, when what moves has
// arrived: who is to lose a replica does not have one too many. bytes may be nil.
func (img *Image) balanceCluster(bytes map[topic.Partition]int64) *balance.Cluster {
	c := &balance.Cluster{Partitions: make([]balance.Partition, 0, img.partitions)}
	for _, id := range sortedIDs(img.Brokers) {
		b := img.Brokers[id]
		c.Brokers = append(c.Brokers, balance.Broker{ID: id, Rack: b.Rack, Takes: b.Active() && !img.Cordoned(id), Drain: img.Draining(id)})
	}
	for _, t := range img.Topics() {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			replicas := p.Replicas
			if len(p.RemovingReplicas) > 0 {
				replicas = slices.DeleteFunc(slices.Clone(replicas), func(id int32) bool { return slices.Contains(p.RemovingReplicas, id) })
			}
			c.Partitions = append(c.Partitions, balance.Partition{
				Topic: t.Name, Index: int32(i), Replicas: replicas, Bytes: bytes[t.Key(int32(i))],
				Fixed: p.Leader == NoLeader || p.Reassigning(),
			})
		}
	}
	return c
}

// planBalance plans moves: all that the balancer would ever make of the image
// as it is, or, with inFlight, only those that it may begin now.
func planBalance(img *Image, b *conf.Broker, bytes map[topic.Partition]int64, even, inFlight bool) []balance.Move {
	o := balance.Options{Even: even, ThresholdPercent: int(b.VarveBalancerThresholdPercent)}
	if inFlight {
		if o.MovesMax = int(b.VarveBalancerMovesMax) - img.reassigning(); o.MovesMax <= 0 {
			return nil
		}
	}
	moves := balance.Plan(img.balanceCluster(bytes), o)
	if inFlight && len(moves) > electionsPerStep {
		moves = moves[:electionsPerStep]
	}
	return moves
}

// nextMoves is what the balancer may begin now: nothing, unless it is enabled
// or a broker is to be emptied.
func nextMoves(img *Image, b *conf.Broker, bytes map[topic.Partition]int64) []balance.Move {
	if !b.VarveBalancerEnable && len(img.draining()) == 0 {
		return nil
	}
	return planBalance(img, b, bytes, b.VarveBalancerEnable, true)
}

// decideMoves begins moves that were planned on this image or an earlier one,
// and returns those that it begins: a partition that has changed meanwhile is
// left to the next plan.
func decideMoves(img *Image, b *conf.Broker, moves []balance.Move) ([]balance.Move, []Change) {
	var begun []balance.Move
	var wishes []Reassign
	for _, m := range moves {
		if _, p := img.Partition(m.Topic, m.Index); p == nil || p.Reassigning() || p.Leader == NoLeader || !slices.Equal(p.Replicas, m.From) {
			continue
		}
		begun = append(begun, m)
		wishes = append(wishes, Reassign{PartitionRef: PartitionRef{Topic: m.Topic, Index: m.Index}, Replicas: m.To})
	}
	results, changes := decideReassign(img, b, wishes, false)
	moves, begun = begun, begun[:0:0]
	for i, r := range results {
		if r.Err == nil {
			begun = append(begun, moves[i])
		}
	}
	return begun, changes
}

// decidePreferred elects preferred leaders that do not lead and could, as many
// as one step may; more says that there are others.
func decidePreferred(img *Image, b *conf.Broker) (changes []Change, more bool) {
	var out topicChanges
	rules := newTopicRules(b)
	n := 0
	for _, t := range img.Topics() {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			want := p.Replicas[0]
			if p.Leader == NoLeader || p.Leader == want || !slices.Contains(p.ISR, want) || slices.Contains(p.RemovingReplicas, want) {
				continue
			}
			if n == electionsPerStep {
				return out.changes(), true
			}
			e := img.election(rules, t, int32(i))
			e.preferred = true
			if c, ok := e.change(); ok {
				out.add(t.ID, c)
				n++
			}
		}
	}
	return out.changes(), false
}
