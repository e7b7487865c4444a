package balance

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// Plan returns the moves that the rules ask for, the most urgent first.
func Plan(c *Cluster, o Options) []Move {
	p := newPlan(c, o)
	p.evacuate()
	if o.Even {
		p.spreadRacks()
		p.even(Count, func(b *node) int64 { return b.holds }, func(*part) int64 { return 1 })
		p.even(Bytes, func(b *node) int64 { return b.bytes }, func(q *part) int64 { return q.Bytes })
		p.evenLeaders()
	}
	return p.moves()
}

// Empty reports whether a broker holds no replica.
func Empty(c *Cluster, id int32) bool {
	for i := range c.Partitions {
		if slices.Contains(c.Partitions[i].Replicas, id) {
			return false
		}
	}
	return true
}

type node struct {
	Broker
	known               bool // registered
	holds, leads, bytes int64
	parts               map[*part]struct{} // those it holds
}

type part struct {
	*Partition
	now   []int32 // the replicas as planned so far
	why   Reason  // of the first move, or Drained if any is; "" while there is none
	order int     // of the first move
}

type plan struct {
	o     Options
	nodes []*node // by id
	byID  map[int32]*node
	parts []*part // by topic and index
	moved int     // partitions of which data moves
	order int

	countLow, countHigh float64 // between which the counts of replicas are even enough
}

func newPlan(c *Cluster, o Options) *plan {
	p := &plan{o: o, byID: make(map[int32]*node, len(c.Brokers))}
	add := func(b Broker, known bool) *node {
		n := &node{Broker: b, known: known, parts: make(map[*part]struct{})}
		p.byID[b.ID] = n
		p.nodes = append(p.nodes, n)
		return n
	}
	for _, b := range c.Brokers {
		add(b, true)
	}
	p.parts = make([]*part, len(c.Partitions))
	for i := range c.Partitions {
		q := &part{Partition: &c.Partitions[i], now: c.Partitions[i].Replicas}
		p.parts[i] = q
		for j, id := range q.now {
			n := p.byID[id]
			if n == nil {
				n = add(Broker{ID: id}, false)
			}
			n.take(q, j == 0)
		}
	}
	slices.SortFunc(p.nodes, func(a, b *node) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(p.parts, comparePartitions)
	return p
}

func comparePartitions(a, b *part) int {
	if c := strings.Compare(a.Topic, b.Topic); c != 0 {
		return c
	}
	return cmp.Compare(a.Index, b.Index)
}

func (n *node) take(q *part, leads bool) {
	n.parts[q] = struct{}{}
	n.holds++
	n.bytes += q.Bytes
	if leads {
		n.leads++
	}
}

func (n *node) give(q *part, leads bool) {
	delete(n.parts, q)
	n.holds--
	n.bytes -= q.Bytes
	if leads {
		n.leads--
	}
}

// full reports whether no more partitions may begin to move.
func (p *plan) full() bool { return p.o.MovesMax > 0 && p.moved >= p.o.MovesMax }

// mayMove reports whether data of the partition may move.
func (p *plan) mayMove(q *part) bool {
	return !q.Fixed && (q.why != "" && q.why != Leaders || !p.full())
}

// replace moves one replica of a partition; the place in the order stays.
func (p *plan) replace(q *part, from, to *node, why Reason) {
	i := slices.Index(q.now, from.ID)
	q.now = slices.Clone(q.now)
	q.now[i] = to.ID
	from.give(q, i == 0)
	to.take(q, i == 0)
	switch {
	case q.why == "":
		q.why = why
		p.order++
		q.order = p.order
		p.moved++
	case why == Drained:
		q.why = why // the one reason that puts up with fewer racks
	}
}

// evacuate empties the brokers that are to go.
func (p *plan) evacuate() {
	for _, q := range p.parts {
		for _, id := range slices.Clone(q.now) {
			from := p.byID[id]
			why := Drained
			if !from.known {
				why = Missing
			}
			if from.known && !from.Drain || !from.known && !p.o.Even {
				continue
			}
			if to := p.bestTaker(q, from); to != nil && p.mayMove(q) {
				p.replace(q, from, to, why)
			}
		}
	}
}

// bestTaker returns the broker that is to get a replica instead of from: in a
// rack that has fewest of the partition's other replicas, and among those the
// one with the fewest replicas and then bytes. nil means that nobody can.
func (p *plan) bestTaker(q *part, from *node) *node {
	var best *node
	bestShared := 0
	for _, n := range p.nodes {
		if !n.Takes || slices.Contains(q.now, n.ID) {
			continue
		}
		shared := p.sharing(q, from, n.Rack)
		if best == nil || shared < bestShared || shared == bestShared && less(n, best) {
			best, bestShared = n, shared
		}
	}
	return best
}

func less(a, b *node) bool {
	if a.holds != b.holds {
		return a.holds < b.holds
	}
	return a.bytes < b.bytes
}

// sharing is how many of the partition's replicas, without the one on from,
// are in a rack.
func (p *plan) sharing(q *part, from *node, rack string) int {
	n := 0
	for _, id := range q.now {
		if id != from.ID && p.byID[id].known && p.byID[id].Rack == rack {
			n++
		}
	}
	return n
}

// spreadRacks moves replicas that share a rack with another while there is a
// rack with none.
func (p *plan) spreadRacks() {
	for _, q := range p.parts {
		for i := len(q.now) - 1; i >= 0; i-- { // followers before the preferred leader
			from := p.byID[q.now[i]]
			if !from.known || p.sharing(q, from, from.Rack) == 0 || !p.mayMove(q) {
				continue
			}
			if to := p.bestTaker(q, from); to != nil && p.sharing(q, from, to.Rack) < p.sharing(q, from, from.Rack) {
				p.replace(q, from, to, Racks)
			}
		}
	}
}

// even moves replicas from the fullest to the emptiest brokers, by the given
// measure, until each is within the threshold of the mean or nothing helps.
func (p *plan) even(why Reason, load func(*node) int64, weight func(*part) int64) {
	takers := p.takers()
	if len(takers) < 2 {
		return
	}
	var total int64
	for _, n := range takers {
		total += load(n)
	}
	mean := float64(total) / float64(len(takers))
	slack := max(mean*float64(p.o.ThresholdPercent)/100, 1)
	if why == Count {
		p.countLow, p.countHigh = mean-slack, mean+slack
	}
	stuck := make(map[[2]int32]bool) // pairs between which nothing helps
	for {
		slices.SortStableFunc(takers, func(a, b *node) int { return cmp.Compare(load(b), load(a)) })
		if !p.evenOnce(why, takers, mean, slack, stuck, load, weight) {
			return
		}
	}
}

// evenOnce makes one move, between the furthest pair where one helps.
func (p *plan) evenOnce(why Reason, takers []*node, mean, slack float64, stuck map[[2]int32]bool, load func(*node) int64, weight func(*part) int64) bool {
	for _, from := range takers {
		for j := len(takers) - 1; j >= 0; j-- {
			to := takers[j]
			gap := load(from) - load(to)
			if gap < 2 || float64(load(from)) <= mean+slack && float64(load(to)) >= mean-slack {
				break
			}
			if stuck[[2]int32{from.ID, to.ID}] {
				continue
			}
			if q := p.bestMove(from, to, gap, why, weight); q != nil {
				p.replace(q, from, to, why)
				return true
			}
			stuck[[2]int32{from.ID, to.ID}] = true
		}
	}
	return false
}

// bestMove returns the partition whose move from one broker to another brings
// the two closest. Counting replicas, that are all alike, the one with the
// bytes that suit best is taken, and the smallest if bytes do not matter. A
// move for bytes must not make the counts so uneven that the next plan moves
// something back.
func (p *plan) bestMove(from, to *node, gap int64, why Reason, weight func(*part) int64) *part {
	if why == Bytes && (float64(to.holds+1) > p.countHigh || float64(from.holds-1) < p.countLow) {
		return nil
	}
	var best *part
	bestScore := int64(math.MaxInt64)
	for q := range from.parts {
		w := weight(q)
		if w <= 0 || w >= gap || !p.mayMove(q) || slices.Contains(q.now, to.ID) {
			continue
		}
		if p.sharing(q, from, to.Rack) > p.sharing(q, from, from.Rack) {
			continue
		}
		score := abs(gap - 2*w)
		if why == Count {
			score = abs(from.bytes - to.bytes - 2*q.Bytes)
		}
		if score < bestScore || score == bestScore && comparePartitions(q, best) < 0 {
			best, bestScore = q, score
		}
	}
	return best
}

func abs(n int64) int64 { return max(n, -n) }

func (p *plan) takers() []*node {
	var list []*node
	for _, n := range p.nodes {
		if n.Takes {
			list = append(list, n)
		}
	}
	return list
}

// evenLeaders changes the order of replicas where that evens out preferred
// leaderships.
func (p *plan) evenLeaders() {
	takers := p.takers()
	if len(takers) < 2 {
		return
	}
	var total int64
	for _, n := range takers {
		total += n.leads
	}
	mean := float64(total) / float64(len(takers))
	high := mean + max(mean*float64(p.o.ThresholdPercent)/100, 1)
	for _, q := range p.parts {
		from := p.byID[q.now[0]]
		if q.Fixed || float64(from.leads) <= high {
			continue
		}
		var to *node
		for _, id := range q.now[1:] {
			if n := p.byID[id]; n.Takes && n.leads+1 < from.leads && (to == nil || n.leads < to.leads) {
				to = n
			}
		}
		if to == nil {
			continue
		}
		i := slices.Index(q.now, to.ID)
		q.now = slices.Clone(q.now)
		q.now[0], q.now[i] = q.now[i], q.now[0]
		from.leads--
		to.leads++
		if q.why == "" {
			q.why = Leaders
			p.order++
			q.order = p.order
		}
	}
}

// moves returns what is to change, in the order in which it was decided.
func (p *plan) moves() []Move {
	var changed []*part
	for _, q := range p.parts {
		if q.why != "" && !slices.Equal(q.now, q.Replicas) {
			changed = append(changed, q)
		}
	}
	slices.SortFunc(changed, func(a, b *part) int { return cmp.Compare(a.order, b.order) })
	list := make([]Move, len(changed))
	for i, q := range changed {
		list[i] = Move{Topic: q.Topic, Index: q.Index, From: q.Replicas, To: q.now, Why: q.why}
		for _, id := range q.now {
			if !slices.Contains(q.Replicas, id) {
				list[i].Bytes += q.Bytes
			}
		}
	}
	return list
}
