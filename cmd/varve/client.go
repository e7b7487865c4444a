package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const defaultListen = "127.0.0.1:9092"

// timeoutMin is the shortest --timeout that the client takes.
const timeoutMin = 100 * time.Millisecond

// dialLimit bounds how long a connection may take to be made.
const dialLimit = 5 * time.Second

// client holds the flags that say which cluster a tool talks to.
type client struct {
	bootstrap string
	timeout   time.Duration
	tls       clientTLS
	heard     *refusals // listens to the connections; nil: nobody does
}

func (c *client) flags(cmd *cobra.Command) {
	def := defaultListen
	if env := os.Getenv("VARVE_BOOTSTRAP"); env != "" {
		def = env
	}
	cmd.Flags().StringVar(&c.bootstrap, "bootstrap", def, "broker addresses HOST:PORT,… (or VARVE_BOOTSTRAP)")
	cmd.Flags().DurationVar(&c.timeout, "timeout", 30*time.Second, "give up on a request, and on records that are not acknowledged, after this long")
	c.tls.flags(cmd)
}

// dial connects and makes sure somebody answers, so that a wrong address is
// said at once and by name rather than after the client's own retries.
func (c *client) dial(ctx context.Context, opts ...kgo.Opt) (*kgo.Client, error) {
	seeds := strings.Split(c.bootstrap, ",")
	switch {
	case slices.Contains(seeds, ""):
		return nil, fmt.Errorf("--bootstrap %q: write the addresses of brokers, HOST:PORT, with commas between them", c.bootstrap)
	case c.timeout < timeoutMin:
		return nil, fmt.Errorf("--timeout %s: write how long to wait for an answer, %s or more, such as 30s", c.timeout, timeoutMin)
	}
	open, err := c.tls.dialer()
	if err != nil {
		return nil, err
	}
	if c.heard != nil {
		open = c.heard.over(open)
	}
	opts = append([]kgo.Opt{
		kgo.SeedBrokers(seeds...),
		kgo.ClientID("varve-cli"),
		kgo.Dialer(open),
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
	var unverified *tls.CertificateVerificationError
	var closed *kgo.ErrFirstReadEOF
	var shards *kadm.ShardErrors
	switch {
	case errors.As(err, &unverified):
		return advise(fmt.Errorf("the certificate of %s is not trusted (%w)", c.bootstrap, unverified.Err), "name the authority's with --tls-ca FILE")
	case errors.As(err, &closed) && c.tls.used():
		return advise(fmt.Errorf("%s closed the connection at once (%w)", c.bootstrap, err), "it speaks plain text, most likely: leave TLS out, or name another port with --bootstrap")
	case errors.As(err, &closed):
		return advise(fmt.Errorf("%s closed the connection at once (%w)", c.bootstrap, err), "it speaks TLS, most likely: use --tls or --command-config")
	case errors.As(err, &opErr) && opErr.Op == "remote error":
		return advise(fmt.Errorf("%s does not let this client in (%w)", c.bootstrap, err), "show a certificate that it trusts with --tls-cert FILE")
	case errors.As(err, &shards) && len(shards.Errs) > 0 && shards.Errs[0].Broker.NodeID >= 0 && errors.As(err, &opErr):
		b := shards.Errs[0].Broker
		return advise(fmt.Errorf("broker %d at %s:%d does not answer (%w), so what it knows is missing", b.NodeID, b.Host, b.Port, unsharded(err)), "`varve cluster describe` shows its state; others take its place once it is fenced")
	case errors.As(err, &opErr), errors.Is(err, context.DeadlineExceeded):
		return advise(fmt.Errorf("no broker answers at %s (%w)", c.bootstrap, err), "start one with `varve dev`, or name another with --bootstrap HOST:PORT")
	default:
		if _, whole := err.(*kadm.ShardErrors); whole {
			return refused(unsharded(err), "")
		}
		return err
	}
}

// admin is a connected client with the administrative requests on top of the
// raw one.
type admin struct {
	*kadm.Client
	raw      *kgo.Client
	patience time.Duration // for what is not ready yet
}

// withAdmin runs what a verb does on a connected client, which it closes, and
// explains what goes wrong: a verb returns the errors it sees as they are.
func (c *client) withAdmin(cmd *cobra.Command, do func(ctx context.Context, adm *admin) error) error {
	cl, err := c.dial(cmd.Context())
	if err != nil {
		return err
	}
	defer cl.Close()
	adm := &admin{kadm.NewClient(cl), cl, c.timeout}
	adm.SetTimeoutMillis(int32(c.timeout.Milliseconds()))
	return c.explain(do(cmd.Context(), adm))
}
