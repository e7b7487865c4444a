//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/varvelog/varve/integration/history"
)

// verdict is what a run has shown.
type verdict struct {
	Row        string          `json:"row"`
	Holds      string          `json:"holds"`
	Seed       uint64          `json:"seed"`
	Duration   string          `json:"duration"`
	Brokers    int             `json:"brokers"`
	Durability string          `json:"durability"`
	Report     *history.Report `json:"report"`
	Attacks    int             `json:"attacks"`
	// Liveness says what had not come back; empty when all had.
	Liveness string `json:"liveness,omitempty"`
	// Audit is what the auditor found; empty when nothing.
	Audit string `json:"audit,omitempty"`
	// Trouble is everything else that must not be.
	Trouble []string `json:"trouble,omitempty"`
	// Notes are ends of processes in a row that allows them.
	Notes []string `json:"notes,omitempty"`

	attacked bool // the row has attacks
}

// enough is how many values a run must have acknowledged and read to count: a
// history in which nothing happened shows nothing.
const enough = 100

func (v *verdict) thin() bool {
	c := v.Report.Counts
	return c.Acknowledged < enough || c.FinalReads < enough || c.Batches == 0 || c.Txns == 0 || c.GroupLooks == 0 || c.Shared == 0 || v.attacked && v.Attacks == 0
}

func (v *verdict) good() bool {
	return v.Report.Good() && v.Liveness == "" && v.Audit == "" && len(v.Trouble) == 0 && !v.thin()
}

// brokerTrouble looks at what the brokers did by themselves.
func (v *verdict) brokerTrouble(c *cluster, r row) {
	for _, b := range c.brokers {
		if r.ends {
			v.Notes = append(v.Notes, b.unwanted()...)
		} else {
			v.Trouble = append(v.Trouble, b.unwanted()...)
		}
		v.Trouble = append(v.Trouble, b.panics(r.ends)...)
	}
}

// uncleanTrouble: what an unclean election has lost must have been reported.
func (v *verdict) uncleanTrouble(c *cluster, r row) {
	lost := v.Report.LegalFound["lost"] + v.Report.LegalFound["unseen"]
	if !r.unclean || lost == 0 {
		return
	}
	for _, b := range c.brokers {
		text, err := os.ReadFile(b.logPath())
		if err == nil && strings.Contains(string(text), "unclean leader election: acknowledged records may be lost") {
			return
		}
	}
	v.Trouble = append(v.Trouble, fmt.Sprintf("%d values are lost, and nobody has reported an unclean election", lost))
}

// audit runs `varve audit` over the stopped cluster.
func (v *verdict) audit(ctx context.Context, o *options, c *cluster, r row) {
	binary := o.binary
	if r.next {
		binary = nextIn(o.dir) // the older release cannot read what the newer one has written
	}
	args := []string{"audit", "--store", fmt.Sprintf("s3://archive/varve?endpoint=%s&region=%s&path-style=true", c.s3.Endpoint, c.s3.Region)}
	for _, b := range c.members() {
		args = append(args, "--dir", b.data)
	}
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = append(os.Environ(), c.s3.Env()...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		v.Audit = strings.TrimSpace(string(out))
		var exit *exec.ExitError
		if !errors.As(err, &exit) || v.Audit == "" {
			v.Audit = errors.Join(err, errors.New(v.Audit)).Error()
		}
	}
}

func (v *verdict) print(w io.Writer) {
	fmt.Fprintf(w, "row %s, seed %d, %s, %d brokers, %s\nmust hold: %s\n%d attacks, ", v.Row, v.Seed, v.Duration, v.Brokers, v.Durability, v.Holds, v.Attacks)
	fmt.Fprint(w, v.Report.Summary())
	if v.thin() {
		fmt.Fprintln(w, "FOUND: too little happened for a verdict")
	}
	if v.Liveness != "" {
		fmt.Fprintln(w, "FOUND: liveness:", v.Liveness)
	}
	if v.Audit != "" {
		fmt.Fprintln(w, "FOUND: audit:", v.Audit)
	}
	for _, t := range v.Trouble {
		fmt.Fprintln(w, "FOUND:", t)
	}
	for _, n := range v.Notes {
		fmt.Fprintln(w, "note:", n)
	}
	if v.good() {
		fmt.Fprintln(w, "VERDICT: good")
	} else {
		fmt.Fprintln(w, "VERDICT: bad")
	}
}

func (v *verdict) write(dir string) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "verdict.json"), append(b, '\n'), 0o644)
}
