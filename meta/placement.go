package meta

import (
	"cmp"
	"slices"
)

// placer spreads replicas over brokers: those of one partition over as many
// racks as there are (KIP-36), leaderships and replicas of one topic evenly
// over the brokers, and among brokers that have as many of the topic to those
// that have fewest of everything. Brokers that are fenced or shutting down get
// something only when there are too few others. The same image always gives
// the same placement.
type placer struct {
	brokers []placed
}

type placed struct {
	Broker
	brokerLoad            // of all topics
	topic      brokerLoad // of the topic that is being placed
}

func newPlacer(img *Image) *placer {
	p := &placer{}
	for _, id := range sortedIDs(img.Brokers) {
		if !img.Cordoned(id) {
			p.brokers = append(p.brokers, placed{Broker: img.Brokers[id], brokerLoad: img.load[id]})
		}
	}
	return p
}

// cordonSetting names data directories that take no new replicas (KIP-1066). A
// broker has one, so that naming any cordons the broker.
const cordonSetting = "cordoned.log.dirs"

// Cordoned reports whether a broker gets no new replicas: its data directory
// is cordoned, or it is being drained.
func (img *Image) Cordoned(id int32) bool {
	return img.brokerSetting(id, cordonSetting) != "" || img.Draining(id)
}

// brokerSetting is a broker's dynamic setting, its own or that of all; "" when
// there is none.
func (img *Image) brokerSetting(id int32, name string) string {
	if v, ok := img.BrokerConfigs(id)[name]; ok {
		return v
	}
	return img.BrokerDefaultConfigs()[name]
}

// check returns Kafka's reason why so many replicas cannot be placed.
func (p *placer) check(replicas int) error {
	if replicas <= 0 {
		return refuse(ErrInvalidReplicationFactor, "Invalid replication factor %d: the replication factor must be positive.", replicas)
	}
	if !slices.ContainsFunc(p.brokers, func(b placed) bool { return !b.Fenced }) {
		return refuse(ErrInvalidReplicationFactor, "All brokers are currently fenced, or have all their log directories cordoned.")
	}
	if replicas > len(p.brokers) {
		return refuse(ErrInvalidReplicationFactor, "The target replication factor of %d cannot be reached because only %d broker(s) are registered or some brokers have all their log directories cordoned.", replicas, len(p.brokers))
	}
	return nil
}

// start begins with another topic, which has these partitions already.
func (p *placer) start(existing []Partition) {
	for i := range p.brokers {
		b := &p.brokers[i]
		b.topic = brokerLoad{}
		for j := range existing {
			switch at := slices.Index(existing[j].Replicas, b.ID); {
			case at == 0:
				b.topic.leads++
				b.topic.holds++
			case at > 0:
				b.topic.holds++
			}
		}
	}
}

// place chooses the replicas of one partition, its preferred leader first.
func (p *placer) place(replicas int) []int32 {
	ids := make([]int32, 0, replicas)
	racks := make(map[string]int)
	first := 0
	for len(ids) < replicas {
		leader := len(ids) == 0
		best := -1
		for k := range p.brokers {
			i := (first + k) % len(p.brokers)
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
		b.topic.holds++
		if leader {
			b.leads++
			b.topic.leads++
			// Which of several equal brokers comes next changes with each
			// partition that this one leads: when it fails, those that follow
			// it share what it led.
			first = best + 1 + (b.leads-1)%max(len(p.brokers)-1, 1)
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
		if c := cmp.Compare(a.topic.leads, b.topic.leads); c != 0 {
			return c < 0
		}
		if c := cmp.Compare(a.leads, b.leads); c != 0 {
			return c < 0
		}
	}
	if c := cmp.Compare(a.topic.holds, b.topic.holds); c != 0 {
		return c < 0
	}
	return a.holds < b.holds
}
