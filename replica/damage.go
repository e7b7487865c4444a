package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/hot"
	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/replica/isr"
)

// What a disk has damaged is fetched again and put in its place: from the bucket, from the leader, from any other replica. Until
// then nothing of it is read, a follower says that it does not have it, and a leader that finds it nowhere hands over to an in-sync replica.
// A follower whose copy cannot be mended in place begins anew, once nobody counts on it any more.

// damageState is what a partition keeps of the damage in its log.
type damageState struct {
	from      atomic.Int64 // the first damaged offset, NoOffset when there is none
	mending   atomic.Bool  // a goroutine is at it
	stepBack  atomic.Bool  // the leader wants another one, with its next wish
	hopeless  atomic.Bool  // nobody has what is damaged: the partition goes on without, and takes what may be a repeat for new
	suspected atomic.Int64 // when a follower's complaint was last looked into, steady milliseconds
}

func (s *damageState) init() {
	s.from.Store(NoOffset)
	s.suspected.Store(math.MinInt64 / 2)
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
	if len(p.noteDamage()) == 0 && !p.log.Incomplete() || !p.damage.mending.CompareAndSwap(false, true) {
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
		if len(p.noteDamage()) > 0 && m.running.Err() == nil && !p.role.Load().final() {
			p.lookAtDamage() // found as the last was mended
		}
	})
}

// noteDamage lists what is damaged and still wanted, and lets the fetcher tell the leader what that changes.
func (p *Partition) noteDamage() []hot.Damage {
	start := p.log.Offsets().LocalStart
	list := slices.DeleteFunc(p.log.Damaged(), func(d hot.Damage) bool { return d.End <= start })
	from := NoOffset
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

// damagedFrom is the first damaged offset, NoOffset when all is whole.
func (p *Partition) damagedFrom() int64 { return p.damage.from.Load() }

// mend tries until nothing is damaged any more.
func (p *Partition) mend(ctx context.Context) {
	pause := mendRetryMin
	for tries := 1; ; tries++ {
		var failed error
		before := p.noteDamage()
		for _, d := range before {
			failed = errors.Join(failed, p.mendRange(ctx, d))
		}
		left := p.noteDamage()
		if len(left) == 0 && failed == nil {
			failed = p.log.Complete()
		}
		switch {
		case p.role.Load().final():
			return
		case len(left) == 0 && failed == nil:
			p.mended()
			return
		case failed != nil:
			p.notMended(tries, left, failed)
		case damagedBytes(left) < damagedBytes(before): // on with the rest, or what was found meanwhile
			continue
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
			pause = min(2*pause, mendRetryMax)
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// notMended sees to what cannot be mended for now.
func (p *Partition) notMended(tries int, left []hot.Damage, failed error) {
	if tries == 1 || tries%64 == 0 {
		start, end := NoOffset, NoOffset
		if len(left) > 0 {
			start, end = left[0].Start, left[0].End
		}
		p.logger().Error("damage is not mended yet: its offsets are refused, all others are served", "ranges", len(left), "start", start, "end", end, "err", failed)
	}
	if tries >= mendTries {
		p.damage.hopeless.Store(true)
	}
	switch {
	case p.role.Load().err == nil:
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
	p.damage.hopeless.Store(false)
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

// mendRange fetches the records of one damaged range and puts them in its place. Only what is committed here is taken: those
// records are the same everywhere. What lies above the watermark is the leader's to send again, after a truncation, or
// passes the watermark.
func (p *Partition) mendRange(ctx context.Context, d hot.Damage) error {
	switch {
	case d.Whole:
		if err := p.log.LookAgain(d); err != nil {
			return fmt.Errorf("look through the segment of offsets %d to %d: %w", d.Start, d.End, err)
		}
		return nil
	case d.End > p.log.HighWatermark():
		return fmt.Errorf("offsets %d to %d are not committed here: %w", d.Start, d.End, errNoSource)
	case d.Bytes > p.m.mendMax:
		return fmt.Errorf("%d bytes: %w", d.Bytes, errNotInPlace)
	}
	release, err := p.m.mendRoom(ctx, d.Bytes)
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, mendLimit)
	defer cancel()
	failed, unfit := errNoSource, false
	for _, from := range p.sources(d) {
		records, err := from.fetch(ctx, d)
		if err == nil {
			err = p.log.Repair(d, records)
			unfit = unfit || errors.Is(err, hot.ErrNotContiguous)
		}
		if err == nil {
			p.logger().Info("damage was mended", "start", d.Start, "end", d.End, "from", from.name, "cause", d.Err)
			return nil
		}
		failed = errors.Join(failed, fmt.Errorf("from %s: %w", from.name, err))
	}
	if unfit {
		failed = errors.Join(failed, errNotInPlace)
	}
	return failed
}

// source is where sound records may be had.
type source struct {
	name  string
	fetch func(context.Context, hot.Damage) ([]byte, error)
}

// sources are the bucket, the leader, then whoever else is a replica, in-sync ones first.
func (p *Partition) sources(d hot.Damage) []source {
	var list []source
	if p.inBucket(d.Start) && p.inBucket(d.End-1) {
		list = append(list, source{"the bucket", p.fromBucket})
	}
	img := p.m.deps.Meta.Image()
	_, state := img.PartitionByID(p.id.ID, p.id.Index)
	if state == nil || p.m.deps.Peers == nil {
		return list
	}
	seen := []int32{p.m.config.NodeID}
	for _, ids := range [][]int32{{state.Leader}, state.ISR, state.Replicas} {
		for _, id := range ids {
			b, ok := img.Brokers[id]
			if !ok || b.Fenced || slices.Contains(seen, id) {
				continue
			}
			seen = append(seen, id)
			list = append(list, source{fmt.Sprintf("broker %d", id), func(ctx context.Context, d hot.Damage) ([]byte, error) { return p.fromBroker(ctx, b, d) }})
		}
	}
	return list
}

func (p *Partition) fromBucket(ctx context.Context, d hot.Damage) ([]byte, error) {
	return gather(d, func(at int64) ([]byte, error) {
		chunk, err := p.remote.Read(ctx, at, mendFetchMax, d.End)
		if err != nil {
			return nil, err
		}
		defer chunk.Release()
		return bytes.Clone(chunk.Bytes()), nil
	})
}

// fromBroker reads as a consumer does: whoever is asked shows what is committed there, and checks it.
func (p *Partition) fromBroker(ctx context.Context, b meta.Broker, d hot.Damage) ([]byte, error) {
	peer, err := p.m.deps.Peers.Dial(ctx, b)
	if err != nil {
		return nil, err
	}
	defer peer.Close()
	return gather(d, func(at int64) ([]byte, error) {
		r := kmsg.NewFetchRequest()
		r.Version, r.SessionEpoch, r.MaxBytes = fetchVersion, -1, mendFetchMax
		part := kmsg.NewFetchRequestTopicPartition()
		part.Partition, part.FetchOffset, part.PartitionMaxBytes = p.id.Index, at, mendFetchMax
		topic := kmsg.NewFetchRequestTopic()
		topic.TopicID, topic.Partitions = p.id.ID, []kmsg.FetchRequestTopicPartition{part}
		r.Topics = []kmsg.FetchRequestTopic{topic}
		resp, err := peer.Fetch(ctx, &r)
		if err != nil {
			return nil, err
		}
		if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
			return nil, fmt.Errorf("%w: the answer, code %d, is not of one partition", errNoSource, resp.ErrorCode)
		}
		got := &resp.Topics[0].Partitions[0]
		if got.ErrorCode != 0 {
			return nil, fmt.Errorf("%w: code %d", errNoSource, got.ErrorCode)
		}
		return got.RecordBatches, nil
	})
}

// gather collects the batches of a damaged range, checked, from reads that give whole batches from an offset on and perhaps more
// than that. There is no more of them than what they are for.
func gather(d hot.Damage, read func(at int64) ([]byte, error)) ([]byte, error) {
	all := make([]byte, 0, d.Bytes)
	for at := d.Start; at < d.End; {
		b, err := read(at)
		if err != nil {
			return nil, err
		}
		before := at
		for len(b) > 0 && at < d.End {
			one, rest, err := batch.Next(b)
			if errors.Is(err, batch.ErrShort) {
				break
			}
			if err == nil {
				err = one.VerifyCRC()
			}
			if err != nil {
				return nil, err
			}
			if one.BaseOffset() >= d.End { // compaction has taken the rest
				return all, nil
			}
			if one.BaseOffset() < at || one.NextOffset() > d.End || int64(len(all)+len(one)) > d.Bytes {
				return nil, fmt.Errorf("batch of offsets %d to %d for the damage from %d to %d: %w", one.BaseOffset(), one.LastOffset(), d.Start, d.End, hot.ErrNotContiguous)
			}
			all = append(all, one...)
			at, b = one.NextOffset(), rest
		}
		if at == before {
			return nil, fmt.Errorf("%w: nothing at offset %d", errNoSource, at)
		}
	}
	return all, nil
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
