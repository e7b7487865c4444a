package broker

import (
	"encoding/binary"
	"io"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// recordsWriter is a run of record bytes that writes itself to a socket; replica.Records is one.
type recordsWriter interface {
	Len() int
	WriteTo(io.Writer) (int64, error)
	Release()
}

// reply is one answer on its way out: header bytes with spans of records between them.
//
//	head[:spans[0].at]  spans[0].records  head[spans[0].at:spans[1].at]  …  head[last.at:]
type reply struct {
	head  []byte  // starts with the frame's size
	flat  *buffer // head and records in one, when that is cheaper
	flatN int     // bytes of flat in use
	spans []span
	wait  waiting // what will finish it; nil when nothing is outstanding
	done  bool    // guarded by conn.mu: may be written

	key   int16     // of the request
	since time.Time // when it had been read; zero: it is not measured
}

type span struct {
	at      int // position in head before which the records go
	records recordsWriter
}

// waiting is an operation that finishes a reply later.
type waiting interface {
	expire(nowMillis int64) // called by the sweeper: give up when the deadline has passed
	abandon()               // the connection is gone
}

var replyPool = sync.Pool{New: func() any { return &reply{head: make([]byte, 0, 512)} }}

// replyKeepBytes bounds the header buffers that stay in the pool.
const replyKeepBytes = 64 << 10

func newReply() *reply { return replyPool.Get().(*reply) }

// free releases the records and takes the reply back.
func (p *reply) free() {
	p.drop()
	putBuffer(p.flat)
	p.flat = nil
	if cap(p.head) > replyKeepBytes {
		return
	}
	*p = reply{head: p.head[:0], spans: p.spans[:0]}
	replyPool.Put(p)
}

// drop releases the records.
func (p *reply) drop() {
	for i := range p.spans {
		p.spans[i].records.Release()
		p.spans[i] = span{}
	}
	p.spans = p.spans[:0]
}

// flattenBytes is the size up to which records are copied behind their header: one read and one write then do what would
// take a write, a sendfile and another write.
const flattenBytes = 32 << 10

// flatten copies small records into one buffer with the header bytes and releases them.
func (p *reply) flatten() error {
	n := replyBytes(p)
	if len(p.spans) == 0 || n > flattenBytes {
		return nil
	}
	flat := getBuffer(int(n))
	out := flatWriter{b: flat.b[:0]}
	if err := p.writeTo(&out); err != nil {
		putBuffer(flat)
		return err
	}
	p.drop()
	p.flat, p.flatN = flat, len(out.b)
	return nil
}

// plain is the whole answer, once it has no spans.
func (p *reply) plain() []byte {
	if p.flat != nil {
		return p.flat.b[:p.flatN]
	}
	return p.head
}

// flatWriter appends to a buffer that is large enough.
type flatWriter struct{ b []byte }

func (w *flatWriter) Write(p []byte) (int, error) {
	w.b = append(w.b, p...)
	return len(p), nil
}

// begin writes size placeholder and response header. Flexible answers have tagged fields in their header, except
// ApiVersions.
func (p *reply) begin(correlation int32, flexible bool) {
	p.head = append(p.head[:0], 0, 0, 0, 0)
	p.head = binary.BigEndian.AppendUint32(p.head, uint32(correlation))
	if flexible {
		p.head = append(p.head, 0)
	}
}

// end writes the size, records included.
func (p *reply) end() {
	n := len(p.head) - 4
	for i := range p.spans {
		n += p.spans[i].records.Len()
	}
	binary.BigEndian.PutUint32(p.head, uint32(n))
}

// encode makes p the answer resp.
func (p *reply) encode(correlation int32, flexible bool, resp kmsg.Response) {
	p.begin(correlation, flexible)
	p.head = resp.AppendTo(p.head)
	p.end()
}

// writeTo sends header fragments and records in turn.
func (p *reply) writeTo(w io.Writer) error {
	if len(p.spans) == 0 {
		_, err := w.Write(p.plain())
		return err
	}
	at := 0
	for i := range p.spans {
		s := &p.spans[i]
		if err := writeMore(w, p.head[at:s.at]); err != nil {
			return err
		}
		at = s.at
		n, err := s.records.WriteTo(w)
		if err != nil {
			return err
		}
		if int(n) != s.records.Len() {
			return io.ErrShortWrite
		}
	}
	if at < len(p.head) {
		_, err := w.Write(p.head[at:])
		return err
	}
	return nil
}
