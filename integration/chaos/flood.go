//go:build linux

package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	floodSockets  = 300 // to each broker
	floodRSSLimit = 2 << 30
)

// flood has strangers beleaguer a broker, or all: frames that announce more than
// they may, garbage in frames of the right length, requests cut in the middle,
// single bytes now and then, answers that nobody reads. The workload goes on
// beside it.
func flood(ctx context.Context, n *nemesis) (string, error) {
	targets := n.c.members()
	if id := n.any(); id != 0 && n.rng.IntN(2) == 0 {
		targets = []*broker{n.c.broker(id)}
	}
	limited, cancel := context.WithTimeout(ctx, 8*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for _, b := range targets {
		address := net.JoinHostPort(n.c.net.host(b.id), fmt.Sprint(clientPort))
		for i := range floodSockets {
			rng := rand.New(rand.NewPCG(n.rng.Uint64(), uint64(i)))
			wg.Go(func() {
				for limited.Err() == nil {
					beleaguer(limited, rng, address)
				}
			})
		}
	}
	most := int64(0)
	watched := make(chan struct{})
	go func() { // ends with the flood
		defer close(watched)
		for limited.Err() == nil {
			for _, b := range targets {
				most = max(most, b.rss())
			}
			pause(limited, 100*time.Millisecond)
		}
	}()
	wg.Wait()
	<-watched
	if most > floodRSSLimit {
		n.trouble = append(n.trouble, fmt.Sprintf("a flood of requests drove a broker to %d MiB", most>>20))
	}
	return fmt.Sprintf("%d sockets beleaguered each of %d brokers; the largest had %d MiB", floodSockets, len(targets), most>>20), nil
}

// beleaguer is one connection of a stranger.
func beleaguer(ctx context.Context, rng *rand.Rand, address string) {
	d := net.Dialer{Timeout: time.Second}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		pause(ctx, 50*time.Millisecond)
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(3 * time.Second))
	frame := func(announced int, body []byte) {
		_, _ = conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(announced)), body...))
	}
	body := make([]byte, 8+rng.IntN(2000))
	for i := range body {
		body[i] = byte(rng.Uint32())
	}
	switch rng.IntN(6) {
	case 0: // more than may be
		frame(int(rng.Uint32()|1<<30), body)
	case 1: // a header that is right, and garbage
		binary.BigEndian.PutUint16(body, uint16(rng.IntN(95)))
		binary.BigEndian.PutUint16(body[2:], uint16(rng.IntN(14)))
		frame(len(body), body)
	case 2: // arrays that announce a great deal
		binary.BigEndian.PutUint16(body, uint16(rng.IntN(4)))
		binary.BigEndian.PutUint16(body[2:], uint16(rng.IntN(9)))
		copy(body[8:], []byte{0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff})
		frame(len(body), body)
	case 3: // a byte now and then
		_, _ = conn.Write([]byte{0, 0, 1, 0})
		for range 8 {
			if _, err := conn.Write([]byte{0}); err != nil {
				return
			}
			pause(ctx, 250*time.Millisecond)
		}
		return
	case 4: // requests whose answers nobody reads
		ask := []byte{0, 18, 0, 0, 0, 0, 0, 1, 0xff, 0xff}
		for range 200 {
			frame(len(ask), ask)
		}
		pause(ctx, 500*time.Millisecond)
		return
	default: // cut in the middle
		frame(10_000, body)
	}
	_, _ = conn.Read(body)
}

// rss is how much memory a broker's process has, in bytes; 0 when it has none.
func (b *broker) rss() int64 {
	b.mu.Lock()
	cmd, state := b.cmd, b.state
	b.mu.Unlock()
	if state != up {
		return 0
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(text), "VmRSS:")
	var kib int64
	_, _ = fmt.Sscan(after, &kib)
	return kib << 10
}
