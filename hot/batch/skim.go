package batch

// skim reads the frame of the next inflated record into w.raw without
// keeping key, value or headers, so that a record of any length costs one
// buffer. raw.key is nil for a null key and empty otherwise.
func (w *walker) skim() error {
	s := w.inflated
	size, err := s.recordSize()
	if err != nil {
		return err
	}
	if size <= s.w-s.r || size <= streamBuffer/2 {
		// It is, or soon will be, contiguous: the plain parser is faster.
		if err := s.need(size); err != nil {
			return err
		}
		body := s.buf[s.r : s.r+size]
		s.r += size
		return w.raw.parse(body)
	}
	m := &meter{s: s, left: int64(size)}
	m.skip(1)
	w.raw = rawRecord{timestampDelta: m.varint64(), offsetDelta: m.varint32()}
	if key := m.varint32(); key >= 0 {
		w.raw.key = empty
		m.skip(int(key))
	}
	m.skip(int(max(m.varint32(), 0)))
	headers := m.varint32()
	if m.err == nil && (headers < 0 || int64(headers) > m.left/2) {
		return errHeaderCount
	}
	for i := int32(0); i < headers && m.err == nil; i++ {
		key := m.varint32()
		if m.err == nil && key < 0 {
			return errHeaderKey
		}
		m.skip(int(key))
		m.skip(int(max(m.varint32(), 0)))
	}
	if m.err == nil && m.left != 0 {
		return errRecordSize
	}
	return m.err
}

// meter reads from a stream within the declared length of one record; after
// the first error it yields zeros.
type meter struct {
	s    *stream
	left int64
	err  error
}

func (m *meter) skip(n int) {
	if m.err != nil {
		return
	}
	if int64(n) > m.left {
		m.err = errRecordShape
		return
	}
	m.left -= int64(n)
	m.err = m.s.skip(n)
}

func (m *meter) varint32() int32 {
	if m.err != nil {
		return 0
	}
	before := m.s.consumed
	v, err := m.s.varint32()
	m.spend(m.s.consumed-before, err)
	return v
}

func (m *meter) varint64() int64 {
	if m.err != nil {
		return 0
	}
	before := m.s.consumed
	v, err := m.s.varint64()
	m.spend(m.s.consumed-before, err)
	return v
}

func (m *meter) spend(n int64, err error) {
	if m.left -= n; m.left < 0 && err == nil {
		err = errRecordShape
	}
	m.err = err
}
