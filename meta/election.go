package meta

import (
	"slices"
	"strconv"
	"strings"

	"github.com/varvelog/varve/meta/conf"
	"github.com/varvelog/varve/meta/topic"
)

// election works out one change of one partition: who is in sync, who leads,
// and who else holds every committed record (KIP-966). Its rules are those of
// Kafka's controller.
type election struct {
	part      *Partition
	index     int32
	minISR    int                 // the topic's min.insync.replicas
	isr       []int32             // the wanted in-sync set
	unclean   bool                // a replica that may lack records may lead
	preferred bool                // move leadership to the first replica
	lossy     int32               // a broker that may have lost records, or -1
	mayLead   func(id int32) bool // whether a broker is up to leading
}

// change returns what is to change, and false if nothing is.
func (e *election) change() (PartitionChange, bool) {
	p := e.part
	c := PartitionChange{Index: e.index}
	elr, lastKnown := e.eligible(e.isr)
	leader, how := e.elect(e.isr, elr)
	isr := e.isr
	recovering := p.Recovering
	if how != electedClean {
		// The new leader is the whole of the in-sync set: the others have to
		// catch up with what it has.
		isr = []int32{leader}
		if how == electedUnclean {
			recovering = true
		}
		elr, lastKnown = e.eligible(isr)
	}
	if leader != NoLeader && len(isr) == 0 {
		panic("meta: a leader outside its in-sync set")
	}
	lastKnown = e.rememberLeader(isr, elr, lastKnown, leader)

	if leader != p.Leader {
		c.Set |= SetLeader
		c.Leader = leader
	}
	if recovering != p.Recovering {
		c.Set |= SetRecovering
		c.Recovering = recovering
	}
	for _, l := range []struct {
		field     PartitionFields
		old, next []int32
		to        *[]int32
	}{{SetISR, p.ISR, isr, &c.ISR}, {SetELR, p.ELR, elr, &c.ELR}, {SetLastKnownELR, p.LastKnownELR, lastKnown, &c.LastKnownELR}} {
		if !slices.Equal(l.old, l.next) {
			c.Set |= l.field
			*l.to = l.next
		}
	}
	return c, c.Set != 0
}

// eligible returns who is eligible beside this in-sync set, and who was.
func (e *election) eligible(isr []int32) (elr, lastKnown []int32) {
	p := e.part
	if len(isr) >= min(e.minISR, len(p.Replicas)) {
		return nil, nil
	}
	for _, id := range p.Replicas {
		if slices.Contains(isr, id) {
			continue
		}
		was := slices.Contains(p.ISR, id) || slices.Contains(p.ELR, id)
		switch {
		case was && id != e.lossy:
			elr = append(elr, id)
		case was || slices.Contains(p.LastKnownELR, id):
			lastKnown = append(lastKnown, id)
		}
	}
	return elr, lastKnown
}

type electionOutcome int

const (
	electedClean   electionOutcome = iota // from the in-sync set, or nobody
	electedELR                            // from the ELR: clean too, but alone in the in-sync set
	electedUnclean                        // may lack committed records
)

func (e *election) elect(isr, elr []int32) (int32, electionOutcome) {
	p := e.part
	valid := func(id int32) bool { return slices.Contains(isr, id) && e.mayLead(id) }
	if e.preferred && len(p.Replicas) > 0 && valid(p.Replicas[0]) {
		return p.Replicas[0], electedClean
	}
	if p.Leader != NoLeader && valid(p.Leader) {
		return p.Leader, electedClean
	}
	for _, id := range p.Replicas {
		if valid(id) {
			return id, electedClean
		}
	}
	if len(isr) > 0 && !e.unclean {
		return NoLeader, electedClean
	}
	for _, id := range p.Replicas {
		if slices.Contains(elr, id) && e.mayLead(id) {
			return id, electedELR
		}
	}
	if e.unclean {
		for _, id := range p.Replicas {
			if e.mayLead(id) {
				return id, electedUnclean
			}
		}
	}
	// The last replica that was in sync has most of what there is: with nobody
	// else left who could have more, waiting would not bring more back.
	if len(isr) == 0 && len(elr) == 0 && len(p.LastKnownELR) == 1 && e.mayLead(p.LastKnownELR[0]) {
		return p.LastKnownELR[0], electedUnclean
	}
	return NoLeader, electedClean
}

// rememberLeader narrows lastKnown to the leader that was last to be in sync,
// when nobody is any more.
func (e *election) rememberLeader(isr, elr, lastKnown []int32, leader int32) []int32 {
	p := e.part
	if leader != NoLeader || len(isr) > 0 || len(elr) > 0 {
		return lastKnown
	}
	switch {
	case p.Leader != NoLeader:
		return []int32{p.Leader}
	case len(p.LastKnownELR) == 1:
		return p.LastKnownELR
	case len(p.ISR)+len(p.ELR) == 1:
		return slices.Concat(p.ISR, p.ELR)
	}
	return lastKnown
}

// topicChanges gathers changes by topic.
type topicChanges struct {
	order []topic.ID
	byID  map[topic.ID][]PartitionChange
}

func (t *topicChanges) add(id topic.ID, c PartitionChange) {
	if t.byID == nil {
		t.byID = make(map[topic.ID][]PartitionChange)
	}
	if _, ok := t.byID[id]; !ok {
		t.order = append(t.order, id)
	}
	t.byID[id] = append(t.byID[id], c)
}

func (t *topicChanges) changes() []Change {
	list := make([]Change, 0, len(t.order))
	for _, id := range t.order {
		list = append(list, ChangePartitions{ID: id, Changes: t.byID[id]})
	}
	return list
}

// topicRules are the settings that elections depend on.
type topicRules struct {
	minISRDefault  int
	uncleanDefault bool
}

func newTopicRules(b *conf.Broker) topicRules {
	r := topicRules{minISRDefault: int(b.MinInsyncReplicas)}
	if t, err := conf.ParseTopic(nil, b); err == nil {
		r.uncleanDefault = t.UncleanLeaderElectionEnable
	}
	return r
}

// minISR is the topic's effective min.insync.replicas.
func (r topicRules) minISR(t *Topic) int {
	if text, ok := t.Configs[minISRSetting]; ok {
		if n, err := strconv.Atoi(strings.TrimSpace(text)); err == nil {
			return n
		}
	}
	return r.minISRDefault
}

// unclean is the topic's effective unclean.leader.election.enable.
func (r topicRules) unclean(t *Topic) bool {
	if text, ok := t.Configs["unclean.leader.election.enable"]; ok {
		return isTrue(text)
	}
	return r.uncleanDefault
}
