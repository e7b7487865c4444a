package parity

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// conn is a bare connection: it sends exactly the version it is told to and
// hides no answer behind a retry.
type conn struct {
	net.Conn
	next int32 // correlation id
}

var errClosed = errors.New("connection closed by the broker")

// answerLimit is how long a story waits for one answer.
const answerLimit = 12 * time.Second

func dial(addr string) (*conn, error) {
	c, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c}, nil
}

// request sends req in the version it carries and decodes the answer.
func (c *conn) request(req kmsg.Request) (kmsg.Response, error) {
	body, err := c.roundTrip(req.Key(), req.GetVersion(), req.IsFlexible(), req.AppendTo(nil))
	if err != nil {
		return nil, err
	}
	resp := req.ResponseKind()
	if req.Key() == 18 && len(body) >= 2 && binary.BigEndian.Uint16(body) == 35 {
		resp.SetVersion(0) // KIP-511: the answer to an unknown version is v0
	}
	// ApiVersions alone keeps the old response header, so that a client of any
	// age can read it.
	if resp.IsFlexible() && req.Key() != 18 {
		if len(body) == 0 || body[0] != 0 {
			return nil, fmt.Errorf("response header of key %d has tags or none: % x", req.Key(), body[:min(8, len(body))])
		}
		body = body[1:]
	}
	if err := resp.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("decode key %d version %d: %w (% x)", req.Key(), resp.GetVersion(), err, body[:min(64, len(body))])
	}
	return resp, nil
}

// send writes one request frame with any key, version and body.
func (c *conn) send(key, version int16, flexible bool, body []byte) error {
	c.next++
	head := binary.BigEndian.AppendUint16(nil, uint16(key))
	head = binary.BigEndian.AppendUint16(head, uint16(version))
	head = binary.BigEndian.AppendUint32(head, uint32(c.next))
	head = binary.BigEndian.AppendUint16(head, uint16(len(clientID)))
	head = append(head, clientID...)
	if flexible {
		head = append(head, 0)
	}
	frame := binary.BigEndian.AppendUint32(nil, uint32(len(head)+len(body)))
	frame = append(append(frame, head...), body...)
	_, err := c.Write(frame)
	return err
}

const clientID = "parity"

func (c *conn) roundTrip(key, version int16, flexible bool, body []byte) ([]byte, error) {
	if err := c.send(key, version, flexible, body); err != nil {
		return nil, errClosed
	}
	return c.receive()
}

// receive reads one response frame and gives what follows its correlation id.
func (c *conn) receive() ([]byte, error) {
	if err := c.SetReadDeadline(time.Now().Add(answerLimit)); err != nil {
		return nil, err
	}
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			return nil, fmt.Errorf("no answer within %v", answerLimit)
		}
		return nil, errClosed
	}
	frame := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(c, frame); err != nil {
		return nil, errClosed
	}
	if len(frame) < 4 || int32(binary.BigEndian.Uint32(frame)) != c.next {
		return nil, fmt.Errorf("answer carries another correlation id: % x", frame[:min(8, len(frame))])
	}
	return frame[4:], nil
}
