package conf

import (
	"testing"
	"time"
)

func TestISODurations(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"P1D": 24 * time.Hour, "PT1H": time.Hour, "P2DT3H4M5S": 51*time.Hour + 4*time.Minute + 5*time.Second,
		"PT0.5S": 500 * time.Millisecond, "PT90M": 90 * time.Minute,
	} {
		if got, ok := ISODuration(text); !ok || got != want {
			t.Errorf("%s is %v, %v; want %v", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "1D", "P1H", "PTD", "P9999999999999D", "latest"} {
		if got, ok := ISODuration(text); ok {
			t.Errorf("%q is taken for %v", text, got)
		}
	}
}
