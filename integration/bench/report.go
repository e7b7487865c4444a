package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
)

// limitFigures reads what the limits tool printed: one line a variant, of which
// the one asked for is taken, each figure by its median.
func limitFigures(text []byte, variant string) (figures, error) {
	for line := range bytes.Lines(text) {
		var l struct {
			Variant string
			Figures map[string]struct{ Median float64 }
		}
		if err := json.Unmarshal(line, &l); err != nil {
			return nil, fmt.Errorf("%w: %s", err, line)
		}
		if l.Variant != variant {
			continue
		}
		f := figures{}
		for name, v := range l.Figures {
			f[name] = v.Median
		}
		return f, nil
	}
	return nil, fmt.Errorf("no variant %q in %s", variant, text)
}

// bar is one line of the table: a figure of one system over one of another in
// the same round, and what it should be.
type bar struct {
	title         string
	run, system   string
	figure        string
	overRun, over string // "": an absolute figure
	overFigure    string
	least, most   float64 // the bar; 0 is none
	plus          string  // run whose limit figure, times plusTimes, is added to the denominator
	plusTimes     float64
}

const none = 0

var bars = []bar{
	{title: "produce 1 KiB, replicated: rate ÷ stub", run: "produce-1024", system: "varve-replicated", figure: "mib_per_s", over: "stub", least: 0.85},
	{title: "the same, Kafka", run: "produce-1024", system: "kafka", figure: "mib_per_s", over: "stub"},
	{title: "produce 1 KiB, replicated: broker CPU/GiB ÷ stub", run: "produce-1024", system: "varve-replicated", figure: "broker_cpu_s_per_gib", over: "stub", most: 1.25},
	{title: "the same, Kafka", run: "produce-1024", system: "kafka", figure: "broker_cpu_s_per_gib", over: "stub"},
	{title: "produce 1 KiB, fsync: rate ÷ Kafka", run: "produce-1024", system: "varve-fsync", figure: "mib_per_s", over: "kafka", least: 0.8},
	{title: "produce 100 B, replicated: broker CPU/GiB ÷ stub", run: "produce-100", system: "varve-replicated", figure: "broker_cpu_s_per_gib", over: "stub", most: 1.3},
	{title: "the same, Kafka", run: "produce-100", system: "kafka", figure: "broker_cpu_s_per_gib", over: "stub"},
	{title: "consume 1 KiB: broker CPU/GiB ÷ stub", run: "consume-1024", system: "varve-replicated", figure: "broker_cpu_s_per_gib", over: "stub", most: 1.1},
	{title: "the same, Kafka", run: "consume-1024", system: "kafka", figure: "broker_cpu_s_per_gib", over: "stub"},
	{title: "consume 1 KiB: rate ÷ Kafka", run: "consume-1024", system: "varve-replicated", figure: "mib_per_s", over: "kafka", least: 1},
	{title: "paced 1,000/s, replicated: ack p50 ÷ stub", run: "paced-1000", system: "varve-replicated", figure: "p50_us", over: "stub", most: 1.5},
	{title: "paced 1,000/s, replicated: ack p99 ÷ stub", run: "paced-1000", system: "varve-replicated", figure: "p99_us", over: "stub", most: 1.5},
	{title: "paced 10,000/s, replicated: ack p50 ÷ stub", run: "paced-10000", system: "varve-replicated", figure: "p50_us", over: "stub", most: 1.5},
	{title: "paced 10,000/s, replicated: ack p99 ÷ stub", run: "paced-10000", system: "varve-replicated", figure: "p99_us", over: "stub", most: 1.5},
	{title: "paced 10,000/s, Kafka: ack p50 ÷ stub", run: "paced-10000", system: "kafka", figure: "p50_us", over: "stub"},
	{title: "paced 10,000/s, Kafka: ack p99 ÷ stub", run: "paced-10000", system: "kafka", figure: "p99_us", over: "stub"},
	{title: "paced 1,000/s, fsync: ack p50 ÷ (stub + 3 fdatasync)", run: "paced-1000", system: "varve-fsync", figure: "p50_us", over: "stub", plus: "fdatasync", plusTimes: 3, most: 1},
	{title: "paced 10,000/s, fsync: ack p50 ÷ (stub + 3 fdatasync)", run: "paced-10000", system: "varve-fsync", figure: "p50_us", over: "stub", plus: "fdatasync", plusTimes: 3, most: 1},
	{title: "1,000 connections, replicated: CPU/request ÷ stub", run: "small", system: "varve-replicated", figure: "broker_cpu_s_per_million", over: "stub", most: 1.3},
	{title: "the same, Kafka", run: "small", system: "kafka", figure: "broker_cpu_s_per_million", over: "stub"},
	{title: "cold replay, 30 ms a GET: rate ÷ raw relay", run: "replay", system: "varve", figure: "mib_per_s", over: "relay", least: 0.6},
	{title: "cold replay: rate ÷ Kafka from local files", run: "replay", system: "varve", figure: "mib_per_s", over: "kafka-tiered", least: 2},
	{title: "cold replay: broker CPU/GiB ÷ raw relay", run: "replay", system: "varve", figure: "broker_cpu_s_per_gib", over: "relay", overFigure: "cpu_s_per_gib"},
	{title: "produce p99 during replay ÷ alone", run: "produce-during-replay", system: "varve", figure: "p99_us", overRun: "produce-alone", over: "varve", most: 2},
	{title: "the same replay, produce p99 to the stub ÷ Varve alone", run: "produce-during-replay", system: "stub", figure: "p99_us", overRun: "produce-alone", over: "varve"},
	{title: "produce p99 during replay ÷ the stub's during it", run: "produce-during-replay", system: "varve", figure: "p99_us", over: "stub"},
	{title: "cold seek, 10 segments: object reads", run: "seek10", system: "varve", figure: "gets", most: 2},
	{title: "cold seek, 10,000 segments: object reads", run: "seek10000", system: "varve", figure: "gets", most: 2},
	{title: "cold seek, 10 segments: time ÷ one GET", run: "seek10", system: "varve", figure: "us", overRun: "get", over: "limit", most: 2.5},
	{title: "cold seek, 10,000 segments: time ÷ one GET", run: "seek10000", system: "varve", figure: "us", overRun: "get", over: "limit", most: 2.5},
	{title: "empty node: MiB resident", run: "10000 partitions", system: "varve", figure: "empty_mib", most: 40},
	{title: "idle partition at 10,000: KiB", run: "10000 partitions", system: "varve", figure: "idle_kib_per_partition", most: 6},
	{title: "kill −9 at 10,000 partitions to first ack: s", run: "10000 partitions", system: "varve", figure: "first_ack_s", most: 2},
	{title: "archive, 256 MiB segments: PUTs a segment", run: "archive", system: "varve", figure: "puts_per_segment", most: 2},
	{title: "three brokers, RF 3, replicated: rate ÷ Kafka", run: "produce-rf3", system: "varve3-replicated", figure: "mib_per_s", over: "kafka", least: 1.5},
	{title: "three brokers, RF 3, replicated: CPU/GiB of all ÷ Kafka", run: "produce-rf3", system: "varve3-replicated", figure: "broker_cpu_s_per_gib", over: "kafka", most: 0.35},
	{title: "three brokers, RF 3, fsync: rate ÷ Kafka", run: "produce-rf3", system: "varve3-fsync", figure: "mib_per_s", over: "kafka", least: 1},
	{title: "three brokers, RF 3, fsync: CPU/GiB of all ÷ Kafka", run: "produce-rf3", system: "varve3-fsync", figure: "broker_cpu_s_per_gib", over: "kafka"},
	{title: "three brokers, paced 5,000/s, replicated: ack p99 ÷ Kafka", run: "paced-rf3", system: "varve3-replicated", figure: "p99_us", over: "kafka", most: 0.3},
	{title: "three brokers, paced 5,000/s, fsync: ack p99 ÷ Kafka", run: "paced-rf3", system: "varve3-fsync", figure: "p99_us", over: "kafka", most: 0.3},
	{title: "kill −9 of a leader, 1 partition led: longest silence, ms", run: "failover-3", system: "varve3", figure: "gap_max_ms"},
	{title: "the same, Kafka", run: "failover-3", system: "kafka", figure: "gap_max_ms"},
	{title: "kill −9 of a leader, 100 led: longest silence, ms", run: "failover-300", system: "varve3", figure: "gap_max_ms"},
	{title: "the same, Kafka", run: "failover-300", system: "kafka", figure: "gap_max_ms"},
	{title: "kill −9 of a leader, 1,000 partitions: longest silence, ms", run: "failover-1000", system: "varve3", figure: "gap_max_ms", most: 1500},
	{title: "the same, Kafka", run: "failover-1000", system: "kafka", figure: "gap_max_ms"},
	{title: "3 × 3,000 partitions, kill −9 of all until all are led and in sync by the metadata: s", run: "idle-3000", system: "varve3", figure: "restart_s"},
	{title: "the same, Kafka", run: "idle-3000", system: "kafka", figure: "restart_s"},
	{title: "3,000 idle partitions, RF 3, settled: CPU of all, % of a core", run: "idle-3000", system: "varve3", figure: "cpu_percent"},
	{title: "the same, Kafka", run: "idle-3000", system: "kafka", figure: "cpu_percent"},
	{title: "3,000 idle partitions, RF 3, settled: bytes/s between brokers", run: "idle-3000", system: "varve3", figure: "bytes_per_s"},
	{title: "the same, Kafka", run: "idle-3000", system: "kafka", figure: "bytes_per_s"},
	{title: "3,000 idle partitions, RF 3, settled: packets/s between brokers", run: "idle-3000", system: "varve3", figure: "packets_per_s"},
	{title: "the same, Kafka", run: "idle-3000", system: "kafka", figure: "packets_per_s"},
	{title: "empty replica of a 5 GiB tiered partition: MiB over the network", run: "empty-replica", system: "varve3", figure: "copied_mib"},
	{title: "the same ÷ what the leader has on local disk", run: "empty-replica", system: "varve3", figure: "copied_per_local"},
}

// coordinatorBars are those of the parts groups and transactions.
var coordinatorBars = slices.Concat(
	beside("100 members, classic: first join to all assigned, ms", "join-classic", "assigned_ms", "varve-fsync", "kafka"),
	beside("one member more, classic: until it is assigned, ms", "join-classic", "further_ms", "varve-fsync", "kafka"),
	beside("the same: longest that a partition is not read, ms", "join-classic", "unread_ms", "varve-fsync", "kafka"),
	beside("100 members, consumer: first join to all reconciled, ms", "join-consumer", "assigned_ms", "varve-fsync", "kafka"),
	beside("one member more, consumer: until it is assigned, ms", "join-consumer", "further_ms", "varve-fsync", "kafka"),
	beside("the same: longest that a partition is not read, ms", "join-consumer", "unread_ms", "varve-fsync", "kafka"),
	beside("commits/s, one group, 100 at once", "commits-1", "per_second", "varve-fsync", "varve-replicated", "kafka"),
	beside("commits/s, 100 groups, one at once each", "commits-100", "per_second", "varve-fsync", "varve-replicated", "kafka"),
	beside("the same: broker CPU each, µs", "commits-100", "broker_cpu_us_each", "varve-fsync", "varve-replicated", "kafka"),
	beside("transactions/s, 1 producer, 10 records", "transactions-1", "per_second", "varve-fsync", "varve-replicated", "kafka"),
	beside("the same, with offsets", "transactions-1-offsets", "per_second", "varve-fsync", "varve-replicated", "kafka"),
	beside("transactions/s, 50 producers, 10 records", "transactions-50", "per_second", "varve-fsync", "varve-replicated", "kafka"),
	beside("the same, with offsets", "transactions-50-offsets", "per_second", "varve-fsync", "varve-replicated", "kafka"),
	beside("the same: broker CPU each, µs", "transactions-50-offsets", "broker_cpu_us_each", "varve-fsync", "varve-replicated", "kafka"),
	beside("kill −9 of a group's coordinator: longest without a commit, ms", "takeover", "commit_gap_ms", "varve3", "kafka"),
	beside("kill −9 of a transaction's coordinator: longest without a transaction, ms", "takeover", "txn_gap_ms", "varve3", "kafka"),
	beside("100,000 groups: from the first answer after kill −9 until all are loaded, s", "groups-100000", "loading_s", "varve-replicated", "kafka"),
	beside("the same, from the start of the process, s", "groups-100000", "loaded_s", "varve-replicated", "kafka"),
	beside("memory of a group, bytes", "groups-100000", "live_bytes_each", "varve-replicated", "kafka"),
	beside("100,000 transactional ids: from the first answer after kill −9 until all are loaded, s", "transactional-ids-100000", "loading_s", "varve-replicated", "kafka"),
	beside("the same, from the start of the process, s", "transactional-ids-100000", "loaded_s", "varve-replicated", "kafka"),
	beside("memory of a transactional id, bytes", "transactional-ids-100000", "live_bytes_each", "varve-replicated", "kafka"),
)

// beside is one absolute figure of several systems, a line each.
func beside(title, run, figure string, systems ...string) []bar {
	var list []bar
	for _, s := range systems {
		list = append(list, bar{title: title + " — " + s, run: run, system: s, figure: figure})
	}
	return list
}

// printReport writes a table of all bars that -out has rounds for.
func printReport(w io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	type key struct {
		run, system string
		round       int
	}
	runs := map[key]figures{}
	rounds := 0
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var m measured
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			return err
		}
		runs[key{m.Run, m.System, m.Round}] = m.Figures
		rounds = max(rounds, m.Round)
	}
	if err := lines.Err(); err != nil {
		return err
	}
	fmt.Fprintln(w, "| what | median | least to greatest | rounds | bar | |\n|---|---|---|---|---|---|")
	for _, x := range slices.Concat(bars, coordinatorBars) {
		var values []float64
		for round := 1; round <= rounds; round++ {
			got, ok := runs[key{x.run, x.system, round}][x.figure]
			if !ok {
				continue
			}
			if x.over != "" {
				under := runs[key{orElse(x.overRun, x.run), x.over, round}][orElse(x.overFigure, x.figure)]
				if x.plus != "" {
					under += x.plusTimes * runs[key{x.plus, "limit", round}][x.figure]
				}
				if under == 0 {
					continue
				}
				got /= under
			}
			values = append(values, got)
		}
		if len(values) > 0 {
			x.print(w, values)
		}
	}
	return nil
}

func orElse(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

func (x bar) print(w io.Writer, values []float64) {
	slices.Sort(values)
	n := len(values)
	median := (values[(n-1)/2] + values[n/2]) / 2
	want, verdict := "", ""
	switch {
	case x.least != none:
		want, verdict = fmt.Sprintf("≥ %g", x.least), met(median >= x.least)
	case x.most != none:
		want, verdict = fmt.Sprintf("≤ %g", x.most), met(median <= x.most)
	}
	fmt.Fprintf(w, "| %s | %.2f | %.2f to %.2f | %d | %s | %s |\n", x.title, median, values[0], values[n-1], n, want, verdict)
}

func met(ok bool) string {
	if ok {
		return "met"
	}
	return "**missed**"
}
