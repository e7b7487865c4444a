package parity

import (
	"encoding/binary"
	"hash/crc32"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// shape builds a record batch by hand, so that it can also be built wrong.
type shape struct {
	base       int64
	magic      int8
	attributes int16
	lastDelta  *int32 // default: the number of records less one
	firstTS    int64
	maxTS      *int64 // default: the greatest of the records
	producerID int64
	epoch      int16
	sequence   int32
	count      *int32 // default: the number of records
	records    []rec
	crcOff     uint32 // added to the right checksum
}

type rec struct {
	ts         int64 // delta to firstTS
	key, value []byte
}

// recent is a moment that is as good as now for every broker and equal in all
// stories of a run.
var recent = time.Now().UnixMilli() - 60_000

// batch is a good batch of plain records.
func batch(values ...string) shape {
	sh := shape{magic: 2, firstTS: recent, producerID: -1, epoch: -1, sequence: -1}
	for i, v := range values {
		sh.records = append(sh.records, rec{int64(i), []byte("k"), []byte(v)})
	}
	return sh
}

func (sh shape) bytes() []byte {
	var body []byte
	maxTS := sh.firstTS
	for i, r := range sh.records {
		maxTS = max(maxTS, sh.firstTS+r.ts)
		kr := kmsg.Record{TimestampDelta64: r.ts, OffsetDelta: int32(i), Key: r.key, Value: r.value}
		kr.Length = int32(len(kr.AppendTo(nil)) - 1) // a zero length takes one byte
		body = append(body, kr.AppendTo(nil)...)
	}
	lastDelta, count := int32(len(sh.records)-1), int32(len(sh.records))
	if sh.lastDelta != nil {
		lastDelta = *sh.lastDelta
	}
	if sh.count != nil {
		count = *sh.count
	}
	if sh.maxTS != nil {
		maxTS = *sh.maxTS
	}
	b := kmsg.RecordBatch{
		FirstOffset: sh.base, PartitionLeaderEpoch: -1, Magic: sh.magic, Attributes: sh.attributes,
		LastOffsetDelta: lastDelta, FirstTimestamp: sh.firstTS, MaxTimestamp: maxTS,
		ProducerID: sh.producerID, ProducerEpoch: sh.epoch, FirstSequence: sh.sequence, NumRecords: count, Records: body,
	}
	raw := b.AppendTo(nil)
	raw = resigned(raw[:61], raw[61:])
	binary.BigEndian.PutUint32(raw[17:], binary.BigEndian.Uint32(raw[17:])+sh.crcOff)
	return raw
}

// resigned puts a header before a body, with the length and the checksum that
// fit them.
func resigned(header, body []byte) []byte {
	raw := append(append([]byte{}, header...), body...)
	binary.BigEndian.PutUint32(raw[8:], uint32(len(raw)-12))
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], castagnoli))
	return raw
}

func ptr[T any](v T) *T { return &v }
