package conf

// nearestBytesMax bounds the names Nearest compares: the cost is quadratic and
// the name comes from outside.
const nearestBytesMax = 128

// Nearest returns the known setting whose name takes the fewest edits to reach
// from name, or "" when none is near enough to be a likely slip.
func Nearest(kind Kind, name string) string {
	if len(name) > nearestBytesMax {
		return ""
	}
	best, bestEdits := "", max(2, len(name)/3)+1
	for _, d := range tableOf(kind).defs {
		if d.Internal {
			continue
		}
		if e := edits(name, d.Name, bestEdits); e < bestEdits {
			best, bestEdits = d.Name, e
		}
	}
	return best
}

// edits is the Levenshtein distance of a and b, or some number >= limit when
// it is at least limit.
func edits(a, b string, limit int) int {
	if d := len(a) - len(b); d >= limit || -d >= limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal, least := row[0], i+1
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
			least = min(least, row[j+1])
		}
		if least >= limit {
			return limit
		}
	}
	return row[len(b)]
}
