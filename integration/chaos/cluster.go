//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/varvelog/varve/tier/objstore/objstoretest"
)

const (
	clientPort = 9092
	raftPort   = 9093
	httpPort   = 9644
	diskBytes  = 768 << 20
	reserve    = 64 << 20
)

// cluster is the system under test: brokers, their network, the bucket.
type cluster struct {
	dir     string
	net     *network
	brokers []*broker // brokers[i] has the id i+1
	s3      *objstoretest.Server
	proxy   *s3proxy
	store   string // URL for brokers
	spawn   *spawner
}

// shape says what cluster a row needs.
type shape struct {
	brokers    int
	joiners    int // further brokers, which are no members at first
	durability string
	disks      bool // each broker on an ext4 of its own
	settings   map[string]string
}

// makeCluster starts the bucket and makes the brokers, which are still down.
func makeCluster(ctx context.Context, dir, binary string, n *network, s shape) (*cluster, error) {
	c := &cluster{dir: dir, net: n}
	if err := c.startBucket(ctx); err != nil {
		return c, err
	}
	c.spawn = newSpawner()
	for id := 1; id <= s.brokers+s.joiners; id++ {
		b := &broker{id: id, member: id <= s.brokers, dir: filepath.Join(dir, fmt.Sprint("broker-", id)), binary: binary, spawn: c.spawn,
			retired: make(chan struct{}), env: append(os.Environ(), c.s3.Env()...)}
		b.data = filepath.Join(b.dir, "data")
		if n.prefix != "" {
			b.namespace = n.namespace(fmt.Sprint(id))
		}
		if err := os.MkdirAll(b.data, 0o755); err != nil {
			return c, err
		}
		if s.disks {
			var err error
			if b.disk, err = makeDisk(b.data, diskBytes); err != nil {
				return c, err
			}
			b.data = filepath.Join(b.data, "varve") // beside the filler, and lost+found
		}
		config := filepath.Join(b.dir, "varve.yaml")
		if err := os.WriteFile(config, []byte(c.settings(b, s)), 0o644); err != nil {
			return c, err
		}
		b.args = []string{"--config", config}
		c.brokers = append(c.brokers, b)
	}
	return c, nil
}

// startBucket starts the S3 server, and the proxy at the bucket's address.
func (c *cluster) startBucket(ctx context.Context) error {
	gateway, err := objstoretest.BuildVersityGW(ctx)
	if err != nil {
		return err
	}
	folder := filepath.Join(c.dir, "s3")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	if c.s3, err = objstoretest.StartServer(ctx, gateway, folder); err != nil {
		return err
	}
	if err := c.s3.MakeBucket("archive"); err != nil {
		return err
	}
	if c.proxy, err = startS3Proxy(net.JoinHostPort(c.net.host(bucket), "0"), c.s3.Endpoint); err != nil {
		return err
	}
	c.store = fmt.Sprintf("s3://archive/varve?endpoint=http://%s&region=%s&path-style=true", c.proxy.addr, c.s3.Region)
	return nil
}

// settings is a broker's configuration file. Timeouts are short, so that a
// minute has many elections, but not so short that a busy machine flaps.
func (c *cluster) settings(b *broker, s shape) string {
	host := c.net.host(b.id)
	all := map[string]string{
		"node.id":                                  fmt.Sprint(b.id),
		"listeners":                                fmt.Sprintf("PLAINTEXT://%s:%d", host, clientPort),
		"log.dirs":                                 b.data,
		"broker.rack":                              fmt.Sprint("rack-", b.id),
		"varve.http.listen":                        net.JoinHostPort(host, fmt.Sprint(httpPort)),
		"varve.tier.store":                         c.store,
		"varve.tier.delete.grace.ms":               "5000",
		"varve.durability":                         s.durability,
		"varve.disk.reserve.bytes":                 fmt.Sprint(reserve),
		"log.retention.check.interval.ms":          "1000",
		"varve.log.verify.interval.ms":             "0", // flips are found by who reads next
		"offsets.topic.num.partitions":             "2",
		"transaction.state.log.num.partitions":     "2",
		"group.initial.rebalance.delay.ms":         "0",
		"auto.create.topics.enable":                "false",
		"default.replication.factor":               fmt.Sprint(min(3, s.brokers)),
		"min.insync.replicas":                      fmt.Sprint(min(2, s.brokers)),
		"offsets.topic.replication.factor":         fmt.Sprint(min(3, s.brokers)),
		"transaction.state.log.replication.factor": fmt.Sprint(min(3, s.brokers)),
		"transaction.state.log.min.isr":            fmt.Sprint(min(2, s.brokers)),
	}
	if s.brokers > 1 {
		// Whoever joins asks there; a voter that has lost its disk does, too.
		all["controller.quorum.bootstrap.servers"] = strings.Join(c.addresses(1, s.brokers), ",")
		var voters []string
		for id := 1; id <= s.brokers; id++ {
			voters = append(voters, fmt.Sprintf("%d@%s:%d", id, c.net.host(id), raftPort))
		}
		all["listeners"] += fmt.Sprintf(",CONTROLLER://%s:%d", host, raftPort)
		all["controller.listener.names"] = "CONTROLLER"
		if b.id <= s.brokers {
			all["controller.quorum.voters"] = strings.Join(voters, ",")
		}
		all["broker.heartbeat.interval.ms"] = "500"
		all["broker.session.timeout.ms"] = "3000"
		all["replica.lag.time.max.ms"] = "5000"
		all["replica.selector.class"] = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
	}
	for name, value := range s.settings {
		all[name] = value
	}
	var text strings.Builder
	for name, value := range all {
		fmt.Fprintf(&text, "%s: %q\n", name, value)
	}
	return text.String()
}

// bootstrap are the addresses that clients begin with.
func (c *cluster) bootstrap() []string { return c.addresses(1, len(c.brokers)) }

func (c *cluster) addresses(from, to int) []string {
	var all []string
	for id := from; id <= to; id++ {
		all = append(all, net.JoinHostPort(c.net.host(id), fmt.Sprint(clientPort)))
	}
	return all
}

// members are the brokers that belong to the cluster now.
func (c *cluster) members() []*broker {
	var all []*broker
	for _, b := range c.brokers {
		if b.isMember() {
			all = append(all, b)
		}
	}
	return all
}

func (c *cluster) broker(id int) *broker { return c.brokers[id-1] }

// start starts what is down and waits until all serve.
func (c *cluster) start(ctx context.Context) error {
	var errs []error
	for _, b := range c.members() {
		errs = append(errs, b.start())
	}
	for _, b := range c.members() {
		errs = append(errs, b.waitReady(ctx))
	}
	return errors.Join(errs...)
}

// heal takes every fault away: cuts, pauses, full disks, a bad bucket, dead
// brokers.
func (c *cluster) heal(ctx context.Context) error {
	errs := []error{c.net.heal()}
	c.proxy.behave()
	for _, b := range c.brokers {
		errs = append(errs, b.resume())
		errs = append(errs, b.jumpClock(0))
		if b.disk != nil {
			errs = append(errs, b.mend(), b.disk.drain())
		}
	}
	return errors.Join(append(errs, c.start(ctx))...)
}

// saveMetrics keeps what the brokers say of themselves, for whoever looks into
// a bad verdict.
func (c *cluster) saveMetrics(ctx context.Context) {
	for _, b := range c.brokers {
		limited, cancel := context.WithTimeout(ctx, 5*time.Second)
		text, err := fetch(limited, fmt.Sprintf("http://%s:%d/metrics", c.net.host(b.id), httpPort))
		cancel()
		if err != nil {
			text = []byte(err.Error())
		}
		_ = os.WriteFile(filepath.Join(b.dir, "metrics.txt"), text, 0o644)
	}
}

func fetch(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(io.LimitReader(resp.Body, 16<<20))
}

// stop ends all brokers, in order for the auditor, or with all their
// goroutines in their logs for whoever looks into why they hang.
func (c *cluster) stop(telling bool) error {
	done := make(chan error)
	for _, b := range c.brokers {
		b.retire()
		go func() {
			if telling {
				done <- b.end(syscall.SIGQUIT, time.Minute)
			} else {
				done <- b.stop()
			}
		}()
	}
	var errs []error
	for range c.brokers {
		errs = append(errs, <-done)
	}
	return errors.Join(errs...)
}

// close ends everything at once and unmounts the disks. The directories stay.
func (c *cluster) close() error {
	var errs []error
	for _, b := range c.brokers {
		b.retire()
		errs = append(errs, b.kill())
		b.watching.Wait()
		if b.disk != nil {
			errs = append(errs, b.disk.unmount(), os.Remove(b.disk.image))
		}
	}
	if c.proxy != nil {
		errs = append(errs, c.proxy.close())
	}
	if c.s3 != nil {
		errs = append(errs, c.s3.Stop())
	}
	return errors.Join(errs...)
}

// healLimit bounds the start of brokers after the last fault.
const healLimit = 2 * time.Minute
