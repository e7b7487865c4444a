package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/varvelog/varve/tier/objstore"
	"github.com/varvelog/varve/tier/objstore/s3front"
)

const (
	// devBucket is the bucket of a local cluster's S3 server.
	devBucket = "varve"
	// devNodesMax is how many nodes a local cluster has at most: all of them vote.
	devNodesMax = 5
	// devReturn is how long a node of a local cluster that was killed stays away.
	devReturn = 10 * time.Second
	// devStart bounds how long the nodes may take to form their cluster.
	devStart = 90 * time.Second
)

// devCluster is a local cluster: an S3 server in this process, and a process
// for every node, so that each can be killed by hand.
type devCluster struct {
	dir, listen, http, s3, store, logLevel string
	nodes                                  int
	set                                    settings

	out   io.Writer
	print *sync.Mutex    // one line at a time
	wg    sync.WaitGroup // of the nodes
}

// devNode is one node's process and where it is.
type devNode struct {
	id          int
	kafka, http string
	config      string
	ready       string
	pid         int // of the process that was started last
}

// start checks what it was told and runs.
func (d *devCluster) start(cmd *cobra.Command, set []string) error {
	switch {
	case d.nodes < 2 || d.nodes > devNodesMax:
		return fmt.Errorf("--nodes %d: choose 1, or a cluster of 2 to %d", d.nodes, devNodesMax)
	case cmd.Flags().Changed("ready-file"):
		return errors.New("--ready-file is for one node; a cluster's are DIR/node-N/ready.json")
	case strings.HasPrefix(d.store, "mem:"):
		return errors.New("--store mem: is no store that several nodes could share")
	}
	if err := d.set.addPairs(set); err != nil {
		return err
	}
	if cmd.Flags().Changed("store") {
		d.s3 = ""
	}
	return d.run(cmd.Context())
}

// run starts everything, says what to try, and ends with ctx, or when the
// nodes cannot form a cluster.
func (d *devCluster) run(ctx context.Context) (err error) {
	d.print = &sync.Mutex{}
	if d.dir, err = filepath.Abs(d.dir); err != nil {
		return err
	}
	if d.store == "" {
		stop, err := d.serveBucket()
		if err != nil {
			return err
		}
		defer stop()
	}
	nodes, err := d.configure()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, len(nodes))
	defer func() {
		cancel()
		d.wg.Wait()
	}()
	for _, n := range nodes {
		d.wg.Go(func() { // ends when the node's process has, after ctx
			if err := d.keep(ctx, n); err != nil {
				ended <- fmt.Errorf("node %d: %w", n.id, err)
			}
		})
	}
	if err := d.awaitReady(ctx, nodes, ended); err != nil {
		return err
	}
	d.tell(nodes)
	select {
	case <-ctx.Done():
		return nil
	case err := <-ended:
		return err
	}
}

// serveBucket serves the folder DIR/bucket over S3's API.
func (d *devCluster) serveBucket() (stop func(), err error) {
	folder, err := objstore.OpenFolder(filepath.Join(d.dir, "bucket"))
	if err != nil {
		return nil, err
	}
	server, err := s3front.New(devBucket, folder, filepath.Join(d.dir, "s3-temp"), nil)
	if err != nil {
		return nil, errors.Join(err, folder.Close())
	}
	l, err := net.Listen("tcp", d.s3)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen for S3: %w: choose another address with --s3, or name a bucket with --store", err), folder.Close())
	}
	d.s3 = l.Addr().String()
	d.store = fmt.Sprintf("s3://%s?region=local&path-style=true&endpoint=http://%s", devBucket, d.s3)
	served := make(chan struct{})
	go func() { // ends with the server
		defer close(served)
		if err := server.Serve(l); err != nil {
			d.say("S3 server: %v", err)
		}
	}()
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = server.Close(ctx) // the nodes are gone: nothing is under way
		<-served
		_ = folder.Close()
	}, nil
}

// configure chooses addresses and writes a file of settings for each node.
func (d *devCluster) configure() ([]*devNode, error) {
	host, kafka, err := splitPort("--listen", d.listen)
	if err != nil {
		return nil, err
	}
	httpHost, http, err := "", 0, error(nil)
	if d.http != "" {
		if httpHost, http, err = splitPort("--http", d.http); err != nil {
			return nil, err
		}
	}
	var nodes []*devNode
	var voters, controllers []string
	for id := 1; id <= d.nodes; id++ {
		n := &devNode{id: id}
		if n.kafka, err = portFrom(host, kafka, id-1); err != nil {
			return nil, err
		}
		controller, err := portFrom(host, kafka, 100+id-1)
		if err != nil {
			return nil, err
		}
		if d.http != "" {
			if n.http, err = portFrom(httpHost, http, id-1); err != nil {
				return nil, err
			}
		}
		controllers = append(controllers, controller)
		voters = append(voters, fmt.Sprintf("%d@%s", id, controller))
		nodes = append(nodes, n)
	}
	for i, n := range nodes {
		dir := filepath.Join(d.dir, fmt.Sprintf("node-%d", n.id))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("make the directory of node %d: %w", n.id, err)
		}
		n.config, n.ready = filepath.Join(dir, "varve.yaml"), filepath.Join(dir, "ready.json")
		s := settings{
			"node.id":                          strconv.Itoa(n.id),
			"listeners":                        fmt.Sprintf("PLAINTEXT://%s,CONTROLLER://%s", n.kafka, controllers[i]),
			"controller.quorum.voters":         strings.Join(voters, ","),
			"log.dirs":                         filepath.Join(dir, "data"),
			"broker.rack":                      fmt.Sprintf("rack-%d", n.id),
			"default.replication.factor":       strconv.Itoa(min(3, d.nodes)),
			"min.insync.replicas":              strconv.Itoa(min(2, d.nodes-1)),
			"group.initial.rebalance.delay.ms": "0",
			"varve.http.listen":                n.http,
			"varve.tier.store":                 d.store,
		}
		maps.Copy(s, d.set)
		if err := s.write(n.config); err != nil {
			return nil, err
		}
	}
	return nodes, nil
}

// splitPort reads HOST:PORT.
func splitPort(flag, address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	if err != nil || port < 0 || port > 65000 || host == "" {
		return "", 0, fmt.Errorf("%s %q: a local cluster needs HOST:PORT, of which the nodes take the ports from there on (0: any free ones)", flag, address)
	}
	return host, port, nil
}

// portFrom is the address at so many ports above the first, or at any free
// port when that is 0.
func portFrom(host string, first, above int) (string, error) {
	if first > 0 {
		return net.JoinHostPort(host, strconv.Itoa(first+above)), nil
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// write writes settings as a file that serve reads.
func (s settings) write(path string) error {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(s)) {
		fmt.Fprintf(&b, "%s: %s\n", name, strconv.Quote(s[name]))
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		return fmt.Errorf("write settings: %w", err)
	}
	return nil
}

// keep runs a node's process, and starts it again a while after it was killed.
// A process that ends by itself has a reason, which its log gives.
func (d *devCluster) keep(ctx context.Context, n *devNode) error {
	for {
		err := d.runNode(ctx, n)
		var exit *exec.ExitError
		switch status, _ := exitSignal(err); {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &exit) && status != 0:
			d.say("node %d is gone (%v): the others take over what it led. It comes back in %v", n.id, err, devReturn)
		default:
			return fmt.Errorf("ended: %w", errors.Join(err, errNodeEnded))
		}
		pause := time.NewTimer(devReturn)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil
		}
	}
}

// errNodeEnded is returned when a node of a local cluster ends by itself.
var errNodeEnded = errors.New("its log above says why")

// exitSignal is the signal that ended a process; 0 when it ended by itself.
func exitSignal(err error) (syscall.Signal, bool) {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return status.Signal(), true
		}
	}
	return 0, false
}

// runNode runs a node's process until it ends, or ends it in order with ctx.
func (d *devCluster) runNode(ctx context.Context, n *devNode) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.Remove(n.ready); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	cmd := exec.CommandContext(ctx, self, "serve", "--config", n.config, "--ready-file", n.ready, "--log-level", d.logLevel)
	cmd.Env = devEnvironment(os.Environ())
	lines := &prefixed{d: d, prefix: fmt.Sprintf("node %d | ", n.id)}
	cmd.Stdout, cmd.Stderr = lines, lines
	// A group of their own: Ctrl-C reaches this process alone, which ends them.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopLimit
	if err := cmd.Start(); err != nil {
		return err
	}
	d.print.Lock()
	n.pid = cmd.Process.Pid
	d.print.Unlock()
	return cmd.Wait()
}

// devEnvironment leaves out settings, as dev does, and gives the S3 server
// credentials, of which it believes any.
func devEnvironment(environ []string) []string {
	environ = slices.DeleteFunc(slices.Clone(environ), func(pair string) bool { return strings.HasPrefix(pair, envPrefix) })
	if os.Getenv("AWS_ACCESS_KEY_ID") == "" {
		environ = append(environ, "AWS_ACCESS_KEY_ID=varve", "AWS_SECRET_ACCESS_KEY=varve")
	}
	return environ
}

func (d *devCluster) awaitReady(ctx context.Context, nodes []*devNode, ended <-chan error) error {
	limit := time.NewTimer(devStart)
	defer limit.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		left := len(nodes)
		for _, n := range nodes {
			if b, err := os.ReadFile(n.ready); err == nil && json.Valid(b) {
				left--
			}
		}
		if left == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case err := <-ended:
			return err
		case <-ctx.Done():
			return nil
		case <-limit.C:
			return fmt.Errorf("%d of %d nodes do not serve after %v; their logs above say why", left, len(nodes), devStart)
		}
	}
}

// tell says what there is, and what to try.
func (d *devCluster) tell(nodes []*devNode) {
	var b strings.Builder
	var kafka []string
	fmt.Fprintf(&b, "\n%d nodes are one cluster:\n", len(nodes))
	d.print.Lock()
	for _, n := range nodes {
		kafka = append(kafka, n.kafka)
		fmt.Fprintf(&b, "  node %d  pid %-7d  Kafka %s", n.id, n.pid, n.kafka)
		if n.http != "" {
			fmt.Fprintf(&b, "  console http://%s/", n.http)
		}
		b.WriteByte('\n')
	}
	d.print.Unlock()
	if d.s3 != "" {
		fmt.Fprintf(&b, "  S3      bucket %s at http://%s (any credentials), kept in %s\n", devBucket, d.s3, filepath.Join(d.dir, "bucket"))
	}
	fmt.Fprintf(&b, `
Try, in another terminal:
  export VARVE_BOOTSTRAP=%s
  varve topic create events --partitions 6 --tiered
  seq 100000 | varve produce events
  varve cluster describe
  kill -9 %d                 # the others take over within a second or so; node %d comes back after %v
  varve topic describe events
A further node, on any free ports:
  %s
Ctrl-C ends all of it; the same command goes on with the same data.
`, strings.Join(kafka, ","), nodes[1].pid, nodes[1].id, devReturn, d.joinLine(nodes, os.Getenv("AWS_ACCESS_KEY_ID") != ""))
	d.print.Lock()
	defer d.print.Unlock()
	fmt.Fprintln(d.out, b.String())
}

// joinLine starts one node more, with the credentials that devEnvironment gives
// the others.
func (d *devCluster) joinLine(nodes []*devNode, credentials bool) string {
	id := len(nodes) + 1
	line := fmt.Sprintf("varve serve --join %s --set node.id=%d --set listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0 --set log.dirs='%s' --set broker.rack=rack-%d --set 'varve.tier.store=%s'",
		nodes[0].kafka, id, filepath.Join(d.dir, fmt.Sprintf("node-%d", id), "data"), id, d.store)
	if !credentials {
		line = "AWS_ACCESS_KEY_ID=varve AWS_SECRET_ACCESS_KEY=varve " + line
	}
	return line
}

func (d *devCluster) say(format string, args ...any) {
	d.print.Lock()
	defer d.print.Unlock()
	fmt.Fprintf(d.out, format+"\n", args...)
}

// prefixed writes a node's lines whole, with its name before them. One
// goroutine writes.
type prefixed struct {
	d      *devCluster
	prefix string
	rest   []byte // of a line that has not ended
}

// lineMax bounds what is kept of a line that does not end.
const lineMax = 64 << 10

func (p *prefixed) Write(b []byte) (int, error) {
	p.rest = append(p.rest, b...)
	for {
		n, line, err := bufio.ScanLines(p.rest, len(p.rest) > lineMax)
		if err != nil || n == 0 {
			return len(b), err
		}
		p.d.say("%s%s", p.prefix, line)
		p.rest = append(p.rest[:0], p.rest[n:]...)
	}
}
