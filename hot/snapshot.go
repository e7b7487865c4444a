package hot

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sort"
)

// Producer snapshot (%020d.snapshot), big-endian: producer state as it was
// just before the offset in the name.
//
//	offset size field
//	     0    4  magic "VPSN"
//	     4    2  version, 2
//	     6    2  reserved, 0
//	     8    4  CRC-32C of everything from byte 12 on
//	    12    8  offset, as in the name
//	    20    4  number of producers
//	    24    …  producers by rising id
//
// One producer:
//
//	 0    8  producer id
//	 8    2  producer epoch
//	10    2  number of batches, 0 to 5
//	12    4  coordinator epoch, -1 none
//	16    8  timestamp of the last batch or marker
//	24    8  first offset of the open transaction, -1 none
//	32    8  wall clock of the last append, ms, 0 not known; not in version 1
//	40    …  batches, oldest first:
//	         first sequence 4, last sequence 4, offset delta 4,
//	         last offset 8, timestamp 8
const (
	snapshotMagic      = "VPSN"
	snapshotVersion    = 2
	snapshotHeaderSize = 24
	producerSize       = 40
	producerSizeV1     = 32
	producerBatchSize  = 28
	snapshotBytesMax   = 1 << 30
)

// encode is the snapshot file for offset.
func (ps *producers) encode(offset int64) []byte {
	ids := make([]int64, 0, len(ps.byID))
	size := snapshotHeaderSize
	for id, p := range ps.byID {
		ids = append(ids, id)
		size += producerSize + int(p.kept)*producerBatchSize
	}
	sort.Slice(ids, func(i, j int) bool { return ids[i] < ids[j] })
	b := make([]byte, 12, size)
	copy(b, snapshotMagic)
	binary.BigEndian.PutUint16(b[4:], snapshotVersion)
	b = binary.BigEndian.AppendUint64(b, uint64(offset))
	b = binary.BigEndian.AppendUint32(b, uint32(len(ids)))
	for _, id := range ids {
		p := ps.byID[id]
		b = binary.BigEndian.AppendUint64(b, uint64(id))
		b = binary.BigEndian.AppendUint16(b, uint16(p.epoch))
		b = binary.BigEndian.AppendUint16(b, uint16(p.kept))
		b = binary.BigEndian.AppendUint32(b, uint32(p.coordinatorEpoch))
		b = binary.BigEndian.AppendUint64(b, uint64(p.lastTimestamp))
		b = binary.BigEndian.AppendUint64(b, uint64(p.txnFirst))
		b = binary.BigEndian.AppendUint64(b, uint64(p.appended))
		for i := range p.kept {
			r := p.ring[(p.head+i)%batchesKept]
			b = binary.BigEndian.AppendUint32(b, uint32(r.firstSeq))
			b = binary.BigEndian.AppendUint32(b, uint32(r.lastSeq))
			b = binary.BigEndian.AppendUint32(b, uint32(r.delta))
			b = binary.BigEndian.AppendUint64(b, uint64(r.lastOffset))
			b = binary.BigEndian.AppendUint64(b, uint64(r.timestamp))
		}
	}
	binary.BigEndian.PutUint32(b[8:], crc32.Checksum(b[12:], castagnoli))
	return b
}

// decodeSnapshot reads what encode wrote.
func decodeSnapshot(b []byte) (ps *producers, offset int64, err error) {
	if len(b) < snapshotHeaderSize || string(b[:4]) != snapshotMagic {
		return nil, 0, fmt.Errorf("producer snapshot has no header: %w", ErrCorrupt)
	}
	size := producerSize
	switch v := binary.BigEndian.Uint16(b[4:]); v {
	case snapshotVersion:
	case snapshotVersion - 1:
		size = producerSizeV1
	default:
		return nil, 0, fmt.Errorf("producer snapshot has version %d, this build reads %d and %d: %w", v, snapshotVersion-1, snapshotVersion, ErrCorrupt)
	}
	if crc32.Checksum(b[12:], castagnoli) != binary.BigEndian.Uint32(b[8:]) {
		return nil, 0, fmt.Errorf("producer snapshot checksum differs: %w", ErrCorrupt)
	}
	offset = int64(binary.BigEndian.Uint64(b[12:]))
	count := int(binary.BigEndian.Uint32(b[20:]))
	b = b[snapshotHeaderSize:]
	ps = newProducers()
	for range count {
		if len(b) < size {
			return nil, 0, fmt.Errorf("producer snapshot is cut short: %w", ErrCorrupt)
		}
		p := newProducer(int64(binary.BigEndian.Uint64(b)))
		p.epoch = int16(binary.BigEndian.Uint16(b[8:]))
		kept := int(binary.BigEndian.Uint16(b[10:]))
		p.coordinatorEpoch = int32(binary.BigEndian.Uint32(b[12:]))
		p.lastTimestamp = int64(binary.BigEndian.Uint64(b[16:]))
		p.txnFirst = int64(binary.BigEndian.Uint64(b[24:]))
		if size == producerSize {
			p.appended = int64(binary.BigEndian.Uint64(b[32:]))
		}
		b = b[size:]
		if kept > batchesKept || len(b) < kept*producerBatchSize {
			return nil, 0, fmt.Errorf("producer snapshot is cut short: %w", ErrCorrupt)
		}
		for range kept {
			p.push(producerBatch{
				firstSeq:   int32(binary.BigEndian.Uint32(b)),
				lastSeq:    int32(binary.BigEndian.Uint32(b[4:])),
				delta:      int32(binary.BigEndian.Uint32(b[8:])),
				lastOffset: int64(binary.BigEndian.Uint64(b[12:])),
				timestamp:  int64(binary.BigEndian.Uint64(b[20:])),
			})
			b = b[producerBatchSize:]
		}
		if ps.byID[p.id] != nil {
			return nil, 0, fmt.Errorf("producer snapshot has producer %d twice: %w", p.id, ErrCorrupt)
		}
		ps.byID[p.id] = p
		if p.txnFirst >= 0 {
			ps.open = append(ps.open, openTxn{p.txnFirst, p.id})
		}
	}
	if len(b) != 0 {
		return nil, 0, fmt.Errorf("producer snapshot has %d bytes too many: %w", len(b), ErrCorrupt)
	}
	sort.Slice(ps.open, func(i, j int) bool { return ps.open[i].first < ps.open[j].first })
	for i := 1; i < len(ps.open); i++ {
		if ps.open[i].first == ps.open[i-1].first {
			return nil, 0, fmt.Errorf("producer snapshot has two transactions that begin at %d: %w", ps.open[i].first, ErrCorrupt)
		}
	}
	return ps, offset, nil
}
