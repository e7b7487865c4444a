package tier

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	bolt "go.etcd.io/bbolt"

	"github.com/varvelog/varve/tier/objstore"
)

// scrubPieceBytes is what one request of a scrub reads at most.
const scrubPieceBytes = 16 << 20

// scrubPlace is how far the reading of an archive has come. The offset and the
// beginning of the pass are kept over a restart, which reads the object at hand
// from its first byte again.
type scrubPlace struct {
	began  int64     // wall ms when this pass began, 0 when none did
	offset int64     // the object that holds it is being read, or is next
	done   bool      // the pass is over
	id     SegmentID // of the object that is being read
	at     int64     // bytes of it that have been read
	sum    uint32    // CRC-32C of those
}

// scrubbed is what one step of a scrub did.
type scrubbed struct {
	next     scrubPlace
	read     readTally
	suspects []MarkID // what seems to be missing or damaged, to be examined
}

// scrub reads the next piece of the archive and compares what it makes whole with
// the manifest: an object at its end, and the manifest page of the object's entry
// before its first byte.
func (r *Remote) scrub(ctx context.Context, p scrubPlace, wall int64) (scrubbed, error) {
	m, err := r.load(ctx)
	if err != nil {
		return scrubbed{}, err
	}
	if p.began == 0 {
		p = scrubPlace{began: wall}
	}
	out := scrubbed{next: p}
	p.offset = max(p.offset, m.start)
	if m.retired || m.dropped || p.offset >= m.end {
		out.next = scrubPlace{began: p.began, done: true}
		return out, nil
	}
	s, err := r.find(ctx, m, p.offset)
	if i := m.pageFor(p.offset); i < len(m.pages) && (errors.Is(err, ErrMissing) || errors.Is(err, ErrCorrupt)) {
		// Nobody here has the page: what it names is passed.
		out.suspects = append(out.suspects, MarkID{KeyPage, m.pages[i].id})
		out.next = scrubPlace{began: p.began, offset: m.pages[i].end}
		return out, nil
	}
	if err != nil {
		return scrubbed{}, err
	}
	if s.ID != p.id {
		p.id, p.at, p.sum = s.ID, 0, 0
		if err := r.scrubPage(ctx, m, &s, &out); err != nil {
			return scrubbed{}, err
		}
	}
	err = r.scrubPiece(ctx, &s, &p, &out)
	done := p.at == s.StoredBytes
	fault, err := faultOf("scrub", err, !done || p.sum == s.ObjectCRC)
	if err != nil {
		return scrubbed{}, err
	}
	if fault != FaultNone {
		out.suspects = append(out.suspects, MarkID{KeySegment, s.ID})
	}
	if done || fault != FaultNone {
		p = scrubPlace{began: p.began, offset: s.End}
	}
	out.next = p
	return out, nil
}

// scrubPiece reads on in an object.
func (r *Remote) scrubPiece(ctx context.Context, s *RemoteSegment, p *scrubPlace, out *scrubbed) error {
	n := min(scrubPieceBytes, s.StoredBytes-p.at)
	out.read.requests++
	sum, err := r.sumOf(ctx, r.Key(s.ID), s.StoredBytes, p.at, n, p.sum)
	if err != nil {
		return err
	}
	out.read.bytes += n
	p.at, p.sum = p.at+n, sum
	return nil
}

// scrubPage reads the manifest page whose first live entry s is.
func (r *Remote) scrubPage(ctx context.Context, m *manifest, s *RemoteSegment, out *scrubbed) error {
	i := m.pageFor(s.ID.Base)
	if i == len(m.pages) {
		return nil
	}
	ref := m.pages[i]
	p, err := r.loadPage(ctx, ref)
	if err != nil {
		return err
	}
	if p.entries[ref.dead].ID != s.ID {
		return nil
	}
	out.read.requests++
	sum, err := r.sumOf(ctx, r.pageKey(ref.id), int64(ref.size), 0, int64(ref.size), 0)
	fault, err := faultOf("scrub", err, sum == ref.crc)
	if err != nil {
		return err
	}
	if fault != FaultNone {
		out.suspects = append(out.suspects, MarkID{KeyPage, ref.id})
	}
	out.read.bytes += int64(ref.size)
	return nil
}

// sumOf carries a CRC-32C on over n bytes of an object, from off. An object of
// another size than the manifest has is ErrRange.
func (r *Remote) sumOf(ctx context.Context, key string, size, off, n int64, sum uint32) (uint32, error) {
	ctx, cancel := context.WithTimeout(ctx, r.a.cfg.GetTimeout)
	defer cancel()
	body, obj, err := r.a.deps.Store.Get(ctx, key, off, n)
	if err != nil {
		return 0, err
	}
	defer body.Close()
	if obj.Size != size {
		return 0, fmt.Errorf("%s has %d bytes, the manifest says %d: %w", key, obj.Size, size, objstore.ErrRange)
	}
	h := &runningSum{sum}
	got, err := io.CopyBuffer(struct{ io.Writer }{h}, body, make([]byte, 128<<10))
	if err == nil && got != n {
		err = fmt.Errorf("%s: %w", key, io.ErrUnexpectedEOF)
	}
	return h.sum, err
}

// runningSum is a CRC-32C that goes on from an earlier one.
type runningSum struct{ sum uint32 }

func (h *runningSum) Write(p []byte) (int, error) {
	h.sum = crc32cUpdate(h.sum, p)
	return len(p), nil
}

// scrubAt is the place that was kept, zero when none was.
func (d *manifestDB) scrubAt(k partitionKey) (p scrubPlace) {
	if d.db == nil {
		return p
	}
	_ = d.db.View(func(tx *bolt.Tx) error {
		v := tx.Bucket(bucketScrub).Get(k.append(nil))
		if len(v) != scrubPlaceBytes || crc32c(v[4:]) != binary.BigEndian.Uint32(v) {
			return nil
		}
		p.began, p.offset = int64(binary.BigEndian.Uint64(v[4:])), int64(binary.BigEndian.Uint64(v[12:]))
		if p.offset < 0 {
			p.offset, p.done = 0, true
		}
		return nil
	})
	return p
}

// scrubPlaceBytes is the size of a kept place.
const scrubPlaceBytes = 20

// putScrub keeps a place, in a transaction shared with others that commit at the
// same time.
func (d *manifestDB) putScrub(k partitionKey, p scrubPlace) error {
	if d.db == nil {
		return nil
	}
	if p.done {
		p.offset = -1
	}
	v := make([]byte, 4, scrubPlaceBytes)
	v = binary.BigEndian.AppendUint64(v, uint64(p.began))
	v = binary.BigEndian.AppendUint64(v, uint64(p.offset))
	binary.BigEndian.PutUint32(v, crc32c(v[4:]))
	return d.db.Batch(func(tx *bolt.Tx) error { return tx.Bucket(bucketScrub).Put(k.append(nil), v) })
}
