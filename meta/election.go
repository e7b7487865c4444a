package meta

import (
	"slices"
	"strconv"
	"strings"

	"github.com/varvelog/varve/meta/conf"
	"github.com/varvelog/varve/meta/topic"
)

// election works out one change of one partition: which replicas it has, who
// is in sync, who leads, and who else holds every committed record (KIP-966).
// Its rules are those of Kafka's controller. Image.election makes one that
// wants what is; the caller sets what is to become.
type election struct {
	img    *Image
	part   *Partition
	index  int32
	minISR int // the topic's min.insync.replicas

	replicas  []int32 // the wanted replicas, those to be removed among them
	adding    []int32 // those of them that are yet to come
	removing  []int32 // those of them that are to go
	isr       []int32 // the wanted in-sync set
	recovered bool    // a leader elected uncleanly has made its log whole
	unclean   bool    // a replica that may lack records may lead
	preferred bool    // move leadership to the first replica

	gone  int32   // a broker that cannot lead whatever the image says, or -1
	back  int32   // a broker that can lead whatever the image says, or -1
	lossy []int32 // replicas that may have lost records: they have no place in the ELR
}

func (img *Image) election(rules topicRules, t *Topic, index int32) election {
	p := &t.Partitions[index]
	return election{
		img: img, part: p, index: index, minISR: rules.minISR(t), unclean: rules.unclean(t),
		replicas: p.Replicas, adding: p.AddingReplicas, removing: p.RemovingReplicas, isr: p.ISR,
		gone: -1, back: -1,
	}
}

// mayLead reports whether a broker is up to leading.
func (e *election) mayLead(id int32) bool {
	if id == e.gone || id == e.back {
		return id != e.gone
	}
	b, ok := e.img.Brokers[id]
	return ok && b.Active()
}

// change returns what is to change, and false if nothing is.
func (e *election) change() (PartitionChange, bool) {
	p := e.part
	c := PartitionChange{Index: e.index}
	recovering := p.Recovering && !e.recovered
	if !recovering {
		e.complete()
	}
	elr, lastKnown := e.eligible(e.isr)
	leader, how := e.elect(e.isr, elr)
	isr := e.isr
	if how != electedClean {
		// The new leader is the whole of the in-sync set: the others have to
		// catch up with what it has.
		isr = []int32{leader}
		recovering = recovering || how == electedUnclean
		if e.isr = isr; !recovering {
			e.complete()
		}
		elr, lastKnown = e.eligible(isr)
	}
	if leader != NoLeader && len(isr) == 0 {
		panic("meta: a leader outside its in-sync set")
	}
	lastKnown = e.rememberLeader(isr, elr, lastKnown, leader)

	// A replica that is no more must not count for anything it still says: a
	// new leader epoch sees to that.
	if leader != p.Leader || len(except(p.Replicas, e.replicas)) > 0 {
		c.Set |= SetLeader
		c.Leader = leader
	}
	if recovering != p.Recovering || how == electedUnclean {
		c.Set |= SetRecovering
		c.Recovering = recovering
	}
	for _, l := range []struct {
		field     PartitionFields
		old, next []int32
		to        *[]int32
	}{
		{SetReplicas, p.Replicas, e.replicas, &c.Replicas},
		{SetISR, p.ISR, isr, &c.ISR},
		{SetELR, p.ELR, elr, &c.ELR},
		{SetLastKnownELR, p.LastKnownELR, lastKnown, &c.LastKnownELR},
		{SetAddingReplicas, p.AddingReplicas, e.adding, &c.AddingReplicas},
		{SetRemovingReplicas, p.RemovingReplicas, e.removing, &c.RemovingReplicas},
	} {
		if !slices.Equal(l.old, l.next) {
			c.Set |= l.field
			*l.to = l.next
		}
	}
	return c, c.Set != 0
}

// complete ends a reassignment whose wanted replicas are all in sync: those
// that are to go, go. While a leader that was elected uncleanly recovers they
// stay, for they may have what it lacks.
func (e *election) complete() {
	if len(e.adding)+len(e.removing) == 0 {
		return
	}
	replicas, isr := except(e.replicas, e.removing), except(e.isr, e.removing)
	if len(replicas) == 0 || len(except(replicas, isr)) > 0 {
		return
	}
	e.replicas, e.isr, e.adding, e.removing = replicas, isr, nil, nil
}

// except returns what is in a and not in b, in a's order.
func except(a, b []int32) []int32 {
	var rest []int32
	for _, id := range a {
		if !slices.Contains(b, id) {
			rest = append(rest, id)
		}
	}
	return rest
}

// enough is how many in-sync replicas the partition needs (Partition.MinISR).
func (e *election) enough() int { return min(e.minISR, len(e.replicas)-len(e.adding)) }

// eligible returns who is eligible beside this in-sync set, and who was.
func (e *election) eligible(isr []int32) (elr, lastKnown []int32) {
	p := e.part
	if len(isr) >= e.enough() {
		return nil, nil
	}
	for _, id := range e.replicas {
		if slices.Contains(isr, id) {
			continue
		}
		inSync := slices.Contains(p.ISR, id)
		was := inSync || slices.Contains(p.ELR, id)
		switch {
		case inSync && p.Recovering && len(p.ELR) > 0:
			// Elected uncleanly while others were eligible, and not done with
			// what that takes: they have what it lacks.
			lastKnown = append(lastKnown, id)
		case was && p.Recovering && e.recovered:
			// The leader was elected uncleanly, and what it has is the truth from
			// now on: what others had before makes them eligible no more. With both
			// in the ELR the next clean leader could lack what the other had shown.
			lastKnown = append(lastKnown, id)
		case was && !slices.Contains(e.lossy, id):
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
	if e.preferred && len(e.replicas) > 0 && valid(e.replicas[0]) {
		return e.replicas[0], electedClean
	}
	if p.Leader != NoLeader && valid(p.Leader) {
		return p.Leader, electedClean
	}
	for _, id := range e.replicas {
		if valid(id) {
			return id, electedClean
		}
	}
	if len(isr) > 0 && !e.unclean {
		return NoLeader, electedClean
	}
	for _, id := range e.replicas {
		if slices.Contains(elr, id) && e.mayLead(id) {
			return id, electedELR
		}
	}
	if e.unclean {
		for _, id := range e.replicas {
			if e.mayLead(id) {
				return id, electedUnclean
			}
		}
	}
	// The last replica that was in sync has most of what there is: with nobody
	// else left who could have more, waiting would not bring more back. Who it
	// is must have been known before this change (rememberLeader).
	if len(p.ISR)+len(p.ELR) == 0 && len(p.LastKnownELR) == 1 && e.mayLead(p.LastKnownELR[0]) {
		return p.LastKnownELR[0], electedUnclean
	}
	return NoLeader, electedClean
}

// rememberLeader narrows lastKnown to the one that was last to lead or to be
// eligible, when nobody is any more.
func (e *election) rememberLeader(isr, elr, lastKnown []int32, leader int32) []int32 {
	p := e.part
	if leader != NoLeader || len(isr) > 0 || len(elr) > 0 {
		return lastKnown
	}
	last := NoLeader
	switch {
	case p.Leader != NoLeader:
		last = p.Leader
	case len(p.ISR)+len(p.ELR) == 1:
		last = slices.Concat(p.ISR, p.ELR)[0] // nobody was eligible longer
	case len(p.LastKnownELR) == 1:
		last = p.LastKnownELR[0]
	}
	if !slices.Contains(e.replicas, last) {
		return lastKnown
	}
	return []int32{last}
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
	if text, ok := t.Configs[uncleanSetting]; ok {
		return isTrue(text)
	}
	return r.uncleanDefault
}
