package batch

// Record, all lengths and deltas zigzag varints:
//
//	length       of what follows
//	attributes   1 byte, unused
//	timestamp    delta to the batch's base timestamp
//	offset       delta to the batch's base offset
//	key          length (-1 null), bytes
//	value        length (-1 null), bytes
//	headers      count, then each: key length, key, value length (-1 null), value

// Record is one record of a batch. The slices are views and valid until the
// iterator's next step; a nil Key or Value is null, an empty one is empty.
type Record struct {
	Offset    int64
	Timestamp int64 // milliseconds
	Key       []byte
	Value     []byte
	Headers   []Header
}

// Header is a record header. A nil Value is null.
type Header struct {
	Key   []byte
	Value []byte
}

// rawRecord is a record as it lies in the batch.
type rawRecord struct {
	timestampDelta int64
	offsetDelta    int32
	key, value     []byte
	headers        []byte // encoded, without the count
	headerCount    int32
}

// malformed is a reason why bytes are not records; what error it becomes
// depends on who asked.
type malformed string

func (m malformed) Error() string { return string(m) }

// Reasons, in Kafka's words where it has them.
const (
	errRecordEOF     = malformed("Incorrect declared batch size, premature EOF reached")
	errRecordsRemain = malformed("Incorrect declared batch size, records still remaining in file")
	errRecordShape   = malformed("Found invalid record structure")
	errRecordSize    = malformed("Invalid record size: the fields do not fill the declared size")
	errHeaderCount   = malformed("Found invalid number of record headers")
	errHeaderKey     = malformed("Invalid negative header key size")
	errRecordCount   = malformed("Found invalid record count")
)

// take cuts the record length and the record body off b.
func take(b []byte) (body, rest []byte, err error) {
	size, n := varint32(b)
	if n <= 0 || size < 0 {
		if n == 0 {
			return nil, nil, errRecordEOF
		}
		return nil, nil, errRecordShape
	}
	b = b[n:]
	if int(size) > len(b) {
		return nil, nil, errRecordEOF
	}
	return b[:size:size], b[size:], nil
}

// parse decodes a record body, which must be filled to the last byte. Headers
// are checked and left encoded.
func (r *rawRecord) parse(body []byte) error {
	if len(body) < 1 {
		return errRecordShape
	}
	b := body[1:]
	var n int
	if r.timestampDelta, n = varint64(b); n <= 0 {
		return errRecordShape
	}
	b = b[n:]
	if r.offsetDelta, n = varint32(b); n <= 0 {
		return errRecordShape
	}
	b = b[n:]
	var ok bool
	if r.key, b, ok = takeBytes(b); !ok {
		return errRecordShape
	}
	if r.value, b, ok = takeBytes(b); !ok {
		return errRecordShape
	}
	if r.headerCount, n = varint32(b); n <= 0 {
		return errRecordShape
	}
	b = b[n:]
	// Each header takes two bytes at least.
	if r.headerCount < 0 || int(r.headerCount) > len(b)/2 {
		return errHeaderCount
	}
	r.headers = b
	for i := int32(0); i < r.headerCount; i++ {
		var key []byte
		if key, b, ok = takeBytes(b); !ok {
			return errRecordShape
		}
		if key == nil {
			return errHeaderKey
		}
		if _, b, ok = takeBytes(b); !ok {
			return errRecordShape
		}
	}
	if len(b) != 0 {
		return errRecordSize
	}
	return nil
}

// empty is what a present but empty field points at.
var empty = []byte{}

// takeBytes cuts a length and that many bytes off b; nil is null.
func takeBytes(b []byte) (field, rest []byte, ok bool) {
	size, n := varint32(b)
	if n <= 0 {
		return nil, nil, false
	}
	b = b[n:]
	if size <= 0 {
		if size == 0 {
			return empty, b, true
		}
		// Kafka takes every negative length for null.
		return nil, b, true
	}
	if int(size) > len(b) {
		return nil, nil, false
	}
	return b[:size:size], b[size:], true
}

// appendHeaders decodes the headers of a parsed record. Room is made once and
// exactly: hostile headers are 48 bytes each for two, which growing would double.
func (r *rawRecord) appendHeaders(to []Header) []Header {
	if n := len(to) + int(r.headerCount); n > cap(to) {
		to = append(make([]Header, 0, n), to...)
	}
	b := r.headers
	for i := int32(0); i < r.headerCount; i++ {
		var h Header
		h.Key, b, _ = takeBytes(b)
		h.Value, b, _ = takeBytes(b)
		to = append(to, h)
	}
	return to
}

// appendRecord encodes a record whose headers are encoded already.
func appendRecord(b []byte, timestampDelta int64, offsetDelta int32, key, value []byte, headerCount int32, headers []byte) []byte {
	size := 1 + sizeVarint(timestampDelta) + sizeVarint(int64(offsetDelta)) +
		sizeField(key) + sizeField(value) + sizeVarint(int64(headerCount)) + len(headers)
	b = appendVarint(b, int64(size))
	b = append(b, 0)
	b = appendVarint(b, timestampDelta)
	b = appendVarint(b, int64(offsetDelta))
	b = appendField(b, key)
	b = appendField(b, value)
	b = appendVarint(b, int64(headerCount))
	return append(b, headers...)
}

// encodeHeaders encodes headers as they follow their count in a record.
func encodeHeaders(b []byte, headers []Header) []byte {
	for _, h := range headers {
		b = appendVarint(b, int64(len(h.Key)))
		b = append(b, h.Key...)
		b = appendField(b, h.Value)
	}
	return b
}

func appendField(b, field []byte) []byte {
	if field == nil {
		return appendVarint(b, -1)
	}
	b = appendVarint(b, int64(len(field)))
	return append(b, field...)
}

func sizeField(field []byte) int {
	if field == nil {
		return 1
	}
	return sizeVarint(int64(len(field))) + len(field)
}
