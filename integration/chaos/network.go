//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// network is the addresses of a run, and what keeps them apart. Without
// namespaces everything is on the loopback and nothing can be cut.
type network struct {
	prefix  string // of the namespaces' names; "" without
	subnet  int    // 10.subnet.…
	brokers int

	mu  sync.Mutex // guards the following
	cut map[[2]string]bool
}

// The endpoints that are not brokers.
const (
	clients = 0
	bucket  = -1
)

const namespacePrefix = "vchaos"

// ip runs the ip tool.
func ip(args ...string) error {
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// makeNetwork makes the namespaces of this process's run.
func makeNetwork(brokers int) (*network, error) {
	n := &network{prefix: fmt.Sprint(namespacePrefix, os.Getpid()), subnet: 64 + os.Getpid()%128, brokers: brokers, cut: map[[2]string]bool{}}
	if err := n.build(); err != nil {
		return nil, errors.Join(err, n.remove())
	}
	return n, nil
}

func (n *network) namespace(end string) string { return n.prefix + "-" + end }

// build makes a star: the router in the middle, one veth pair to each end.
// The clients' end has the bucket's address too.
func (n *network) build() error {
	router := n.namespace("r")
	steps := [][]string{{"netns", "add", router}, {"-n", router, "link", "set", "lo", "up"}}
	for i := range n.brokers + 1 {
		ns, link := n.namespace(strconv.Itoa(i)), fmt.Sprint("v", i)
		net := fmt.Sprintf("10.%d.%d.", n.subnet, i)
		steps = append(steps,
			[]string{"netns", "add", ns},
			[]string{"-n", ns, "link", "set", "lo", "up"},
			[]string{"link", "add", link, "netns", router, "type", "veth", "peer", "name", "eth0", "netns", ns},
			[]string{"-n", ns, "addr", "add", net + "2/24", "dev", "eth0"},
			[]string{"-n", ns, "link", "set", "eth0", "up"},
			[]string{"-n", ns, "route", "add", "default", "via", net + "1"},
			[]string{"-n", router, "addr", "add", net + "1/24", "dev", link},
			[]string{"-n", router, "link", "set", link, "up"})
	}
	steps = append(steps, []string{"-n", n.namespace("0"), "addr", "add", n.host(bucket) + "/24", "dev", "eth0"},
		[]string{"netns", "exec", router, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"})
	for _, s := range steps {
		if err := ip(s...); err != nil {
			return err
		}
	}
	return nil
}

// remove removes the namespaces, and with them links, addresses and rules.
func (n *network) remove() error {
	return removeNamespaces(func(name string) bool { return strings.HasPrefix(name, n.prefix+"-") })
}

func removeNamespaces(which func(string) bool) error {
	names, err := filepath.Glob("/var/run/netns/" + namespacePrefix + "*")
	for _, path := range names {
		if name := filepath.Base(path); which(name) {
			err = errors.Join(err, ip("netns", "del", name))
		}
	}
	return err
}

// sweepNamespaces removes what runs that were killed have left.
func sweepNamespaces() error {
	return removeNamespaces(func(name string) bool {
		number, _, _ := strings.Cut(strings.TrimPrefix(name, namespacePrefix), "-")
		pid, err := strconv.Atoi(number)
		return err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
	})
}

// host is the address of an end.
func (n *network) host(end int) string {
	switch {
	case n.prefix == "" && end > 0:
		return fmt.Sprintf("127.0.0.%d", end+1)
	case n.prefix == "":
		return "127.0.0.1"
	case end == bucket:
		return fmt.Sprintf("10.%d.0.3", n.subnet)
	}
	return fmt.Sprintf("10.%d.%d.2", n.subnet, end)
}

func endName(end int) string {
	switch end {
	case clients:
		return "clients"
	case bucket:
		return "bucket"
	}
	return fmt.Sprint("broker ", end)
}

// block drops what goes from one end to another, until heal.
func (n *network) block(from, to int) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	pair := [2]string{n.host(from), n.host(to)}
	if n.cut[pair] {
		return nil
	}
	n.cut[pair] = true
	return n.rule("add", pair)
}

// blockBoth drops both directions.
func (n *network) blockBoth(a, b int) error { return errors.Join(n.block(a, b), n.block(b, a)) }

func (n *network) rule(verb string, pair [2]string) error {
	return ip("-n", n.namespace("r"), "rule", verb, "from", pair[0], "to", pair[1], "blackhole")
}

// heal lets everything through again.
func (n *network) heal() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var errs []error
	for pair := range n.cut {
		errs = append(errs, n.rule("del", pair))
		delete(n.cut, pair)
	}
	return errors.Join(errs...)
}
