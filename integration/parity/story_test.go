package parity

import (
	"errors"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// story is one run of requests. Stories share a broker and must leave each
// other alone: each uses topics and groups named after itself.
type story struct {
	name string
	run  func(s *session)
}

// session runs one story against one broker.
type session struct {
	t    testing.TB
	addr string
	conn *conn
	*transcript
}

func (st story) against(t testing.TB, addr string) *transcript {
	s := &session{t: t, addr: addr, transcript: newTranscript()}
	defer func() {
		if s.conn != nil {
			s.conn.Close()
		}
	}()
	st.run(s)
	return s.transcript
}

func (s *session) open() *conn {
	if s.conn == nil {
		c, err := dial(s.addr)
		if err != nil {
			s.t.Fatalf("dial %s: %v", s.addr, err)
		}
		s.conn = c
	}
	return s.conn
}

// quiet sends a request and writes nothing down.
func (s *session) quiet(version int16, req kmsg.Request) kmsg.Response {
	req.SetVersion(version)
	resp, err := s.open().request(req)
	if err != nil {
		s.conn.Close()
		s.conn = nil
		if !errors.Is(err, errClosed) {
			s.note("broken", "%v", err)
		}
		return nil
	}
	return resp
}

// ask sends a request and writes the whole answer down under a step's name.
func (s *session) ask(step string, version int16, req kmsg.Request) kmsg.Response {
	label := fmt.Sprintf("%s v%d", step, version)
	resp := s.quiet(version, req)
	if resp == nil {
		s.note(label, "connection closed")
		return nil
	}
	s.response(label, resp)
	return resp
}

// raw sends any bytes as a request's body and writes down only whether the
// connection lives on.
func (s *session) raw(step string, key, version int16, flexible bool, body []byte) {
	_, err := s.open().roundTrip(key, version, flexible, body)
	if err != nil {
		s.conn.Close()
		s.conn = nil
	}
	switch {
	case err == nil:
		s.note(step, "answered")
	case errors.Is(err, errClosed):
		s.note(step, "connection closed")
	default:
		s.note(step, "%v", err)
	}
}

// versions runs a step in each version of a range.
func versions(from, to int16, step func(v int16)) {
	for v := from; v <= to; v++ {
		step(v)
	}
}
