package peer

import (
	"context"
	"log/slog"
	"net"
	"time"
)

// Dialer opens a connection to a broker's listener.
type Dialer func(ctx context.Context, address string) (net.Conn, error)

// Config says how connections to peers behave. The zero value of a field means its default.
type Config struct {
	// ClientID is named in each request.
	ClientID string
	// Dial opens connections; nil means plain TCP.
	Dial Dialer
	// DialMax bounds the opening of a connection, the first exchange on it included. Default 5 s.
	DialMax time.Duration
	// AnswerMax bounds a call whose context has no deadline. Default 30 s, Kafka's request.timeout.ms.
	AnswerMax time.Duration
	// BackoffMin and BackoffMax bound the pause after a failed dial, which doubles each time. Default 50 ms and 1 s, Kafka's
	// reconnect.backoff.ms and its maximum.
	BackoffMin, BackoffMax time.Duration
	// InFlightMax bounds the requests of one connection whose answers are outstanding; further calls wait. Default 64.
	InFlightMax int
	// FrameBytesMax bounds one answer: a longer one ends the connection. Default 512 MiB.
	FrameBytesMax int
	// HeldBytesMax bounds the bytes of answers that a pool's connections hold at once: beyond it they stop reading until
	// frames are released, and one answer at a time goes through whatever its size. Default 128 MiB.
	HeldBytesMax int64
	// Logger; nil discards.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	set := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	set(&c.DialMax, 5*time.Second)
	set(&c.AnswerMax, 30*time.Second)
	set(&c.BackoffMin, 50*time.Millisecond)
	set(&c.BackoffMax, time.Second)
	if c.InFlightMax == 0 {
		c.InFlightMax = 64
	}
	if c.FrameBytesMax == 0 {
		c.FrameBytesMax = 512 << 20
	}
	if c.HeldBytesMax == 0 {
		c.HeldBytesMax = 128 << 20
	}
	if c.Dial == nil {
		c.Dial = DialTCP
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// DialTCP opens a connection in plain text.
func DialTCP(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}
