package broker

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/varvelog/varve/coordinator"
	"github.com/varvelog/varve/coordinator/share"
	"github.com/varvelog/varve/replica"
)

// sharePart is one share-partition on this broker, which leads the partition: the machine (coordinator/share) and what moves
// it. It is loaded from the share coordinator under the partition's leader epoch, and dropped when that epoch has passed, when
// the coordinator says that somebody else has it, and when no session needs it any more. A dropped one answers nobody again:
// whoever comes finds no entry in the table and loads anew.
//
// Lock order: sharePart.mu before shares.mu, which everybody needs: nobody waits for a share-partition under it.
type sharePart struct {
	srv  *Server
	key  coordinator.ShareKey
	part Partition

	dropped atomic.Bool // err is set

	mu          sync.Mutex       // guards the following
	core        *share.Partition // nil while it is being loaded, and once it is dropped
	err         error            // why it was dropped
	leaderEpoch int32
	stateEpoch  int32
	settings    *shareSettings
	waits       []roundWait
	polls       map[chan struct{}]bool // fetches that wait for something to hand out; true: it came while another read
	reading     bool                   // by one fetch at a time
	writing     bool                   // the writer runs
	burying     bool                   // dead letters are being produced
	timer       *time.Timer            // of locks
}

// roundWait is somebody who is answered when a round is written.
type roundWait struct {
	round uint64
	done  chan error // has room for one
}

// poll has c woken when there may be something to hand out.
func (p *sharePart) poll(c chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.polls == nil {
		p.polls = map[chan struct{}]bool{}
	}
	p.polls[c] = false
}

func (p *sharePart) unpoll(c chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.polls, c)
}

// wakeLocked lets the fetches that wait look again.
func (p *sharePart) wakeLocked() {
	for c := range p.polls {
		wake(c)
	}
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// readyLocked says whether the machine may be asked: errShareLoading while it is being loaded; ErrNotLeader if the partition's
// leadership has changed since, and then the share-partition is dropped.
func (p *sharePart) readyLocked() error {
	switch {
	case p.err != nil:
		return p.err
	case p.core == nil:
		return errShareLoading
	}
	if epoch, err := p.part.Epoch(); err != nil || epoch != p.leaderEpoch {
		if err == nil {
			err = replica.ErrNotLeader
		}
		p.dropLocked(err)
		return err
	}
	p.settingsLocked()
	return nil
}

// dropLocked ends the share-partition: everybody who waits hears err.
func (p *sharePart) dropLocked(err error) {
	if p.err != nil {
		return
	}
	p.core, p.err = nil, err
	p.dropped.Store(true)
	for _, w := range p.waits {
		w.done <- err
	}
	p.waits = nil
	if p.timer != nil {
		p.timer.Stop()
	}
	p.wakeLocked()
	p.srv.shares.start(func() { p.srv.shares.forget(p) }) // by itself: release holds shares.mu
}

// afterLocked follows up a change of the machine: it begins a write if there is one, and sets the timer of the locks.
func (p *sharePart) afterLocked() {
	if p.core == nil {
		return
	}
	if !p.writing && !p.core.Idle() {
		p.writing = p.srv.shares.start(p.write)
	}
	at, ok := p.core.NextDeadline()
	if !ok {
		if p.timer != nil {
			p.timer.Stop()
		}
		return
	}
	d := max(time.Duration(at-p.srv.nowMillis())*time.Millisecond, time.Millisecond)
	if p.timer == nil {
		p.timer = time.AfterFunc(d, p.tick)
	} else {
		p.timer.Reset(d)
	}
}

// tick runs when a lock may have run out.
func (p *sharePart) tick() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.readyLocked() != nil {
		return
	}
	before := p.core.Expired()
	p.core.Tick(p.srv.nowMillis())
	p.srv.shares.stats.expired.Add(p.core.Expired() - before)
	p.afterLocked()
}

// acknowledge says what a member says of its records. The channel gets the outcome once it is durable; nil: it is already.
func (p *sharePart) acknowledge(member string, acks []share.Ack) (<-chan error, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.readyLocked(); err != nil {
		return nil, err
	}
	round, err := p.core.Acknowledge(member, acks, p.srv.nowMillis())
	defer p.afterLocked()
	if err != nil {
		return nil, err
	}
	return p.waitLocked(round), nil
}

func (p *sharePart) waitLocked(round uint64) <-chan error {
	if round == 0 {
		return nil
	}
	w := roundWait{round: round, done: make(chan error, 1)}
	p.waits = append(p.waits, w)
	return w.done
}

// leave gives back what a member holds.
func (p *sharePart) leave(member string) (<-chan error, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.readyLocked(); err != nil {
		return nil, err
	}
	round := p.core.Leave(member)
	p.afterLocked()
	return p.waitLocked(round), nil
}

// position is the offset from which the log is to be read next. While somebody else reads, who asks is told errShareBusy, and
// woken by its poll at the end of that.
func (p *sharePart) position(poll chan struct{}) (offset int64, s *shareSettings, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.positionLocked(poll)
}

func (p *sharePart) positionLocked(poll chan struct{}) (offset int64, s *shareSettings, err error) {
	if err := p.readyLocked(); err != nil {
		return 0, nil, err
	}
	if p.reading {
		p.polls[poll] = true
		return 0, nil, errShareBusy
	}
	offset, ok := p.core.NextFetch()
	if !ok {
		return 0, nil, errShareBusy
	}
	return offset, p.settings, nil
}

// begin gives the offset from which the caller is to read the log, and keeps others from doing so until end.
func (p *sharePart) begin(poll chan struct{}) (offset int64, s *shareSettings, epoch int32, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if offset, s, err = p.positionLocked(poll); err != nil {
		return 0, nil, 0, err
	}
	p.reading = true
	return offset, s, p.leaderEpoch, nil
}

// end lets others read again, after fn has told the machine what was read. It wakes those only who came meanwhile: if it woke
// all, fetches that wait at the log's end would keep each other awake.
func (p *sharePart) end(fn func(core *share.Partition)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reading = false
	for c, missed := range p.polls {
		if missed {
			p.polls[c] = false
			wake(c)
		}
	}
	if err := p.readyLocked(); err != nil {
		return err
	}
	if fn != nil {
		fn(p.core)
	}
	p.afterLocked()
	return nil
}
