package batch

import (
	"errors"
	"iter"
)

// walker steps through the records of one framed batch.
type walker struct {
	baseOffset    int64
	baseTimestamp int64
	appendTime    int64
	stamped       bool // every record's timestamp is appendTime
	count, done   int32
	plain         []byte
	inflated      *stream
	// frames says that key, value and headers of inflated records are not
	// needed: of a record larger than the buffer, raw then has the deltas,
	// and whether there is a key.
	frames bool
	raw    rawRecord
}

// open prepares a walk. A walker that opened must be closed.
func (w *walker) open(b Batch, lim Limits, frames bool) error {
	*w = walker{
		frames:        frames,
		baseOffset:    b.BaseOffset(),
		baseTimestamp: b.BaseTimestamp(),
		appendTime:    b.MaxTimestamp(),
		stamped:       b.LogAppendTime(),
		count:         b.Count(),
	}
	if w.count < 0 {
		return errRecordCount
	}
	codec := b.Codec()
	if codec == None {
		w.plain = b[HeaderSize:]
		return nil
	}
	if !codec.Valid() {
		return ErrUnsupportedCompression
	}
	if w.count == 0 {
		// Kafka leaves the body of an empty batch alone.
		return nil
	}
	s, err := openStream(codec, b[HeaderSize:], lim)
	w.inflated = s
	return err
}

func (w *walker) close() {
	if w.inflated != nil {
		w.inflated.close()
		w.inflated = nil
	}
}

// next parses the next record into w.raw; ok is false after the last one,
// when nothing but records was found.
func (w *walker) next() (ok bool, err error) {
	if w.done == w.count {
		return false, w.finish()
	}
	w.done++
	if w.frames && w.inflated != nil {
		return true, w.skim()
	}
	var body []byte
	if w.inflated == nil {
		body, w.plain, err = take(w.plain)
	} else {
		body, err = w.takeInflated()
	}
	if err != nil {
		return false, err
	}
	return true, w.raw.parse(body)
}

// takeInflated makes a whole record contiguous in the stream's buffer.
func (w *walker) takeInflated() ([]byte, error) {
	s := w.inflated
	size, err := s.recordSize()
	if err != nil {
		return nil, err
	}
	if int64(size) > s.left+int64(s.w-s.r) {
		// It would not fit within the limit whatever follows.
		return nil, ErrInflated
	}
	if err := s.need(size); err != nil {
		return nil, err
	}
	body := s.buf[s.r : s.r+size : s.r+size]
	s.r += size
	return body, nil
}

// finish checks that the records filled the batch.
func (w *walker) finish() error {
	if w.inflated == nil {
		if len(w.plain) != 0 {
			return errRecordsRemain
		}
		return nil
	}
	end, err := w.inflated.atEnd()
	if err != nil {
		return err
	}
	if !end {
		return errRecordsRemain
	}
	return nil
}

func (w *walker) offset() int64 { return w.baseOffset + int64(w.raw.offsetDelta) }

func (w *walker) timestamp() int64 {
	if w.stamped {
		return w.appendTime
	}
	return w.baseTimestamp + w.raw.timestampDelta
}

// Records walks the records of a whole batch in order. Compressed ones are
// inflated as the walk goes, within lim. A Record's slices, headers included,
// are valid until the next step. The walk ends after the first error, which
// is a *CorruptError; it is an ErrInflated too when the limit was hit.
func (b Batch) Records(lim Limits) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		var w walker
		defer w.close()
		if err := w.open(b, lim, false); err != nil {
			yield(Record{}, b.corrupt(err))
			return
		}
		var headers []Header
		for {
			ok, err := w.next()
			if err != nil {
				yield(Record{}, b.corrupt(err))
				return
			}
			if !ok {
				return
			}
			r := Record{Offset: w.offset(), Timestamp: w.timestamp(), Key: w.raw.key, Value: w.raw.value}
			if w.raw.headerCount > 0 {
				headers = w.raw.appendHeaders(headers[:0])
				r.Headers = headers
			}
			if !yield(r, nil) {
				return
			}
		}
	}
}

// corrupt is the error of a stored batch that cannot be walked.
func (b Batch) corrupt(err error) error {
	var c *CorruptError
	if errors.As(err, &c) {
		return err
	}
	return &CorruptError{BaseOffset: b.BaseOffset(), Reason: "records cannot be read", Err: err}
}
