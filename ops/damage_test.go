package ops

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/varvelog/varve/replica"
)

// since is the wall clock, in milliseconds, so long before a moment of the tests.
func since(seconds int64) int64 { return 1_800_000_000_000 - 1000*seconds }

var damages = []replica.Damage{
	{Start: -1, End: -1},
	{Ranges: 1, Start: 5, End: 7, Incomplete: true, HoldsProducers: true, Waits: []replica.Wait{{Source: "broker 2", Since: since(60)}, {Source: "broker 3", Since: since(30)}}},
	{Ranges: 3, Start: 100, End: 200, Waits: []replica.Wait{{Source: "broker 3", Since: since(90)}, {Source: "bucket", Since: since(1)}}},
	{Start: -1, End: -1, Incomplete: true, HoldsProducers: true, Waits: []replica.Wait{{Source: "disk", Since: since(2)}}},
	{Ranges: 1, Start: 8, End: 9, Lost: true},
}

// summed is a scrape of damages alone.
type summed struct{ damageSum }

// Describe implements prometheus.Collector.
func (s *summed) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (s *summed) Collect(ch chan<- prometheus.Metric) { s.send(ch, time.UnixMilli(since(0))) }

// TestWaitsAreCountedByWhoIsWaitedFor reads what a scrape has of several partitions.
func TestWaitsAreCountedByWhoIsWaitedFor(t *testing.T) {
	var sum damageSum
	for _, d := range damages {
		sum.add(d)
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(&summed{sum})
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range families {
		for _, m := range f.Metric {
			name := f.GetName()
			for _, l := range m.Label {
				name += "," + l.GetName() + "=" + l.GetValue()
			}
			got = append(got, fmt.Sprint(name, " ", m.GetGauge().GetValue()))
		}
	}
	slices.Sort(got)
	want := []string{
		"varve_log_damagedpartitions 4",
		"varve_log_lostpartitions 1",
		"varve_log_mendwaitpartitions,source=broker 2 1",
		"varve_log_mendwaitpartitions,source=broker 3 2",
		"varve_log_mendwaitpartitions,source=bucket 1",
		"varve_log_mendwaitpartitions,source=disk 1",
		"varve_log_mendwaitseconds,source=broker 2 60",
		"varve_log_mendwaitseconds,source=broker 3 90",
		"varve_log_mendwaitseconds,source=bucket 1",
		"varve_log_mendwaitseconds,source=disk 2",
		"varve_log_producersheldpartitions 2",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestDamageSaysWhatIsWaitedFor has each kind in words.
func TestDamageSaysWhatIsWaitedFor(t *testing.T) {
	want := []string{
		"",
		"offsets 5 to 6 are damaged; waits for broker 2 since 2027-01-15T07:59:00Z, broker 3 since 2027-01-15T07:59:30Z; no batch of an idempotent producer is taken before everybody has answered: it may be a repeat of what is damaged",
		"offsets 100 to 199 are damaged, and 2 more runs; waits for broker 3 since 2027-01-15T07:58:30Z, bucket since 2027-01-15T07:59:59Z",
		"producers and transactions are known without records that were damaged; waits for disk since 2027-01-15T07:59:58Z; no batch of an idempotent producer is taken before everybody has answered: it may be a repeat of what is damaged",
		"offsets 8 to 8 are damaged; nobody has the records any more: delete those below the end of the damage, and it is over",
	}
	for i, d := range damages {
		part := damagedPartOf(d)
		if part == nil {
			if want[i] != "" {
				t.Errorf("%+v is not told", d)
			}
			continue
		}
		if got := part.String(); got != want[i] {
			t.Errorf("it says\n%s\nwant\n%s", got, want[i])
		}
	}
}
