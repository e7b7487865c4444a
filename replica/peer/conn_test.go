package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func mustDial(t *testing.T, s *server, cfg Config) *Conn {
	t.Helper()
	c, err := Dial(t.Context(), s.address(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestCallsOfOneConnectionGetTheirOwnAnswers(t *testing.T) {
	s := newServer(t, echo)
	c := mustDial(t, s, Config{ClientID: "broker-1", InFlightMax: 8})
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			name := fmt.Sprint("topic-", i)
			resp, err := c.Do(t.Context(), ask(name))
			if err != nil {
				t.Error(err)
				return
			}
			if got := *resp.(*kmsg.MetadataResponse).ClusterID; got != name {
				t.Errorf("asked for %s, got %s", name, got)
			}
		})
	}
	wg.Wait()
	if held := c.frames.held; held != 0 {
		t.Errorf("%d bytes are held after all answers were taken", held)
	}
}

func TestRequestsAreSentBeforeEarlierAnswersCome(t *testing.T) {
	type got struct {
		sc  *serverConn
		id  int32
		req kmsg.Request
	}
	arrived := make(chan got, 2)
	s := newServer(t, func(sc *serverConn, id int32, req kmsg.Request) { arrived <- got{sc, id, req} })
	c := mustDial(t, s, Config{})
	done := make(chan error, 2)
	for _, name := range []string{"a", "b"} {
		go func() { _, err := c.Do(t.Context(), ask(name)); done <- err }()
	}
	first, second := <-arrived, <-arrived // both, and nothing is answered
	echo(first.sc, first.id, first.req)
	echo(second.sc, second.id, second.req)
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestVersionIsLoweredToWhatThePeerServes(t *testing.T) {
	s := newServer(t, echo)
	s.serves = []Served{{3, 0, 9}, {18, 0, 4}, {63, 0, 1}}
	c := mustDial(t, s, Config{})
	resp, err := c.Do(t.Context(), ask("a"))
	if err != nil || resp.GetVersion() != 9 {
		t.Errorf("answer in version %v, error %v; want 9", resp.GetVersion(), err)
	}
	if c.versions[63].Max != 1 {
		t.Errorf("the keys between brokers were not learned: %v", c.versions)
	}
	fetch := kmsg.NewPtrFetchRequest()
	if _, err := c.Do(t.Context(), fetch); !errors.Is(err, ErrUnsupported) || !errors.Is(err, ErrNotSent) {
		t.Errorf("a key that the peer does not serve: %v", err)
	}
}

func TestEndOfConnectionEndsCallsAtOnce(t *testing.T) {
	arrived := make(chan struct{})
	s := newServer(t, func(*serverConn, int32, kmsg.Request) { close(arrived) })
	c := mustDial(t, s, Config{})
	done := make(chan error, 1)
	go func() { _, err := c.Do(context.Background(), ask("a")); done <- err }()
	<-arrived
	s.cut()
	if err := <-done; !errors.Is(err, ErrDisconnected) || errors.Is(err, ErrNotSent) {
		t.Errorf("%v, want ErrDisconnected with an unknown outcome", err)
	}
	<-c.Done()
	if _, err := c.Do(t.Context(), ask("b")); !errors.Is(err, ErrNotSent) {
		t.Errorf("a call on an ended connection: %v", err)
	}
}

func TestCancelledCallLosesItsAnswerAlone(t *testing.T) {
	arrived, answer := make(chan struct{}), make(chan struct{})
	s := newServer(t, func(sc *serverConn, id int32, req kmsg.Request) {
		if *req.(*kmsg.MetadataRequest).Topics[0].Topic == "slow" {
			close(arrived)
			<-answer
		}
		echo(sc, id, req)
	})
	c := mustDial(t, s, Config{InFlightMax: 1})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { _, err := c.Do(ctx, ask("slow")); done <- err }()
	<-arrived
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || errors.Is(err, ErrNotSent) {
		t.Errorf("%v, want the cancellation", err)
	}
	close(answer)
	resp, err := c.Do(t.Context(), ask("next"))
	if err != nil || *resp.(*kmsg.MetadataResponse).ClusterID != "next" {
		t.Errorf("the call after a cancelled one: %v", err)
	}
}

func TestMissedDeadlineEndsTheConnection(t *testing.T) {
	s := newServer(t, func(*serverConn, int32, kmsg.Request) {})
	c := mustDial(t, s, Config{AnswerMax: 20 * time.Millisecond})
	if _, err := c.Do(t.Context(), ask("a")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want the deadline", err)
	}
	<-c.Done()
}

func TestMalformedAnswersEndTheConnection(t *testing.T) {
	for name, answer := range map[string][]byte{
		"negative size":       {0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1},
		"too long":            {0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 1},
		"unknown correlation": {0, 0, 0, 4, 0, 0, 0, 99},
		"no body":             {0, 0, 0, 4, 0, 0, 0, 1},
		"torn tags":           {0, 0, 0, 6, 0, 0, 0, 1, 1, 9},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, func(sc *serverConn, _ int32, _ kmsg.Request) { sc.Write(answer) })
			c := mustDial(t, s, Config{})
			if _, err := c.Do(t.Context(), ask("a")); !errors.Is(err, ErrMalformed) {
				t.Errorf("%v, want ErrMalformed", err)
			}
			<-c.Done()
		})
	}
}

// fetchAnswer answers a Fetch with records of n bytes.
func fetchAnswer(n int) func(sc *serverConn, id int32, req kmsg.Request) {
	return func(sc *serverConn, id int32, req kmsg.Request) {
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		p := kmsg.NewFetchResponseTopicPartition()
		p.RecordBatches = bytes.Repeat([]byte{byte(id)}, n)
		resp.Topics = []kmsg.FetchResponseTopic{{Partitions: []kmsg.FetchResponseTopicPartition{p}}}
		sc.answer(id, resp)
	}
}

func fetchRequest() *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.SetVersion(17)
	return req
}

func TestRecordsAreSlicesOfTheFrame(t *testing.T) {
	s := newServer(t, fetchAnswer(100_000))
	c := mustDial(t, s, Config{})
	resp := kmsg.NewPtrFetchResponse()
	var last *byte
	for i := range 3 {
		frame, err := c.DoInto(t.Context(), fetchRequest(), resp)
		if err != nil {
			t.Fatal(err)
		}
		records := resp.Topics[0].Partitions[0].RecordBatches
		at := bytes.Index(frame.buf, records)
		if at < 0 || &frame.buf[at] != &records[0] {
			t.Error("records were copied out of the frame")
		}
		if i > 0 && &records[0] != last {
			t.Error("a released frame's memory was not used again")
		}
		last = &records[0]
		frame.Release()
	}
	if c.frames.held != 0 {
		t.Errorf("%d bytes held after release", c.frames.held)
	}
}

func TestReadingWaitsUntilFramesAreReleased(t *testing.T) {
	s := newServer(t, fetchAnswer(100_000))
	c := mustDial(t, s, Config{HeldBytesMax: 150_000})
	resp := kmsg.NewPtrFetchResponse()
	first, err := c.DoInto(t.Context(), fetchRequest(), resp)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		frame, err := c.DoInto(t.Context(), fetchRequest(), kmsg.NewPtrFetchResponse())
		frame.Release()
		done <- err
	}()
	waitFor(t, func() bool { c.frames.mu.Lock(); defer c.frames.mu.Unlock(); return c.frames.waits == 1 })
	select {
	case err := <-done:
		t.Fatalf("a second answer was read beyond the bound: %v", err)
	default:
	}
	first.Release()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestCloseEndsAReaderThatWaitsForMemory(t *testing.T) {
	s := newServer(t, fetchAnswer(100_000))
	c := mustDial(t, s, Config{HeldBytesMax: 150_000})
	frame, err := c.DoInto(t.Context(), fetchRequest(), kmsg.NewPtrFetchResponse())
	if err != nil {
		t.Fatal(err)
	}
	defer frame.Release()
	done := make(chan error, 1)
	go func() {
		_, err := c.DoInto(t.Context(), fetchRequest(), kmsg.NewPtrFetchResponse())
		done <- err
	}()
	waitFor(t, func() bool { c.frames.mu.Lock(); defer c.frames.mu.Unlock(); return c.frames.waits == 1 })
	c.Close()
	if err := <-done; !errors.Is(err, ErrClosed) {
		t.Errorf("%v, want ErrClosed", err)
	}
}

func TestProbeTellsAnEndedProcessFromSilence(t *testing.T) {
	s := newServer(t, echo)
	if got := Probe(t.Context(), nil, s.address()); got != Up {
		t.Errorf("a listening peer is %d", got)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if got := Probe(t.Context(), nil, l.Addr().String()); got != Gone {
		t.Errorf("a closed port is %d", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := Probe(ctx, nil, s.address()); got != Unknown {
		t.Errorf("without an answer the peer is %d", got)
	}
}

// waitFor waits for what another goroutine is about to do.
func waitFor(t *testing.T, done func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("nothing happened in a minute")
		}
	}
}
