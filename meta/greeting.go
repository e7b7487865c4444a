package meta

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"time"

	"github.com/varvelog/varve/meta/topic"
)

// A greeting is what the nodes of a quorum ask each other before raft begins:
// whether there is a cluster already. It travels on raft's connections, told
// apart by its first byte, each way once; FORMAT.md has the bytes.
type greeting struct {
	NodeID    int32
	Directory topic.ID
	// Formed is true once the node has agreed on the first quorum, or has a log.
	Formed bool
	// ClusterID is "" until the node knows it.
	ClusterID string
	// Founders are the directories with which the first quorum was formed.
	Founders map[int32]topic.ID
	// Voters are who votes now, as far as the node's log goes.
	Voters []int32
	// Brokers are where brokers of the cluster listen, as host:port: a node that
	// has no vote there joins through them. Since version 2.
	Brokers []string

	version uint8 // in which it came
}

const (
	// greetByte begins a greeting; raft's calls begin with small numbers.
	// Format: do not renumber.
	greetByte = 'V'
	// greetVersion is the version this release writes. Format: do not renumber.
	greetVersion = 2
	// greetBytesMax bounds what is read of a greeting.
	greetBytesMax = 64 << 10
	// greetBrokersMax bounds how many brokers are named.
	greetBrokersMax = 16
	// greetTimeout bounds one greeting and its answer.
	greetTimeout = 3 * time.Second
)

func (g *greeting) encode() []byte { return g.encodeAs(greetVersion) }

// encodeAs is for who reads no later version.
func (g *greeting) encodeAs(version uint8) []byte {
	e := encoder{b: make([]byte, 4, 128)}
	e.u8(version)
	e.int(int64(g.NodeID))
	e.id(g.Directory)
	e.flag(g.Formed)
	e.str(g.ClusterID)
	e.count(len(g.Founders))
	for _, id := range sortedIDs(g.Founders) {
		e.int(int64(id))
		e.id(g.Founders[id])
	}
	e.ids(g.Voters)
	if version >= 2 {
		e.count(len(g.Brokers))
		for _, address := range g.Brokers {
			e.str(address)
		}
	}
	e.b = binary.BigEndian.AppendUint32(e.b, crc32.Checksum(e.b[4:], castagnoli))
	binary.BigEndian.PutUint32(e.b, uint32(len(e.b)-4))
	return e.b
}

// decodeGreeting reads what follows the length.
func decodeGreeting(b []byte) (greeting, error) {
	body, err := checkSum(b)
	if err != nil {
		return greeting{}, err
	}
	d := decoder{b: body}
	v := d.u8()
	if v != greetVersion && v != greetVersion-1 {
		return greeting{}, fmt.Errorf("%w: greeting version %d, this release reads %d and %d", ErrVersion, v, greetVersion-1, greetVersion)
	}
	g := greeting{version: v, NodeID: d.i32(), Directory: d.id(), Formed: d.flag(), ClusterID: d.str()}
	if n := d.count(17); n > 0 {
		g.Founders = make(map[int32]topic.ID, n)
		last := int32(-1)
		for range n {
			id := d.i32()
			if id <= last && d.err == nil {
				d.fail("founder %d is out of order", id)
			}
			last = id
			g.Founders[id] = d.id()
		}
	}
	g.Voters = d.ids()
	if v >= 2 {
		for range d.count(1) {
			g.Brokers = append(g.Brokers, d.str())
		}
	}
	return g, d.end()
}

func readGreeting(r io.Reader) (greeting, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return greeting{}, fmt.Errorf("read greeting: %w", err)
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > greetBytesMax {
		return greeting{}, fmt.Errorf("%w: a greeting of %d bytes", ErrCorrupt, n)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return greeting{}, fmt.Errorf("read greeting: %w", err)
	}
	return decodeGreeting(b)
}

// answerGreeting answers one greeting whose first byte has been read. Who does
// not greet properly gets no answer.
func answerGreeting(c net.Conn, answer func(greeting) greeting) {
	if err := c.SetDeadline(time.Now().Add(greetTimeout)); err != nil {
		return
	}
	g, err := readGreeting(c)
	if err != nil {
		return
	}
	reply := answer(g)
	_, _ = c.Write(reply.encodeAs(g.version)) // the other asks again
}

// greet asks the node at address. One of the release before this one does not
// answer what it cannot read, and is asked again as it was by its own.
func (s *stream) greet(ctx context.Context, address string, g greeting) (greeting, error) {
	reply, err := s.greetAs(ctx, greetVersion, address, g)
	if err != nil && ctx.Err() == nil {
		if reply, err := s.greetAs(ctx, greetVersion-1, address, g); err == nil {
			return reply, nil
		}
	}
	return reply, err
}

func (s *stream) greetAs(ctx context.Context, version uint8, address string, g greeting) (greeting, error) {
	ctx, cancel := context.WithTimeout(ctx, greetTimeout)
	defer cancel()
	c, err := s.dial(ctx, address)
	if err != nil {
		return greeting{}, fmt.Errorf("greet %s: %w", address, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	_, err = c.Write(append([]byte{greetByte}, g.encodeAs(version)...))
	var reply greeting
	if err == nil {
		reply, err = readGreeting(c)
	}
	if err := errors.Join(err, ignoreClosed(c.Close())); err != nil {
		return greeting{}, fmt.Errorf("greet %s: %w", address, err)
	}
	return reply, nil
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
