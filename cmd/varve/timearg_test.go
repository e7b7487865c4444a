package main

import (
	"testing"
	"time"
)

func TestTimeArgumentForms(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for in, want := range map[string]time.Time{
		"2024-03-03T14:05Z":      time.Date(2024, 3, 3, 14, 5, 0, 0, time.UTC),
		"2024-03-03T14:05+02:00": time.Date(2024, 3, 3, 12, 5, 0, 0, time.UTC),
		"2024-03-03 14:05:09":    time.Date(2024, 3, 3, 14, 5, 9, 0, time.UTC),
		"2024-03-03T14:05:09.5Z": time.Date(2024, 3, 3, 14, 5, 9, 5e8, time.UTC),
		"2024-03-03":             time.Date(2024, 3, 3, 0, 0, 0, 0, time.UTC),
		"2024-03":                time.Date(2024, 3, 1, 0, 0, 0, 0, time.UTC),
		"-36h":                   now.Add(-36 * time.Hour),
		"-90d":                   now.AddDate(0, 0, -90),
		"+1w":                    now.AddDate(0, 0, 7),
		"now":                    now,
		"@1709474700000":         time.Date(2024, 3, 3, 14, 5, 0, 0, time.UTC),
	} {
		got, err := parseTime(in, now)
		if err != nil || !got.Equal(want) {
			t.Errorf("parseTime(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "yesterday", "-", "-3x", "@", "@12:00", "2024-13-01", "03/03/2024"} {
		if got, err := parseTime(in, now); err == nil {
			t.Errorf("parseTime(%q) = %v, want an error", in, got)
		}
	}
}
