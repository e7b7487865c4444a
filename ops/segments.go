package ops

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/varvelog/varve/replica"
)

// PartitionSegments is one partition in the answer of
// GET /admin/v1/topics/{topic}/segments.
type PartitionSegments struct {
	Partition int32     `json:"partition"`
	Segments  []Segment `json:"segments"`
	// Damage is absent when nothing is damaged on the node's disk.
	Damage *DamagedPart `json:"damage,omitempty"`
	// Error says why the list may be incomplete: the bucket did not answer.
	Error string `json:"error,omitempty"`
}

// Segment is one run of offsets and where it is.
type Segment struct {
	Base         int64  `json:"base"`
	End          int64  `json:"end"`   // exclusive
	Where        string `json:"where"` // local, remote or both
	Sealed       bool   `json:"sealed"`
	Damaged      bool   `json:"damaged,omitempty"` // the local copy is quarantined
	Bytes        int64  `json:"bytes"`
	StoredBytes  int64  `json:"storedBytes,omitempty"`  // in the bucket
	MaxTimestamp *int64 `json:"maxTimestamp,omitempty"` // milliseconds
	Modified     int64  `json:"modified"`               // milliseconds
	Key          string `json:"key,omitempty"`          // of the object
	Fault        string `json:"fault,omitempty"`        // of the object: "missing", "wrong size" or "wrong bytes", as far as the leader knows
}

// segments lists what is where. Only partitions that this node holds are in
// the answer; ?partition=N takes one.
func (s *Server) segments(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("topic")
	t := s.deps.Meta.Image().Topic(name)
	if t == nil {
		http.Error(w, "topic "+name+" does not exist", http.StatusNotFound)
		return
	}
	only := int64(-1)
	if text := r.URL.Query().Get("partition"); text != "" {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil || n < 0 || int(n) >= len(t.Partitions) {
			http.Error(w, "topic "+name+" has partitions 0 to "+strconv.Itoa(len(t.Partitions)-1), http.StatusBadRequest)
			return
		}
		only = n
	}
	list := []PartitionSegments{}
	for i := range t.Partitions {
		if only >= 0 && int64(i) != only {
			continue
		}
		p, err := s.deps.Replica.Partition(name, int32(i))
		if err != nil {
			list = append(list, PartitionSegments{Partition: int32(i), Segments: []Segment{}, Error: err.Error()})
			continue
		}
		places, err := p.Segments(r.Context())
		ps := PartitionSegments{Partition: int32(i), Segments: make([]Segment, 0, len(places)), Damage: damagedPartOf(p.Damage())}
		if err != nil {
			ps.Error = err.Error()
		}
		for _, place := range places {
			ps.Segments = append(ps.Segments, segmentOf(place))
		}
		list = append(list, ps)
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(list); err != nil {
		s.deps.Logger.Debug("segment listing was cut off", "err", err)
	}
}

func segmentOf(p replica.SegmentPlace) Segment {
	seg := Segment{Base: p.Base, End: p.End, Sealed: p.Sealed, Damaged: p.Damaged, Bytes: p.Bytes,
		StoredBytes: p.StoredBytes, Modified: p.Modified, Key: p.Key, Fault: p.Fault}
	switch {
	case p.Local && p.Remote:
		seg.Where = "both"
	case p.Remote:
		seg.Where = "remote"
	default:
		seg.Where = "local"
	}
	if p.MaxTimestamp != replica.NoTimestamp {
		seg.MaxTimestamp = &p.MaxTimestamp
	}
	return seg
}
