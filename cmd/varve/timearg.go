package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// timeLayouts are the ways to write a moment, most exact first. A moment
// without a zone is taken as UTC, as record timestamps are.
var timeLayouts = []string{
	time.RFC3339Nano,
	"2006-01-02T15:04:05",
	"2006-01-02T15:04Z07:00",
	"2006-01-02T15:04",
	"2006-01-02 15:04:05",
	"2006-01-02 15:04",
	"2006-01-02",
	"2006-01",
}

// parseTime reads a moment: `2024-03-03T14:05Z`, `2024-03-03`, `now`, a time
// relative to now such as `-36h` or `-90d`, or `@` and milliseconds since the
// epoch.
func parseTime(s string, now time.Time) (time.Time, error) {
	switch {
	case s == "now":
		return now, nil
	case strings.HasPrefix(s, "@"):
		ms, err := strconv.ParseInt(s[1:], 10, 64)
		if err != nil {
			return time.Time{}, fmt.Errorf("time %q: after @ comes a number of milliseconds since 1970", s)
		}
		return time.UnixMilli(ms).UTC(), nil
	case strings.HasPrefix(s, "-"), strings.HasPrefix(s, "+"):
		d, err := parseDuration(s)
		if err != nil {
			break
		}
		return now.Add(d), nil
	}
	for _, layout := range timeLayouts {
		if t, err := time.Parse(layout, s); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("time %q is not understood: write 2024-03-03T14:05Z, 2024-03-03, -36h, -90d, now, or @MILLISECONDS", s)
}

// parseDuration is time.ParseDuration with days (d) and weeks (w), which an
// archive's questions are mostly asked in.
func parseDuration(s string) (time.Duration, error) {
	if n := len(s); n > 1 && (s[n-1] == 'd' || s[n-1] == 'w') {
		value, err := strconv.ParseFloat(s[:n-1], 64)
		if err != nil {
			return 0, fmt.Errorf("duration %q is not understood: write 36h, 90d or 2w", s)
		}
		day := 24 * time.Hour
		if s[n-1] == 'w' {
			day *= 7
		}
		return time.Duration(value * float64(day)), nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("duration %q is not understood: write 36h, 90d or 2w", s)
	}
	return d, nil
}
