package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// placeForms lists every way to name a place in a log, for help texts and errors.
const placeForms = "earliest, latest, an offset, a time (2024-03-03T14:05Z, 2024-03-03, now), a time before now (-36h, -90d), or @MILLISECONDS since 1970"

type placeKind int

const (
	placeEarliest placeKind = iota
	placeLatest
	placeOffset
	placeTime
)

// place is where in every partition of a topic something begins or ends.
type place struct {
	kind placeKind
	at   int64 // the offset, or the time in milliseconds since 1970
}

// parsePlace reads a place from the argument of flag.
func parsePlace(flag, s string, now time.Time) (place, error) {
	switch s {
	case "earliest":
		return place{kind: placeEarliest}, nil
	case "latest":
		return place{kind: placeLatest}, nil
	}
	if offset, err := strconv.ParseInt(s, 10, 64); err == nil && offset >= 0 && s[0] != '+' {
		return place{placeOffset, offset}, nil
	}
	t, err := parseTime(s, now)
	if err != nil {
		return place{}, fmt.Errorf("%s %q is no place in a log: write %s", flag, s, placeForms)
	}
	return place{placeTime, t.UnixMilli()}, nil
}

// offsetsAt resolves a place to an offset in every partition: of a time, that of
// the first record at or after it, which is the end of the log when there is none.
func offsetsAt(ctx context.Context, cl *kgo.Client, keys []partitionKey, at place, committed bool) (map[partitionKey]int64, error) {
	out := make(map[partitionKey]int64, len(keys))
	question := at.at
	switch at.kind {
	case placeOffset:
		for _, k := range keys {
			out[k] = at.at
		}
		return out, nil
	case placeLatest:
		question = timestampLatest
	case placeEarliest:
		question = timestampEarliest
	}
	answers, err := listOffsets(ctx, cl, keys, question, committed)
	if err != nil {
		return nil, err
	}
	latest := answers
	if at.kind == placeTime {
		if latest, err = listOffsets(ctx, cl, keys, timestampLatest, committed); err != nil {
			return nil, err
		}
	}
	for _, k := range keys {
		out[k] = answers[k].offset
		if out[k] < 0 {
			out[k] = latest[k].offset
		}
	}
	return out, nil
}
