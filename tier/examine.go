package tier

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/tier/objstore"
)

// Fault is what is wrong with an object that the committed manifest names.
type Fault uint8

// The faults of an object.
const (
	FaultNone    Fault = iota
	FaultMissing       // it is not there
	FaultSize          // it is of another size
	FaultBytes         // its bytes are not those that were put there
)

func (f Fault) String() string {
	switch f {
	case FaultMissing:
		return "missing"
	case FaultSize:
		return "wrong size"
	case FaultBytes:
		return "wrong bytes"
	}
	return "sound"
}

// examined is what was found out about an object.
type examined struct {
	named   bool // the committed manifest names it
	fault   Fault
	key     string
	segment RemoteSegment // of a segment's object
	base    int64
	end     int64
	seen    objstore.Object // as the store had it, zero when that was not asked
}

// readTally is what was asked of the store to compare checksums.
type readTally struct{ bytes, requests int64 }

// readMeter takes a tally while a call runs, also of one that is left behind.
type readMeter struct{ bytes, requests atomic.Int64 }

func (m *readMeter) add(bytes int64) {
	m.requests.Add(1)
	m.bytes.Add(bytes)
}

func (m *readMeter) tally() readTally { return readTally{m.bytes.Load(), m.requests.Load()} }

// examine looks an object through that is suspected of not being what the manifest
// says. The manifest is read from the bucket first, by which the store shows that it
// is the one it was; what is not there is looked for twice, and so is what has other
// bytes. What was damaged before, and has not been written to since, is not read
// again. An error says that nothing is known: a store that fails is no damage.
func (r *Remote) examine(ctx context.Context, id MarkID, before examined, meter *readMeter) (examined, error) {
	x, size, sum, err := r.namedNow(ctx, id)
	if err != nil || !x.named {
		return x, err
	}
	if before.key != x.key {
		before = examined{}
	}
	for range 2 {
		if x.fault, x.seen, err = r.soundness(ctx, x.key, size, sum, before, meter); err != nil {
			return x, err
		}
		if x.fault == FaultNone {
			return x, nil
		}
		if x.fault == before.fault && x.seen == before.seen {
			break
		}
	}
	// It may have been marked and deleted, if that took long enough.
	again, _, _, err := r.namedNow(ctx, id)
	again.fault, again.seen = x.fault, x.seen
	return again, err
}

// namedNow says what the committed manifest, read from the bucket now, has of an object.
func (r *Remote) namedNow(ctx context.Context, id MarkID) (x examined, size int64, sum uint32, err error) {
	m, err := r.refresh(ctx)
	if err != nil {
		return x, 0, 0, err
	}
	if m.retired || m.dropped {
		return x, 0, 0, nil
	}
	if id.Kind == KeyPage {
		i := m.pageNamed(id.ID)
		if i < 0 {
			return x, 0, 0, nil
		}
		p := m.pages[i]
		return examined{named: true, key: r.pageKey(p.id), base: p.id.Base, end: p.end}, int64(p.size), p.crc, nil
	}
	s, err := r.find(ctx, m, max(id.ID.Base, m.start))
	switch {
	case errors.Is(err, ErrBelowStart), errors.Is(err, ErrNotTiered):
		return x, 0, 0, nil
	case err != nil || s.ID != id.ID:
		return x, 0, 0, err
	}
	return examined{named: true, key: r.Key(s.ID), segment: s, base: s.ID.Base, end: s.End}, s.StoredBytes, s.ObjectCRC, nil
}

// soundness compares an object in the store with its size and checksum. One that had
// other bytes before, and is as the store had it then, still has.
func (r *Remote) soundness(ctx context.Context, key string, size int64, want uint32, before examined, meter *readMeter) (Fault, objstore.Object, error) {
	meter.add(0)
	obj, err := r.a.deps.Store.Head(ctx, key)
	obj.Modified = obj.Modified.UTC().Round(0) // to be compared
	switch {
	case errors.Is(err, objstore.ErrNotFound):
		return FaultMissing, objstore.Object{}, nil
	case err != nil:
		return FaultNone, objstore.Object{}, storeError("examine", err)
	case obj.Size != size:
		return FaultSize, obj, nil
	case before.fault == FaultBytes && before.seen == obj:
		return FaultBytes, obj, nil
	}
	sum := uint32(0)
	for at := int64(0); at < size && err == nil; at += scrubPieceBytes {
		n := min(scrubPieceBytes, size-at)
		meter.add(n)
		sum, err = r.sumOf(ctx, key, size, at, n, sum)
	}
	fault, err := faultOf("examine", err, sum == want)
	if fault == FaultMissing || fault == FaultSize { // since the store was asked
		obj = objstore.Object{}
	}
	return fault, obj, err
}

// faultOf is what reading an object for its checksum tells of it: the error that this
// ended with, or whether the sum is the manifest's.
func faultOf(op string, err error, same bool) (Fault, error) {
	switch {
	case errors.Is(err, objstore.ErrNotFound):
		return FaultMissing, nil
	case errors.Is(err, objstore.ErrRange):
		return FaultSize, nil
	case err != nil:
		return FaultNone, storeError(op, err)
	case !same:
		return FaultBytes, nil
	}
	return FaultNone, nil
}

// suspectsMax bounds the objects that readers have complained of and nobody has
// looked at; a read that meets one left out complains again.
const suspectsMax = 256

// suspect tells the manager that a read met an object that is missing or damaged.
func (r *Remote) suspect(id MarkID) {
	if fn := r.a.onSuspect.Load(); fn != nil {
		(*fn)(r.p, id)
	}
}

// suspected takes a reader's complaint, each once until the core has it.
func (m *Manager) suspected(p topic.Partition, id MarkID) {
	ev := evSuspect{p, id}
	m.mu.Lock()
	known := m.suspicions[ev] || len(m.suspicions) >= suspectsMax || m.led[p] == nil
	if !known {
		m.suspicions[ev] = true
	}
	m.mu.Unlock()
	if !known {
		m.post(ev)
	}
}
