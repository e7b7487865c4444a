package replica

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/varvelog/varve/hot"
	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/tier"
)

// Description is a partition in numbers.
type Description struct {
	Partition   topic.Partition
	Leads       bool
	Err         error // why it is not served here; nil when it leads
	LeaderEpoch int32
	ISR         []int32
	// Of a partition that is led here: whether replicas are missing from the
	// in-sync set, and how many more members it has than min.insync.replicas asks
	// for (below 0: acks=all is refused).
	UnderReplicated bool
	SpareISR        int

	LogStart, LocalStart      int64
	LastStable, HighWatermark int64
	Durable, End              int64

	Tiered                 bool
	RemoteStart, RemoteEnd int64 // -1 when unknown or nothing is there
	HotBytes               int64 // on local disk
	ColdBytes              int64 // in the bucket, as batches
	ColdStoredBytes        int64 // in the bucket, as stored
	ColdSegments           int64

	Offload  tier.PartitionStatus // zero unless the tier manager has the partition
	Offloads bool                 // whether it has
	Damage   Damage               // of the records on local disk
	Waiters  int                  // long polls
	Acks     int                  // acknowledgements waiting for the high watermark
}

// Offline says that the partition is not served by this process any more: as leader or as follower.
func (d *Description) Offline() bool { return d.Err != nil && !errors.Is(d.Err, ErrNotLeader) }

// Describe looks at the partition without reading the bucket: the archive's numbers are those this process holds.
func (p *Partition) Describe() Description {
	o := p.log.Offsets()
	role := p.role.Load()
	d := Description{
		Partition: p.id, Leads: role.err == nil, Err: role.err, LeaderEpoch: role.epoch,
		LogStart: o.LogStart, LocalStart: o.LocalStart, Durable: o.Durable, End: o.End,
		LastStable: p.log.LastStable(), HighWatermark: p.log.HighWatermark(),
		Tiered: p.tiered(), RemoteStart: NoOffset, RemoteEnd: NoOffset,
		Damage: p.Damage(), Waiters: int(p.watchers.n.Load()),
	}
	d.HotBytes, _ = p.log.SizeBytes()
	p.mu.Lock()
	d.ISR = append(d.ISR, p.isr.InSync()...)
	if d.Leads {
		d.UnderReplicated = len(d.ISR) < len(role.replicas)
		d.SpareISR = len(d.ISR) - p.isr.EffectiveMin()
	}
	d.Acks = p.commits.len()
	p.mu.Unlock()
	if p.remote == nil {
		return d
	}
	if s, ok := p.remote.Cached(); ok {
		d.RemoteStart, d.RemoteEnd = s.Start, s.End
		d.ColdBytes, d.ColdStoredBytes, d.ColdSegments = s.RawBytes, s.StoredBytes, s.Segments
	}
	if p.m.deps.Tier != nil {
		d.Offload, d.Offloads = p.m.deps.Tier.PartitionStatus(p.id)
	}
	return d
}

// SizeBytes is what the partition takes on local disk.
func (p *Partition) SizeBytes() (int64, error) {
	n, err := p.log.SizeBytes()
	return n, p.fromLog(err)
}

// SegmentPlace says where one run of offsets lies: on local disk, in the bucket, or in both.
type SegmentPlace struct {
	Base, End     int64
	Bytes         int64 // as batches
	StoredBytes   int64 // in the bucket; 0 when it is not there
	MinTimestamp  int64 // NoTimestamp when not known
	MaxTimestamp  int64 // NoTimestamp when not known
	Modified      int64 // when it was last written or uploaded, wall clock, milliseconds
	Local, Remote bool
	Sealed        bool
	Damaged       bool   // the local copy is quarantined
	Key           string // of the object, when it is in the bucket
	// Fault is what is known to be wrong with the object: "missing", "wrong size" or "wrong bytes". Only the partition's leader knows.
	Fault string
}

// Segments lists every segment of the log in offset order. It may read the bucket. Should the archive be unreachable, the
// local segments are returned along with the error.
func (p *Partition) Segments(ctx context.Context) ([]SegmentPlace, error) {
	var list []SegmentPlace
	local, err := p.log.Segments()
	if err != nil {
		return nil, p.fromLog(err)
	}
	for _, s := range local {
		list = append(list, SegmentPlace{
			Base: s.BaseOffset, End: s.EndOffset, Bytes: s.SizeBytes, MinTimestamp: NoTimestamp, MaxTimestamp: s.MaxTimestamp,
			Modified: s.Modified, Local: true, Sealed: s.Sealed, Damaged: s.Damaged,
		})
	}
	if p.remote != nil {
		at := make(map[int64]int, len(list))
		for i, s := range list {
			at[s.Base] = i
		}
		faults := p.faults()
		err = p.remote.Segments(ctx, p.log.Offsets().LogStart, func(s tier.RemoteSegment) bool {
			i, ok := at[s.ID.Base]
			if !ok || list[i].End != s.End {
				i = len(list)
				list = append(list, SegmentPlace{Base: s.ID.Base, End: s.End, Bytes: s.RawBytes, MaxTimestamp: s.MaxTimestamp, Modified: s.Created, Sealed: true})
			}
			list[i].Remote = true
			list[i].StoredBytes, list[i].MinTimestamp, list[i].Key = s.StoredBytes, s.MinTimestamp, p.remote.Key(s.ID)
			list[i].Fault = faults[list[i].Key]
			return true
		})
		if errors.Is(err, tier.ErrNotTiered) || errors.Is(err, tier.ErrBelowStart) {
			err = nil
		}
	}
	slices.SortStableFunc(list, func(a, b SegmentPlace) int { return cmp.Compare(a.Base, b.Base) })
	return list, err
}

// faults is what the tier manager knows to be wrong with the partition's objects, by their keys.
func (p *Partition) faults() map[string]string {
	if p.m.deps.Tier == nil {
		return nil
	}
	s, _ := p.m.deps.Tier.PartitionStatus(p.id)
	faults := make(map[string]string, len(s.Damaged))
	for _, d := range s.Damaged {
		faults[d.Key] = d.Fault.String()
	}
	return faults
}

// ProducerState is what a partition knows of one producer.
type ProducerState = hot.ProducerState

// TxnGuard says whether the partition knows of an open transaction of the producer, and what goes with an append that relies
// on the coordinator's word that there is one.
func (p *Partition) TxnGuard(producerID int64, epoch int16) (guard int32, open bool, err error) {
	if err := p.role.Load().err; err != nil {
		return 0, false, err
	}
	guard, open, err = p.log.TxnGuard(producerID, epoch)
	return guard, open, p.fromLog(err)
}

// Producers lists the producers the partition knows (DescribeProducers), on followers as on the leader: whoever looks for hanging
// transactions asks each broker about all that it holds.
func (p *Partition) Producers() ([]ProducerState, error) {
	if role := p.role.Load(); role.final() {
		return nil, role.err
	}
	list, err := p.log.Producers()
	return list, p.fromLog(err)
}
