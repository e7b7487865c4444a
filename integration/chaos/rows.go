//go:build linux

package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"text/tabwriter"
)

// row is a line of the fault matrix.
type row struct {
	name  string
	holds string // what must hold, beside no anomaly and liveness
	// attacks are chosen from, one a round; all of them when together is set.
	attacks  []attack
	together bool

	network bool // needs namespaces
	disks   bool // needs file systems of its own
	brokers int  // at least
	joiners int  // brokers that join and leave
	clock   bool // moves clocks of processes
	next    bool // needs the next release, too
	alone   bool // not part of the mix
	unclean bool // topics have two replicas, and whoever is left may lead
	// ends: processes may end by themselves, as a broker without a disk must.
	ends bool
}

var rows = []row{
	{name: "none", holds: "the workload itself finds nothing", brokers: 1},
	{name: "kill-leader", holds: "no acknowledged record lost, none twice", attacks: []attack{killLeader}, brokers: 1},
	{name: "kill-follower", holds: "no acknowledged record lost, none twice", attacks: []attack{killFollower}, brokers: 3},
	{name: "kill-controller", holds: "data goes on with the leaders that are known; one controller after", attacks: []attack{killController}, brokers: 3},
	{name: "kill-majority", holds: "no election and no ISR change without a quorum; nothing lost", attacks: []attack{killMajority}, brokers: 3},
	{name: "kill-all", holds: "nothing acknowledged is lost in any mode: written bytes are in the kernel", attacks: []attack{killAll}, brokers: 1},
	{name: "pause-leader", holds: "a zombie commits nothing: watermark, AlterPartition and uploads are fenced", attacks: []attack{pauseLeader}, brokers: 3},
	{name: "pause-majority", holds: "no election without a quorum; leases end on the own clock", attacks: []attack{pauseMajority, pauseAll}, brokers: 3},
	{name: "cut-leader", holds: "acknowledgements stop on the minority's side; its tail is truncated", attacks: []attack{cutLeader}, network: true, brokers: 3},
	{name: "cut-controller", holds: "as above, for the broker that leads the metadata", attacks: []attack{cutController}, network: true, brokers: 3},
	{name: "cut-leader-controller", holds: "no ISR change by a leader that the controller does not hear", attacks: []attack{cutLeaderFromController}, network: true, brokers: 3},
	{name: "cut-one-way", holds: "no two leaders that both acknowledge", attacks: []attack{cutOneWay}, network: true, brokers: 3},
	{name: "cut-pair", holds: "two brokers that both reach a third", attacks: []attack{cutPair}, network: true, brokers: 3},
	{name: "cut-clients", holds: "what clients do not reach is not elected away; nothing is lost", attacks: []attack{cutClients}, network: true, brokers: 1},
	{name: "cut-bucket", holds: "acknowledgements go on, no local byte goes that is not in the bucket, the backlog drains", attacks: []attack{cutBucket}, network: true, brokers: 1},
	{name: "s3-503", holds: "bounded retries; no object without its entry, no entry without its object", attacks: []attack{store(s3unavailable), store(s3flaky)}, brokers: 1},
	{name: "s3-slow", holds: "reads of other partitions are unharmed; time-outs are retriable", attacks: []attack{store(s3stall), store(s3slow)}, brokers: 1},
	{name: "s3-truncate", holds: "a short body is never accepted, cached or served", attacks: []attack{store(s3truncate)}, brokers: 1},
	{name: "s3-ambiguous", holds: "one committed object for each range; the own success is recognised", attacks: []attack{store(s3drop)}, brokers: 1},
	{name: "s3-ambiguous-failover", holds: "the same, while leaders change", attacks: []attack{store(s3drop), killLeader}, together: true, brokers: 3},
	{name: "bucket-gone", holds: "an object that somebody deleted: refused and named, no other partition suffers, all is well once it is back", attacks: []attack{hideObject}, alone: true, brokers: 1},
	{name: "bucket-damage", holds: "the same of an object with other bytes: none of them is served", attacks: []attack{damageObject}, alone: true, brokers: 1},
	{name: "bucket-rollback", holds: "nobody builds on a manifest that went back, it is named, and reading goes on", attacks: []attack{rollBack}, alone: true, brokers: 1},
	{name: "disk-full", holds: "writes are refused before the disk is full, reads and metadata go on, and it recovers", attacks: []attack{fillDisk}, disks: true, brokers: 1, ends: true},
	{name: "power-one", holds: "what was acknowledged is on a majority's disks; no replica leads from a cut tail", attacks: []attack{cutPower}, disks: true, brokers: 1, ends: true},
	{name: "power-all", holds: "with durability fsync nothing acknowledged is lost when all lose power at once", attacks: []attack{cutAllPower}, disks: true, brokers: 1, ends: true},
	{name: "disk-error", holds: "the first I/O error ends what is written there; nothing acknowledged rests on it", attacks: []attack{failDisk}, disks: true, brokers: 1, ends: true},
	{name: "bit-flip", holds: "a damaged record is never served, replicated or uploaded; the replica is whole again at the end", attacks: []attack{flipBit}, alone: true, brokers: 3},
	{name: "rot-index", holds: "damaged indexes and snapshots are made anew; nobody is told less, or other records, than there are", attacks: []attack{rotDerived(6, "log/*/*.index", "log/*/*.txnindex", "log/*/*.snapshot")}, alone: true, brokers: 3},
	{name: "rot-epochs", holds: "damaged leader epochs are read off the records; logs agree, and nothing is cut that was acknowledged", attacks: []attack{rotDerived(100, "log/"+plainTopic+"*/leader-epochs", "log/"+tieredTopic+"*/leader-epochs", "log/"+ledgerTopic+"*/leader-epochs")}, alone: true, brokers: 3},
	{name: "rot-raft", holds: "a broker does not start with a damaged log of the quorum, the others go on, and it joins again", attacks: []attack{rotRaft}, alone: true, brokers: 3, ends: true},
	{name: "clock-jump", holds: "nothing goes before its time, leases and sessions hold, order is unaffected", attacks: []attack{jumpClocks}, clock: true, brokers: 1},
	{name: "clock-jump-kill", holds: "the same, while leaders die", attacks: []attack{jumpClocks, killLeader}, together: true, clock: true, brokers: 3},
	{name: "unclean", holds: "what is lost is reported; replicas, tiers and readers agree afterwards", attacks: []attack{unclean}, unclean: true, brokers: 3},
	{name: "recreate", holds: "a topic that is deleted and made again shows nothing of the one before", attacks: []attack{recreate}, brokers: 1},
	{name: "recreate-kill", holds: "the same, while leaders die", attacks: []attack{recreate, killLeader}, together: true, brokers: 3},
	{name: "flood", holds: "strangers cost no more than they may, and everybody else is served", attacks: []attack{flood}, brokers: 1},
	{name: "upgrade", holds: "two releases run side by side; nothing lost, nothing refused for long", attacks: []attack{rollUpgrade}, next: true, brokers: 1},
	{name: "upgrade-kill", holds: "the same, while brokers die", attacks: []attack{rollUpgrade, killFollower}, together: true, next: true, brokers: 3},
	{name: "kill-rebalancing", holds: "no partition has two owners, no committed offset goes back", attacks: []attack{killRebalancing}, brokers: 3},
	{name: "kill-ending", holds: "a transaction ends one way, everywhere, once", attacks: []attack{killEnding}, brokers: 3},
	{name: "wipe", holds: "an empty disk under an old id is no in-sync replica until it has caught up", attacks: []attack{wipeDisk}, brokers: 3},
	{name: "rolling-restart", holds: "one broker out at a time; nothing lost, nothing refused for long", attacks: []attack{rollRestart}, brokers: 1},
	{name: "reassign", holds: "replicas grow, catch up, and only then shrink", attacks: []attack{reassign}, brokers: 3},
	{name: "reassign-kill", holds: "the same, while leaders die", attacks: []attack{reassign, killLeader}, together: true, brokers: 3},
	{name: "membership", holds: "a broker joins, takes replicas, hands them back and leaves, and nothing is lost", attacks: []attack{joinAndLeave}, brokers: 3, joiners: 1},
	{name: "membership-kill", holds: "the same, while brokers die", attacks: []attack{killFollower, joinAndLeave, killLeader}, together: true, brokers: 3, joiners: 1},
	{name: "trim", holds: "no gap and no early delete while records are deleted, read and uploaded", attacks: []attack{trim}, brokers: 1},
	{name: "trim-kill", holds: "the same, across failover: the start never goes back", attacks: []attack{trim, killLeader}, together: true, brokers: 3},
	{name: "preferred", holds: "leaders move without any fault, and nothing is lost or repeated", attacks: []attack{preferred, killFollower}, together: true, brokers: 3},
}

// mixed is the row of all rows: a new random choice each round, one quarter of
// the rounds nothing at all.
func mixed(brokers int, can func(row) error) row {
	m := row{name: "mix", holds: "everything, at once", brokers: 1, ends: true}
	for _, r := range rows {
		if r.brokers <= brokers && r.joiners == 0 && !r.next && !r.unclean && !r.alone && can(r) == nil {
			m.attacks = append(m.attacks, r.attacks...)
		}
	}
	return m
}

// choose picks the attacks of a round.
func (r row) choose(rng *rand.Rand) []attack {
	switch {
	case len(r.attacks) == 0:
		return nil
	case r.together:
		return r.attacks
	case r.name != "mix":
		return []attack{r.attacks[rng.IntN(len(r.attacks))]}
	case rng.IntN(4) == 0:
		return nil
	}
	picked := []attack{r.attacks[rng.IntN(len(r.attacks))]}
	if rng.IntN(3) == 0 {
		picked = append(picked, r.attacks[rng.IntN(len(r.attacks))])
	}
	return picked
}

func findRow(name string, brokers int, can func(row) error) (row, error) {
	if name == "mix" {
		return mixed(brokers, can), nil
	}
	i := slices.IndexFunc(rows, func(r row) bool { return r.name == name })
	if i < 0 {
		return row{}, fmt.Errorf("there is no row %q: see -list", name)
	}
	return rows[i], nil
}

func listRows(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ROW\tNEEDS\tBROKERS\tWHAT MUST HOLD")
	for _, r := range append(slices.Clone(rows), mixed(5, func(row) error { return nil })) {
		needs := "-"
		switch {
		case r.network:
			needs = "root"
		case r.disks:
			needs = "root, loop devices"
		case r.clock:
			needs = "root, amd64"
		}
		fmt.Fprintf(t, "%s\t%s\t%d+\t%s\n", r.name, needs, r.brokers, r.holds)
	}
	return t.Flush()
}
