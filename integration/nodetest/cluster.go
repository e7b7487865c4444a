package nodetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ClusterOptions say what a cluster is made of. The zero value is three nodes
// on 127.0.0.1 with a folder as their bucket.
type ClusterOptions struct {
	// Nodes is how many form the cluster; 0 means 3. All of them vote.
	Nodes int
	// Dir holds everything; "" means a directory of the test's.
	Dir string
	// Store is the bucket; "" means a folder in Dir, "none" means none.
	Store string
	// Settings are broker settings of every node, NodeSettings of one.
	Settings     map[string]string
	NodeSettings func(id int32) map[string]string
	// Host is the address a node listens on and is known by; nil means
	// 127.0.0.1 for all. Nodes with addresses of their own have the same ports.
	Host func(id int32) string
	// Command changes the command line of a node, such as to run it in a
	// network namespace; nil leaves it.
	Command func(id int32, line []string) []string
	// Secure has everything of the cluster speak TLS: its listeners, by the ssl.*
	// settings, and the harness's own clients, by the options in Client.
	Secure bool
	Client []kgo.Opt
	// Public adds a listener of plain text for clients to a Secure cluster; to
	// another it adds the port alone.
	Public bool
	// Binary is the varve of a node; nil means Binary for all.
	Binary func(id int32) (string, error)
}

// Cluster is several nodes that are one cluster.
type Cluster struct {
	t       T
	options ClusterOptions
	nodes   map[int32]*Node
	voters  string
	ports   map[int32]ports
	client  *kgo.Client
}

type ports struct{ kafka, controller, http, public int }

// StartCluster forms a cluster and waits until all of its nodes serve. They
// are killed when the test ends.
func StartCluster(t T, options ClusterOptions) *Cluster {
	t.Helper()
	if options.Nodes == 0 {
		options.Nodes = 3
	}
	c := newCluster(t, options)
	var voters []string
	for id := int32(1); id <= int32(options.Nodes); id++ {
		voters = append(voters, fmt.Sprintf("%d@%s", id, c.address(id, c.portsOf(id).controller)))
	}
	c.voters = strings.Join(voters, ",")
	for id := int32(1); id <= int32(options.Nodes); id++ {
		c.launch(id, map[string]string{"controller.quorum.voters": c.voters})
	}
	for _, n := range c.Nodes() {
		n.awaitReady()
	}
	return c
}

// StartAlone starts one node that knows of no others: it has no listener for a
// quorum. Relaunch gives it one.
func StartAlone(t T, options ClusterOptions) *Cluster {
	t.Helper()
	c := newCluster(t, options)
	c.launch(1, map[string]string{"listeners": "PLAINTEXT://" + c.address(1, c.portsOf(1).kafka)}).awaitReady()
	return c
}

// Relaunch stops a node and starts it again with the settings of a cluster's node, and these.
func (c *Cluster) Relaunch(id int32, settings map[string]string) *Node {
	c.t.Helper()
	c.nodes[id].Stop()
	n := c.launch(id, settings)
	n.awaitReady()
	return n
}

func newCluster(t T, options ClusterOptions) *Cluster {
	t.Helper()
	if options.Dir == "" {
		options.Dir = t.TempDir()
	}
	if options.Store == "" {
		options.Store = "file://" + filepath.Join(options.Dir, "bucket")
	}
	if options.Host == nil {
		options.Host = func(int32) string { return "127.0.0.1" }
	}
	if options.Binary == nil {
		options.Binary = func(int32) (string, error) { return Binary() }
	}
	return &Cluster{t: t, options: options, nodes: map[int32]*Node{}, ports: map[int32]ports{}}
}

// portsOf chooses a node's ports once.
func (c *Cluster) portsOf(id int32) ports {
	p, ok := c.ports[id]
	if ok {
		return p
	}
	p = ports{kafka: FreePort(c.t), controller: FreePort(c.t), http: FreePort(c.t)}
	if c.options.Public {
		p.public = FreePort(c.t)
	}
	c.ports[id] = p
	return p
}

func (c *Cluster) address(id int32, port int) string {
	return net.JoinHostPort(c.options.Host(id), strconv.Itoa(port))
}

func (c *Cluster) protocol() string {
	if c.options.Secure {
		return "SSL"
	}
	return "PLAINTEXT"
}

// launch writes a node's settings and starts it.
func (c *Cluster) launch(id int32, own map[string]string) *Node {
	c.t.Helper()
	dir := filepath.Join(c.options.Dir, fmt.Sprintf("node-%d", id))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		c.t.Fatal(err)
	}
	p := c.portsOf(id)
	settings := map[string]string{
		"node.id":                          strconv.Itoa(int(id)),
		"listeners":                        fmt.Sprintf("%s://%s,CONTROLLER://%s", c.protocol(), c.address(id, p.kafka), c.address(id, p.controller)),
		"log.dirs":                         filepath.Join(dir, "data"),
		"varve.http.listen":                c.address(id, p.http),
		"group.initial.rebalance.delay.ms": "0",
	}
	if c.options.Secure {
		settings["listener.security.protocol.map"] = "SSL:SSL,CONTROLLER:SSL,PUBLIC:PLAINTEXT"
	}
	if c.options.Secure && c.options.Public {
		settings["listeners"] += ",PUBLIC://" + c.address(id, p.public)
		settings["inter.broker.listener.name"] = "SSL"
	}
	if c.options.Store != "none" {
		settings["varve.tier.store"] = c.options.Store
	}
	maps.Copy(settings, c.options.Settings)
	if c.options.NodeSettings != nil {
		maps.Copy(settings, c.options.NodeSettings(id))
	}
	maps.Copy(settings, own)
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&text, "%s: %q\n", name, settings[name])
	}
	config := filepath.Join(dir, "varve.yaml")
	if err := os.WriteFile(config, []byte(text.String()), 0o644); err != nil {
		c.t.Fatal(err)
	}
	n := newNode(c.t, dir, id, func(_, _ string) []string {
		path, err := c.options.Binary(id)
		if err != nil {
			c.t.Fatal(err)
		}
		line := []string{path, "serve", "--config", config}
		if c.options.Command != nil {
			line = c.options.Command(id, line)
		}
		return line
	})
	n.Bootstrap, n.HTTP, n.Controller = c.address(id, p.kafka), c.address(id, p.http), c.address(id, p.controller)
	n.Public = c.address(id, p.public)
	c.nodes[id] = n
	n.start()
	return n
}

// Join starts a further node that asks the running ones to be let in, and
// waits until it serves.
func (c *Cluster) Join(id int32, settings map[string]string) *Node {
	c.t.Helper()
	n := c.LaunchJoin(id, settings)
	n.awaitReady()
	return n
}

// LaunchJoin is Join without the wait.
func (c *Cluster) LaunchJoin(id int32, settings map[string]string) *Node {
	c.t.Helper()
	own := map[string]string{"controller.quorum.bootstrap.servers": strings.Join(c.addresses(), ",")}
	maps.Copy(own, settings)
	return c.launch(id, own)
}

// Voters are the nodes that formed the cluster, as controller.quorum.voters.
func (c *Cluster) Voters() string { return c.voters }

// Node is one of the cluster's.
func (c *Cluster) Node(id int32) *Node { return c.nodes[id] }

// Nodes are all nodes, by id, running or not.
func (c *Cluster) Nodes() []*Node {
	list := slices.Collect(maps.Values(c.nodes))
	slices.SortFunc(list, func(a, b *Node) int { return int(a.ID - b.ID) })
	return list
}

// Forget takes a node out of the harness, after it was removed from the
// cluster: it is killed, and no longer asked or named.
func (c *Cluster) Forget(id int32) {
	c.nodes[id].Kill()
	delete(c.nodes, id)
}

func (c *Cluster) addresses() []string {
	var list []string
	for _, n := range c.Nodes() {
		list = append(list, n.Bootstrap)
	}
	return list
}

// Bootstrap are the addresses of all nodes.
func (c *Cluster) Bootstrap() string { return strings.Join(c.addresses(), ",") }

// Client is a franz-go client of the cluster, closed when the test ends. A node
// that stops may close a connection before its first request, which is to be
// tried again like any other.
func (c *Cluster) Client(opts ...kgo.Opt) *kgo.Client {
	c.t.Helper()
	cl, err := kgo.NewClient(slices.Concat([]kgo.Opt{kgo.SeedBrokers(c.addresses()...), kgo.MetadataMinAge(50 * time.Millisecond), kgo.AlwaysRetryEOF()}, c.options.Client, opts)...)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(cl.Close)
	return cl
}

// Admin is a kadm client of the cluster.
func (c *Cluster) Admin() *kadm.Client {
	if c.client == nil {
		c.client = c.Client()
	}
	return kadm.NewClient(c.client)
}

// CreateTopic creates a topic and waits until all of its replicas are in sync.
func (c *Cluster) CreateTopic(name string, partitions int32, replicas int16, settings map[string]string) {
	c.t.Helper()
	configs := map[string]*string{}
	for k, v := range settings {
		configs[k] = &v
	}
	Eventually(c.t, time.Minute, "topic "+name+" is created", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, err := c.Admin().CreateTopic(ctx, partitions, replicas, configs, name)
		if errors.Is(err, kerr.TopicAlreadyExists) { // an answer of an earlier try was lost
			return nil
		}
		return err
	})
	c.WaitInSync(time.Minute, name)
}

// Metadata asks one node what it knows of topics; none means all topics.
func (c *Cluster) Metadata(id int32, topics ...string) (kadm.Metadata, error) {
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(c.nodes[id].Bootstrap), kgo.AlwaysRetryEOF()}, c.options.Client...)...)
	if err != nil {
		return kadm.Metadata{}, err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return kadm.NewClient(cl).Metadata(ctx, topics...)
}

// running are the nodes whose process is there.
func (c *Cluster) running() []*Node {
	return slices.DeleteFunc(c.Nodes(), func(n *Node) bool { return !n.Running() })
}

// WaitInSync waits until every running node says that every partition of the
// topics has a leader and all its replicas in sync; none means all topics.
func (c *Cluster) WaitInSync(limit time.Duration, topics ...string) {
	c.t.Helper()
	Eventually(c.t, limit, "all replicas are in sync", func() error {
		for _, n := range c.running() {
			m, err := c.Metadata(n.ID, topics...)
			if err != nil {
				return fmt.Errorf("node %d: %w", n.ID, err)
			}
			if err := inSync(m, topics); err != nil {
				return fmt.Errorf("node %d: %w", n.ID, err)
			}
		}
		return nil
	})
}

func inSync(m kadm.Metadata, topics []string) error {
	for _, name := range topics {
		if t, ok := m.Topics[name]; !ok || t.Err != nil || len(t.Partitions) == 0 {
			return fmt.Errorf("topic %s is not there: %v", name, t.Err)
		}
	}
	for _, t := range m.Topics {
		for _, p := range t.Partitions {
			if p.Err != nil || p.Leader < 0 || len(p.ISR) != len(p.Replicas) {
				return fmt.Errorf("%s-%d: leader %d, replicas %v, in sync %v: %v", t.Topic, p.Partition, p.Leader, p.Replicas, p.ISR, p.Err)
			}
		}
	}
	return nil
}

// Leader is who leads a partition, by any running node; it waits until
// somebody does.
func (c *Cluster) Leader(topic string, partition int32) int32 {
	c.t.Helper()
	leader := int32(-1)
	Eventually(c.t, time.Minute, fmt.Sprintf("%s-%d has a leader", topic, partition), func() error {
		running := c.running()
		if len(running) == 0 {
			return fmt.Errorf("no node runs")
		}
		m, err := c.Metadata(running[0].ID, topic)
		if err != nil {
			return err
		}
		p, ok := m.Topics[topic].Partitions[partition]
		if !ok || p.Err != nil || p.Leader < 0 {
			return fmt.Errorf("no leader: %v", p.Err)
		}
		leader = p.Leader
		return nil
	})
	return leader
}
