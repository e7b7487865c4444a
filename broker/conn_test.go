package broker

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestApiVersionsAnswersEveryVersion(t *testing.T) {
	s := startServer(t, nil)
	c := dial(t, s.addr)
	for v := int16(0); v <= 4; v++ {
		q := kmsg.NewPtrApiVersionsRequest()
		q.SetVersion(v)
		q.ClientSoftwareName, q.ClientSoftwareVersion = "a-client", "1.0"
		resp := c.ask(q).(*kmsg.ApiVersionsResponse)
		for _, f := range resp.SupportedFeatures {
			if v < 4 && f.MinVersion == 0 {
				t.Errorf("version %d must not see feature %s with minimum 0 (KAFKA-17011)", v, f.Name)
			}
		}
		if len(resp.ApiKeys) == 0 {
			t.Fatal("no keys")
		}
		if k := resp.ApiKeys[0]; k.ApiKey != 0 || k.MinVersion != 0 || k.MaxVersion != 13 {
			t.Errorf("Produce is advertised from 0 (KAFKA-18659): %+v", k)
		}
	}
	q := kmsg.NewPtrApiVersionsRequest()
	q.SetVersion(3)
	q.ClientSoftwareName = "not a name"
	if resp := c.ask(q).(*kmsg.ApiVersionsResponse); resp.ErrorCode != codeInvalidRequest {
		t.Fatalf("code %d", resp.ErrorCode)
	}
}

func TestUnknownApiVersionsVersionGetsVersionZeroAnswer(t *testing.T) {
	s := startServer(t, nil)
	c := dial(t, s.addr)
	req := []byte{0, 18, 0, 99, 0, 0, 0, 42, 0, 1, 'x', 0, 1, 2, 3}
	c.nc.Write(binary.BigEndian.AppendUint32(nil, uint32(len(req))))
	c.nc.Write(req)
	corr, b, err := c.receive()
	if err != nil || corr != 42 {
		t.Fatalf("%d %v", corr, err)
	}
	var resp kmsg.ApiVersionsResponse
	if err := resp.ReadFrom(b); err != nil {
		t.Fatal(err)
	}
	if resp.ErrorCode != codeUnsupportedVersion || len(resp.ApiKeys) != 1 || resp.ApiKeys[0].ApiKey != 18 || resp.ApiKeys[0].MaxVersion != 4 {
		t.Fatalf("%+v", resp)
	}
	// The connection goes on.
	c.corr = 100
	c.ask(kmsg.NewPtrApiVersionsRequest())
}

func TestUnknownKeyOrVersionCloses(t *testing.T) {
	s := startServer(t, nil)
	for _, h := range [][]byte{
		{0, 4, 0, 0}, {0, 99, 0, 0}, {0xff, 0xff, 0, 0}, {0x7f, 0xff, 0, 0}, // keys
		{0, 1, 0, 3}, {0, 1, 0, 19}, {0, 1, 0xff, 0xff}, // versions of Fetch
	} {
		c := dial(t, s.addr)
		req := append(append([]byte{}, h...), 0, 0, 0, 1, 0xff, 0xff)
		c.nc.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(req))), req...))
		c.closed()
	}
}

func TestNullClientIDIsFine(t *testing.T) {
	s := startServer(t, nil)
	c := dial(t, s.addr)
	req := []byte{0, 18, 0, 0, 0, 0, 0, 7, 0xff, 0xff}
	c.nc.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(req))), req...))
	if corr, _, err := c.receive(); err != nil || corr != 7 {
		t.Fatalf("%d %v", corr, err)
	}
}

func TestPipelinedRequestsAnswerInOrder(t *testing.T) {
	s := startServer(t, nil)
	dial(t, s.addr).pipelines(500)
}

// pipelines sends n requests at once and wants their answers in order.
func (c *client) pipelines(n int32) {
	q := kmsg.NewPtrApiVersionsRequest()
	var all []byte
	for i := int32(1); i <= n; i++ {
		all = append(all, formatter.AppendRequest(nil, q, i)...)
	}
	go c.nc.Write(all)
	for i := int32(1); i <= n; i++ {
		c.response(q, i)
	}
}

func TestFrameSizeOutOfBoundsCloses(t *testing.T) {
	s := startServer(t, func(c *Config) { c.RequestBytesMax = 1 << 20 })
	for _, size := range []uint32{0, 0xffffffff, 0x80000000, 1<<20 + 1, 0x7fffffff} {
		c := dial(t, s.addr)
		c.nc.Write(binary.BigEndian.AppendUint32(nil, size))
		c.closed()
	}
}

func TestSmallCapBeforeAuthentication(t *testing.T) {
	s := startServer(t, func(c *Config) { c.Authenticate = true })
	c := dial(t, s.addr)
	c.nc.Write(binary.BigEndian.AppendUint32(nil, 64<<10+1))
	c.closed()
	c = dial(t, s.addr)
	c.ask(kmsg.NewPtrApiVersionsRequest())
}

func TestConnectionCaps(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"total":    func(c *Config) { c.ConnectionsMax = 2 },
		"per ip":   func(c *Config) { c.ConnectionsPerIPMax = 2 },
		"override": func(c *Config) { c.ConnectionsPerIP = map[string]int{"127.0.0.1": 2} },
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, change)
			a, b := dial(t, s.addr), dial(t, s.addr)
			a.ask(kmsg.NewPtrApiVersionsRequest())
			b.ask(kmsg.NewPtrApiVersionsRequest())
			turnedAway(t, s.addr)
			if st := s.Stats(); st.Refused != 1 || st.Connections != 2 {
				t.Fatalf("%+v", st)
			}
			a.nc.Close()
			eventually(t, "the slot is free again", func() bool { return s.Stats().Connections == 1 })
			dial(t, s.addr).ask(kmsg.NewPtrApiVersionsRequest())
		})
	}
}

func TestAcceptRateSpacesConnections(t *testing.T) {
	r := acceptRate{perSecond: 10}
	now := time.Unix(1000, 0)
	for i := range 10 {
		if d := r.wait(now); d != 0 {
			t.Fatalf("connection %d waits %v within the first second's worth", i, d)
		}
	}
	if d := r.wait(now); d != 100*time.Millisecond {
		t.Fatalf("the 11th waits %v, want 100ms", d)
	}
	if d := r.wait(now.Add(time.Second)); d != 0 {
		t.Fatalf("a second later: %v", d)
	}
}

func TestIdleConnectionIsClosed(t *testing.T) {
	s := startServer(t, func(c *Config) { c.IdleMax = 50 * time.Millisecond })
	c := dial(t, s.addr)
	c.ask(kmsg.NewPtrApiVersionsRequest())
	c.closed()
}

func TestFrameThatNeverCompletesIsClosed(t *testing.T) {
	s := startServer(t, func(c *Config) { c.FrameMax = 50 * time.Millisecond })
	c := dial(t, s.addr)
	c.nc.Write([]byte{0, 0, 1, 0, 0, 18})
	c.closed()
}

func TestClientThatTakesNoAnswersIsClosed(t *testing.T) {
	s := startServer(t, func(c *Config) { c.WriteMax = 100 * time.Millisecond })
	id := s.parts.add("events", 1)
	big := make([]byte, 1<<20)
	for range 16 {
		s.parts.byName["events"][0].append(t, string(big))
	}
	c := dial(t, s.addr)
	c.nc.(*net.TCPConn).SetReadBuffer(4096)
	c.ask(kmsg.NewPtrApiVersionsRequest())
	q := fetchRequest(11, "events", id, wanted{maxBytes: 16 << 20})
	for range 8 {
		c.send(q)
	}
	eventually(t, "closed", func() bool { return s.Stats().Connections == 0 })
}

func TestInFlightCapHoldsBackTheReader(t *testing.T) {
	s := startServer(t, func(c *Config) { c.InFlightMax = 3 })
	id := s.parts.add("events", 1)
	p := s.parts.byName["events"][0]
	p.committed = false
	c := dial(t, s.addr)
	q := produceRequest(9, -1, "events", id, map[int32][]byte{0: oneBatch(t, "x")})
	for range 10 {
		c.send(q)
	}
	eventually(t, "three are in flight, a fourth waits for room", func() bool { return p.waiting() == 4 })
	got := make(chan error, 1)
	go func() {
		for range 10 {
			if _, _, err := c.receive(); err != nil {
				got <- err
				return
			}
		}
		got <- nil
	}()
	eventually(t, "all ten are answered", func() bool {
		p.commit(nil)
		select {
		case err := <-got:
			if err != nil {
				t.Fatal(err)
			}
			return true
		default:
			return false
		}
	})
}

func TestBudgetMakesReadersWaitInLine(t *testing.T) {
	b := newBudget(100)
	stop := make(chan struct{})
	if err := b.acquire(80, 0, stop); err != nil {
		t.Fatal(err)
	}
	order := make(chan int, 3)
	waiting := func(n int) func() bool {
		return func() bool { b.mu.Lock(); defer b.mu.Unlock(); return len(b.first)+len(b.urgent) == n }
	}
	go func() { b.acquire(50, 0, stop); order <- 1 }()
	eventually(t, "first waits", waiting(1))
	go func() { b.acquire(10, 0, stop); order <- 2 }()
	eventually(t, "second waits behind it although it would fit", waiting(2))
	go func() { b.acquire(30, 20, stop); order <- 0 }()
	eventually(t, "a holder waits too", waiting(3))
	b.release(20)
	if got := <-order; got != 0 {
		t.Fatalf("%d went first, want the one that holds bytes already", got)
	}
	b.release(60)
	if a, z := <-order, <-order; a+z != 3 {
		t.Fatalf("%d %d", a, z)
	}
	gone := make(chan struct{})
	close(gone)
	if err := b.acquire(99, 0, gone); err == nil {
		t.Fatal("no error after stop")
	}
	b.release(90)
	if b.used() != 0 {
		t.Fatalf("%d used", b.used())
	}
}

func TestHoldersThatWaitForEachOtherGoOneAtATime(t *testing.T) {
	b := newBudget(100)
	stop := make(chan struct{})
	b.acquire(50, 0, stop)
	b.acquire(50, 0, stop)
	done := make(chan struct{}, 2)
	grow := func() {
		b.acquire(80, 50, stop)
		if used := b.used(); used > 100+80 {
			t.Errorf("%d bytes taken: more than one is past the limit", used)
		}
		b.release(50) // copied into the larger buffer
		b.release(80) // handled
		done <- struct{}{}
	}
	go grow()
	go grow()
	<-done
	<-done
	if b.used() != 0 {
		t.Fatalf("%d used", b.used())
	}
	if err := b.acquire(1000, 0, stop); err != nil { // alone, even a frame beyond the budget is served
		t.Fatal(err)
	}
	b.release(1000)
}

func TestPanicInHandlerClosesOnlyItsConnection(t *testing.T) {
	s := startServer(t, nil)
	s.table.byKey[keyApiVersions].handle = func(*Server, *request) error { panic("boom") }
	id := s.parts.add("events", 1)
	c, other := dial(t, s.addr), dial(t, s.addr)
	c.send(kmsg.NewPtrApiVersionsRequest())
	c.closed()
	other.ask(fetchRequest(11, "events", id, wanted{}))
	if s.Stats().Panics != 1 {
		t.Fatalf("%+v", s.Stats())
	}
}

func TestLargeFramesTakeMemoryAsBytesArrive(t *testing.T) {
	s := startServer(t, nil)
	c := dial(t, s.addr)
	c.nc.Write(binary.BigEndian.AppendUint32(nil, 90<<20)) // announces much, sends nothing
	eventually(t, "the frame began", func() bool { return s.budgets.used() > 0 })
	if used := s.budgets.used(); used > 4<<10 {
		t.Fatalf("%d bytes held for a frame that has sent none", used)
	}
	io.CopyN(c.nc, zeros{}, 3<<20)
	eventually(t, "it grew", func() bool { return s.budgets.used() >= 16<<20 })
	c.nc.Close()
	eventually(t, "given back", func() bool { return s.budgets.used() == 0 })
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestCloseAnswersParkedFetchesAndEndsIdleConnections(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *Server, parts *fakePartitions) {
		id := parts.add("events", 1)
		p := parts.byName["events"][0]
		idle, parked := pipe(t, s), pipe(t, s)
		idle.ask(kmsg.NewPtrApiVersionsRequest())
		q := fetchRequest(11, "events", id, wanted{})
		q.MaxWaitMillis = 60_000
		corr := parked.send(q)
		synctest.Wait()
		if p.watched() != 1 {
			t.Fatal("the fetch does not wait")
		}
		start, closed := time.Now(), make(chan error, 1)
		go func() { closed <- s.Close(t.Context()) }()
		if got := parked.response(q, corr).(*kmsg.FetchResponse).Topics[0].Partitions[0]; got.ErrorCode != 0 || got.HighWatermark != 0 {
			t.Fatalf("%+v", got)
		}
		idle.closed()
		if err := <-closed; err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d != 0 {
			t.Fatalf("close took %v", d)
		}
	})
}

func TestCloseLetsProducesUnderWayFinish(t *testing.T) {
	s := startServer(t, nil)
	id := s.parts.add("events", 1)
	p := s.parts.byName["events"][0]
	p.committed = false
	c := dial(t, s.addr)
	q := produceRequest(9, -1, "events", id, map[int32][]byte{0: oneBatch(t, "x")})
	corr := c.send(q)
	eventually(t, "waiting", func() bool { return p.waiting() == 1 })
	done := make(chan error, 1)
	go func() { done <- s.Close(t.Context()) }()
	eventually(t, "closing", s.isDraining)
	p.commit(nil)
	if got := c.response(q, corr).(*kmsg.ProduceResponse).Topics[0].Partitions[0]; got.ErrorCode != 0 {
		t.Fatalf("%+v", got)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestPanicBesideAHandlerEndsOnlyItsPartition(t *testing.T) {
	s := startServer(t, nil)
	id := s.parts.add("events", 2)
	bad, good := s.parts.byName["events"][0], s.parts.byName["events"][1]
	for _, p := range []*fakePartition{bad, good} {
		p.append(t, "x")
		p.localStart = 1
	}
	bad.coldPanic = true
	c := dial(t, s.addr)
	got := c.ask(fetchRequest(11, "events", id, wanted{index: 0}, wanted{index: 1})).(*kmsg.FetchResponse).Topics[0].Partitions
	if got[0].ErrorCode != codeUnknownServerError || len(got[1].RecordBatches) == 0 {
		t.Fatalf("%+v", got)
	}
	list := c.ask(listRequest(7, "events", map[int32]int64{0: 5, 1: 5})).(*kmsg.ListOffsetsResponse).Topics[0].Partitions
	if list[0].ErrorCode != codeUnknownServerError || list[1].ErrorCode != 0 {
		t.Fatalf("%+v", list)
	}
	if n := s.Stats().Panics; n != 2 {
		t.Fatalf("%d panics counted", n)
	}
}

// TestStoppingServerResetsWhoHasAskedNothing hangs up in an orderly way only on who has had an answer: others would take that for a
// refusal, and not come again.
func TestStoppingServerResetsWhoHasAskedNothing(t *testing.T) {
	s := startServer(t, nil)
	fresh, versions, worked := dial(t, s.addr), dial(t, s.addr), dial(t, s.addr)
	ask := kmsg.NewPtrApiVersionsRequest()
	ask.SetVersion(0)
	versions.ask(ask)
	worked.ask(fetchRequest(18, "events", s.parts.add("events", 1), wanted{}))
	eventually(t, "all are accepted", func() bool { return s.stats.accepted.Load() == 3 })
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		c    *client
		want error
	}{"asked nothing": {fresh, syscall.ECONNRESET}, "asked for versions": {versions, syscall.ECONNRESET}, "worked": {worked, io.EOF}} {
		c.c.nc.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := c.c.nc.Read(make([]byte, 1)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}
