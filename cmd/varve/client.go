package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const defaultListen = "127.0.0.1:9092"

// dialLimit bounds how long a connection may take to be made.
const dialLimit = 5 * time.Second

// client holds the flags that say which cluster a tool talks to.
type client struct {
	bootstrap string
	timeout   time.Duration
}

func (c *client) flags(cmd *cobra.Command) {
	def := defaultListen
	if env := os.Getenv("VARVE_BOOTSTRAP"); env != "" {
		def = env
	}
	cmd.Flags().StringVar(&c.bootstrap, "bootstrap", def, "broker addresses HOST:PORT,… (or VARVE_BOOTSTRAP)")
	cmd.Flags().DurationVar(&c.timeout, "timeout", 30*time.Second, "give up on a request after this long")
}

// dial connects and makes sure somebody answers, so that a wrong address is
// said at once and by name rather than after the client's own retries.
func (c *client) dial(ctx context.Context, opts ...kgo.Opt) (*kgo.Client, error) {
	seeds := strings.Split(c.bootstrap, ",")
	opts = append([]kgo.Opt{
		kgo.SeedBrokers(seeds...),
		kgo.ClientID("varve-cli"),
		kgo.Dialer((&net.Dialer{Timeout: dialLimit}).DialContext),
		kgo.RetryTimeout(c.timeout),
		kgo.RequestTimeoutOverhead(c.timeout),
	}, opts...)
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, err
	}
	pingCtx, cancel := context.WithTimeout(ctx, min(c.timeout, 5*time.Second))
	defer cancel()
	if err := cl.Ping(pingCtx); err != nil {
		cl.Close()
		return nil, c.explain(err)
	}
	return cl, nil
}

// explain names the cause of a failed connection and what to do about it.
func (c *client) explain(err error) error {
	var opErr *net.OpError
	switch {
	case errors.As(err, &opErr), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no broker answers at %s (%w): start one with `varve dev`, or name another with --bootstrap HOST:PORT", c.bootstrap, err)
	default:
		return err
	}
}

// admin is a connected client with the administrative requests on top of the
// raw one.
type admin struct {
	*kadm.Client
	raw *kgo.Client
}

// withAdmin runs what a verb does on a connected client, which it closes, and
// explains what goes wrong: a verb returns the errors it sees as they are.
func (c *client) withAdmin(cmd *cobra.Command, do func(ctx context.Context, adm *admin) error) error {
	cl, err := c.dial(cmd.Context())
	if err != nil {
		return err
	}
	defer cl.Close()
	adm := &admin{kadm.NewClient(cl), cl}
	adm.SetTimeoutMillis(int32(c.timeout.Milliseconds()))
	return c.explain(do(cmd.Context(), adm))
}
