package secure

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/varvelog/varve/broker/loglimit"
)

// Refusals logs handshakes that failed, each cause once a minute for each address. Its fields are set before its first use.
type Refusals struct {
	Logger *slog.Logger
	Level  slog.Level // of what a human should see; who just hangs up is debug

	limit loglimit.Limit[refusal]
}

// refusal is who and why.
type refusal struct{ address, why string }

// Accepted logs why a connection from remote to a listener came to nothing.
func (r *Refusals) Accepted(listener string, remote net.Addr, err error) {
	host, _, cut := net.SplitHostPort(remote.String())
	if cut != nil {
		host = remote.String()
	}
	why, level := cause(err, r.Level)
	r.log(level, refusal{host, why}, "client", host, "listener", listener, "err", err)
}

// Dialled logs why a connection to address came to nothing, when it was for TLS.
func (r *Refusals) Dialled(address string, err error) {
	var refused *net.OpError
	if errors.As(err, &refused) && refused.Op == "dial" {
		return // nobody was there
	}
	why, level := cause(err, r.Level)
	r.log(level, refusal{address, why}, "address", address, "err", err)
}

func (r *Refusals) log(level slog.Level, k refusal, attrs ...any) {
	if r.Logger == nil || !r.Logger.Enabled(context.Background(), level) {
		return
	}
	if omitted, ok := r.limit.Allow(k, time.Now().UnixMilli()); ok {
		r.Logger.Log(context.Background(), level, k.why, append(attrs, "omitted", omitted)...)
	}
}

// isAlert says that the other side has refused, in TLS's own words.
func isAlert(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error"
}

// cause says in constant words why a handshake failed.
func cause(err error, seen slog.Level) (why string, level slog.Level) {
	var header tls.RecordHeaderError
	var unverified *tls.CertificateVerificationError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.Is(err, ErrPlaintext):
		return "a client speaks TLS to a listener of plain text: its security.protocol must be PLAINTEXT, or its port another", seen
	case errors.As(err, &header):
		return "plain text where TLS is spoken: security.protocol must be SSL, or the port another", seen
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "TLS certificate of the other side refused: it has expired, or is not valid yet", seen
	case errors.As(err, &unverified):
		return "TLS certificate of the other side refused", seen
	case isAlert(err):
		return "TLS refused by the other side", seen
	case strings.Contains(err.Error(), "provide a certificate"): // crypto/tls has no type for it
		return "a client showed no certificate where one is required", seen
	case errors.Is(err, ErrSlow), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return "TLS handshake not done in time", seen
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed), errors.Is(err, io.ErrClosedPipe),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "connection ended during the TLS handshake", slog.LevelDebug
	}
	return "TLS handshake failed", seen
}
