package replica

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/hot"
	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/replica/isr"
	"github.com/varvelog/varve/replica/peer"
)

// followed is one partition in one leader epoch of another broker. The fetcher of that broker owns it; a task that runs
// beside the fetcher tells it when it is done.
type followed struct {
	p       *Partition
	core    isr.Follower
	fetcher *fetcher

	busy    bool // a task changes the log
	halted  bool
	tries   int   // failures in a row
	retryAt int64 // steady milliseconds
	held    bool  // by the throttle, until then

	appended int64 // end of the log after the last append here

	sent  isr.Position // what the fetch under way says, or the session remembers
	known bool         // the leader's session has it
	dirty bool         // its position may have changed

	told    int64 // the damage here that the leader was told of
	refused int64 // where the leader's records were damaged, until it is told; NoOffset: nowhere
}

// view is the log as the cores see it.
func (p *Partition) view() isr.View {
	o := p.log.Offsets()
	return isr.View{
		LogStart: o.LogStart, LocalStart: o.LocalStart, End: o.End, Counted: o.Durable,
		HighWatermark: p.log.HighWatermark(), Lineage: p.log.Lineage(), Tiered: p.tiered(),
	}
}

// underLeader runs fn unless the partition has left the leadership that d follows. The leadership does not change meanwhile.
func (d *followed) underLeader(fn func() error) error {
	p := d.p
	p.leading.RLock()
	defer p.leading.RUnlock()
	if p.following.Load() != d {
		return errNotFollowed
	}
	return fn()
}

// errNotFollowed is returned when the partition follows another leadership by now. Nothing was done.
var errNotFollowed = errors.New("replica: the partition follows another leadership")

// Kafka's codes of the refusals that a follower acts on. Format: do not renumber.
const (
	wireOffsetOutOfRange = 1
	wireMovedToTiered    = 109
)

// replyOf is a partition's part of an answer as the core takes it. A leader has no records of a later epoch than its own; one
// that is later has been damaged, for no checksum covers it.
func replyOf(r *kmsg.FetchResponseTopicPartition, leaderEpoch int32) (isr.Reply, error) {
	reply := isr.Reply{HighWatermark: r.HighWatermark, LogStart: r.LogStartOffset, RemoteEnd: NoOffset}
	if end, ok := peer.Int64(&r.UnknownTags, peer.TagRemoteEnd); ok {
		reply.RemoteEnd = end
	}
	switch r.ErrorCode {
	case 0:
	case wireOffsetOutOfRange:
		reply.Refused = isr.NotInRange
	case wireMovedToTiered:
		reply.Refused = isr.MovedToTiered
	default:
		reply.Refused = isr.NotNow
	}
	if reply.Refused != isr.Served {
		return reply, nil
	}
	if r.DivergingEpoch.EndOffset >= 0 {
		reply.Diverging = &isr.Divergence{Epoch: r.DivergingEpoch.Epoch, End: r.DivergingEpoch.EndOffset}
		return reply, nil
	}
	rest := r.RecordBatches
	for first := true; len(rest) > 0; first = false {
		b, more, err := batch.Next(rest)
		if errors.Is(err, batch.ErrShort) {
			r.RecordBatches = r.RecordBatches[:len(r.RecordBatches)-len(rest)] // cut off by the leader's limit
			break
		}
		if err != nil {
			return reply, err
		}
		if b.LeaderEpoch() > leaderEpoch {
			return reply, fmt.Errorf("batch of leader epoch %d in answer to epoch %d: %w", b.LeaderEpoch(), leaderEpoch, batch.ErrCorrupt)
		}
		if first {
			reply.First = b.BaseOffset()
		}
		reply.Next, rest = b.NextOffset(), more
	}
	return reply, nil
}

// append appends an answer's records as they are, and takes the leader's watermark, log start and remote end. grown says that
// there is something to make durable.
func (d *followed) append(records []byte, a isr.Action, remoteEnd int64) (grown bool, err error) {
	p := d.p
	err = d.underLeader(func() error {
		if len(records) > 0 {
			h, err := p.log.Append(records, hot.AppendOptions{Origin: hot.Follower, Now: now()})
			if err != nil {
				return err
			}
			grown, d.appended = true, h.LastOffset+1
			p.tail.add(h.LastOffset+1, int64(len(records)))
			if p.busy.CompareAndSwap(false, true) {
				p.m.written(p)
			}
		}
		if remoteEnd >= 0 && remoteEnd > p.log.RemoteEnd() && p.tiered() {
			p.log.SetRemoteEnd(remoteEnd)
			p.m.retention.at(p, now())
		}
		if a.HighWatermark > p.log.HighWatermark() {
			p.log.SetHighWatermark(a.HighWatermark)
			p.wake()
		}
		if a.LogStart > p.log.Offsets().LogStart {
			return p.raiseLogStart(a.LogStart)
		}
		return nil
	})
	return grown, err
}

// cut truncates or resets the log, durably.
func (d *followed) cut(a isr.Action) error {
	p := d.p
	err := d.underLeader(func() error {
		before := p.log.Offsets()
		defer func() {
			after := p.log.Offsets()
			p.logger().Info("log cut to the leader's", "leader_epoch", d.core.Epoch, "to", a.To, "end_before", before.End, "end", after.End, "high_watermark", p.log.HighWatermark())
		}()
		if a.Kind == isr.Reset {
			return p.log.ResetTo(a.To, nil, nil)
		}
		return p.log.TruncateTo(a.To)
	})
	if err != nil {
		return fmt.Errorf("cut to %d: %w", a.To, err)
	}
	p.watchers.wakeAll(nil)
	return nil
}
