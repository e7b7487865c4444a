package meta

import (
	"log/slog"
	"slices"
	"sync/atomic"
)

// electionCounts counts the elections that this node has decided on, and logs
// the unclean ones: records may have been lost, which a human must know.
type electionCounts struct {
	all, unclean atomic.Int64
}

func (e *electionCounts) count(log *slog.Logger, before *Image, changes []Change) {
	for _, c := range changes {
		parts, ok := c.(ChangePartitions)
		if !ok {
			continue
		}
		for i := range parts.Changes {
			p := &parts.Changes[i]
			if p.Set&SetLeader == 0 || p.Leader == NoLeader {
				continue
			}
			t, old := before.PartitionByID(parts.ID, p.Index)
			if old == nil {
				continue
			}
			unclean := p.Set&SetRecovering != 0 && p.Recovering
			if old.Leader != p.Leader || unclean {
				e.all.Add(1)
			}
			if unclean {
				e.unclean.Add(1)
				log.Error("unclean leader election: acknowledged records may be lost", "topic", t.Name, "partition", p.Index,
					"leader", p.Leader, "epoch", old.LeaderEpoch+1, "isr", old.ISR, "elr", old.ELR, "lastknown", old.LastKnownELR)
			}
		}
	}
}

// ClusterState is what an operator watches of the partitions and brokers.
type ClusterState struct {
	Active, Fenced   int // brokers
	Offline          int // partitions without a leader
	UnderReplicated  int // partitions of which a replica that is there to stay is not in sync
	NotPreferred     int // partitions led by another than their preferred leader
	Reassigning      int // partitions whose replicas are being changed
	Elections        int64
	UncleanElections int64 // of those that this node decided on, as is Elections
}

// State counts what an operator watches.
func (n *Node) State() ClusterState {
	s := n.Image().state()
	s.Elections, s.UncleanElections = n.elections.all.Load(), n.elections.unclean.Load()
	return s
}

func (img *Image) state() ClusterState {
	var s ClusterState
	for _, b := range img.Brokers {
		if b.Fenced {
			s.Fenced++
		} else {
			s.Active++
		}
	}
	for _, t := range img.Topics() {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			switch {
			case p.Leader == NoLeader:
				s.Offline++
			case p.Leader != p.Replicas[0]:
				s.NotPreferred++
			}
			if p.Reassigning() {
				s.Reassigning++
			}
			if slices.ContainsFunc(p.Replicas, func(id int32) bool {
				return !slices.Contains(p.ISR, id) && !slices.Contains(p.AddingReplicas, id)
			}) {
				s.UnderReplicated++
			}
		}
	}
	return s
}
