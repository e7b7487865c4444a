//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/varvelog/varve/integration/history"
)

// options are the flags.
type options struct {
	row        string
	seed       uint64
	duration   time.Duration
	patience   time.Duration
	brokers    int
	workers    int
	durability string
	dir        string
	binary     string
	keep       bool
	quiet      bool
	list       bool
	check      string
	clients    string
	root       string // of the repository
	soak       time.Duration
}

// Statuses of the process.
const (
	statusFound      = 1 // something is wrong
	statusImpossible = 3 // this machine cannot run the row
)

// insideVariable tells the process that it is the one in the clients'
// namespace, and names the namespaces.
const insideVariable = "CHAOS_NETWORK"

func main() {
	var o options
	flag.StringVar(&o.row, "row", "mix", "row of the fault matrix, or mix")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()%1_000_000), "seed of everything that is chosen at random")
	flag.DurationVar(&o.duration, "duration", time.Minute, "how long faults are injected")
	flag.DurationVar(&o.patience, "patience", 90*time.Second, "how long the healed cluster may take to be whole again")
	flag.IntVar(&o.brokers, "brokers", 3, "brokers in the cluster, 1 to 5")
	flag.IntVar(&o.workers, "workers", 8, "client workers")
	flag.StringVar(&o.durability, "durability", "fsync", "varve.durability: fsync or replicated")
	flag.StringVar(&o.dir, "dir", "", "where everything goes (default: a temporary directory)")
	flag.StringVar(&o.binary, "varve", "", "the varve binary (default: built from this tree)")
	flag.BoolVar(&o.keep, "keep", false, "keep the directory also when nothing was found")
	flag.BoolVar(&o.quiet, "quiet", false, "print the verdict alone")
	flag.BoolVar(&o.list, "list", false, "list the rows")
	flag.StringVar(&o.check, "check", "", "only check a history that was written before")
	flag.DurationVar(&o.soak, "soak", 0, "run rows in turn for so long, a seed to each round: all of them, or those that -row lists with commas")
	flag.StringVar(&o.clients, "clients", os.Getenv("VARVE_CLIENTS"), "what integration/clients/setup.sh has filled: with it confluent-kafka makes transactions, too")
	flag.Parse()
	status, err := o.do()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		status = max(status, statusFound)
	}
	os.Exit(status)
}

func (o *options) do() (int, error) {
	switch {
	case o.list:
		return 0, listRows(os.Stdout)
	case o.check != "":
		return checkFile(os.Stdout, o.check, o.row == "unclean")
	}
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return statusFound, fmt.Errorf("find the module (run this inside the repository): %w", err)
	}
	o.root = strings.TrimSpace(string(root))
	if os.Getenv(insideVariable) != "" {
		return o.runInside()
	}
	if o.soak > 0 {
		return o.runSoak()
	}
	return o.runAround()
}

func checkFile(out io.Writer, path string, unclean bool) (int, error) {
	events, err := history.ReadFile(path)
	if err != nil {
		return statusFound, err
	}
	r := history.Check(events, history.Options{Unclean: unclean, Deliveries: shareDeliveries})
	fmt.Fprint(out, r.Summary())
	if !r.Good() {
		return statusFound, nil
	}
	return 0, nil
}

// can says why this machine cannot run a row, or nil.
func can(r row) error {
	root := os.Geteuid() == 0
	_, ipErr := exec.LookPath("ip")
	_, fsErr := exec.LookPath("mkfs.ext4")
	switch {
	case r.network && !root:
		return errors.New("it cuts the network, which takes root (network namespaces)")
	case r.network && ipErr != nil:
		return errors.New("it cuts the network, which takes the ip tool (iproute2)")
	case r.clock && canJump() != nil:
		return canJump()
	case r.disks && !root:
		return errors.New("it breaks disks, which takes root (file systems on loop devices)")
	case r.disks && fsErr != nil:
		return errors.New("it breaks disks, which takes mkfs.ext4 (e2fsprogs)")
	}
	return nil
}

// runAround makes the namespaces, runs this program inside, and removes all.
func (o *options) runAround() (status int, err error) {
	r, err := findRow(o.row, o.brokers, can)
	if err != nil {
		return statusFound, err
	}
	if err := can(r); err != nil {
		return statusImpossible, fmt.Errorf("row %s is left out: %w", r.name, err)
	}
	if o.brokers < r.brokers {
		return statusImpossible, fmt.Errorf("row %s needs %d brokers", r.name, r.brokers)
	}
	network, err := o.network(o.brokers + r.joiners)
	if err != nil {
		return statusFound, err
	}
	if network != nil {
		defer func() { err = errors.Join(err, network.remove()) }()
	}
	dir := o.dir
	if dir == "" {
		if dir, err = os.MkdirTemp("", "varve-chaos-"); err != nil {
			return statusFound, err
		}
	}
	if err := o.prepare(dir, r); err != nil {
		return statusFound, err
	}
	status, err = o.runChild(dir, network)
	if status == 0 && err == nil && !o.keep && o.dir == "" {
		return 0, os.RemoveAll(dir)
	}
	fmt.Println("everything of this run is in", dir)
	return status, err
}

// network makes the namespaces where that is possible.
func (o *options) network(brokers int) (*network, error) {
	if can(row{network: true}) != nil {
		fmt.Fprintln(os.Stderr, "chaos: without root brokers share the loopback, and nothing can be cut")
		return nil, nil
	}
	if err := sweepNamespaces(); err != nil {
		return nil, err
	}
	return makeNetwork(brokers)
}

func (o *options) runChild(dir string, n *network) (int, error) {
	self, err := os.Executable()
	if err != nil {
		return statusFound, err
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Args = append(cmd.Args, "-dir", dir, "-seed", fmt.Sprint(o.seed), "-varve", o.binaryIn(dir))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	place, namespace := "none", ""
	if n != nil {
		place, namespace = fmt.Sprintf("%s %d", n.prefix, n.subnet), n.namespace("0")
	}
	cmd.Env = append(os.Environ(), insideVariable+"="+place)
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS // mounts end with the process
	}
	// An interrupt is the child's to obey; we wait for it and clean up.
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(interrupts)
	if err := newSpawner().start(cmd, namespace); err != nil {
		return statusFound, err
	}
	go func() { // ends with the process
		for s := range interrupts {
			_ = cmd.Process.Signal(s)
		}
	}()
	var exit *exec.ExitError
	if err := cmd.Wait(); errors.As(err, &exit) {
		return max(exit.ExitCode(), statusFound), nil
	} else if err != nil {
		return statusFound, err
	}
	return 0, nil
}

func (o *options) runInside() (int, error) {
	n := &network{brokers: o.brokers, cut: map[[2]string]bool{}}
	if place := os.Getenv(insideVariable); place != "none" {
		if _, err := fmt.Sscanf(place, "%s %d", &n.prefix, &n.subnet); err != nil {
			return statusFound, err
		}
	}
	r, err := findRow(o.row, o.brokers, can)
	if err != nil {
		return statusFound, err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	v, err := o.run(ctx, r, n)
	if err != nil {
		return statusFound, err
	}
	v.print(os.Stdout)
	if err := v.write(o.dir); err != nil {
		return statusFound, err
	}
	if !v.good() {
		return statusFound, nil
	}
	return 0, nil
}
