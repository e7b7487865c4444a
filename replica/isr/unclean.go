package isr

import "github.com/varvelog/varve/hot/lineage"

// Archive is the committed part of the bucket: offsets from Start up to End, written under Lineage. An archive without
// offsets ends at or below its start.
type Archive struct {
	Start, End int64
	Lineage    lineage.Chain
}

// Yields says whether the log of a leader that was elected uncleanly has to give way to the bucket: the bucket reaches
// further, or holds another history. What is committed there was committed by a leader that was in sync, and readers may have
// seen it; what this log has instead was not.
func Yields(v View, a Archive) bool {
	if a.End <= a.Start {
		return false
	}
	if v.End < a.End {
		return true
	}
	first, ok := v.Lineage.Earliest()
	if !ok {
		return true
	}
	from := max(a.Start, first.Start)
	return from < a.End && !v.Lineage.Within(a.Lineage, from, a.End)
}
