package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// refusals listens to the answers to Produce requests. The client tries
// refused batches again for a minute, tells nobody why, and drops the broker's
// own words: without them a full disk looks like a hang.
type refusals struct {
	tell io.Writer // is told the first refusal at once

	mu   sync.Mutex // guards last
	last *refusal
}

// over makes the connections that dial opens be listened to.
func (r *refusals) over(dial func(context.Context, string, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, host string) (net.Conn, error) {
		conn, err := dial(ctx, network, host)
		if err != nil {
			return nil, err
		}
		return &heardConn{Conn: conn, to: r, asked: map[int32]int16{}}, nil
	}
}

func (r *refusals) note(code *kerr.Error, message string) {
	if message == "" {
		message = code.Description
	}
	r.mu.Lock()
	first := r.last == nil
	r.last = &refusal{code, message}
	r.mu.Unlock()
	if first && code.Retriable {
		fmt.Fprintf(r.tell, "the broker refuses: %v; trying again\n", &refusal{code, message})
	}
}

// explain puts the broker's reason in place of, or beside, what the client says.
func (r *refusals) explain(err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil || r.last == nil:
		return err
	case errors.Is(err, r.last.code):
		return r.last
	case errors.Is(err, context.Canceled):
		return exitStatus{errInterrupted.code, fmt.Errorf("interrupted; the broker refused: %w", r.last)}
	}
	return fmt.Errorf("%w; the broker refused: %w", err, r.last)
}

// heardConn is a connection whose Produce answers are listened to. The client
// writes each request whole, and one goroutine writes and one reads.
type heardConn struct {
	net.Conn
	to *refusals

	mu    sync.Mutex      // guards asked
	asked map[int32]int16 // correlation id of a Produce request to its version

	frame []byte // read so far of the answer at hand, its length first; owned by Read
}

func (c *heardConn) Write(p []byte) (int, error) {
	// length i32, key i16, version i16, correlation id i32
	if len(p) >= 12 && binary.BigEndian.Uint16(p[4:]) == uint16(kmsg.Produce) {
		c.mu.Lock()
		c.asked[int32(binary.BigEndian.Uint32(p[8:]))] = int16(binary.BigEndian.Uint16(p[6:]))
		c.mu.Unlock()
	}
	return c.Conn.Write(p)
}

func (c *heardConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.frame = append(c.frame, p[:n]...)
	for len(c.frame) >= 4 {
		end := 4 + int(binary.BigEndian.Uint32(c.frame))
		if end > len(c.frame) {
			break
		}
		c.hear(c.frame[4:end])
		c.frame = append(c.frame[:0], c.frame[end:]...)
	}
	return n, err
}

// hear looks for refusals in one answer.
func (c *heardConn) hear(answer []byte) {
	if len(answer) < 4 {
		return
	}
	id := int32(binary.BigEndian.Uint32(answer))
	c.mu.Lock()
	version, ok := c.asked[id]
	delete(c.asked, id)
	c.mu.Unlock()
	if !ok {
		return
	}
	resp := kmsg.NewPtrProduceResponse()
	resp.SetVersion(version)
	body := answer[4:]
	if resp.IsFlexible() {
		if len(body) == 0 || body[0] != 0 {
			return // tagged fields in the header: there are none to this day
		}
		body = body[1:]
	}
	if resp.ReadFrom(body) != nil {
		return // the client will say so
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			var code *kerr.Error
			if !errors.As(kerr.ErrorForCode(p.ErrorCode), &code) {
				continue
			}
			var message string
			if p.ErrorMessage != nil {
				message = *p.ErrorMessage
			}
			c.to.note(code, message)
		}
	}
}
