package ops

import (
	_ "embed"
	"fmt"
	"html/template"
	"net/http"
	"sort"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/varvelog/varve/replica"
)

//go:embed console.html
var consoleHTML string

var consolePage = template.Must(template.New("console").Funcs(template.FuncMap{
	"bytes":   func(n int64) string { return humanize.IBytes(uint64(max(n, 0))) },
	"seconds": humanSeconds,
	"percent": percent,
}).Parse(consoleHTML))

// page is what the console shows.
type page struct {
	Version, Cluster, Store string
	NodeID                  int32
	At                      string
	Failed                  string
	DiskFree, DiskTotal     int64
	DiskFull                bool
	Topics                  []topicRow
	Total                   topicRow
	Problems                []problemRow
	Damaged                 []damagedRow
}

// topicRow is one topic, its partitions added up.
type topicRow struct {
	Name       string
	Tiered     bool
	Partitions int
	Records    int64 // offsets between start and end
	Hot        int64
	Cold       int64
	Stored     int64
	LagBytes   int64
	LagSegs    int
	AtRisk     float64
	Rows       []partitionRow
}

type partitionRow struct {
	Index                                               int32
	Leads                                               bool
	Err                                                 string
	Epoch                                               int32
	LogStart, LocalStart, RemoteEnd, HighWatermark, End int64
	Hot, Cold                                           int64
	LagBytes                                            int64
	AtRisk                                              float64
}

// problemRow is a partition whose offload fails, with what to look for.
type problemRow struct {
	Partition, Op, Key, Err string
	Since                   string
	Count                   int
	Stuck                   bool
}

// damagedRow is a partition with damaged records.
type damagedRow struct {
	Partition string
	What      *DamagedPart
}

func (s *Server) console(w http.ResponseWriter, _ *http.Request) {
	p := s.page(time.Now())
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if err := consolePage.Execute(w, p); err != nil {
		s.deps.Logger.Debug("console page was cut off", "err", err)
	}
}

func (s *Server) page(now time.Time) page {
	u := s.deps.Hot.Usage()
	p := page{
		Version: s.deps.Version, NodeID: s.deps.NodeID, Cluster: s.deps.Meta.Image().ClusterID, Store: s.deps.StoreURL,
		At: now.UTC().Format("2006-01-02 15:04:05 UTC"), DiskFree: int64(u.DiskFree), DiskTotal: int64(u.DiskTotal), DiskFull: u.Full,
	}
	if err := s.deps.Failed(); err != nil {
		p.Failed = err.Error()
	}
	topics := map[string]*topicRow{}
	for _, held := range s.deps.Replica.Partitions() {
		d := held.Describe()
		t := topics[d.Partition.Topic]
		if t == nil {
			t = &topicRow{Name: d.Partition.Topic}
			topics[d.Partition.Topic] = t
		}
		t.add(d)
		p.Total.add(d)
		if problem, ok := problemOf(d); ok {
			p.Problems = append(p.Problems, problem)
		}
		if part := damagedPartOf(d.Damage); part != nil {
			p.Damaged = append(p.Damaged, damagedRow{d.Partition.String(), part})
		}
	}
	for _, t := range topics {
		sort.Slice(t.Rows, func(i, j int) bool { return t.Rows[i].Index < t.Rows[j].Index })
		p.Topics = append(p.Topics, *t)
	}
	sort.Slice(p.Topics, func(i, j int) bool { return p.Topics[i].Name < p.Topics[j].Name })
	return p
}

func (t *topicRow) add(d replica.Description) {
	t.Partitions++
	t.Tiered = t.Tiered || d.Tiered
	t.Records += d.End - d.LogStart
	t.Hot += d.HotBytes
	t.Cold += d.ColdBytes
	t.Stored += d.ColdStoredBytes
	t.LagBytes += d.Offload.LagBytes
	t.LagSegs += d.Offload.LagSegments
	t.AtRisk = max(t.AtRisk, d.Offload.AtRiskSeconds)
	row := partitionRow{
		Index: d.Partition.Index, Leads: d.Leads, Epoch: d.LeaderEpoch, LogStart: d.LogStart, LocalStart: d.LocalStart,
		RemoteEnd: d.RemoteEnd, HighWatermark: d.HighWatermark, End: d.End, Hot: d.HotBytes, Cold: d.ColdBytes,
		LagBytes: d.Offload.LagBytes, AtRisk: d.Offload.AtRiskSeconds,
	}
	if d.Err != nil {
		row.Err = d.Err.Error()
	}
	t.Rows = append(t.Rows, row)
}

func problemOf(d replica.Description) (problemRow, bool) {
	if e := d.Offload.LastError; e != nil {
		return problemRow{Partition: d.Partition.String(), Op: e.Op, Key: e.Key, Err: e.Err.Error(), Count: e.Count,
			Since: time.UnixMilli(e.Since).UTC().Format("2006-01-02 15:04:05"), Stuck: d.Offload.Stuck}, true
	}
	if d.Offload.Stuck {
		return problemRow{Partition: d.Partition.String(), Op: d.Offload.Phase, Err: "no progress",
			Since: time.UnixMilli(d.Offload.StuckSince).UTC().Format("2006-01-02 15:04:05"), Stuck: true}, true
	}
	return problemRow{}, false
}

func humanSeconds(s float64) string {
	if s == 0 {
		return "–"
	}
	return time.Duration(s * float64(time.Second)).Round(time.Second).String()
}

func percent(part, whole int64) string {
	if whole == 0 {
		return "–"
	}
	return fmt.Sprintf("%.0f %%", 100*float64(part)/float64(whole))
}
