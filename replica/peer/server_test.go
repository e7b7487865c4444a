package peer

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// server is a peer whose answers a test decides on.
type server struct {
	t       *testing.T
	l       net.Listener
	serves  []Served
	handle  func(sc *serverConn, id int32, req kmsg.Request)
	wg      sync.WaitGroup
	mu      sync.Mutex // guards the following
	conns   []net.Conn
	dialled int
}

type serverConn struct {
	net.Conn
	s *server
}

func newServer(t *testing.T, handle func(sc *serverConn, id int32, req kmsg.Request)) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, l: l, handle: handle, serves: []Served{{1, 4, 18}, {3, 0, 13}, {18, 0, 4}}}
	s.wg.Go(s.accept)
	t.Cleanup(s.close)
	return s
}

func (s *server) address() string { return s.l.Addr().String() }

func (s *server) accept() {
	for {
		nc, err := s.l.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns = append(s.conns, nc)
		s.dialled++
		s.mu.Unlock()
		s.wg.Go(func() { s.serve(&serverConn{nc, s}) })
	}
}

func (s *server) dials() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dialled
}

// cut ends all connections and lets new ones in.
func (s *server) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, nc := range s.conns {
		nc.Close()
	}
	s.conns = nil
}

func (s *server) close() {
	s.l.Close()
	s.cut()
	s.wg.Wait()
}

func (s *server) serve(sc *serverConn) {
	defer sc.Close()
	for {
		var size [4]byte
		if _, err := io.ReadFull(sc, size[:]); err != nil {
			return
		}
		b := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(sc, b); err != nil {
			return
		}
		req := kmsg.RequestForKey(int16(binary.BigEndian.Uint16(b)))
		req.SetVersion(int16(binary.BigEndian.Uint16(b[2:])))
		id := int32(binary.BigEndian.Uint32(b[4:]))
		rest := b[10+binary.BigEndian.Uint16(b[8:]):]
		if req.IsFlexible() {
			rest = rest[1:]
		}
		if err := req.ReadFrom(rest); err != nil {
			s.t.Errorf("request: %v", err)
			return
		}
		if req.Key() != keyApiVersions {
			s.handle(sc, id, req)
			continue
		}
		resp := req.ResponseKind().(*kmsg.ApiVersionsResponse)
		for _, v := range s.serves {
			if v.Key >= 56 {
				resp.UnknownTags.Set(TagServed, AppendServed(nil, []Served{v}))
				continue
			}
			resp.ApiKeys = append(resp.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: v.Key, MinVersion: v.Min, MaxVersion: v.Max})
		}
		sc.answer(id, resp)
	}
}

func (sc *serverConn) answer(id int32, resp kmsg.Response) {
	b := binary.BigEndian.AppendUint32(make([]byte, 4), uint32(id))
	if resp.IsFlexible() && resp.Key() != keyApiVersions {
		b = append(b, 0)
	}
	b = resp.AppendTo(b)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	sc.Write(b)
}

// echo answers a Metadata request with the name of the topic that it asks for.
func echo(sc *serverConn, id int32, req kmsg.Request) {
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	resp.ClusterID = req.(*kmsg.MetadataRequest).Topics[0].Topic
	sc.answer(id, resp)
}

func ask(name string) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.SetVersion(12)
	req.Topics = []kmsg.MetadataRequestTopic{{Topic: &name}}
	return req
}
