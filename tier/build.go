package tier

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"math"

	"github.com/klauspost/compress/zstd"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/lineage"
)

// chunkBytes is the raw size at which a chunk is closed, at the batch boundary
// before it; a larger batch is a chunk of its own. A writer's choice: readers
// take any size up to chunkRawMax.
const chunkBytes = 1 << 20

// BuildOptions says how a segment becomes an object.
type BuildOptions struct {
	LeaderEpoch int32
	From        int64 // batches that end at or below it are left out: the archive's end
	Now         int64 // ms, the object's creation time
	// ExactEpochs wants every batch to be of the leader epoch that the segment's
	// lineage has there, also those that DeleteRecords has cut off.
	ExactEpochs bool
}

// Object is an upload body built from a segment. It reads the segment again while
// it is sent, and keeps it readable until Close.
type Object struct {
	remote *Remote
	add    AddSegment
	body   *objectBody
	index  *objectIndex
	footer []byte
}

// Build turns seg into an upload body. Every batch is framed and its CRC checked
// on the way: CorruptError when the local segment is damaged, ErrConflict when
// From lies inside a batch or nothing is left above it. Memory stays at a few
// chunks, and what Config.UploadMemoryBytes allows all uploads together, however
// large the segment; no disk space is needed.
func (r *Remote) Build(ctx context.Context, seg Segment, o BuildOptions) (*Object, error) {
	var random [8]byte
	if _, err := rand.Read(random[:]); err != nil {
		return nil, fmt.Errorf("object name: %w", err)
	}
	return r.build(ctx, seg, o, binary.BigEndian.Uint64(random[:]))
}

func (r *Remote) build(ctx context.Context, seg Segment, o BuildOptions, random uint64) (*Object, error) {
	base := max(seg.BaseOffset(), o.From)
	if base >= seg.EndOffset() {
		return nil, conflict("segment [%d, %d) has nothing above %d", seg.BaseOffset(), seg.EndOffset(), o.From)
	}
	name := fmt.Sprintf("segment %s/%020d", r.p, seg.BaseOffset())
	src, err := seg.Open()
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	at, ok := src.(io.ReaderAt)
	if !ok {
		src.Close()
		return nil, fmt.Errorf("%s: %T reads only once: %w", name, src, ErrUnsupported)
	}
	b := &objectBuilder{
		seg: seg, o: o, lineage: seg.Lineage(), base: base, next: base, contiguous: true, name: name,
		encoder: r.a.encoder, sum: crc32.New(castagnoli), minTime: NoTimestamp, maxTime: NoTimestamp,
		raw: make([]byte, 0, chunkBytes), chunkMax: NoTimestamp,
		body: &objectBody{name: name, src: at, closer: src, encoder: r.a.encoder, budget: &r.a.uploadMemory, made: -1},
	}
	obj, err := b.run(ctx, r, src, random)
	if err != nil {
		b.body.close()
		return nil, err
	}
	return obj, nil
}

// objectBuilder streams one segment into one object.
type objectBuilder struct {
	seg     Segment
	o       BuildOptions
	lineage lineage.Chain
	name    string
	base    int64 // of the object
	encoder *zstd.Encoder
	body    *objectBody
	sum     hash.Hash32
	at      int64 // bytes written

	index            objectIndex
	minTime, maxTime int64
	rawBytes         int64
	batches          uint32
	readBytes        int64
	next             int64 // offset after the last batch read
	contiguous       bool  // no gap between batches so far

	raw       []byte // the open chunk
	packed    []byte // scratch for compression
	plain     int    // bytes of the open chunk in batches without a codec
	chunkFrom int64  // its position in the segment
	chunkBase int64
	chunkMax  int64
}

func (b *objectBuilder) run(ctx context.Context, r *Remote, src io.Reader, random uint64) (*Object, error) {
	if err := b.write([]byte(objectMagic)); err != nil {
		return nil, err
	}
	if err := b.copyBatches(ctx, src); err != nil {
		return nil, err
	}
	lookupAt := b.at
	id := SegmentID{Base: b.base, Epoch: b.o.LeaderEpoch, Random: random}
	f := footer{
		topic: r.p.ID, partition: r.p.Index, id: id, end: b.seg.EndOffset(), raw: b.rawBytes,
		minTime: b.minTime, maxTime: b.maxTime, created: b.o.Now, chunks: uint32(len(b.index.chunks)), batches: b.batches,
	}
	chain := b.seg.Lineage().Slice(b.base, b.seg.EndOffset())
	if err := b.writeSections(&f, chain); err != nil {
		return nil, err
	}
	end := f.encode()
	if err := b.write(end); err != nil {
		return nil, err
	}
	s := f.segment(b.at)
	s.ObjectCRC = b.sum.Sum32()
	if s.lookupAt != lookupAt {
		return nil, fmt.Errorf("build %s: lookup region at %d, expected %d", b.name, s.lookupAt, lookupAt)
	}
	add := AddSegment{Segment: s, Lineage: chain}
	if err := checkAdd(&add, b.o.LeaderEpoch); err != nil {
		return nil, fmt.Errorf("build %s: %w", b.name, err)
	}
	return &Object{remote: r, add: add, body: b.body, index: &b.index, footer: end}, nil
}

// write adds bytes that stay in memory.
func (b *objectBuilder) write(p []byte) error {
	b.body.keep(p)
	return b.account(p)
}

// account counts and sums the bytes of a piece.
func (b *objectBuilder) account(p []byte) error {
	b.sum.Write(p)
	b.at += int64(len(p))
	if b.at > math.MaxUint32 {
		return fmt.Errorf("build %s: object larger than 4 GiB: %w", b.name, ErrUnsupported)
	}
	return nil
}

func (b *objectBuilder) damaged(format string, args ...any) error {
	return &CorruptError{Key: b.name, Offset: b.readBytes, Reason: fmt.Sprintf(format, args...)}
}

// copyBatches reads the segment to its end, checking everything.
func (b *objectBuilder) copyBatches(ctx context.Context, src io.Reader) error {
	in := bufio.NewReaderSize(src, 256<<10)
	b.next = b.seg.BaseOffset()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		more, err := b.copyBatch(in)
		if err != nil {
			return err
		}
		if !more {
			break
		}
	}
	if b.readBytes != b.seg.SizeBytes() {
		return b.damaged("ends after %d of %d bytes", b.readBytes, b.seg.SizeBytes())
	}
	// Compacted logs have gaps and may end before their segment does; others
	// may not.
	if b.next > b.seg.EndOffset() || (b.contiguous && b.next != b.seg.EndOffset()) {
		return b.damaged("batches end at offset %d, the segment at %d", b.next, b.seg.EndOffset())
	}
	if err := b.closeChunk(); err != nil {
		return err
	}
	if len(b.index.chunks) == 0 {
		return conflict("%s has no batch above offset %d", b.name, b.o.From)
	}
	return nil
}

// copyBatch moves one batch from in to the open chunk; false at the end.
func (b *objectBuilder) copyBatch(in *bufio.Reader) (bool, error) {
	head, err := in.Peek(batch.HeaderSize)
	if len(head) == 0 && errors.Is(err, io.EOF) {
		return false, nil
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("read %s: %w", b.name, err)
	}
	h, err := batch.PeekHeader(head)
	if err != nil {
		return false, b.damaged("%v", err)
	}
	size, first, next := int64(h.SizeBytes()), h.BaseOffset(), h.NextOffset()
	if size > b.seg.SizeBytes()-b.readBytes {
		return false, b.damaged("batch of %d bytes reaches beyond the segment's end", size)
	}
	if first < b.next || h.LastOffsetDelta() < 0 || next > b.seg.EndOffset() {
		return false, b.damaged("batch [%d, %d) where offset %d is next", first, next, b.next)
	}
	if err := b.checkEpoch(h, first); err != nil {
		return false, err
	}
	skip := next <= b.base
	if !skip && first < b.base {
		return false, conflict("%s: offset %d lies inside the batch [%d, %d)", b.name, b.base, first, next)
	}
	if !skip && len(b.raw) > 0 && int64(len(b.raw))+size > chunkBytes {
		if err := b.closeChunk(); err != nil {
			return false, err
		}
	}
	from := len(b.raw)
	b.raw = append(b.raw, make([]byte, size)...)
	if _, err := io.ReadFull(in, b.raw[from:]); err != nil {
		return false, b.damaged("batch at offset %d cut short: %v", first, err)
	}
	whole := batch.Batch(b.raw[from:])
	if err := whole.VerifyCRC(); err != nil {
		return false, b.damaged("%v", err)
	}
	b.contiguous = b.contiguous && first == b.next
	b.readBytes += size
	b.next = next
	if skip {
		b.raw = b.raw[:from]
		return true, nil
	}
	b.note(whole, from)
	return true, nil
}

// checkEpoch holds a batch against the segment's lineage.
func (b *objectBuilder) checkEpoch(h batch.Batch, first int64) error {
	epoch := b.lineage.EpochAt(first)
	// No checksum covers the epoch. Records that DeleteRecords has cut off may be
	// of an earlier one than the lineage begins with.
	if epoch >= 0 && (h.LeaderEpoch() > epoch || h.LeaderEpoch() < epoch && epoch != b.lineage[0].Epoch) {
		return b.damaged("batch of leader epoch %d at offset %d, which epoch %d wrote", h.LeaderEpoch(), first, epoch)
	}
	if b.o.ExactEpochs && h.LeaderEpoch() != epoch {
		return fmt.Errorf("%s: batch of leader epoch %d at offset %d, which epoch %d wrote: %w", b.name, h.LeaderEpoch(), first, epoch, errOtherRecords)
	}
	return nil
}

// note accounts for a batch that joined the open chunk at position from.
func (b *objectBuilder) note(whole batch.Batch, from int) {
	if from == 0 {
		b.chunkBase, b.chunkMax, b.plain = whole.BaseOffset(), NoTimestamp, 0
		b.chunkFrom = b.readBytes - int64(len(whole))
	}
	b.batches++
	b.rawBytes += int64(len(whole))
	if whole.Codec() == batch.None {
		b.plain += len(whole)
	}
	if whole.Control() {
		return
	}
	last := whole.MaxTimestamp()
	least := last
	if !whole.LogAppendTime() {
		least = min(last, whole.BaseTimestamp())
	}
	b.chunkMax = max(b.chunkMax, last)
	b.maxTime = max(b.maxTime, last)
	if b.minTime == NoTimestamp || least < b.minTime {
		b.minTime = least
	}
}

// closeChunk writes the open chunk: as one zstd frame when that shrinks it.
func (b *objectBuilder) closeChunk() error {
	if len(b.raw) == 0 {
		return nil
	}
	stored, encoding := b.raw, uint32(encodingRaw)
	// Batches a producer compressed do not shrink again: no time is spent on a
	// chunk that is mostly such.
	if b.plain*4 >= len(b.raw) {
		b.packed = b.encoder.EncodeAll(b.raw, b.packed[:0])
		if len(b.packed) < len(b.raw) {
			stored, encoding = b.packed, encodingZstd
		}
	}
	b.index.chunks = append(b.index.chunks, chunkInfo{
		base: b.chunkBase, at: uint32(b.at), stored: uint32(len(stored)), raw: uint32(len(b.raw)),
		crc: crc32c(stored), encoding: encoding, maxTime: b.chunkMax,
	})
	if encoding == encodingZstd && b.body.budget.take(int64(len(stored))) {
		b.body.held += int64(len(stored))
		b.body.keep(stored)
	} else {
		b.body.add(piece{n: int64(len(stored)), from: b.chunkFrom, raw: int64(len(b.raw)), zstd: encoding == encodingZstd, crc: crc32c(stored)})
	}
	err := b.account(stored)
	if cap(b.raw) > 2*chunkBytes { // one large batch must not hold its memory to the end
		b.raw, b.packed = make([]byte, 0, chunkBytes), nil
	}
	b.raw = b.raw[:0]
	return err
}

// writeSections writes indexes, producer snapshot and lineage.
func (b *objectBuilder) writeSections(f *footer, chain lineage.Chain) error {
	aborted, err := b.seg.AbortedTxns()
	if err != nil {
		return fmt.Errorf("transaction index of %s: %w", b.name, err)
	}
	for _, t := range aborted {
		if t.LastOffset >= b.base {
			b.index.aborted = append(b.index.aborted, t)
		}
	}
	f.hasAborted = len(b.index.aborted) > 0
	snapshot, err := b.seg.ProducerSnapshot()
	if err != nil {
		return fmt.Errorf("producer snapshot of %s: %w", b.name, err)
	}
	at := uint32(b.at)
	sections := b.index.encode(b.base, nil, at, &f.sections)
	put := func(kind uint16, body []byte) {
		start := len(sections)
		sections = appendSection(sections, kind, body)
		f.sections[kind-1] = sectionPlace{at: at + uint32(start), n: uint32(len(sections) - start)}
	}
	if len(snapshot) > 0 {
		put(sectionProducers, snapshot)
	}
	var e encoder
	e.chain(chain)
	put(sectionLineage, e.b)
	return b.write(sections)
}
