package broker

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/conf"
)

// emptyMetadata knows no topics and refuses to make any.
type emptyMetadata struct {
	refusing
	img *meta.Image
}

func (m emptyMetadata) Image() *meta.Image { return m.img }
func (m emptyMetadata) AllocateProducerIDs(context.Context, int32, int64) (meta.ProducerIDs, error) {
	return meta.ProducerIDs{First: 1, Count: 1000}, nil
}

// seedBodies calls add with a few bodies of every key and version served.
func seedBodies(add func(key, version int16, body []byte)) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, a := range apis {
		for v := a.min; v <= a.max; v++ {
			for range 3 {
				req := kmsg.RequestForKey(a.key)
				req.SetVersion(v)
				randomize(r, reflect.ValueOf(req).Elem(), 0)
				add(a.key, v, req.AppendTo(nil))
			}
		}
	}
}

// FuzzRequest decodes bodies of every key and version: no panic, memory within bounds, and what decodes encodes to
// something that decodes to the same again.
func FuzzRequest(f *testing.F) {
	seedBodies(func(key, version int16, body []byte) { f.Add(key, version, body) })
	f.Fuzz(func(t *testing.T, key, version int16, body []byte) {
		s := schemas[key]
		if s == nil || version < 0 || version > kmsg.RequestForKey(key).MaxVersion() {
			return
		}
		checkDecodeMemory(t, s, version, body)
		if checkRequest(s, version, body) != nil {
			return
		}
		req := kmsg.RequestForKey(key)
		req.SetVersion(version)
		if req.ReadFrom(body) != nil {
			return
		}
		again := kmsg.RequestForKey(key)
		again.SetVersion(version)
		b := req.AppendTo(nil)
		if err := again.ReadFrom(b); err != nil {
			t.Fatalf("%s version %d: what was decoded does not decode again: %v", s.name, version, err)
		}
		if !reflect.DeepEqual(again.AppendTo(nil), b) {
			t.Fatalf("%s version %d: encodes differently the second time", s.name, version)
		}
	})
}

// fuzzConn is a connection of a server with nothing behind it.
func fuzzConn(t testing.TB) *conn {
	b, err := conf.ParseBroker(nil)
	if err != nil {
		t.Fatal(err)
	}
	parts := newFakePartitions()
	parts.add("events", 2)
	cfg := DefaultConfig()
	cfg.RequestsTime, cfg.RemoteListWaitMax = 1, 1
	s := New(cfg, Deps{Partitions: parts, Metadata: emptyMetadata{refusing{err: meta.ErrPolicyViolation}, &meta.Image{}}, Settings: &b, Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() { s.Close(context.Background()) })
	return newConn(s, nullConn{}, "127.0.0.1", &Door{})
}

// FuzzFrame gives whole frames to the dispatcher: header, version choice, decoder and handler. The connection may end; the
// process may not. The decoder's memory is measured by FuzzRequest: here an answer, whose size is the server's own, would
// count too.
func FuzzFrame(f *testing.F) {
	seedBodies(func(key, version int16, body []byte) {
		h := binary.BigEndian.AppendUint16(nil, uint16(key))
		h = binary.BigEndian.AppendUint16(h, uint16(version))
		h = append(h, 0, 0, 0, 1, 0, 1, 'x')
		if version >= schemas[key].flexible {
			h = append(h, 0)
		}
		f.Add(append(h, body...))
	})
	c := fuzzConn(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 4 && b[0] == 0 && b[1] == 1 {
			// A fetch may ask to wait; nobody appends here.
			if q := fetchWaits(b); q {
				return
			}
		}
		_, err := c.handle(append([]byte{}, b...))
		if n := c.srv.stats.panics.Load(); n != 0 {
			c.srv.stats.panics.Store(0)
			t.Fatalf("a handler panicked (%v)", err)
		}
	})
}

// fetchWaits says whether a frame is a fetch with a waiting time.
func fetchWaits(b []byte) bool {
	h, rest, err := parseHeaderStart(b)
	if err != nil {
		return false
	}
	body, err := h.parseRest(rest, h.version >= schemas[1].flexible)
	if err != nil || h.version < 4 || h.version > 18 {
		return false
	}
	var q kmsg.FetchRequest
	q.Version = h.version
	return checkRequest(schemas[1], h.version, body) == nil && q.ReadFrom(body) == nil && q.MaxWaitMillis > 0
}

func TestRandomBodiesNeverPanic(t *testing.T) {
	c := fuzzConn(t)
	r := rand.New(rand.NewPCG(5, 6))
	seedBodies(func(key, version int16, body []byte) {
		for range 20 {
			b := binary.BigEndian.AppendUint16(nil, uint16(key))
			b = binary.BigEndian.AppendUint16(b, uint16(version))
			b = append(b, 0, 0, 0, 1, 0xff, 0xff)
			if version >= schemas[key].flexible {
				b = append(b, 0)
			}
			b = append(b, body...)
			for range r.IntN(4) {
				b[r.IntN(len(b))] = byte(r.Uint32())
			}
			b = b[:len(b)-r.IntN(min(len(b), 6))]
			if fetchWaits(b) {
				continue
			}
			_, err := c.handle(b)
			if c.srv.stats.panics.Load() != 0 {
				t.Fatalf("key %d version %d: a handler panicked: %x", key, version, b)
			}
			if err != nil && !errors.Is(err, errBadRequest) && !errors.Is(err, errUnsupported) && !errors.Is(err, errProduceFailed) && !errors.Is(err, errClosed) {
				t.Fatalf("key %d version %d: %v", key, version, err)
			}
		}
	})
}
