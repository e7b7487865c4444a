package integration

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"testing"
)

// event is one line of the input.
type event struct {
	TS     int64  `json:"ts"`
	Source string `json:"source"`
	Key    string `json:"key"`
	line   []byte
}

// loadEvents reads real events: the file that VARVE_EVENTS names, or the one
// that lies beside a checkout of the project. Where neither exists, events
// with the same awkward properties are made up: old, out of order, with ties.
func loadEvents(t *testing.T) map[string][]event {
	t.Helper()
	path := os.Getenv("VARVE_EVENTS")
	named := path != ""
	if !named {
		path = "../../shared/data/events.ndjson"
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) && !named {
		t.Logf("no %s: using made-up events (VARVE_EVENTS names a file of real ones)", path)
		return madeUpEvents()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	bySource := map[string][]event{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		e := event{line: append([]byte(nil), lines.Bytes()...)}
		if err := json.Unmarshal(e.line, &e); err != nil {
			t.Fatal(err)
		}
		bySource[e.Source] = append(bySource[e.Source], e)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	if len(bySource) < 2 {
		t.Fatalf("%s has only %d sources", path, len(bySource))
	}
	return bySource
}

func madeUpEvents() map[string][]event {
	r := rand.New(rand.NewPCG(1, 2))
	out := map[string][]event{}
	shapes := map[string]func(i int) int64{
		"ordered":  func(i int) int64 { return 1_100_000_000_000 + int64(i)*60_000 },
		"ties":     func(i int) int64 { return 1_200_000_000_000 + int64(i/40)*1000 },
		"shuffled": func(i int) int64 { return 1_300_000_000_000 + r.Int64N(1e11) },
		"reversed": func(i int) int64 { return 1_400_000_000_000 - int64(i)*1000 },
	}
	for source, at := range shapes {
		for i := range 2000 {
			e := event{TS: at(i), Source: source, Key: fmt.Sprint("node-", r.IntN(50))}
			e.line = fmt.Appendf(nil, `{"ts":%d,"source":%q,"key":%q,"msg":"event %d %x"}`, e.TS, source, e.Key, i, r.Uint64())
			out[source] = append(out[source], e)
		}
	}
	return out
}
