package meta

import (
	"slices"

	"github.com/varvelog/varve/meta/conf"
	"github.com/varvelog/varve/meta/topic"
)

// AlterPartition is a leader's wish for another in-sync set (KIP-497, KIP-841,
// KIP-903).
type AlterPartition struct {
	ID             topic.ID
	Index          int32
	LeaderEpoch    int32
	PartitionEpoch int32
	ISR            []BrokerState
	Recovering     bool
	// Lossy names replicas that lack records they had acknowledged: by what they
	// fetch, or because the leader has found its own copy damaged. They are in
	// neither set afterwards. A leader that names itself steps back.
	Lossy []int32
}

// resigns reports whether the leader wants somebody else to lead.
func (w *AlterPartition) resigns(leader int32) bool { return slices.Contains(w.Lossy, leader) }

// BrokerState names a broker as of one start; Epoch -1 means any.
type BrokerState struct {
	ID    int32
	Epoch int64
}

// AlteredPartition is what became of an AlterPartition: the partition as it is
// then, or Err.
type AlteredPartition struct {
	ID        topic.ID
	Index     int32
	Partition Partition
	Err       error
}

// decideAlterPartition decides on the wishes of one leading broker. Each is a
// compare-and-swap on the partition epoch.
func decideAlterPartition(img *Image, b *conf.Broker, leader int32, epoch int64, wishes []AlterPartition) ([]AlteredPartition, []Change, error) {
	if _, err := img.checkBrokerEpoch(leader, epoch); err != nil {
		return nil, nil, err
	}
	results := make([]AlteredPartition, len(wishes))
	seen := make(map[topic.Partition]bool, len(wishes))
	var out topicChanges
	rules := newTopicRules(b)
	for i := range wishes {
		w := &wishes[i]
		r := &results[i]
		r.ID, r.Index = w.ID, w.Index
		t, p := img.PartitionByID(w.ID, w.Index)
		if t == nil {
			r.Err = unknownTopic()
			if img.TopicByID(w.ID) == nil {
				r.Err = refuse(ErrUnknownTopicID, "This server does not host this topic ID.")
			}
			continue
		}
		if seen[t.Key(w.Index)] {
			r.Err = refuse(ErrInvalidRequest, "The partition is named twice.")
			continue
		}
		seen[t.Key(w.Index)] = true
		if r.Err = checkAlter(img, leader, p, w); r.Err != nil {
			continue
		}
		isr := make([]int32, len(w.ISR))
		for j, s := range w.ISR {
			isr[j] = s.ID
		}
		if w.resigns(leader) {
			r.Err = resign(img, rules, t, w, leader, isr, &out)
			continue
		}
		e := img.election(rules, t, w.Index)
		e.isr, e.recovered, e.lossy = isr, !w.Recovering, w.Lossy
		// A wish that changes nothing raises the partition epoch all the same:
		// then no earlier wish of the leader, whose answer it may never have
		// had, can be granted any more.
		c, _ := e.change()
		r.Partition = *p
		c.change(&r.Partition)
		out.add(t.ID, c)
		if r.Partition.Leader != leader {
			// The in-sync set has completed a reassignment that takes the
			// leader away: the change is made all the same.
			r.Err = ErrNewLeaderElected
		}
	}
	return results, out.changes(), nil
}

// resign lets a leader step back whose copy lacks committed records. Someone in
// sync takes over. A leader that has nobody beside it says so by an empty set:
// then the partition waits for the ELR. Without one the same replica leads again,
// as one that was elected uncleanly, for that is what it is; but only if there is
// no other replica, or who may lack records may lead this topic. Otherwise the
// partition waits for an operator, and the resigner is not remembered as the last
// leader, which would elect it all the same: the other replicas may have more.
func resign(img *Image, rules topicRules, t *Topic, w *AlterPartition, leader int32, isr []int32, out *topicChanges) error {
	e := img.election(rules, t, w.Index)
	e.isr, e.lossy, e.gone = isr, w.Lossy, leader
	c, _ := e.change()
	next := t.Partitions[w.Index]
	c.change(&next)
	if next.Leader == NoLeader && len(isr) > 0 {
		return ErrEligibleLeadersNotAvailable
	}
	again := e.unclean || len(next.Replicas) == 1
	if next.Leader == NoLeader && len(next.ELR) == 0 && !again {
		next.LastKnownELR = except(next.LastKnownELR, []int32{leader})
		c.LastKnownELR = next.LastKnownELR
		c.Set &^= SetLastKnownELR
		if !slices.Equal(next.LastKnownELR, t.Partitions[w.Index].LastKnownELR) {
			c.Set |= SetLastKnownELR
		}
	}
	out.add(t.ID, c)
	if next.Leader == NoLeader && again {
		between := *t
		between.Partitions = slices.Clone(t.Partitions)
		between.Partitions[w.Index] = next
		last := img.election(rules, &between, w.Index)
		if c, ok := last.change(); ok {
			out.add(t.ID, c)
		}
	}
	return ErrNewLeaderElected
}

// checkAlter checks one wish, in Kafka's order. An epoch from the future means
// that this node has been deposed without knowing it yet.
func checkAlter(img *Image, leader int32, p *Partition, w *AlterPartition) error {
	switch {
	case w.LeaderEpoch > p.LeaderEpoch || w.PartitionEpoch > p.PartitionEpoch:
		return ErrNotController
	case w.LeaderEpoch < p.LeaderEpoch:
		return ErrFencedLeaderEpoch
	case leader != p.Leader:
		return refuse(ErrInvalidRequest, "The current leader is %d.", p.Leader)
	case w.PartitionEpoch < p.PartitionEpoch:
		return ErrInvalidUpdateVersion
	}
	for i, s := range w.ISR {
		if !slices.Contains(p.Replicas, s.ID) || slices.ContainsFunc(w.ISR[:i], func(o BrokerState) bool { return o.ID == s.ID }) {
			return refuse(ErrInvalidRequest, "The in-sync set names a broker twice or one that is no replica.")
		}
	}
	for _, id := range w.Lossy {
		if !slices.Contains(p.Replicas, id) || slices.ContainsFunc(w.ISR, func(s BrokerState) bool { return s.ID == id }) {
			return refuse(ErrInvalidRequest, "A replica that lost records is in sync or no replica.")
		}
	}
	switch {
	case !w.resigns(leader) && !slices.ContainsFunc(w.ISR, func(s BrokerState) bool { return s.ID == leader }):
		return refuse(ErrInvalidRequest, "The in-sync set is without its leader.")
	case w.Recovering && len(w.ISR) > 1:
		return refuse(ErrInvalidRequest, "The leader is still recovering: it has to be alone in the in-sync set.")
	case w.Recovering && !p.Recovering:
		return refuse(ErrInvalidRequest, "The leader cannot go back to recovering.")
	}
	for _, s := range w.ISR {
		b, ok := img.Brokers[s.ID]
		if !ok || !b.Active() || s.Epoch != -1 && s.Epoch != b.Epoch {
			return ErrIneligibleReplica
		}
	}
	return nil
}

// PartitionRef names a partition by its topic's name.
type PartitionRef struct {
	Topic string
	Index int32
}

// ElectionResult is what became of one partition's election.
type ElectionResult struct {
	PartitionRef
	Err error
}

// decideElection elects preferred leaders, or, with unclean, a leader for
// partitions that have none even if it may lack records (KIP-460). A nil list
// means every partition; then those that need no election are left out.
func decideElection(img *Image, b *conf.Broker, unclean bool, refs []PartitionRef) ([]ElectionResult, []Change) {
	all := refs == nil
	if all {
		for _, t := range img.Topics() {
			for i := range t.Partitions {
				refs = append(refs, PartitionRef{Topic: t.Name, Index: int32(i)})
			}
		}
	}
	results := make([]ElectionResult, 0, len(refs))
	var out topicChanges
	rules := newTopicRules(b)
	for _, r := range refs {
		c, id, err := electOne(img, rules, unclean, r)
		if err == nil {
			out.add(id, c)
		}
		if e, ok := err.(*Error); ok && all && e.Kind == ErrElectionNotNeeded {
			continue
		}
		results = append(results, ElectionResult{PartitionRef: r, Err: err})
	}
	return results, out.changes()
}

func electOne(img *Image, rules topicRules, unclean bool, r PartitionRef) (PartitionChange, topic.ID, error) {
	none := PartitionChange{}
	t, p := img.Partition(r.Topic, r.Index)
	switch {
	case img.Topic(r.Topic) == nil:
		return none, topic.ID{}, refuse(ErrUnknownTopic, "No such topic as %s", r.Topic)
	case p == nil:
		return none, topic.ID{}, refuse(ErrUnknownTopic, "No such partition as %s-%d", r.Topic, r.Index)
	case !unclean && p.Leader == p.Replicas[0] || unclean && p.Leader != NoLeader:
		return none, topic.ID{}, refuse(ErrElectionNotNeeded, "Leader election not needed for topic partition.")
	}
	e := img.election(rules, t, r.Index)
	e.unclean, e.preferred = unclean, !unclean
	c, ok := e.change()
	switch {
	case !unclean && (!ok || c.Set&SetLeader == 0 || c.Leader != p.Replicas[0]):
		return none, topic.ID{}, refuse(ErrPreferredLeaderNotAvailable, "The preferred leader was not available.")
	case unclean && (!ok || c.Set&SetLeader == 0):
		return none, topic.ID{}, refuse(ErrEligibleLeadersNotAvailable, "Eligible topic partition leaders are not available.")
	}
	return c, t.ID, nil
}
