package balance

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"
)

// TestPlans reads clusters and shows what is planned for them. A broker is
// "broker 1 rack=a [drain] [down]", a partition "t 0 1,2,3 bytes=5 [fixed]".
func TestPlans(t *testing.T) {
	datadriven.RunTest(t, "testdata/plans", func(t *testing.T, d *datadriven.TestData) string {
		c := &Cluster{}
		for line := range strings.Lines(d.Input) {
			readLine(t, c, strings.Fields(line))
		}
		o := Options{Even: !d.HasArg("empty-only"), ThresholdPercent: 10}
		if d.HasArg("max") {
			d.ScanArgs(t, "max", &o.MovesMax)
		}
		var out strings.Builder
		for _, m := range Plan(c, o) {
			fmt.Fprintf(&out, "%s-%d %v -> %v bytes=%d %s\n", m.Topic, m.Index, m.From, m.To, m.Bytes, m.Why)
			carryOut(c, m)
		}
		if out.Len() == 0 {
			out.WriteString("nothing to do\n")
		}
		for _, b := range c.Brokers {
			fmt.Fprintf(&out, "broker %d: %s\n", b.ID, loadText(c, b.ID))
		}
		return out.String()
	})
}

func readLine(t *testing.T, c *Cluster, fields []string) {
	number := func(s string) int64 {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if fields[0] == "broker" {
		b := Broker{ID: int32(number(fields[1])), Takes: true}
		for _, f := range fields[2:] {
			switch {
			case f == "drain":
				b.Drain, b.Takes = true, false
			case f == "down":
				b.Takes = false
			default:
				b.Rack = strings.TrimPrefix(f, "rack=")
			}
		}
		c.Brokers = append(c.Brokers, b)
		return
	}
	first, last, _ := strings.Cut(fields[1], "-")
	if last == "" {
		last = first
	}
	for i := number(first); i <= number(last); i++ {
		q := Partition{Topic: fields[0], Index: int32(i)}
		for _, id := range strings.Split(fields[2], ",") {
			q.Replicas = append(q.Replicas, int32(number(id)))
		}
		for _, f := range fields[3:] {
			if f == "fixed" {
				q.Fixed = true
			} else {
				q.Bytes = number(strings.TrimPrefix(f, "bytes="))
			}
		}
		c.Partitions = append(c.Partitions, q)
	}
}

func carryOut(c *Cluster, m Move) {
	for i := range c.Partitions {
		if q := &c.Partitions[i]; q.Topic == m.Topic && q.Index == m.Index {
			q.Replicas = m.To
		}
	}
}

func loadOf(c *Cluster, id int32) (holds, leads int, bytes int64) {
	for i := range c.Partitions {
		q := &c.Partitions[i]
		if at := slices.Index(q.Replicas, id); at >= 0 {
			holds++
			bytes += q.Bytes
			if at == 0 {
				leads++
			}
		}
	}
	return holds, leads, bytes
}

func loadText(c *Cluster, id int32) string {
	holds, leads, bytes := loadOf(c, id)
	return fmt.Sprintf("%d replicas, preferred leader of %d, %d bytes", holds, leads, bytes)
}

func randomCluster(t *rapid.T) *Cluster {
	c := &Cluster{}
	racks := rapid.IntRange(1, 3).Draw(t, "racks")
	n := rapid.Int32Range(1, 8).Draw(t, "brokers")
	for id := range n {
		b := Broker{ID: id, Takes: true, Rack: string(rune('a' + int(id)%racks))}
		switch rapid.IntRange(0, 9).Draw(t, "state") {
		case 0:
			b.Takes = false
		case 1:
			b.Takes, b.Drain = false, true
		}
		c.Brokers = append(c.Brokers, b)
	}
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
	for i := range rapid.IntRange(0, 60).Draw(t, "partitions") {
		q := Partition{Topic: "t", Index: int32(i), Bytes: r.Int64N(1000), Fixed: r.IntN(10) == 0}
		for _, id := range r.Perm(int(n) + 1)[:1+r.IntN(min(3, int(n)))] { // n is no broker
			q.Replicas = append(q.Replicas, int32(id))
		}
		c.Partitions = append(c.Partitions, q)
	}
	return c
}

// racksOf counts the different racks of a partition's replicas.
func racksOf(c *Cluster, replicas []int32) int {
	seen := make(map[string]bool)
	for _, b := range c.Brokers {
		if slices.Contains(replicas, b.ID) {
			seen[b.Rack] = true
		}
	}
	return len(seen)
}

// TestPlansLeadSomewhere carries plans out until there is nothing left to do:
// that must come to an end, no move may be one that the rules forbid, and what
// is to be empty must be, as far as there is room.
func TestPlansLeadSomewhere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := randomCluster(t)
		o := Options{Even: rapid.Bool().Draw(t, "even"), ThresholdPercent: 10, MovesMax: rapid.IntRange(0, 5).Draw(t, "max")}
		bound := 4*len(c.Partitions) + 10
		for round := 0; ; round++ {
			moves := Plan(c, o)
			if again := Plan(c, o); !reflect.DeepEqual(moves, again) {
				t.Fatalf("two plans for one cluster:\n%v\n%v", moves, again)
			}
			if len(moves) == 0 {
				break
			}
			if round > bound {
				t.Fatalf("no end after %d rounds: %v", round, moves)
			}
			copying := 0
			for _, m := range moves {
				copying += checkMove(t, c, m)
				carryOut(c, m)
			}
			if o.MovesMax > 0 && copying > o.MovesMax {
				t.Fatalf("%d moves at once", copying)
			}
		}
		takers := 0
		for _, b := range c.Brokers {
			if b.Takes {
				takers++
			}
		}
		for i := range c.Partitions {
			q := &c.Partitions[i]
			if q.Fixed || len(q.Replicas) > takers {
				continue
			}
			for _, b := range c.Brokers {
				if b.Drain && slices.Contains(q.Replicas, b.ID) {
					t.Fatalf("broker %d still holds %s-%d %v", b.ID, q.Topic, q.Index, q.Replicas)
				}
			}
		}
	})
}

// checkMove checks one move and returns 1 if it copies data.
func checkMove(t *rapid.T, c *Cluster, m Move) int {
	i := slices.IndexFunc(c.Partitions, func(q Partition) bool { return q.Topic == m.Topic && q.Index == m.Index })
	q := c.Partitions[i]
	switch {
	case q.Fixed:
		t.Fatalf("a fixed partition moves: %v", m)
	case !slices.Equal(q.Replicas, m.From) || slices.Equal(m.From, m.To) || len(m.From) != len(m.To):
		t.Fatalf("not a move of %v: %v", q, m)
	}
	copies := 0
	for j, id := range m.To {
		if slices.Contains(m.To[:j], id) {
			t.Fatalf("broker %d is there twice: %v", id, m)
		}
		if slices.Contains(m.From, id) {
			continue
		}
		copies = 1
		if b := slices.IndexFunc(c.Brokers, func(b Broker) bool { return b.ID == id }); b < 0 || !c.Brokers[b].Takes {
			t.Fatalf("broker %d cannot take a replica: %v", id, m)
		}
	}
	if m.Why != Drained && racksOf(c, m.To) < racksOf(c, m.From) {
		t.Fatalf("fewer racks: %v", m)
	}
	return copies
}

// TestPlanEvensOut holds how even a cluster is once the plans are carried out,
// where racks and sizes do not stand in the way.
func TestPlanEvensOut(t *testing.T) {
	for brokers := 2; brokers <= 7; brokers++ {
		c := &Cluster{}
		for id := range brokers {
			c.Brokers = append(c.Brokers, Broker{ID: int32(id), Takes: true})
		}
		for i := range 300 { // all on the first two
			c.Partitions = append(c.Partitions, Partition{Topic: "t", Index: int32(i), Bytes: int64(1000 + 7*(i%50)), Replicas: []int32{0, 1}})
		}
		for _, m := range Plan(c, Options{Even: true, ThresholdPercent: 5}) {
			carryOut(c, m)
		}
		for id := range brokers {
			holds, leads, bytes := loadOf(c, int32(id))
			mean := 600 / brokers
			if off := holds - mean; off > mean/20+1 || off < -mean/20-1 {
				t.Errorf("%d brokers: %d holds %d replicas, the mean is %d", brokers, id, holds, mean)
			}
			if meanLeads := 300 / brokers; leads > meanLeads+meanLeads/20+2 {
				t.Errorf("%d brokers: %d leads %d, the mean is %d", brokers, id, leads, meanLeads)
			}
			if meanBytes := int64(600*1171) / int64(brokers); bytes > meanBytes*110/100 {
				t.Errorf("%d brokers: %d holds %d bytes, the mean is about %d", brokers, id, bytes, meanBytes)
			}
		}
	}
}

func BenchmarkPlan(b *testing.B) {
	c := &Cluster{}
	for id := range int32(10) {
		c.Brokers = append(c.Brokers, Broker{ID: id, Takes: true, Rack: string(rune('a' + id%3))})
	}
	for i := range int32(10_000) { // nothing on the last
		c.Partitions = append(c.Partitions, Partition{Topic: "t", Index: i, Bytes: int64(i), Replicas: []int32{i % 9, (i + 1) % 9, (i + 2) % 9}})
	}
	for _, moves := range []int{4, 0} {
		b.Run(fmt.Sprintf("partitions=10000/max=%d", moves), func(b *testing.B) {
			for b.Loop() {
				Plan(c, Options{Even: true, ThresholdPercent: 10, MovesMax: moves})
			}
		})
	}
}
