package sim

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mutant is a build with one line broken: the text there is, which is in its
// file once, and what stands there instead. The simulation has to turn red.
type mutant struct {
	name      string
	rule      string // of the reliability rules
	file      string // from the project's root
	line, bad string
}

// mutants break one rule each.
var mutants = []mutant{
	{"the watermark is taken over the committed set alone", "9: the maximal in-sync set counts", "replica/isr/watermark.go",
		"for _, id := range s.proposed {", "for _, id := range s.proposed[:0] {"},
	{"the last replica standing commits", "11: no watermark below min.insync.replicas", "replica/isr/watermark.go",
		"	if !s.Enough() {", "	if false {"},
	{"an unanswered wish is rolled back", "10: an unknown outcome keeps the maximal set", "replica/isr/leader.go",
		"		s.doubtful = true", "		s.settle()"},
	{"a follower joins before it has caught up", "16: a member's end reaches the watermark", "replica/isr/leader.go",
		"f.brokerEpoch == brokerEpoch && f.end >= s.hw &&", "f.brokerEpoch == brokerEpoch &&"},
	{"truncation to the own watermark", "21: truncate by lineage, not to the watermark (KIP-101)", "replica/isr/follower.go",
		"	to := min(v.End, d.End)", "	to := min(v.HighWatermark, d.End)"},
	{"truncation to the leader's end only", "21: truncate to the smaller end of the epoch (KIP-279)", "replica/isr/follower.go",
		"		to = min(to, end)", "		to = min(to, max(to, end))"},
	{"a late answer is taken", "23: answers apply only where they were asked from", "replica/isr/follower.go",
		"	case sent != at:", "	case sent != at && false:"},
	{"the watermark runs ahead of the records", "25: nobody shows what he does not have", "replica/isr/follower.go",
		"max(v.HighWatermark, min(r.HighWatermark, end))", "max(v.HighWatermark, r.HighWatermark)"},
	{"a fetch tells of what is not durable", "29: counted progress is durable progress", "replica/isr/follower.go",
		"v.Counted >= v.End\n", "v.End >= v.LocalStart\n"},
	{"no fetch diverges", "19, 20: every fetch is judged by its lineage", "replica/isr/view.go",
		"	case epoch < at.LastEpoch || end < at.Offset:", "	case false:"},
	{"divergence is a matter of length", "19: a fetch carries its last epoch (KIP-279, KIP-320)", "replica/isr/view.go",
		"	case epoch < at.LastEpoch || end < at.Offset:", "	case end < at.Offset:"},
	{"a wish may be of any partition epoch", "4: AlterPartition is a compare-and-swap", "meta/controller_partitions.go",
		"	case w.PartitionEpoch < p.PartitionEpoch:", "	case false:"},
	{"a wish may name any start of a broker", "6: members are named with their broker epochs (KIP-903)", "meta/controller_partitions.go",
		"|| s.Epoch != -1 && s.Epoch != b.Epoch {", "{"},
	{"a fenced broker is let in", "7: nobody fenced is in sync (KIP-841)", "meta/controller_partitions.go",
		"if !ok || !b.Active() ||", "if !ok ||"},
	{"who lost records stays eligible", "29: unclean starts leave the ELR (KIP-966)", "meta/election.go",
		"		case was && !slices.Contains(e.lossy, id):", "		case was:"},
	{"who told of its loss is not named", "29: who lost records leaves the ELR, whoever finds out", "replica/isr/leader.go",
		"			if s.lost(id) && !slices.Contains(set, id) && !slices.Contains(list, id) {", "			if s.lost(id) && len(list) < 0 {"},
	{"unclean elections are always on", "8: unclean election is opted into", "meta/election.go",
		"	if len(isr) > 0 && !e.unclean {", "	if e.unclean = true; false {"},
	{"a leader without an epoch of its own", "2: one leader for each epoch", "meta/apply.go",
		"		p.LeaderEpoch++", "		p.LeaderEpoch += c.Leader - c.Leader"},
	{"the ELR outlives a set that is large enough", "8: the ELR has every committed record (KIP-966)", "meta/election.go",
		"	if len(isr) >= e.enough() {", "	if len(isr) >= len(e.replicas) {"},
	{"a lower minimum leaves the ELR", "8: the ELR has every committed record (KIP-966)", "meta/controller_configs.go",
		"		return s.touches(minISRSetting) || s.touches(uncleanSetting)", "		return s.touches(uncleanSetting)"},
	{"a new start keeps its place in the in-sync sets", "3, 7: a new start is a stranger", "meta/controller_brokers.go",
		"	changes = append(changes, down...)", "	changes = append(changes, down[:0]...)"},
	{"a dead start's registration is taken", "3: a registration replaces the one it names", "meta/controller_brokers.go",
		"	if !again && r.stale(old, known) {", "	if r.stale(old, known) && false {"},
	{"a reassignment shrinks before it has grown", "37: reassignment grows, catches up, then shrinks", "meta/election.go",
		"	if len(replicas) == 0 || len(except(replicas, isr)) > 0 {", "	if len(isr) == 0 {"},
	{"unclean elections are not recorded", "22: only a recorded unclean election takes back what was committed", "meta/election.go",
		"		recovering = recovering || how == electedUnclean", "		recovering = recovering && how == electedUnclean"},
	{"a recovered leader leaves two histories in the ELR", "8: the ELR has what the leader has", "meta/election.go",
		"		case was && p.Recovering && e.recovered:", "		case false:"},
	{"an older leader commits", "T4, T8: the manifest fences older epochs", "tier/apply.go",
		"	if e.LeaderEpoch < m.leaderEpoch {", "	if false {"},
	{"local data goes before it is committed", "T1: committed metadata covers what goes", "tier/partition.go",
		"	end := p.coveredEnd()\n", "	end := max(p.coveredEnd(), p.log.stable())\n"},
	{"offload above the watermark", "T2: only what cannot be truncated", "tier/lane_copy.go",
		"	stable := p.log.stable()", "	stable := p.log.End"},
	{"a mark is deleted at once", "T5: readers have the grace", "tier/lane_delete.go",
		"	due = seen + c.cfg.graceMillis\n", "	due = seen\n"},

	// Of the coordinators.
	{"an old producer ends the transaction of a new one", "a transactional id has one producer (KIP-98)", "coordinator/txnend.go",
		"	case x.producer.Epoch != q.Producer.Epoch:", "	case false:"},
	{"an old producer joins the transaction of a new one", "a transactional id has one producer (KIP-98)", "coordinator/txncore.go",
		"	case x.producer.Epoch != p.Epoch:", "	case false:"},
	{"a takeover does not raise the epoch of its markers", "a fenced producer cannot go on in its partitions (KIP-360)", "coordinator/txncore.go",
		"	x.producer.Epoch = min(x.producer.Epoch, epochLimit+1-bump) + bump\n", "	_ = bump\n"},
	{"what was decided is not carried out after a failover", "a decision is carried out until it is done", "coordinator/txncore.go",
		"		case x.state.prepared():\n			c.out.ends", "		case false:\n			c.out.ends"},
	{"time starts again for nobody", "a transaction that nobody ends is aborted in its time", "coordinator/txncore.go",
		"		case x.state == TxnOngoing:\n			c.setTimeout(x)", "		case false:\n			c.setTimeout(x)"},
	{"a clock that is behind prolongs a transaction", "a transaction that nobody ends is aborted in its time", "coordinator/txncore.go",
		"	left := min(x.start+x.timeout-c.wall(), x.timeout)", "	left := x.start + x.timeout - c.wall()"},
	{"a partition is not written down", "every partition of a transaction gets its marker", "coordinator/txnbegin.go",
		"			x.partitions[at] = struct{}{}\n			changed = true", "			x.partitions[at] = struct{}{}"},
	{"a second end is answered by its wish", "an outcome is decided once (KIP-890)", "coordinator/txnend.go",
		"	case again && x.state == done:\n", "	case again && (x.state == done || !x.state.prepared()):\n"},
	{"aborted offsets count", "offsets of an aborted transaction never count", "coordinator/txnoffsets.go",
		"; commit && (known == nil || known.seq < o.seq) {", "; known == nil || known.seq < o.seq {"},
	{"an older offset of a transaction replaces a newer plain one", "of two commits the later stays", "coordinator/txnoffsets.go",
		"commit && (known == nil || known.seq < o.seq) {", "commit && (known == nil || known.seq != 0) {"},
	{"offsets count before their transaction is committed", "offsets of a transaction count with its marker", "coordinator/offsets.go",
		"rec.txn, rec.ticket = q.Producer, e.ticket; q.Producer != nil {", "rec.txn, rec.ticket = q.Producer, e.ticket; q.Producer != nil && q.Producer.ID < 0 {"},
	{"any generation commits", "nobody commits for a generation that is over", "coordinator/offsets.go",
		"		case q.Generation != g.generation:", "		case false:"},
	{"any epoch commits", "nobody commits what another one owns (KIP-1251)", "coordinator/offsets.go",
		"		if !ok || at > q.Generation {", "		if (!ok || at > q.Generation) && false {"},
	{"a partition is given before it is given up", "a partition has one owner (KIP-848)", "coordinator/consumerreconcile.go",
		"; taken && !mine {", "; taken && !mine && false {"},
	{"an old epoch is taken for a lost answer", "a member is what it says it owns (KIP-848)", "coordinator/consumerheartbeat.go",
		"	case q.MemberEpoch == m.previous && q.Owned != nil && m.owns(q.Owned):", "	case q.MemberEpoch <= m.previous:"},
	{"a member's state is not written down", "state is what the log gives", "coordinator/consumerreconcile.go",
		"		c.write(consumerCurrentRecord(g.id, next))\n", ""},
	{"an older leader's acknowledgements are kept", "a share-partition has one leader (KIP-932)", "coordinator/sharecore.go",
		"	case p.fence > q.LeaderEpoch:\n		return refuse(ErrFencedLeaderEpoch, textFencedLeaderEpoch)\n	case p.stateEpoch", "	case p.stateEpoch"},
	{"the share state's log is cut too far", "nothing is cut off that is needed", "coordinator/sharecore.go",
		"		least = min(least, max(p.at, 0))", "		least = min(least, max(p.at+3, 0))"},
	{"a late write takes the start back", "what was kept is kept (KIP-932)", "coordinator/sharecore.go",
		"start: max(q.Start, p.start), done", "start: q.Start, done"},
	{"an assignment is given out before it is written", "a generation has one assignment", "coordinator/rebalance.go",
		"	if !c.persist(g) {\n		for _, m := range g.list() {", "	if false {\n		for _, m := range g.list() {"},
}

// TestEveryMutantTurnsTheSimulationRed builds the simulation with each mutant in
// place of its line and runs it. Without VARVE_LONG=1 it only sees to it that
// each line is still there to be broken.
func TestEveryMutantTurnsTheSimulationRed(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			overlay := m.overlay(t, root)
			if os.Getenv("VARVE_LONG") == "" {
				return
			}
			out, err := m.run(t, overlay)
			if err == nil {
				t.Fatalf("nothing noticed it; rule %s, %s:\n%s", m.rule, m.file, out)
			}
			verdict := ""
			for line := range strings.Lines(out) {
				if strings.Contains(line, ": seed ") {
					verdict = strings.TrimSpace(line)
					break
				}
			}
			if verdict == "" {
				t.Fatalf("it fails, and not by a broken rule:\n%s", out)
			}
			t.Logf("%s: %s", m.rule, verdict)
		})
	}
}

// overlay writes the mutant's file, and what tells go of it.
func (m mutant) overlay(t *testing.T, root string) string {
	path := filepath.Join(root, m.file)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), m.line); n != 1 {
		t.Fatalf("%s has the line %d times: %s", m.file, n, m.line)
	}
	dir := t.TempDir()
	broken := filepath.Join(dir, "mutant.go")
	if err := os.WriteFile(broken, []byte(strings.Replace(string(text), m.line, m.bad, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {path: broken}})
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(config, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	return config
}

// run builds the simulation of the mutant and runs it.
func (m mutant) run(t *testing.T, overlay string) (string, error) {
	binary, where, test := filepath.Join(filepath.Dir(overlay), "sim.test"), ".", "SimulatedCluster"
	if strings.HasPrefix(m.file, "coordinator/") {
		where, test = "../../coordinator", "SimulatedCoordinators"
	}
	if out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-overlay", overlay, "-o", binary, where).CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	worlds, steps := "local", "8000000"
	if strings.HasPrefix(m.file, "tier/") {
		worlds, steps = "tiered", "2000000"
	}
	args := []string{"-test.run", test, "-sim.steps", steps, "-sim.explain=false", "-sim.worlds=" + worlds}
	if test == "SimulatedCoordinators" {
		args = []string{"-test.run", test, "-sim.steps", "1000000"}
	}
	out, err := exec.CommandContext(t.Context(), binary, args...).CombinedOutput()
	return string(out), err
}
