package sim

import (
	"bytes"
	"errors"

	"github.com/varvelog/varve/meta"
)

// quorum is what raft gives: one list of entries that everybody applies in the
// same order, at his own pace; one who may add to it, in each term; others who
// still think that they may. An entry is added only while its author leads and
// reaches a majority. Who does not hear of his entry's fate does not know it.
type quorum struct {
	w       *world
	entries [][]byte
	images  []*meta.Image // after so many entries
	leader  *broker
	term    int
	pending []*proposal
	lost    int // looks in a row that found no working leader
}

// proposal is an entry on its way.
type proposal struct {
	by    *broker
	term  int
	entry []byte
	until int64
	done  func(error)
}

var errUnknown = errors.New("outcome unknown")

func newQuorum(w *world) *quorum {
	q := &quorum{w: w, images: []*meta.Image{meta.NewImage()}}
	w.after(1, q.watch)
	return q
}

// newest is what has been agreed on, whoever knows of it yet.
func (q *quorum) newest() *meta.Image { return q.images[len(q.images)-1] }

// watch elects when the leader does not reach a majority, and lets those that
// have been deposed find out.
func (q *quorum) watch() {
	w := q.w
	q.w.after(100+w.rng.Int64N(100), q.watch)
	for _, b := range w.brokers {
		if b.leads == 0 || !b.up || b.paused > w.now {
			continue
		}
		if w.majority(b) {
			b.reached = w.now
		}
		deposed := b.leads != q.term && q.leader != nil && w.linked(b, q.leader) && w.one(3)
		if deposed || w.now-b.reached > 500+w.rng.Int64N(500) {
			w.tell("%s steps down as controller of term %d", b.name, b.leads)
			b.leads = 0
			b.dropRequests()
			if q.leader == b {
				q.leader = nil
			}
		}
	}
	if q.leader != nil && q.leader.leads == q.term && w.majority(q.leader) {
		q.lost = 0
		return
	}
	if q.lost++; q.lost < 3+w.rng.IntN(10) {
		return
	}
	var able []*broker
	for _, b := range w.brokers {
		if w.majority(b) {
			able = append(able, b)
		}
	}
	if len(able) > 0 {
		q.elect(able[w.rng.IntN(len(able))])
	}
}

// elect makes b the leader of a new term. What its predecessor had on its way
// may have reached b, and then it is agreed on before anything b adds.
func (q *quorum) elect(b *broker) {
	w := q.w
	pending := q.pending
	q.pending = nil
	for _, p := range pending {
		if w.one(2) {
			w.tell("an entry of term %d by %s survives", p.term, p.by.name)
			q.add(p.entry)
		}
	}
	q.term++
	q.leader, q.lost = b, 0
	b.leads, b.barrier, b.reached = q.term, len(q.entries), w.now
	b.busy = false
	b.sessions = nil
	w.tell("%s is the controller of term %d", b.name, q.term)
	w.soon(b, w.rng.Int64N(20), b.pull)
}

// propose has an entry agreed on, or not.
func (q *quorum) propose(b *broker, c meta.Command, done func(error)) {
	p := &proposal{by: b, term: b.leads, entry: c.Encode(), until: q.w.now + 2000, done: done}
	if q.leader == b && q.term == p.term {
		q.pending = append(q.pending, p)
	}
	q.w.soon(b, 1+q.w.rng.Int64N(10), func() { q.commit(p) })
}

func (q *quorum) commit(p *proposal) {
	w := q.w
	switch {
	case q.leader != p.by || q.term != p.term:
		p.done(errUnknown)
	case w.majority(p.by):
		q.pending = withoutProposal(q.pending, p)
		err := q.add(p.entry)
		p.by.applyTo(len(q.entries))
		p.done(err)
	case w.now >= p.until:
		p.done(errUnknown) // it stays on its way
	default:
		w.soon(p.by, 50, func() { q.commit(p) })
	}
}

func withoutProposal(list []*proposal, p *proposal) []*proposal {
	var out []*proposal
	for _, o := range list {
		if o != p {
			out = append(out, o)
		}
	}
	return out
}

// add agrees on an entry.
func (q *quorum) add(entry []byte) error {
	w := q.w
	q.entries = append(q.entries, entry)
	prev := q.newest()
	next, err := applyEntry(prev, entry, len(q.entries))
	if err != nil && !errors.Is(err, meta.ErrStale) {
		w.fail("determinism", "entry %d contradicts the image: %v", len(q.entries), err)
	}
	q.images = append(q.images, next)
	if err == nil {
		w.oracle.imageChanged(prev, next)
	}
	for _, b := range w.brokers {
		if b.up {
			w.soon(b, 1+w.rng.Int64N(40), b.pull)
		}
	}
	return err
}

// applyEntry is what every node does with an entry.
func applyEntry(img *meta.Image, entry []byte, index int) (*meta.Image, error) {
	c, err := meta.DecodeCommand(entry)
	if err != nil {
		return img, err
	}
	next, err := img.Apply(c, uint64(index))
	if err != nil {
		return img, err
	}
	return next, nil
}

// pull applies what has been agreed on, if b can hear of it.
func (b *broker) pull() {
	q := b.w.quorum
	if q.leader == nil || !b.w.linked(b, q.leader) && !b.w.majority(b) {
		return
	}
	n := len(q.entries)
	if b.w.one(8) && n > b.applied {
		n = b.applied + b.w.rng.IntN(n-b.applied+1)
	}
	b.applyTo(n)
}

func (b *broker) applyTo(n int) {
	q := b.w.quorum
	before := b.applied
	for b.applied < n {
		next, err := applyEntry(b.image, q.entries[b.applied], b.applied+1)
		if err != nil && !errors.Is(err, meta.ErrStale) {
			b.w.fail("determinism", "%s cannot apply entry %d: %v", b.name, b.applied+1, err)
			return
		}
		b.applied++
		b.image = next
	}
	if b.applied == before {
		return
	}
	// All have the same image after the same entries (1).
	if b.w.one(16) && !bytes.Equal(b.image.EncodeSnapshot(), q.images[b.applied].EncodeSnapshot()) {
		b.w.fail("determinism", "%s has another image after %d entries", b.name, b.applied)
	}
	delay := b.w.rng.Int64N(30)
	if b.w.one(12) {
		delay += b.w.rng.Int64N(700) // many partitions, few workers
	}
	b.w.soon(b, delay, b.followImage)
	b.decideNext()
}

// request is something the controller is asked to decide.
type request struct {
	what   string
	decide func(img *meta.Image) (any, []meta.Change, error)
	reply  func(any, error)
}

// requestsMax bounds what waits at a controller.
const requestsMax = 64

// control takes a request to this node as the controller.
func (b *broker) control(r *request) {
	if b.leads == 0 || len(b.requests) >= requestsMax {
		r.reply(nil, meta.ErrNotController)
		return
	}
	b.requests = append(b.requests, r)
	b.decideNext()
}

func (b *broker) dropRequests() {
	for _, r := range b.requests {
		r.reply(nil, meta.ErrNotController)
	}
	b.requests, b.busy, b.sessions = nil, false, nil
}

// decideNext makes one decision at a time, on the newest image, once everything
// agreed on before this term is in it.
func (b *broker) decideNext() {
	for !b.busy && len(b.requests) > 0 && b.leads != 0 && b.applied >= b.barrier {
		r := b.requests[0]
		b.requests = b.requests[1:]
		res, changes, err := r.decide(b.image)
		if err != nil || len(changes) == 0 {
			r.reply(res, err)
			continue
		}
		b.busy = true
		term := b.leads
		b.w.tell("controller %s: %s: %s", b.name, r.what, describe(changes))
		b.w.quorum.propose(b, meta.Command{Base: b.image.Index, Changes: changes}, func(err error) {
			if b.leads == term {
				b.busy = false
			}
			if err != nil {
				res = nil
			}
			r.reply(res, err)
			b.decideNext()
		})
	}
}

// ask sends a request to whom x takes for the controller. reply runs in x's
// process, if an answer comes at all.
func (x *broker) ask(what string, decide func(*broker, *meta.Image) (any, []meta.Change, error), reply func(any, error)) {
	w := x.w
	if w.one(6) || x.controller == nil {
		x.controller = w.brokers[w.rng.IntN(len(w.brokers))]
		if w.quorum.leader != nil && !w.one(4) {
			x.controller = w.quorum.leader
		}
	}
	to, late := x.controller, int64(0)
	if often := x.epoch < 0 && w.one(3); (often || w.one(12)) && !w.healed { // a process that starts may well not live to see an answer
		late = w.between(200, 3*sessionMillis) // given up long before it gets there
	}
	w.sendLate(x, to, late, func() {
		to.control(&request{
			what:   what,
			decide: func(img *meta.Image) (any, []meta.Change, error) { return decide(to, img) },
			reply: func(res any, err error) {
				w.send(to, x, func() {
					if errors.Is(err, meta.ErrNotController) {
						x.controller = w.quorum.leader
					}
					reply(res, err)
				})
			},
		})
	})
}
