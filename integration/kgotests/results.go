package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// skips are the tests that may be left out, with the reason. Apache Kafka
// started with the same kind of listeners leaves out the same.
var skips = map[string]string{
	"TestSCRAMAuth":               "needs a listener with SASL, which Varve does not have yet",
	"TestSCRAMAuthBadCredentials": "needs a listener with SASL, which Varve does not have yet",
	"TestOAuthAuth":               "needs a listener with SASL, which Varve does not have yet",
	// Versions 0 to 2 are named, for the sake of old clients, but not served (KAFKA-18659), as in Apache Kafka.
	"TestIssueProduceBrokerTooOldFailsRecords": "is for brokers that do not name Produce version 2",
}

// unsteady are the tests whose outcome is a matter of chance with more than one
// broker, whatever the brokers do. Each has three tries.
var unsteady = map[string]string{
	"Test848RegexBrokerResolves": "counts a read of __consumer_offsets for one of the two topics it waits for, and gives up when that comes first",
}

// gaveUp is what a chain of groups logs before it leaves its checks out: a
// broker that does not know the epoch at which a member was given a partition
// (KIP-1251) refused a commit that was in flight while the member's epoch rose.
var gaveUp = regexp.MustCompile(`skipping validation`)

// event is one line of test2json.
type event struct {
	Action, Test, Output string
	Elapsed              float64
}

// results are what the tests said.
type results struct {
	passed, failed []string
	left           map[string]string // left out, and what the test gave as its reason
	vacuous        []string          // gave up their checks
	output         map[string][]string
	table          []row // of whole tests, as they ended
	status         error
	took           time.Duration
}

// row is one test, without its parts.
type row struct {
	test, outcome string
	seconds       float64
}

// read takes the events until they end, and writes what was printed to log.
func read(events io.Reader, log io.Writer, verbose bool) (*results, error) {
	r := &results{left: map[string]string{}, output: map[string][]string{}}
	lines := bufio.NewScanner(events)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("read %q: %w", lines.Text(), err)
		}
		r.take(e)
		if e.Output != "" {
			fmt.Fprint(log, e.Output)
			if verbose {
				fmt.Print(e.Output)
			}
		}
	}
	return r, lines.Err()
}

func (r *results) take(e event) {
	if outcome := map[string]string{"pass": "passed", "fail": "FAILED", "skip": "left out"}[e.Action]; outcome != "" && e.Test != "" && !strings.Contains(e.Test, "/") {
		r.table = append(r.table, row{e.Test, outcome, e.Elapsed})
	}
	switch e.Action {
	case "output":
		// The last lines of a test are kept: a chain of groups says little else.
		r.output[e.Test] = append(r.output[e.Test], e.Output)
		if n := len(r.output[e.Test]); n > 200 {
			r.output[e.Test] = r.output[e.Test][n-100:]
		}
		if gaveUp.MatchString(e.Output) {
			r.vacuous = append(r.vacuous, e.Test)
		}
	case "pass":
		if e.Test != "" {
			r.passed = append(r.passed, e.Test)
		}
		if e.Elapsed >= 1 {
			fmt.Printf("%6.1f s  %s\n", e.Elapsed, name(e.Test))
		}
	case "fail":
		if e.Test != "" {
			r.failed = append(r.failed, e.Test)
		}
		fmt.Printf("--- FAIL: %s (%.1f s)\n%s", name(e.Test), e.Elapsed, strings.Join(r.output[e.Test], ""))
	case "skip":
		r.left[e.Test] = reason(r.output[e.Test])
	}
}

func name(test string) string {
	if test == "" {
		return "all"
	}
	return test
}

// reason finds what a test gave as its reason to be left out.
func reason(output []string) string {
	for _, line := range output {
		if _, text, ok := strings.Cut(line, "_test.go:"); ok {
			_, text, _ = strings.Cut(text, ": ")
			return strings.TrimSpace(text)
		}
	}
	return "no reason given"
}

// again gives the tests that are worth another try: all that failed, when
// chance decides about each of them.
func (r *results) again() (tests []string) {
	for _, test := range r.failed {
		if unsteady[test] == "" {
			return nil
		}
		tests = append(tests, test)
	}
	return tests
}

// retried takes over what another try of tests that had failed has shown.
func (r *results) retried(next *results) {
	r.passed = append(r.passed, next.passed...)
	r.failed, r.status, r.took = next.failed, next.status, r.took+next.took
	r.table = append(r.table, next.table...)
}

// verdict prints a table of the tests, the slowest first, what was left out and
// what failed; it gives an error unless all is well.
func (r *results) verdict(out io.Writer) error {
	slices.SortStableFunc(r.table, func(a, b row) int { return cmp.Or(cmp.Compare(b.seconds, a.seconds), cmp.Compare(a.test, b.test)) })
	fmt.Fprintf(out, "%-56s %-9s %s\n", "test", "outcome", "seconds")
	for _, t := range r.table {
		fmt.Fprintf(out, "%-56s %-9s %7.1f\n", t.test, t.outcome, t.seconds)
	}
	fmt.Fprintf(out, "franz-go %s: %d tests and parts of tests passed in %.0f s, %d failed, %d left out\n",
		version, len(r.passed), r.took.Seconds(), len(r.failed), len(r.left))
	unknown := 0
	for _, test := range slices.Sorted(maps.Keys(r.left)) {
		why, known := skips[test]
		if !known {
			unknown++
			why = "NOT ALLOWED"
		}
		fmt.Fprintf(out, "  left out: %s: %s (%s)\n", test, why, r.left[test])
	}
	for _, test := range r.vacuous {
		fmt.Fprintf(out, "  gave up its checks: %s\n", test)
	}
	switch {
	case len(r.failed) > 0:
		return fmt.Errorf("failed: %s", strings.Join(r.failed, ", "))
	case r.status != nil:
		return fmt.Errorf("the tests ended with %w", r.status)
	case unknown > 0:
		return fmt.Errorf("%d tests were left out that Apache Kafka runs", unknown)
	case len(r.vacuous) > 0:
		return fmt.Errorf("%d tests gave up their checks", len(r.vacuous))
	case len(r.passed) == 0:
		return fmt.Errorf("no test ran")
	}
	return nil
}
