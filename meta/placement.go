package meta

import (
	"cmp"
	"slices"
)

// placer spreads replicas over brokers: leaderships and replicas evenly by
// how many each broker has already, and the replicas of one partition over as
// many racks as there are. Ties go to the lower id, so that the same image
// always gives the same placement.
type placer struct {
	brokers []placed
}

type placed struct {
	Broker
	brokerLoad
}

func newPlacer(img *Image) *placer {
	p := &placer{}
	for _, id := range sortedIDs(img.Brokers) {
		p.brokers = append(p.brokers, placed{Broker: img.Brokers[id], brokerLoad: img.load[id]})
	}
	return p
}

// check returns Kafka's reason why so many replicas cannot be placed.
func (p *placer) check(replicas int) error {
	if replicas <= 0 {
		return refuse(ErrInvalidReplicationFactor, "Invalid replication factor %d: the replication factor must be positive.", replicas)
	}
	if !slices.ContainsFunc(p.brokers, func(b placed) bool { return !b.Fenced }) {
		return refuse(ErrInvalidReplicationFactor, "All brokers are currently fenced.")
	}
	if replicas > len(p.brokers) {
		return refuse(ErrInvalidReplicationFactor, "The target replication factor of %d cannot be reached because only %d broker(s) are registered or some brokers have all their log directories cordoned.", replicas, len(p.brokers))
	}
	return nil
}

// place chooses the replicas of one partition, its preferred leader first.
func (p *placer) place(replicas int) []int32 {
	ids := make([]int32, 0, replicas)
	racks := make(map[string]int)
	for len(ids) < replicas {
		leader := len(ids) == 0
		best := -1
		for i := range p.brokers {
			b := &p.brokers[i]
			if slices.Contains(ids, b.ID) {
				continue
			}
			if best < 0 || p.better(b, &p.brokers[best], racks, leader) {
				best = i
			}
		}
		b := &p.brokers[best]
		b.holds++
		if leader {
			b.leads++
		}
		racks[b.Rack]++
		ids = append(ids, b.ID)
	}
	return ids
}

// better reports whether a is a better place for the next replica than b.
func (p *placer) better(a, b *placed, racks map[string]int, leader bool) bool {
	if a.Active() != b.Active() {
		return a.Active()
	}
	if c := cmp.Compare(racks[a.Rack], racks[b.Rack]); c != 0 {
		return c < 0
	}
	if leader {
		if c := cmp.Compare(a.leads, b.leads); c != 0 {
			return c < 0
		}
	}
	return a.holds < b.holds
}
