//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// soakRows is what a soak goes through: every row that this number of brokers
// can have, then the mix, again and again.
func (o *options) soakRows() (list []row) {
	for _, r := range append(append([]row(nil), rows...), mixed(o.brokers, can)) {
		if r.brokers <= o.brokers && (o.row == "mix" || strings.Contains(","+o.row+",", ","+r.name+",")) {
			list = append(list, r)
		}
	}
	return list
}

// runSoak runs all rows in turn, a seed to each round, until the time is over.
// It prints one line for each run, and what was found; the directory of a good
// run is removed, that of a bad one stays.
func (o *options) runSoak() (int, error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp("", "varve-soak-")
	if err != nil {
		return statusFound, err
	}
	defer os.RemoveAll(dir)
	binary, err := o.soakBinary(dir)
	if err != nil {
		return statusFound, err
	}
	self, err := os.Executable()
	if err != nil {
		return statusFound, err
	}
	deadline := time.Now().Add(o.soak)
	count := map[int]int{}
	for seed := o.seed; time.Now().Before(deadline); seed++ {
		for _, r := range o.soakRows() {
			if ctx.Err() != nil || time.Now().After(deadline) {
				break
			}
			cmd := exec.Command(self, "-row", r.name, "-seed", fmt.Sprint(seed), "-duration", o.duration.String(), "-patience", o.patience.String(),
				"-brokers", fmt.Sprint(o.brokers), "-workers", fmt.Sprint(o.workers), "-durability", o.durability, "-varve", binary, "-clients", o.clients, "-quiet")
			began := time.Now()
			out, err := cmd.CombinedOutput()
			status := cmd.ProcessState.ExitCode()
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				return statusFound, err
			}
			count[status]++
			verdict := map[int]string{0: "good", statusImpossible: "left out"}[status]
			if verdict == "" {
				verdict = "BAD"
			}
			fmt.Printf("%s  %-22s seed %-6d %-8s %4.0f s  %s\n", began.Format(time.TimeOnly), r.name, seed, verdict, time.Since(began).Seconds(), attacksIn(out))
			if verdict == "BAD" {
				fmt.Println(strings.TrimSpace(string(out)))
			}
		}
		if ctx.Err() != nil {
			break
		}
	}
	fmt.Printf("%d runs good, %d bad, %d left out\n", count[0], count[statusFound], count[statusImpossible])
	if count[statusFound] > 0 {
		return statusFound, nil
	}
	return 0, nil
}

// attacksIn is the line of a verdict that says how much happened.
func attacksIn(out []byte) string {
	for line := range bytes.Lines(out) {
		if _, rest, found := strings.Cut(string(line), " attacks, "); found {
			attacks, _, _ := strings.Cut(string(line), " ")
			keys := strings.Split(rest, ", ")
			return attacks + " attacks, " + keys[min(1, len(keys)-1)]
		}
	}
	return ""
}

// soakBinary is the broker that all runs of a soak start.
func (o *options) soakBinary(dir string) (string, error) {
	if o.binary != "" {
		return o.binary, nil
	}
	path := filepath.Join(dir, "varve")
	cmd := exec.Command("go", "build", "-o", path, "./cmd/varve")
	cmd.Dir = o.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build varve: %w\n%s", err, out)
	}
	return path, nil
}
