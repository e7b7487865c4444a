package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/varvelog/varve/meta"
)

// oracle knows everything, and asserts the invariants after every step. Names
// in quotes are the properties; numbers and T-numbers are those of the
// reliability rules.
//
//   - "candidates" (Leader Candidate Completeness): every member of the in-sync
//     set and of the ELR has every committed record, durably in fsync mode.
//   - "quorum" (Replication Quorum Superset): the set over which the leader takes
//     its watermark holds the in-sync set the controller would elect from (9).
//   - "matching" (Log Matching): records of equal offset and epoch are the same, and
//     so is all before them; no offset is given out twice in an epoch (2, 28).
//   - "reads" (Consistent Read): what any replica shows below its watermark is what
//     was committed there, once and for all (25).
//   - "lost" (No Committed Record Lost): what was acknowledged stays committed, and
//     at its acknowledgement is on min.insync.replicas logs (14, 15).
type oracle struct {
	w        *world
	truths   map[partitionKey]*truth
	epochMax int64 // of brokers
	acks     int
	commits  int
	elected  int
	uncleans int
	suspects map[int32]int // brokers that may lack records, until a later start is registered
	allowed  map[partitionKey]bool
}

// truth is what is known of one partition.
type truth struct {
	k        partitionKey
	name     string
	topic    string
	ghost    []record   // everything committed, from offset 0 on
	given    [][]record // what was committed before unclean elections
	start    int64      // the log start that was asked for
	written  map[offsetEpoch]copied
	leaders  map[int32]int32
	unclean  int32 // leader epoch of the newest unclean election
	since    int32 // leader epoch at which the present history began
	open     bool  // its leader has not begun: what it has is not known yet
	acked    int
	lastAck  int64
	finished bool // deleted
}

type offsetEpoch struct {
	offset int64
	epoch  int32
}

// copied is what every replica must have at an offset and epoch.
type copied struct {
	value int64
	prev  int32 // epoch of the record before, -1 unknown
}

func newOracle(w *world) *oracle {
	return &oracle{w: w, truths: map[partitionKey]*truth{}, suspects: map[int32]int{}, allowed: map[partitionKey]bool{}}
}

// Metadata.

// imageChanged checks a change that the quorum has just agreed on.
func (o *oracle) imageChanged(prev, next *meta.Image) {
	o.brokersChanged(prev, next)
	for _, t := range next.Topics() {
		old := prev.TopicByID(t.ID)
		for i := range t.Partitions {
			k := partitionKey{t.ID, int32(i)}
			p := &t.Partitions[i]
			if old == nil {
				o.truths[k] = &truth{
					k: k, name: t.Key(int32(i)).String(), topic: t.Name, written: map[offsetEpoch]copied{}, leaders: map[int32]int32{p.LeaderEpoch: p.Leader},
					unclean: -1, since: -1, lastAck: -1,
				}
				o.w.created(k)
			} else if was := &old.Partitions[i]; was.PartitionEpoch != p.PartitionEpoch {
				o.partitionChanged(prev, next, k, old, t, was, p)
			}
			o.members(next, k, p)
		}
	}
	for k, t := range o.truths {
		if next.TopicByID(k.id) == nil {
			t.finished = true
		}
	}
	for id := range o.suspects { // who has told of it is judged like everybody
		if b, ok := next.Brokers[id]; ok && numberOf(b.Incarnation) > o.suspects[id] {
			delete(o.suspects, id)
		}
	}
}

// brokersChanged: broker epochs are never given twice (3).
func (o *oracle) brokersChanged(prev, next *meta.Image) {
	for id, b := range next.Brokers {
		was, known := prev.Brokers[id]
		if known && was.Epoch == b.Epoch {
			continue
		}
		if b.Epoch <= o.epochMax {
			o.w.fail("epochs", "broker %d has epoch %d, not above %d", id, b.Epoch, o.epochMax)
		}
		o.epochMax = b.Epoch
	}
}

// members: nobody fenced or stopping is in sync or leads (7), and a leader is in sync.
func (o *oracle) members(img *meta.Image, k partitionKey, p *meta.Partition) {
	for _, id := range p.ISR {
		if b, ok := img.Brokers[id]; !ok || !b.Active() {
			o.w.fail("active", "%s: %d is in sync and not active", o.truths[k].name, id)
		}
		if !slices.Contains(p.Replicas, id) {
			o.w.fail("active", "%s: %d is in sync and no replica", o.truths[k].name, id)
		}
		if slices.Contains(p.ELR, id) {
			o.w.fail("active", "%s: %d is in sync and in the ELR", o.truths[k].name, id)
		}
	}
	if p.Leader != meta.NoLeader && !slices.Contains(p.ISR, p.Leader) {
		o.w.fail("active", "%s: leader %d is not in sync with itself: %v", o.truths[k].name, p.Leader, p.ISR)
	}
}

func (o *oracle) partitionChanged(prev, next *meta.Image, k partitionKey, ot, nt *meta.Topic, was, is *meta.Partition) {
	t := o.truths[k]
	w := o.w
	if is.PartitionEpoch <= was.PartitionEpoch || is.LeaderEpoch < was.LeaderEpoch {
		w.fail("epochs", "%s went from epochs %d/%d to %d/%d", t.name, was.LeaderEpoch, was.PartitionEpoch, is.LeaderEpoch, is.PartitionEpoch)
	}
	if is.Leader != was.Leader && is.LeaderEpoch == was.LeaderEpoch {
		w.fail("epochs", "%s: leader %d became %d within epoch %d", t.name, was.Leader, is.Leader, is.LeaderEpoch)
	}
	could := append(slices.Clone(was.ISR), was.ELR...)
	can := append(slices.Clone(is.ISR), is.ELR...)
	if is.LeaderEpoch != was.LeaderEpoch {
		t.leaders[is.LeaderEpoch] = is.Leader
		if t.open {
			t.since = is.LeaderEpoch
		}
		o.elected++
		// The last to join completes a reassignment, and may lead at once: that it
		// has everything is what "candidates" asserts.
		joined := was.Reassigning() && !is.Reassigning() && is.UncleanEpoch != is.LeaderEpoch
		last := is.UncleanEpoch == is.LeaderEpoch && is.UncleanEpoch != was.UncleanEpoch // who declined, and leads for want of another
		if is.Leader != meta.NoLeader && (!slices.Contains(could, is.Leader) && !joined || last) {
			opted := isTrue(ot.Configs["unclean.leader.election.enable"]) || isTrue(nt.Configs["unclean.leader.election.enable"]) || o.allowed[k]
			o.uncleanElection(t, was, is, opted)
		} else if was.Recovering && slices.Contains(was.ELR, is.Leader) {
			t.since, t.open = is.LeaderEpoch, true // one who has what the leader before it lacked
		}
	}
	if len(could) > 0 && len(can) == 0 {
		for _, id := range could {
			if !o.lacking(k, id) {
				w.fail("budget", "%s: %d may not lead any more, though it lost nothing: in sync %v, ELR %v", t.name, id, was.ISR, was.ELR)
			}
		}
	}
	if was.Reassigning() && !is.Reassigning() {
		least := minISROf(nt)
		if len(was.ISR) >= was.MinISR(least) && len(is.ISR) < is.MinISR(least) && sameActive(prev, next) {
			w.fail("reassign", "%s: in sync %v of %v became %v of %v", t.name, was.ISR, was.Replicas, is.ISR, is.Replicas)
		}
	}
}

func sameActive(a, b *meta.Image) bool {
	for id, x := range a.Brokers {
		if y, ok := b.Brokers[id]; !ok || x.Active() != y.Active() {
			return false
		}
	}
	return true
}

func isTrue(s string) bool { return strings.EqualFold(s, "true") }

// uncleanElection is recorded, and was opted into, or nobody was left who had
// everything (8).
func (o *oracle) uncleanElection(t *truth, was, is *meta.Partition, opted bool) {
	w := o.w
	o.uncleans++
	w.tell("%s: unclean election of %d in epoch %d", t.name, is.Leader, is.LeaderEpoch)
	for _, id := range append(slices.Clone(was.ISR), was.ELR...) {
		if !o.lacking(t.k, id) && !opted {
			w.fail("clean", "%s: %d leads in epoch %d, of in sync %v and ELR %v", t.name, is.Leader, is.LeaderEpoch, was.ISR, was.ELR)
		}
	}
	if !is.Recovering || is.UncleanEpoch != is.LeaderEpoch {
		w.fail("clean", "%s: the unclean election of epoch %d is not recorded", t.name, is.LeaderEpoch)
	}
	// What the new leader lacks is lost, and that is known. Unless one of the ELR
	// comes back and is elected before it has recovered.
	t.unclean, t.since, t.open = is.LeaderEpoch, is.LeaderEpoch, true
}

// takeOver takes for committed what a leader's log has of anything that ever was,
// and what that leader has below its own watermark.
func (o *oracle) takeOver(t *truth, l *diskLog) {
	t.open = false
	t.given = append(t.given, t.ghost)
	counted := l.view(o.w.cfg.fsync, false).Counted
	keep := max(l.start, min(counted, l.hw))
	for _, old := range t.given {
		off := l.start
		for off < min(counted, int64(len(old))) && l.at(off) == old[off] {
			off++
		}
		keep = max(keep, off)
	}
	ghost := make([]record, l.start) // deleted, or in the bucket
	copy(ghost, t.ghost)
	t.ghost = append(ghost, l.from(l.start, int(keep-l.start))...)
	t.start = max(min(t.start, keep), l.logStart)
}

// uncleanOf is the leader epoch of the newest unclean election that was recorded.
func uncleanOf(p *meta.Partition) int32 {
	if p.UncleanEpoch == 0 {
		return -1
	}
	return p.UncleanEpoch
}

// lacking says whether a broker may lack what it acknowledged of a partition: any
// of it, or the end of this log.
func (o *oracle) lacking(k partitionKey, id int32) bool {
	_, suspect := o.suspects[id]
	l := o.w.brokers[id].logs[k]
	return suspect || l != nil && l.lost()
}

// altered: who has told the leader that it lacks what is committed is not kept for
// the next election (29).
func (o *oracle) altered(r *replica, a meta.AlteredPartition, losers []int32) {
	for _, id := range losers {
		if a.Err == nil && slices.Contains(a.Partition.ELR, id) {
			o.w.fail("candidates", "%d told %s that it lacks committed records of %s, and is in the ELR %v", id, r.b.name, r.short(), a.Partition.ELR)
		}
	}
}

// suspect notes that a broker may lack what it acknowledged.
func (o *oracle) suspect(b *broker) {
	o.suspects[b.id] = o.w.incarnations
}

// Logs.

// written: an offset is given to one record in an epoch, by its only leader.
func (o *oracle) written(r *replica, offset int64, rec record) {
	t := o.truths[r.key]
	if leader, ok := t.leaders[rec.epoch]; !ok || leader != r.b.id {
		o.w.fail("matching", "%s appends to %s in epoch %d, whose leader is %d", r.b.name, t.name, rec.epoch, leader)
	}
	at := offsetEpoch{offset, rec.epoch}
	if old, ok := t.written[at]; ok {
		o.w.fail("matching", "%s: offset %d of epoch %d is given out twice, to %d and %d", t.name, offset, rec.epoch, old.value, rec.value)
	}
	t.written[at] = copied{rec.value, prevEpoch(r.log, offset)}
}

func prevEpoch(l *diskLog, offset int64) int32 {
	if offset-1 < l.start {
		return -1
	}
	return l.at(offset - 1).epoch
}

// copied: a follower writes what the leader wrote, after the same records.
func (o *oracle) copied(r *replica, offset int64, rec record) {
	t := o.truths[r.key]
	if offset != r.log.end() {
		o.w.fail("matching", "%s appends offset %d to %s at %d", r.b.name, offset, t.name, r.log.end())
		return
	}
	want, ok := t.written[offsetEpoch{offset, rec.epoch}]
	prev := prevEpoch(r.log, offset)
	switch {
	case !ok || want.value != rec.value:
		o.w.fail("matching", "%s has %d at offset %d of epoch %d of %s, which is %d", r.b.name, rec.value, offset, rec.epoch, t.name, want.value)
	case prev >= 0 && want.prev >= 0 && prev != want.prev:
		o.w.fail("matching", "%s: before offset %d of epoch %d of %s is epoch %d, and %d with the leader", r.b.name, offset, rec.epoch, t.name, prev, want.prev)
	}
}

func (o *oracle) leads(r *replica) {
	t := o.truths[r.key]
	if r.log.lost() {
		o.w.fail("candidates", "%s leads %s in epoch %d with %s, and had %d", r.b.name, t.name, r.epoch, r.log, r.log.had)
	}
	if t.leaders[r.epoch] != r.b.id {
		o.w.fail("matching", "%s leads %s in epoch %d, which is %d's", r.b.name, t.name, r.epoch, t.leaders[r.epoch])
	}
	if t.open && r.epoch == t.since {
		o.takeOver(t, r.log)
	}
	r.seen = r.log.localStart()
}

// committed: a leader's watermark has moved. What it shows was shown before, or is
// committed now.
func (o *oracle) committed(r *replica) {
	t := o.truths[r.key]
	if r.epoch < t.since {
		return // of a history that was given up
	}
	hw := r.log.hw
	if hw > r.log.end() {
		o.w.fail("reads", "%s: watermark %d of %s is above the end %d", r.b.name, hw, t.name, r.log.end())
		return
	}
	for off := max(r.seen, r.log.localStart()); off < hw; off++ {
		rec := r.log.at(off)
		switch {
		case off < int64(len(t.ghost)):
			if t.ghost[off] != rec && off >= t.start {
				o.w.fail("reads", "%s shows %+v at %d of %s, where %+v was committed", r.b.name, rec, off, t.name, t.ghost[off])
				return
			}
		case off > int64(len(t.ghost)):
			o.w.fail("reads", "%s commits %d of %s, and %d was never committed", r.b.name, off, t.name, len(t.ghost))
			return
		default:
			t.ghost = append(t.ghost, rec)
			o.commits++
		}
	}
	r.seen = hw
}

// followed: a follower shows nothing that is not committed.
func (o *oracle) followed(r *replica) {
	t := o.truths[r.key]
	if r.epoch < t.since {
		return
	}
	hw := r.log.hw
	if hw > int64(len(t.ghost)) || hw > r.log.end() {
		o.w.fail("reads", "%s: watermark %d of %s, committed is %d, log %s", r.b.name, hw, t.name, len(t.ghost), r.log)
		return
	}
	if hw-1 >= max(r.log.localStart(), t.start) && r.log.at(hw-1) != t.ghost[hw-1] {
		o.w.fail("reads", "%s shows %+v at %d of %s, where %+v was committed", r.b.name, r.log.at(hw-1), hw-1, t.name, t.ghost[hw-1])
	}
}

// acked: the record is committed, and on enough logs at this moment.
func (o *oracle) acked(r *replica, offset, value int64) {
	t := o.truths[r.key]
	o.acks++
	t.acked++
	if r.epoch < t.since || t.finished {
		return
	}
	if offset >= int64(len(t.ghost)) || t.ghost[offset].value != value {
		o.w.fail("lost", "%s: %d at %d is acknowledged and not committed", t.name, value, offset)
		return
	}
	t.lastAck = max(t.lastAck, offset)
	n := 0
	for _, b := range o.w.brokers {
		l := b.logs[r.key]
		switch {
		case o.lacking(r.key, b.id):
			n++ // it had it; what it lost since counts against the budget
		case l != nil && l.view(o.w.cfg.fsync, false).Counted > offset && (offset < l.start || l.at(offset).value == value):
			n++
		}
	}
	least := r.lead.EffectiveMin()
	if mt, p := o.w.quorum.newest().PartitionByID(t.k.id, t.k.index); p != nil {
		least = min(least, p.MinISR(minISROf(mt))) // a reassignment may have taken replicas away
	}
	if n < least {
		o.w.fail("lost", "%s: %d at %d is acknowledged by %s and on %d logs, not %d", t.name, value, offset, r.b.name, n, least)
	}
}

// truncates: below the watermark nothing is cut, save after a recorded unclean
// election (22).
func (o *oracle) truncates(r *replica, to int64) {
	t := o.truths[r.key]
	if to < r.log.hw && t.unclean <= r.log.chain.Latest() {
		o.w.fail("truncation", "%s cuts %s at %d, below its watermark: %s", r.b.name, t.name, to, r.log)
	}
	if to > r.log.end() {
		o.w.fail("truncation", "%s cuts %s at %d, above its end: %s", r.b.name, t.name, to, r.log)
	}
}

func (o *oracle) resets(r *replica, to int64) {
	t := o.truths[r.key]
	if to > int64(len(t.ghost)) && r.epoch >= t.since {
		o.w.fail("truncation", "%s begins %s at %d, committed is %d", r.b.name, t.name, to, len(t.ghost))
	}
}

func (o *oracle) halted(r *replica, to int64) {
	t := o.truths[r.key]
	o.w.fail("truncation", "%s stops on %s: its leader wants it cut at %d, below the watermark: %s (unclean %d)", r.b.name, t.name, to, r.log, t.unclean)
}

// deleted: data goes only for a committed tombstone of that topic id (35).
func (o *oracle) deleted(b *broker, k partitionKey) {
	img := o.w.quorum.newest()
	if img.TopicByID(k.id) != nil {
		o.w.fail("deletion", "%s deletes %s, which exists", b.name, o.truths[k].name)
	}
}

// removed: a replica's files go only when the partition is not its any more.
func (o *oracle) removed(b *broker, k partitionKey) {
	// Its image may be old: the partition may have come back to it since, and it
	// then has to begin anew, so it must not count as complete.
	_, p := o.w.quorum.newest().PartitionByID(k.id, k.index)
	if p != nil && (slices.Contains(p.ISR, b.id) || slices.Contains(p.ELR, b.id)) {
		o.w.fail("deletion", "%s deletes its replica of %s, and is in sync %v or in the ELR %v", b.name, o.truths[k].name, p.ISR, p.ELR)
	}
}

// quorum: see "quorum" above.
func (o *oracle) quorum(r *replica) {
	_, p := o.w.quorum.newest().PartitionByID(r.key.id, r.key.index)
	if p == nil || !r.leads || p.LeaderEpoch != r.epoch {
		return
	}
	maximal := r.lead.Maximal()
	for _, id := range p.ISR {
		if !slices.Contains(maximal, id) {
			o.w.fail("quorum", "%s takes the watermark of %s over %v, the controller elects from %v", r.b.name, o.truths[r.key].name, maximal, p.ISR)
		}
	}
}

// check asserts what must hold between any two steps.
func (o *oracle) check() {
	img := o.w.quorum.newest()
	for _, k := range o.w.keys() {
		_, p := img.PartitionByID(k.id, k.index)
		if p == nil {
			continue
		}
		t := o.truths[k]
		o.standing(t, o.w.brokers[o.w.steps%len(o.w.brokers)])
		for _, id := range p.ISR {
			o.complete(t, id, "in sync")
		}
		for _, id := range p.ELR {
			if p.Recovering {
				continue // they have what was given up, and may yet bring it back
			}
			o.complete(t, id, "in the ELR")
		}
		if p.Leader >= 0 {
			if r := o.w.brokers[p.Leader].replicas[k]; r != nil {
				o.quorum(r)
			}
		}
	}
}

// complete: see "candidates" above.
func (o *oracle) complete(t *truth, id int32, as string) {
	n := int64(len(t.ghost))
	if o.lacking(t.k, id) || n <= t.start || t.open {
		return
	}
	b := o.w.brokers[id]
	l := b.logs[t.k]
	switch {
	case l == nil:
		o.w.fail("candidates", "%s is %s on %s and has nothing, committed is %d", b.name, as, t.name, n)
	case l.view(o.w.cfg.fsync, false).Counted < n:
		o.w.fail("candidates", "%s is %s on %s with %s, committed is %d", b.name, as, t.name, l, n)
	case n-1 >= l.start && l.at(n-1) != t.ghost[n-1]:
		o.w.fail("candidates", "%s is %s on %s and has %+v at %d, committed is %+v", b.name, as, t.name, l.at(n-1), n-1, t.ghost[n-1])
	}
}

// settled: once all faults have ended everybody agrees, and has everything.
func (o *oracle) settled() {
	w := o.w
	img := w.quorum.newest()
	for _, b := range w.brokers {
		if b.applied != len(w.quorum.entries) {
			w.fail("settled", "%s has applied %d of %d entries", b.name, b.applied, len(w.quorum.entries))
		}
	}
	for _, k := range w.keys() {
		mt, p := img.PartitionByID(k.id, k.index)
		if p == nil {
			continue
		}
		t := o.truths[k]
		if p.Leader == meta.NoLeader {
			w.fail("settled", "%s has no leader: %+v", t.name, *p)
			continue
		}
		if len(p.ISR) != len(p.Replicas) || p.Reassigning() {
			w.fail("settled", "%s: in sync %v of %v, adding %v, removing %v", t.name, p.ISR, p.Replicas, p.AddingReplicas, p.RemovingReplicas)
		}
		lead := w.brokers[p.Leader].replicas[k]
		if lead == nil || !lead.leads || lead.log.hw != lead.log.end() || int64(len(t.ghost)) != lead.log.end() {
			w.fail("settled", "%s: the leader's log is %v, committed %d, min in sync %d", t.name, lead.log, len(t.ghost), minISROf(mt))
			continue
		}
		for _, id := range p.Replicas {
			o.equal(t, w.brokers[id])
		}
	}
}

// equal compares a replica with everything that was committed.
func (o *oracle) equal(t *truth, b *broker) {
	l := b.logs[t.k]
	if l == nil || l.end() != int64(len(t.ghost)) {
		o.w.fail("settled", "%s of %s ends elsewhere than at %d: %v", b.name, t.name, len(t.ghost), l)
		return
	}
	for off := max(l.localStart(), t.start); off < l.end(); off++ {
		if l.at(off) != t.ghost[off] {
			o.w.fail("settled", "%s has %+v at %d of %s, committed is %+v", b.name, l.at(off), off, t.name, t.ghost[off])
			return
		}
	}
}

func describe(changes []meta.Change) string {
	var parts []string
	for _, c := range changes {
		parts = append(parts, strings.TrimPrefix(fmt.Sprintf("%T%+v", c, c), "meta."))
	}
	return strings.Join(parts, "; ")
}
