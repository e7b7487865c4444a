package history

import (
	"fmt"
	"slices"
	"strings"
)

// Anomaly is one finding.
type Anomaly struct {
	Name   string `json:"name"`
	Key    string `json:"key"`
	Offset int64  `json:"offset"` // the first that is concerned; -1 when none is known
	Detail string `json:"detail"`
	// Legal findings are expected of the mode in which they were made.
	Legal bool `json:"legal,omitempty"`
}

func (a Anomaly) String() string {
	at := ""
	if a.Offset >= 0 {
		at = fmt.Sprintf(" at %d", a.Offset)
	}
	return fmt.Sprintf("%s: %s%s: %s", a.Name, a.Key, at, a.Detail)
}

// Report is what a history shows.
type Report struct {
	Counts    Counts    `json:"counts"`
	Anomalies []Anomaly `json:"anomalies,omitempty"` // the first few of each kind
	// Found counts all anomalies by name, LegalFound those that are legal.
	Found      map[string]int `json:"found"`
	LegalFound map[string]int `json:"legalFound,omitempty"`
}

// Counts say how much there was to check.
type Counts struct {
	Acknowledged int `json:"acknowledged"` // values
	Failed       int `json:"failed"`
	Unknown      int `json:"unknown"`     // sends of open outcome
	UnknownSeen  int `json:"unknownSeen"` // of these, read later
	Polls        int `json:"polls"`
	Reads        int `json:"reads"`
	FinalReads   int `json:"finalReads"`
	Batches      int `json:"batches"`
	Sources      int `json:"sources"` // of batches
	Faults       int `json:"faults"`
	Keys         int `json:"keys"`
	Txns         int `json:"txns"`       // committed
	Aborts       int `json:"aborts"`     // aborted
	Commits      int `json:"commits"`    // of offsets, outside of transactions
	GroupLooks   int `json:"groupLooks"` // answers of coordinators
	Transformed  int `json:"transformed"`
	Shared       int `json:"shared"` // records delivered by share groups
}

// Good says whether nothing was found that is not legal.
func (r *Report) Good() bool { return len(r.Found) == 0 }

// perNameMax bounds how many anomalies of one kind a report keeps.
const perNameMax = 20

func (r *Report) add(a Anomaly) {
	counts := r.Found
	if a.Legal {
		counts = r.LegalFound
	}
	counts[a.Name]++
	if counts[a.Name] <= perNameMax {
		r.Anomalies = append(r.Anomalies, a)
	}
}

// Summary is the report in a few lines.
func (r *Report) Summary() string {
	var b strings.Builder
	c := r.Counts
	fmt.Fprintf(&b, "%d keys, %d values acknowledged, %d failed, %d unknown (%d of them seen), %d reads in %d polls, %d at the end, %d batches from %d sources, %d faults\n",
		c.Keys, c.Acknowledged, c.Failed, c.Unknown, c.UnknownSeen, c.Reads, c.Polls, c.FinalReads, c.Batches, c.Sources, c.Faults)
	if c.Txns+c.Aborts+c.Commits+c.GroupLooks+c.Shared > 0 {
		fmt.Fprintf(&b, "%d transactions committed, %d aborted, %d records transformed, %d commits of offsets, %d looks at groups, %d records shared\n",
			c.Txns, c.Aborts, c.Transformed, c.Commits, c.GroupLooks, c.Shared)
	}
	for _, name := range sortedKeys(r.LegalFound) {
		fmt.Fprintf(&b, "legal: %d × %s\n", r.LegalFound[name], name)
	}
	if r.Good() {
		b.WriteString("no anomaly\n")
		return b.String()
	}
	for _, name := range sortedKeys(r.Found) {
		fmt.Fprintf(&b, "FOUND: %d × %s\n", r.Found[name], name)
	}
	for _, a := range r.Anomalies {
		if !a.Legal {
			fmt.Fprintf(&b, "  %s\n", a)
		}
	}
	return b.String()
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
