package broker

import (
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestTruncatedFramesNeverAnswer(t *testing.T) {
	s := startServer(t, nil)
	id := s.parts.add("events", 1)
	whole := formatter.AppendRequest(nil, produceRequest(9, -1, "events", id, map[int32][]byte{0: oneBatch(t, "x")}), 7)
	for cut := range len(whole) {
		nc, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		nc.Write(whole[:cut])
		nc.(*net.TCPConn).CloseWrite()
		nc.SetReadDeadline(time.Now().Add(10 * time.Second))
		if n, err := nc.Read(make([]byte, 1)); n != 0 || err != io.EOF && !isReset(err) {
			t.Fatalf("cut at %d: read %d bytes, %v", cut, n, err)
		}
		nc.Close()
	}
	if end := s.parts.byName["events"][0].end; end != 0 {
		t.Fatalf("%d records from truncated frames", end)
	}
}

// A frame whose size says less than the request holds must not be read beyond its end.
func TestFrameShorterThanItsRequestCloses(t *testing.T) {
	s := startServer(t, nil)
	id := s.parts.add("events", 1)
	whole := formatter.AppendRequest(nil, produceRequest(9, -1, "events", id, map[int32][]byte{0: oneBatch(t, "x")}), 7)
	for cut := 1; cut < len(whole)-4; cut++ {
		c := dial(t, s.addr)
		short := append(binary.BigEndian.AppendUint32(nil, uint32(cut)), whole[4:4+cut]...)
		c.nc.Write(short)
		c.closed()
	}
	if end := s.parts.byName["events"][0].end; end != 0 {
		t.Fatalf("%d records", end)
	}
}

func TestHugeArraysAndNegativeLengthsClose(t *testing.T) {
	s := startServer(t, nil)
	header := func(key, version byte, flexible bool) []byte {
		h := []byte{0, key, 0, version, 0, 0, 0, 1, 0xff, 0xff}
		if flexible {
			h = append(h, 0)
		}
		return h
	}
	for name, req := range map[string][]byte{
		"metadata, 2^31-1 topics":           append(header(3, 8, false), 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0),
		"metadata, -2 topics":               append(header(3, 8, false), 0xff, 0xff, 0xff, 0xfe, 0, 0, 0, 0),
		"metadata, compact 2^32-2 topics":   append(header(3, 9, true), 0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0),
		"produce, string of -2":             append(header(0, 3, false), 0xff, 0xfe, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0),
		"fetch, many tags":                  append(header(1, 12, true), 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f),
		"header, many tags":                 {0, 3, 0, 9, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f},
		"header, client id beyond the end":  {0, 3, 0, 8, 0, 0, 0, 1, 0x7f, 0xff, 'x'},
		"header, client id of -2":           {0, 3, 0, 8, 0, 0, 0, 1, 0xff, 0xfe},
		"header cut short":                  {0, 3, 0, 8, 0},
		"varint of eleven bytes":            append(header(3, 9, true), 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1),
		"list offsets, partitions 2^31-1":   append(header(2, 1, false), 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 0, 1, 'a', 0x7f, 0xff, 0xff, 0xff),
		"describe configs, null resources?": append(header(32, 1, false), 0x80, 0, 0, 0, 0),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			c := dial(t, s.addr)
			c.nc.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(req))), req...))
			c.closed()
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; took > 4<<20 {
				t.Fatalf("%d bytes of request took %d bytes of memory", len(req), took)
			}
		})
	}
}

func TestSlowSendersDoNotStarveHonestClients(t *testing.T) {
	s := startServer(t, func(c *Config) {
		c.RequestMemoryBytes = 1 << 20
	})
	id := s.parts.add("events", 1)
	for range 48 { // 4 KiB each: more than the small frames' share holds
		nc, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		nc.Write(append(binary.BigEndian.AppendUint32(nil, 64<<10), 1)) // and then nothing
	}
	eventually(t, "the budget is spent", func() bool { return s.budgets.small.short() })
	c := dial(t, s.addr)
	c.ask(produceRequest(9, -1, "events", id, map[int32][]byte{0: oneBatch(t, "x")})) // comes whole: needs no share
	for range 20 {
		c.ask(produceRequest(9, -1, "events", id, map[int32][]byte{0: oneBatch(t, string(make([]byte, 16<<10)))}))
	}
	if s.Stats().Expired == 0 {
		t.Fatal("nobody was closed")
	}
}

func TestFloodStaysWithinBudget(t *testing.T) {
	const budget = 8 << 20
	s := startServer(t, func(c *Config) { c.RequestMemoryBytes = budget; c.RequestBytesMax = 4 << 20 })
	id := s.parts.add("events", 1)
	honest := dial(t, s.addr)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 9))
			for {
				select {
				case <-stop:
					return
				default:
				}
				nc, err := net.Dial("tcp", s.addr)
				if err != nil {
					return
				}
				n := r.IntN(3 << 20)
				b := make([]byte, n+4)
				binary.BigEndian.PutUint32(b, uint32(n))
				if n > 16 {
					copy(b[4:], []byte{0, 0, 0, 9, 0, 0, 0, 1, 0xff, 0xff, 0})
				}
				nc.SetDeadline(time.Now().Add(time.Second))
				nc.Write(b)
				nc.Close()
			}
		})
	}
	peak, rounds := int64(0), 200
	if testing.Short() {
		rounds = 50
	}
	for range rounds {
		honest.ask(produceRequest(9, -1, "events", id, map[int32][]byte{0: oneBatch(t, "x")}))
		peak = max(peak, s.budgets.used())
	}
	close(stop)
	wg.Wait()
	if peak > budget+6<<20 { // one frame, and what it is copied from, may be past the limit
		t.Fatalf("%d bytes held, budget %d", peak, budget)
	}
	eventually(t, "everything is given back", func() bool { return s.budgets.used() == 0 })
}

func TestByteByByteRequestIsServed(t *testing.T) {
	s := startServer(t, nil)
	c := dial(t, s.addr)
	q := kmsg.NewPtrApiVersionsRequest()
	for _, b := range formatter.AppendRequest(nil, q, 1) {
		c.nc.Write([]byte{b})
	}
	c.response(q, 1)
}

func TestManyConnectionsComeAndGo(t *testing.T) {
	s := startServer(t, nil)
	id := s.parts.add("events", 1)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				nc, err := net.Dial("tcp", s.addr)
				if err != nil {
					t.Error(err)
					return
				}
				nc.Write(formatter.AppendRequest(nil, fetchRequest(11, "events", id, wanted{}), 1))
				io.ReadFull(nc, make([]byte, 8))
				nc.Close()
			}
		})
	}
	wg.Wait()
	eventually(t, "all are forgotten", func() bool { return s.Stats().Connections == 0 })
}
