package peer

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"net"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/integration/fuzztest"
)

// FuzzTags reads the values of all tags between brokers.
func FuzzTags(f *testing.F) {
	f.Add(AppendServed(nil, []Served{{1, 0, 18}, {60, 0, 1}}))
	f.Add([]byte{0, 0, 0, 2, 0, 0, 0x23, 0x84, 'n', '2'})
	f.Add(make([]byte, 32))
	f.Fuzz(func(t *testing.T, b []byte) {
		var tags kmsg.Tags
		tags.Set(TagLossy, b)
		fuzztest.Bounded(t, len(b), func() {
			if list := readServed(b); list != nil && !bytes.Equal(AppendServed(nil, list), b) {
				t.Fatalf("%x becomes %v", b, list)
			}
			if _, ok := Int64(&tags, TagLossy); ok != (len(b) == 8) {
				t.Fatalf("a number of %d bytes: %v", len(b), ok)
			}
			if list := Int32s(&tags, TagLossy); list != nil && 4*len(list) != len(b) {
				t.Fatalf("%d numbers of %d bytes", len(list), len(b))
			}
			if list := IDs(&tags, TagLossy); list != nil && 16*len(list) != len(b) {
				t.Fatalf("%d ids of %d bytes", len(list), len(b))
			}
		})
		var at kmsg.Tags
		at.Set(TagController, b)
		if c, ok := Controller(&at); ok {
			var again kmsg.Tags
			SetController(&again, c)
			if v, _ := Raw(&again, TagController); !bytes.Equal(v, b) {
				t.Fatalf("%x becomes %x", b, v)
			}
		}
	})
}

// FuzzAnswers gives a connection's reader whatever a peer may send: it ends with
// an error, and holds no more than the frames it was told to expect.
func FuzzAnswers(f *testing.F) {
	answer := func(id int32, body []byte) []byte {
		b := binary.BigEndian.AppendUint32(nil, uint32(4+len(body)))
		return append(binary.BigEndian.AppendUint32(b, uint32(id)), body...)
	}
	f.Add(answer(1, []byte("fine")))
	f.Add(slices.Concat(answer(1, nil), answer(2, []byte{0, 0})))
	f.Add([]byte{0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		ours, theirs := net.Pipe()
		defer func() { _, _ = ours.Close(), theirs.Close() }()
		cfg := Config{FrameBytesMax: 1 << 10}.withDefaults()
		fuzztest.Within(t, fuzztest.Factor*len(b)+4*cfg.FrameBytesMax+fuzztest.Floor, func() {
			c := newConn(ours, "fuzz", cfg, newFrames(1<<20))
			var calls []*call
			for id := range int32(4) {
				x := &call{ready: make(chan struct{})}
				calls = append(calls, x)
				c.pending[id] = x
				c.slots <- struct{}{}
			}
			for r := bufio.NewReaderSize(bytes.NewReader(b), 4<<10); c.readOne(r) == nil; {
			}
			for _, x := range calls {
				if x.frame == nil {
					continue
				}
				if body, ok := answerBody(x.frame.buf, true); ok && len(body) > len(x.frame.buf) {
					t.Fatalf("a body of %d bytes of %d", len(body), len(x.frame.buf))
				}
				x.frame.Release()
			}
		})
	})
}
