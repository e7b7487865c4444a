package meta

import (
	"slices"

	"github.com/varvelog/varve/meta/conf"
	"github.com/varvelog/varve/meta/topic"
)

// Reassign is a wish for other replicas of one partition (KIP-455).
type Reassign struct {
	PartitionRef
	// Replicas are the wanted replicas, the preferred leader first; nil cancels
	// the reassignment that is in progress.
	Replicas []int32
}

// ReassignResult is what became of one Reassign.
type ReassignResult struct {
	PartitionRef
	Err error
}

// Reassignment is a partition whose replicas are being changed.
type Reassignment struct {
	PartitionRef
	Replicas []int32 // all of them: those that stay, those to come, those to go
	Adding   []int32
	Removing []int32
}

// Reassignments returns the partitions that are being reassigned, by topic and
// index: of those named, or of all with nil. Partitions that do not exist, or
// are not being reassigned, are left out, as Kafka does.
func (img *Image) Reassignments(refs []PartitionRef) []Reassignment {
	var list []Reassignment
	add := func(t *Topic, index int32) {
		if _, p := t.partition(index); p != nil && p.Reassigning() {
			list = append(list, Reassignment{
				PartitionRef: PartitionRef{Topic: t.Name, Index: index},
				Replicas:     p.Replicas, Adding: p.AddingReplicas, Removing: p.RemovingReplicas,
			})
		}
	}
	if refs != nil {
		for _, r := range refs {
			add(img.Topic(r.Topic), r.Index)
		}
		return list
	}
	for _, t := range img.Topics() {
		for i := range t.Partitions {
			add(t, int32(i))
		}
	}
	return list
}

// decideReassign starts, replaces and cancels reassignments. A reassignment
// first adds: the partition has the wanted replicas and those it had. Once all
// the wanted ones are in sync (election.complete decides so, whatever it is
// that changes the in-sync set) the others go.
func decideReassign(img *Image, b *conf.Broker, wishes []Reassign, factorMayChange bool) ([]ReassignResult, []Change) {
	results := make([]ReassignResult, len(wishes))
	if len(wishes) > partitionsPerRequestMax {
		for i, w := range wishes {
			results[i] = ReassignResult{PartitionRef: w.PartitionRef, Err: refuse(ErrPolicyViolation, "Unable to perform excessively large batch operation.")}
		}
		return results, nil
	}
	rules := newTopicRules(b)
	seen := make(map[PartitionRef]bool, len(wishes))
	var out topicChanges
	for i, w := range wishes {
		results[i].PartitionRef = w.PartitionRef
		if seen[w.PartitionRef] {
			results[i].Err = refuse(ErrInvalidRequest, "The partition is named twice.")
			continue
		}
		seen[w.PartitionRef] = true
		id, c, changed, err := reassignOne(img, rules, w, factorMayChange)
		results[i].Err = err
		if changed {
			out.add(id, c)
		}
	}
	return results, out.changes()
}

func reassignOne(img *Image, rules topicRules, w Reassign, factorMayChange bool) (topic.ID, PartitionChange, bool, error) {
	t := img.Topic(w.Topic)
	if t == nil {
		return topic.ID{}, PartitionChange{}, false, refuse(ErrUnknownTopic, "Unable to find a topic named %s.", w.Topic)
	}
	if _, p := t.partition(w.Index); p == nil {
		return t.ID, PartitionChange{}, false, refuse(ErrUnknownTopic, "Unable to find partition %s:%d.", w.Topic, w.Index)
	}
	e := img.election(rules, t, w.Index)
	var err error
	if w.Replicas == nil {
		err = cancelReassignment(&e, w)
	} else {
		err = startReassignment(img, &e, w, factorMayChange)
	}
	if err != nil {
		return t.ID, PartitionChange{}, false, err
	}
	c, changed := e.change()
	return t.ID, c, changed, nil
}

// startReassignment sets what the partition is to become. A reassignment that
// is in progress is replaced: what it added and the new one does not want goes
// with the rest, at the end, for it may be in sync by now. Until then it counts
// as added and as removed, so that a cancellation still finds what there was.
func startReassignment(img *Image, e *election, w Reassign, factorMayChange bool) error {
	if err := checkAssignment(img, w.Replicas, 0); err != nil {
		return err
	}
	p := e.part
	if factor := len(p.Replicas) - len(p.RemovingReplicas); !factorMayChange && factor != len(w.Replicas) {
		return refuse(ErrInvalidReplicationFactor, "The replication factor is changed from %d to %d", factor, len(w.Replicas))
	}
	e.removing = slices.Sorted(slices.Values(except(p.Replicas, w.Replicas)))
	e.replicas = slices.Concat(w.Replicas, e.removing)
	e.adding = slices.Sorted(slices.Values(except(e.replicas, except(p.Replicas, p.AddingReplicas))))
	return nil
}

// cancelReassignment sets the partition back to what it was.
func cancelReassignment(e *election, w Reassign) error {
	p := e.part
	if !p.Reassigning() {
		return &Error{Kind: ErrNoReassignment} // Kafka sends the code alone
	}
	e.replicas = except(p.Replicas, p.AddingReplicas)
	e.isr = except(p.ISR, p.AddingReplicas)
	e.adding, e.removing = nil, nil
	whole := slices.Concat(p.ISR, p.ELR) // those that hold every committed record
	lost := except(whole, e.replicas)
	switch {
	case len(lost) == 0:
	case len(lost) == len(whole):
		if !e.unclean || !slices.ContainsFunc(e.replicas, e.mayLead) {
			return refuse(ErrInvalidAssignment, "Unable to revert partition assignment for %s:%d because it would require an unclean leader election.", w.Topic, w.Index)
		}
	case len(e.isr) < e.enough():
		return refuse(ErrInvalidAssignment, "Unable to revert partition assignment for %s:%d because fewer than min.insync.replicas replicas would be in sync.", w.Topic, w.Index)
	}
	return nil
}
