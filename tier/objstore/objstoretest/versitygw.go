package objstoretest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/varvelog/varve/tier/objstore"
)

// EnvS3 is the environment variable that decides about tests on a real S3 server. "1": they run, and building the server
// first is part of the run. Unset: they run when the server has been built already. "0": they are left out.
const EnvS3 = "VARVE_S3_TEST"

const (
	startTimeout = 30 * time.Second
	startTries   = 5
	serverRegion = "us-east-1"
)

// Server is a running versitygw over a folder. Its top-level folders are its buckets.
type Server struct {
	Endpoint  string // http://127.0.0.1:PORT
	AccessKey string
	SecretKey string
	Region    string
	Dir       string // what the server keeps, one folder per bucket

	cmd  *exec.Cmd
	log  lockedBuffer
	done chan struct{} // closed when the process has ended
}

// StartVersityGW starts the S3 server over a temporary folder and stops it when the test ends. Without [EnvS3] and
// without a built server the test is left out; with VARVE_S3_TEST=1 a server that cannot be had fails the test.
func StartVersityGW(t testing.TB) *Server {
	t.Helper()
	binary, err := Binary()
	if err != nil {
		t.Fatal(err)
	}
	switch must := os.Getenv(EnvS3); {
	case must == "0":
		t.Skipf("tests on a real S3 server are switched off by %s=0", EnvS3)
	case must != "":
		if binary, err = BuildVersityGW(t.Context()); err != nil {
			t.Fatal(err)
		}
	case !exists(binary):
		t.Skipf("set %s=1 to build versitygw (about 90 s, once) and run this test", EnvS3)
	}
	srv, err := StartServer(t.Context(), binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Stop(); err != nil {
			t.Error(err)
		}
	})
	return srv
}

// StartServer starts a built versitygw over dir on a loopback port that the kernel chose, and waits until it answers.
func StartServer(ctx context.Context, binary, dir string) (*Server, error) {
	var errs []error
	for range startTries { // another process may take the port between choosing and using it
		srv, err := startOnce(ctx, binary, dir)
		if err == nil {
			return srv, nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, fmt.Errorf("start versitygw: %w", errors.Join(errs...))
}

func startOnce(ctx context.Context, binary, dir string) (*Server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	health := "/health-" + rand.Text() // only our own process knows it
	s := &Server{
		Endpoint: "http://" + port, AccessKey: rand.Text()[:20], SecretKey: rand.Text() + rand.Text(),
		Region: serverRegion, Dir: dir, done: make(chan struct{}),
	}
	s.cmd = exec.Command(binary, "--port", port, "--region", s.Region, "--keep-alive", "--quiet", "--health", health, "posix", dir)
	s.cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+s.AccessKey, "ROOT_SECRET_KEY="+s.SecretKey)
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	if err := startTied(s.cmd, s.done); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := s.waitReady(ctx, health); err != nil {
		return nil, errors.Join(err, s.Stop(), fmt.Errorf("its output: %s", s.log.String()))
	}
	return s, nil
}

func (s *Server) waitReady(ctx context.Context, health string) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-s.done:
			return errors.New("versitygw ended at once")
		case <-ctx.Done():
			return fmt.Errorf("versitygw does not answer: %w", ctx.Err())
		case <-tick.C:
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Endpoint+health, nil)
		if err != nil {
			return err
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_ = resp.Body.Close() // only the status counts
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
	}
}

// Stop ends the server; a second call does nothing.
func (s *Server) Stop() error {
	select {
	case <-s.done:
		return nil
	default:
	}
	if err := s.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop versitygw: %w", err)
	}
	<-s.done
	return nil
}

// Done is closed when the server has ended.
func (s *Server) Done() <-chan struct{} { return s.done }

// Log is what the server has printed so far.
func (s *Server) Log() string { return s.log.String() }

// MakeBucket makes a bucket.
func (s *Server) MakeBucket(name string) error { return os.MkdirAll(filepath.Join(s.Dir, name), 0o755) }

// URL is a store URL for Open.
func (s *Server) URL(bucket, prefix string) string {
	q := url.Values{"endpoint": {s.Endpoint}, "region": {s.Region}, "path-style": {"true"}}
	u := url.URL{Scheme: "s3", Host: bucket, Path: prefix, RawQuery: q.Encode()}
	return u.String()
}

// Options are the options for Open that let it in.
func (s *Server) Options() objstore.Options {
	return objstore.Options{Credentials: objstore.Credentials{AccessKey: s.AccessKey, SecretKey: s.SecretKey}}
}

// Env lists the variables that let a process in through the AWS chain.
func (s *Server) Env() []string {
	return []string{"AWS_ACCESS_KEY_ID=" + s.AccessKey, "AWS_SECRET_ACCESS_KEY=" + s.SecretKey, "AWS_REGION=" + s.Region}
}

// freePort asks the kernel for a loopback port.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// lockedBuffer keeps the last part of what a process prints.
type lockedBuffer struct {
	mu  sync.Mutex // guards the following
	buf bytes.Buffer
}

const logBytesMax = 256 << 10

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.buf.Len()+len(p) > logBytesMax {
		b.buf.Next(b.buf.Len() / 2)
	}
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Clone(b.buf.String())
}
