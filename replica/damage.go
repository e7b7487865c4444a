package replica

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/varvelog/varve/hot"
	"github.com/varvelog/varve/replica/isr"
)

// What a disk has damaged is fetched again and put in its place: from the bucket, from the leader, from any other replica. Until
// then nothing of it is read, a follower says that it does not have it, and a leader that finds it nowhere hands over to an in-sync replica.
// A follower whose copy cannot be mended in place begins anew, once nobody counts on it any more.

// damageState is what a partition keeps of the damage in its log.
type damageState struct {
	from      atomic.Int64 // the first damaged offset, NoOffset when there is none
	mending   atomic.Bool  // a goroutine is at it
	wake      atomic.Pointer[chan struct{}]
	asked     atomic.Pointer[inquiry] // the newest
	verdict   atomic.Pointer[inquiry] // one in which everybody said no: the partition goes on without, and takes what may be a repeat for new
	waits     atomic.Pointer[[]Wait]  // for whom, since the newest round
	stepBack  atomic.Bool             // the leader wants another one, with its next wish
	suspected atomic.Int64            // when a follower's complaint was last looked into, steady milliseconds
}

func (s *damageState) init() {
	s.from.Store(NoOffset)
	s.suspected.Store(math.MinInt64 / 2)
}

// inquiry is one round of asking everybody for what is damaged here. What came of it holds for the leadership in which it was
// made, and for what was known to be damaged then: who leads later asks again.
type inquiry struct {
	epoch int32  // NoEpoch: this broker did not lead
	finds uint64 // hot.Log.Finds
	waits string // who may have it and did not give it, or could not be asked
}

// inquire begins an inquiry of this moment.
func (p *Partition) inquire() inquiry {
	q := inquiry{epoch: NoEpoch, finds: p.log.Finds()}
	if r := p.role.Load(); r.err == nil {
		q.epoch = r.epoch
	}
	return q
}

// holds says that nothing has changed since.
func (q *inquiry) holds(p *Partition) bool {
	now := p.inquire()
	return q != nil && q.epoch == now.epoch && q.finds == now.finds
}

// excused is what goes with an append in a leader epoch: hot.AppendOptions.Excused.
func (s *damageState) excused(epoch int32) uint64 {
	if v := s.verdict.Load(); v != nil && v.epoch == epoch {
		return v.finds + 1
	}
	return 0
}

const (
	mendRetryMin = 100 * time.Millisecond
	mendRetryMax = 10 * time.Second
	mendLimit    = 30 * time.Second // of one range
	mendTries    = 3                // before a leader looks for another one
	mendBytesMax = 64 << 20         // of one range: a larger one is not mended in place (Manager.mendMax)
	mendFetchMax = 4 << 20
	mendRoomMax  = mendBytesMax/mendFetchMax + 1 // of that much each: all ranges being mended, with what one read brings
	suspectPause = int64(10_000)                 // between two looks at what followers complain of, ms
)

var (
	// errNoSource is returned when nobody who could be asked has the records that are damaged here.
	errNoSource = errors.New("replica: no sound copy was found")
	// errNotInPlace is returned when damage cannot be mended where it is.
	errNotInPlace = errors.New("replica: the damage cannot be mended in place")
)

// damaged is told by the hot store that damage was found. It may be called under locks of the log.
func (m *Manager) damaged(log *hot.Log) {
	id := log.Partition()
	if p, _, _ := m.table.getByID(id.ID, id.Index); p != nil {
		go p.lookAtDamage() // asks the log, and starts what is bound to the manager's life
	}
}

// lookAtDamage takes what is damaged into account and has it mended.
func (p *Partition) lookAtDamage() {
	if len(p.noteDamage()) == 0 && !p.log.Incomplete() {
		return
	}
	if !p.damage.mending.CompareAndSwap(false, true) {
		p.hastenMending()
		return
	}
	m := p.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	m.wg.Go(func() {
		p.mend(m.running)
		p.damage.mending.Store(false)
		if m.running.Err() == nil && !p.role.Load().final() {
			p.lookAtDamage() // what was found as the last was mended
		}
	})
}

// hastenMending ends a pause between two rounds when the last one was of another leadership, or of other damage.
func (p *Partition) hastenMending() {
	wake := p.damage.wake.Load()
	if wake == nil || p.damage.asked.Load().holds(p) {
		return
	}
	select {
	case *wake <- struct{}{}:
	default:
	}
}

// noteDamage lists what is damaged and still wanted, and lets the fetcher tell the leader what that changes.
func (p *Partition) noteDamage() []hot.Damage {
	list, from := p.wanted(), NoOffset
	if len(list) > 0 {
		from = list[0].Start
	}
	if p.damage.from.Swap(from) != from {
		if d := p.following.Load(); d != nil {
			d.fetcher.post(fetcherNews{d: d, kind: newsDamage})
		}
	}
	return list
}

// wanted is what is damaged and not below the log's start.
func (p *Partition) wanted() []hot.Damage {
	start := p.log.Offsets().LocalStart
	return slices.DeleteFunc(p.log.Damaged(), func(d hot.Damage) bool { return d.End <= start })
}

// damagedFrom is the first damaged offset, NoOffset when all is whole.
func (p *Partition) damagedFrom() int64 { return p.damage.from.Load() }

// mend tries until nothing is damaged any more.
func (p *Partition) mend(ctx context.Context) {
	wake := make(chan struct{}, 1)
	p.damage.wake.Store(&wake)
	defer p.damage.waits.Store(nil)
	pause, told := mendRetryMin, ""
	for tries := 1; ; tries++ {
		q, before := p.inquire(), p.noteDamage()
		waits, failed := p.mendAll(ctx, before)
		left := p.noteDamage()
		if len(left) == 0 && failed == nil {
			waits, failed = p.complete(ctx)
		}
		q.waits = namesOf(p.damage.noteWaits(waits, now()))
		p.damage.asked.Store(&q)
		switch {
		case p.role.Load().final():
			return
		case len(left) == 0 && failed == nil:
			p.mended()
			return
		case !q.holds(p): // more was found, or somebody else leads: nobody was asked for that
			if pause = mendRetryMin; q.finds != p.log.Finds() {
				continue
			}
		case failed != nil:
			p.notMended(tries, left, &q, failed)
			if tries == 1 || told != q.waits {
				p.tellOfWaits(failed)
				told = q.waits
			}
		case damagedBytes(left) < damagedBytes(before): // on with the rest
			continue
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
			pause = min(2*pause, mendRetryMax)
		case <-wake:
			timer.Stop()
			pause = mendRetryMin
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// mendAll mends what it can, and names who may have the rest: nobody when everybody was asked and has not got it.
func (p *Partition) mendAll(ctx context.Context, list []hot.Damage) (waits []string, failed error) {
	down := make(map[int32]bool)
	for _, d := range list {
		w, err := p.mendRange(ctx, d, down)
		waits, failed = append(waits, w...), errors.Join(failed, err)
	}
	slices.Sort(waits)
	return slices.Compact(waits), failed
}

// tellOfWaits says that damage is not mended, and who is waited for: once, and again when it is somebody else.
func (p *Partition) tellOfWaits(failed error) {
	d, since := p.Damage(), ""
	if len(d.Waits) > 0 {
		first := slices.MinFunc(d.Waits, func(a, b Wait) int { return cmp.Compare(a.Since, b.Since) })
		since = time.UnixMilli(first.Since).UTC().Format(time.RFC3339)
	}
	p.logger().Error("damage is not mended yet: its offsets are refused, all others are served", "ranges", d.Ranges, "start", d.Start, "end", d.End,
		"waits_for", namesOf(d.Waits), "since", since, "producers_wait", d.HoldsProducers, "err", failed)
}

// notMended sees to what cannot be mended for now.
func (p *Partition) notMended(tries int, left []hot.Damage, q *inquiry, failed error) {
	switch {
	case p.role.Load().err == nil:
		if q.waits == "" && q.epoch != NoEpoch && !p.damage.verdict.Load().holds(p) {
			p.logger().Error("nobody has what is damaged: producers are known without it, and a repeat of what lies there will be taken for new", "leader_epoch", q.epoch)
			p.damage.verdict.Store(q)
		}
		if tries >= mendTries {
			p.damage.stepBack.Store(true)
			p.m.proposals.add(p)
		}
	case errors.Is(failed, errNotInPlace):
		p.beginAnew()
	}
}

// mended is called when nothing is damaged any more, and nothing derived lacks anything. A leadership that was not taken up for
// that is.
func (p *Partition) mended() {
	if p.log.Incomplete() { // found since
		return
	}
	p.damage.verdict.Store(nil)
	if p.unfit.Load() != nil {
		p.m.again(p.id)
	}
}

// cannotJudge says that this log knows producers without what is damaged of it, while somebody in sync knows them all: that one
// must lead, or a repeat could be taken for a new batch.
func (p *Partition) cannotJudge(l isr.Leadership) bool {
	if !p.log.Incomplete() || !slices.ContainsFunc(l.ISR, func(id int32) bool { return id != p.m.config.NodeID }) {
		return false
	}
	p.logger().Error("leadership is declined: producers are not known here without the records that are damaged; the controller is asked for another leader",
		"leader_epoch", l.Epoch, "damaged_from", p.damagedFrom())
	return true
}

// mendRoom waits for room for a damaged range, which all menders share. release gives it back.
func (m *Manager) mendRoom(ctx context.Context, size int64) (release func(), err error) {
	select {
	case m.mendTurn <- struct{}{}: // one after the other, or two with half of what they need could wait for each other
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-m.mendTurn }()
	taken, want := 0, min(int((size+mendFetchMax-1)/mendFetchMax)+1, cap(m.mendSpace))
	release = func() {
		for range taken {
			<-m.mendSpace
		}
	}
	for ; taken < want; taken++ {
		select {
		case m.mendSpace <- struct{}{}:
		case <-ctx.Done():
			release()
			return nil, ctx.Err()
		}
	}
	return release, nil
}

func damagedBytes(list []hot.Damage) (n int64) {
	for _, d := range list {
		n += d.Bytes
	}
	return n
}

// beginAnew empties a follower's log that cannot be mended, once the controller counts on it no more: the leader has been told
// by then. It is filled as a new replica's is.
func (p *Partition) beginAnew() {
	_, state := p.m.deps.Meta.Image().PartitionByID(p.id.ID, p.id.Index)
	d := p.following.Load()
	if state == nil || d == nil || state.Leader < 0 || slices.Contains(state.ISR, p.m.config.NodeID) || slices.Contains(state.ELR, p.m.config.NodeID) {
		return
	}
	err := d.underLeader(func() error {
		o := p.log.Offsets()
		p.logger().Error("log begins anew: it is damaged, and no other copy fits in its place", "start", o.LocalStart, "end", o.End)
		return p.log.ResetTo(o.LocalStart, p.log.Lineage(), nil)
	})
	if err != nil && !errors.Is(err, errNotFollowed) {
		p.logger().Error("damaged log does not begin anew", "err", p.fromLog(err))
	}
	p.noteDamage()
}

// suspect looks at what is stored here, because a follower got damaged records from that offset on.
func (p *Partition) suspect(offset int64) {
	if offset == NoOffset || p.role.Load().err != nil {
		return
	}
	o, now, last := p.log.Offsets(), p.m.steady(), p.damage.suspected.Load()
	if offset < o.LocalStart || offset >= o.End || now-last < suspectPause || !p.damage.suspected.CompareAndSwap(last, now) {
		return
	}
	m := p.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	m.wg.Go(func() {
		bad, err := p.log.CheckAt(offset)
		p.logger().Warn("a follower refused records sent from here", "offset", offset, "damaged_here", bad, "err", err)
	})
}
