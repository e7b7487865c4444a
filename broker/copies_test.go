package broker

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"testing"

	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/replica"
)

// readingConn is a socket that remembers where it was asked to put what it has.
type readingConn struct {
	nullConn
	have  *bytes.Reader
	reads [][]byte
}

func (c *readingConn) Read(p []byte) (int, error) {
	n, err := c.have.Read(p)
	if n > 0 {
		c.reads = append(c.reads, p[:n])
	}
	return n, err
}

// inPlace is how many bytes of b are where the socket was read to.
func (c *readingConn) inPlace(b []byte) (n int) {
	for _, r := range c.reads {
		if i := indexOf(r, &b[0]); i >= 0 {
			n += min(len(r)-i, len(b))
		} else if i := indexOf(b, &r[0]); i >= 0 {
			n += min(len(b)-i, len(r))
		}
	}
	return n
}

// indexOf is the index of the byte at an address, -1 if b does not have it.
func indexOf(b []byte, at *byte) int {
	for i := range b {
		if &b[i] == at {
			return i
		}
	}
	return -1
}

// placedPartition takes appends and notes how much of them never moved.
type placedPartition struct {
	nullPartition
	conn           *readingConn
	bytes, inPlace int
}

func (p *placedPartition) Append(b []byte, r replica.AppendRequest) (replica.Appended, error) {
	p.bytes += len(b)
	p.inPlace += p.conn.inPlace(b)
	p.conn.reads = nil
	return p.nullPartition.Append(b, r)
}
func (p *placedPartition) Partition(string, int32) (Partition, error)       { return p, nil }
func (p *placedPartition) PartitionByID(topic.ID, int32) (Partition, error) { return p, nil }

// TestProducedBytesStayWhereTheSocketPutThem: a partition is handed the memory that the socket was read into. What moves, once,
// is what came with the size of the frame or before the step in which a large frame gets its memory (frameSteps).
func TestProducedBytesStayWhereTheSocketPutThem(t *testing.T) {
	for _, tc := range []struct{ size, before int }{{3 << 10, 1 << 10}, {40 << 10, frameSteps[0]}, {900 << 10, frameSteps[1] + frameSteps[0]}} {
		size := tc.size
		q := produceRequest(13, -1, "events", topic.ID{1}, map[int32][]byte{0: oneBatch(t, string(make([]byte, size)))})
		frame := formatter.AppendRequest(nil, q, 7)
		if int(binary.BigEndian.Uint32(frame)) != len(frame)-4 {
			t.Fatal("the frame has another size than it says")
		}
		conn := &readingConn{have: bytes.NewReader(bytes.Repeat(frame, 3))}
		p := &placedPartition{nullPartition: nullPartition{id: topic.Partition{Topic: "events"}}, conn: conn}
		s := New(DefaultConfig(), Deps{Partitions: p})
		c := newConn(s, conn, "127.0.0.1", &Door{})
		var err error
		for err == nil {
			err = c.next()
		}
		s.Close(context.Background())
		if err != io.EOF {
			t.Fatal(err)
		}
		moved := p.bytes - p.inPlace
		t.Logf("records of %d bytes: %d of %d were moved", size, moved, p.bytes)
		if p.bytes < 3*size {
			t.Fatalf("%d bytes arrived, want 3 records of %d", p.bytes, size)
		}
		if moved > 3*tc.before {
			t.Errorf("records of %d bytes: %d of %d were moved, want at most %d of each", size, moved, p.bytes, tc.before)
		}
	}
}
