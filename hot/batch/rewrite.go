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
// meant. keep must not hold on to the record.
//
// When nothing is left, Batch is nil and the caller drops the batch, or puts
// Empty in its place if a producer's last sequence number must survive.
func Rewrite(b Batch, keep func(Record) bool, o RewriteOptions) (Rewritten, error) {
	horizon, had := b.DeleteHorizon()
	setting := !had && o.DeleteHorizon != NoTimestamp
	if setting {
		horizon = o.DeleteHorizon
	}
	builder := NewBuilder(b.options())
	builder.horizon = NoTimestamp
	if had || setting {
		builder.horizon = horizon
	}
	builder.lastFixed = b.LastOffset()
	var res Rewritten
	for r, err := range b.Records(o.Limits) {
		if err != nil {
			return Rewritten{}, err
		}
		if !keep(r) {
			res.Removed++
			continue
		}
		res.Kept++
		if err := builder.AppendAt(r.Offset, r.Timestamp, r.Key, r.Value, r.Headers); err != nil {
			return Rewritten{}, err
		}
	}
	res.MaxTimestamp, res.OffsetOfMax = builder.MaxTimestamp()
	switch {
	case res.Kept == 0:
	case res.Removed == 0 && !setting:
		res.Batch = b
	default:
		res.Batch = builder.Bytes()
	}
	return res, nil
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
