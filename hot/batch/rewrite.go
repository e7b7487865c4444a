package batch

// Rewritten is what Rewrite made of a batch.
type Rewritten struct {
	// Batch is the result: the input itself when nothing had to change, new
	// memory otherwise, nil when no record is left.
	Batch        Batch
	Kept         int32
	Removed      int32
	MaxTimestamp int64 // of the records kept, in milliseconds
	OffsetOfMax  int64 // the first record with MaxTimestamp
}

// RewriteOptions says how Rewrite changes a batch besides its records.
type RewriteOptions struct {
	// DeleteHorizon is set on a batch that has none, unless it is
	// NoTimestamp (KIP-534). A batch that has one keeps it.
	DeleteHorizon int64
	Limits        Limits
}

// Rewrite keeps the records for which keep is true, for compaction. Base
// offset, last offset, leader epoch, producer fields, codec, timestamps and
// type stay as they are, so that offsets and sequence numbers mean what they
// meant. keep sees them without their
// headers and must not hold on to them.
//
// When nothing is left, Batch is nil and the caller drops the batch, or puts
// Empty in its place if a producer's last sequence number must survive.
func Rewrite(b Batch, keep func(Record) bool, o RewriteOptions) (Rewritten, error) {
	kept, res, err := b.choose(keep, o.Limits)
	if err != nil || res.Kept == 0 {
		return res, err
	}
	horizon, had := b.DeleteHorizon()
	setting := !had && o.DeleteHorizon != NoTimestamp
	if res.Removed == 0 && !setting {
		res.Batch = b
		return res, nil
	}
	builder := NewBuilder(b.options())
	builder.horizon = horizon
	if setting {
		builder.horizon = o.DeleteHorizon
	}
	builder.lastFixed = b.LastOffset()
	var w walker
	defer w.close()
	if err := w.open(b, o.Limits, false); err != nil {
		return Rewritten{}, b.corrupt(err)
	}
	for i := 0; ; i++ {
		ok, err := w.next()
		if err != nil {
			return Rewritten{}, b.corrupt(err)
		}
		if !ok {
			break
		}
		if !kept.has(i) {
			continue
		}
		if err := builder.append(w.offset(), w.timestamp(), w.raw.key, w.raw.value, w.raw.headerCount, w.raw.headers); err != nil {
			return Rewritten{}, err
		}
	}
	res.Batch = builder.Bytes()
	return res, nil
}

// choose asks keep about every record. Most batches of a compacted log stay
// as they are, so nothing is built before all are known.
func (b Batch) choose(keep func(Record) bool, lim Limits) (bits, Rewritten, error) {
	res := Rewritten{MaxTimestamp: NoTimestamp, OffsetOfMax: -1}
	var w walker
	defer w.close()
	if err := w.open(b, lim, false); err != nil {
		return nil, Rewritten{}, b.corrupt(err)
	}
	var kept bits
	for i := 0; ; i++ {
		ok, err := w.next()
		if err != nil {
			return nil, Rewritten{}, b.corrupt(err)
		}
		if !ok {
			return kept, res, nil
		}
		if !keep(Record{Offset: w.offset(), Timestamp: w.timestamp(), Key: w.raw.key, Value: w.raw.value}) {
			res.Removed++
			continue
		}
		kept = kept.with(i)
		res.Kept++
		if t := w.timestamp(); t > res.MaxTimestamp || res.OffsetOfMax < 0 {
			res.MaxTimestamp, res.OffsetOfMax = t, w.offset()
		}
	}
}

// bits is a set of small integers that grows as they are added.
type bits []uint64

func (s bits) has(i int) bool { return i/64 < len(s) && s[i/64]>>(i%64)&1 == 1 }

func (s bits) with(i int) bits {
	for i/64 >= len(s) {
		s = append(s, 0)
	}
	s[i/64] |= 1 << (i % 64)
	return s
}

// Empty is a batch without records that stands for the offsets and sequence
// numbers of b, as compaction leaves behind for a live producer.
func Empty(b Batch) Batch {
	o := b.options()
	o.Codec = None
	builder := NewBuilder(o)
	builder.base = NoTimestamp
	builder.header(b.LastOffsetDelta(), b.MaxTimestamp())
	return Batch(builder.out)
}

// options are the builder options that give a header like b's.
func (b Batch) options() Options {
	o := Options{
		BaseOffset:    b.BaseOffset(),
		LeaderEpoch:   b.LeaderEpoch(),
		Codec:         b.Codec(),
		Transactional: b.Transactional(),
		Control:       b.Control(),
		TimestampType: b.TimestampType(),
		AppendTime:    b.MaxTimestamp(),
	}
	if b.ProducerID() != NoProducerID || b.ProducerEpoch() != NoProducerEpoch || b.BaseSequence() != NoSequence {
		o.Producer = &Producer{ID: b.ProducerID(), Epoch: b.ProducerEpoch(), Sequence: b.BaseSequence()}
	}
	return o
}
