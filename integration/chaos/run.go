//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/varvelog/varve/integration/history"
)

func (o *options) binaryIn(dir string) string {
	if o.binary != "" {
		return o.binary
	}
	return filepath.Join(dir, "varve")
}

func workerIn(dir string) string { return filepath.Join(dir, "sarama-worker") }

// nextIn is the release after this one, as far as it matters for upgrades.
func nextIn(dir string) string { return filepath.Join(dir, "varve-next") }

// prepare builds what the run starts.
func (o *options) prepare(dir string, r row) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	builds := [][]string{{"build", "-C", filepath.Join("integration", "clients", "golang"), "-o", workerIn(dir), "./worker"}}
	if o.binary == "" {
		builds = append(builds, []string{"build", "-o", filepath.Join(dir, "varve"), "./cmd/varve"})
	}
	if r.next {
		builds = append(builds, []string{"build", "-o", nextIn(dir), "-tags", "varve_next", "./cmd/varve"})
	}
	for _, b := range builds {
		cmd := exec.Command("go", b...)
		cmd.Dir = o.root
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("go %v: %w\n%s", b, err, out)
		}
	}
	return nil
}

// run is one run of a row, from an empty cluster to the verdict.
func (o *options) run(ctx context.Context, r row, n *network) (v *verdict, err error) {
	began := time.Now()
	v = &verdict{Row: r.name, Holds: r.holds, Seed: o.seed, Duration: o.duration.String(), Brokers: o.brokers, Durability: o.durability, attacked: len(r.attacks) > 0}
	log := func(format string, args ...any) {
		if !o.quiet {
			fmt.Printf("%7.1f  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
		}
	}
	file, err := os.Create(filepath.Join(o.dir, "history.jsonl"))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	c, err := makeCluster(ctx, o.dir, o.binary, n, shape{brokers: o.brokers, joiners: r.joiners, durability: o.durability, disks: r.disks || r.name == "mix" && can(row{disks: true}) == nil})
	defer func() { err = errors.Join(err, c.close()) }()
	if err != nil {
		return nil, err
	}
	starting, cancel := context.WithTimeout(ctx, healLimit)
	defer cancel()
	if err := c.start(starting); err != nil {
		return nil, err
	}
	log("%d brokers serve", o.brokers)
	replicas := min(3, o.brokers)
	minISR, settings := min(2, replicas), map[string]string{}
	if r.unclean {
		replicas, minISR, settings["unclean.leader.election.enable"] = 2, 1, "true"
	}
	if err := makeTopics(starting, c.bootstrap(), int16(replicas), fmt.Sprint(minISR), settings); err != nil {
		return nil, fmt.Errorf("make the topics: %w", err)
	}
	rec := &recorder{out: history.NewWriter(file), began: began, seen: map[string]int64{}, last: map[string]int64{}, settled: map[string]map[int64]time.Time{}}
	v.Attacks, v.Trouble = o.torment(ctx, c, rec, r, log)
	log("the workload has ended; waiting for the cluster to be whole")
	if err := live(ctx, c, rec, o.patience, replicas); err != nil {
		v.Liveness = err.Error()
		c.saveMetrics(ctx)
	}
	log("reading everything")
	reading, cancel := context.WithTimeout(ctx, o.patience+o.duration)
	defer cancel()
	if err := readAll(reading, c, rec, o.readers(c)); err != nil {
		v.Trouble = append(v.Trouble, "final reading: "+err.Error())
	}
	v.brokerTrouble(c, r)
	log("stopping the cluster")
	if err := c.stop(v.Liveness != ""); err != nil {
		v.Trouble = append(v.Trouble, err.Error())
	}
	v.audit(ctx, o, c, r)
	if err := rec.out.Flush(); err != nil {
		return nil, err
	}
	log("checking the history")
	events, err := history.ReadFile(file.Name())
	if err != nil {
		return nil, err
	}
	v.Report = history.Check(events, history.Options{Unclean: r.unclean, Deliveries: shareDeliveries})
	v.uncleanTrouble(c, r)
	return v, ctx.Err()
}

// torment runs workers and nemesis side by side for the time of the run.
func (o *options) torment(ctx context.Context, c *cluster, rec *recorder, r row, log func(string, ...any)) (attacks int, trouble []string) {
	working, stop := context.WithTimeout(ctx, o.duration)
	defer stop()
	var wg sync.WaitGroup
	for i := range o.workers {
		w := o.worker(i, c, rec)
		wg.Go(func() { w.run(working) })
	}
	for _, t := range o.tellers(c, rec) {
		wg.Go(func() { t.run(working) })
	}
	for i := range 2 {
		s := &sharer{rec: rec, rng: rand.New(rand.NewPCG(o.seed, uint64(2000+i))), bootstrap: c.bootstrap()}
		wg.Go(func() { s.run(working) })
	}
	wg.Go(func() { watchGroups(working, rec, c.bootstrap(), o.seed) })
	wg.Go(func() { watch(working, rec, c.bootstrap(), o.brokers, o.seed) })
	eye, err := newRaw(c.bootstrap())
	if err != nil {
		return 0, []string{err.Error()}
	}
	defer eye.crash()
	n := &nemesis{c: c, rec: rec, rng: rand.New(rand.NewPCG(o.seed, 0)), eye: eye, log: log, next: nextIn(o.dir), told: map[string]bool{}}
	if err := n.torment(working, r.choose); err != nil {
		trouble = append(trouble, err.Error())
	}
	if err := n.heal(ctx); err != nil {
		trouble = append(trouble, "healing: "+err.Error())
	}
	n.fleet.end()
	wg.Wait()
	return n.attacks, append(trouble, n.trouble...)
}

// worker makes the nth worker: the kinds take turns.
func (o *options) worker(i int, c *cluster, rec *recorder) *worker {
	w := &worker{rec: rec, rng: rand.New(rand.NewPCG(o.seed, uint64(i+1))), sends: true, reads: true}
	bootstrap := c.bootstrap()
	switch i % 4 {
	case 0:
		w.make = func() (client, error) { return &franz{bootstrap: bootstrap, owns: rec}, nil }
	case 1:
		w.make = func() (client, error) {
			return &process{spawn: c.spawn, binary: workerIn(o.dir), bootstrap: bootstrap}, nil
		}
	case 2:
		rack := fmt.Sprint("rack-", 1+i%o.brokers)
		w.make = func() (client, error) {
			return &franz{bootstrap: bootstrap, rack: rack, uncommitted: true, owns: rec}, nil
		}
	default:
		w.reads = false
		w.make = func() (client, error) { return newRaw(bootstrap) }
	}
	return w
}

// readers are the clients of the final phase: every kind, and one in each rack.
func (o *options) readers(c *cluster) []func() (client, error) {
	readers := []func() (client, error){
		func() (client, error) { return &franz{bootstrap: c.bootstrap()}, nil },
		func() (client, error) {
			return &process{spawn: c.spawn, binary: workerIn(o.dir), bootstrap: c.bootstrap()}, nil
		},
	}
	for id := 1; id <= o.brokers && o.brokers > 1; id++ {
		readers = append(readers, func() (client, error) {
			return &franz{bootstrap: c.bootstrap(), rack: fmt.Sprint("rack-", id)}, nil
		})
	}
	return readers
}
