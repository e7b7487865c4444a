package conf

import (
	"strconv"
	"strings"
	"time"
)

// ISODuration is the time that an ISO-8601 duration of days, hours, minutes and seconds stands for, as in
// share.auto.offset.reset=by_duration:P1DT2H; false: it is not one, or longer than 290 years.
func ISODuration(text string) (time.Duration, bool) {
	if !isoDuration.MatchString(text) {
		return 0, false
	}
	var total float64
	date, clock, _ := strings.Cut(strings.TrimLeft(strings.ToUpper(text), "+-P"), "T")
	for _, part := range []struct {
		text string
		unit map[byte]time.Duration
	}{{date, map[byte]time.Duration{'D': 24 * time.Hour}}, {clock, map[byte]time.Duration{'H': time.Hour, 'M': time.Minute, 'S': time.Second}}} {
		for rest := part.text; rest != ""; {
			end := strings.IndexAny(rest, "DHMS")
			if end < 0 {
				return 0, false
			}
			n, err := strconv.ParseFloat(strings.Replace(rest[:end], ",", ".", 1), 64)
			unit, known := part.unit[rest[end]]
			if err != nil || !known {
				return 0, false
			}
			total += n * float64(unit)
			rest = rest[end+1:]
		}
	}
	if total < 0 || total > float64(1<<63-1024) {
		return 0, false
	}
	return time.Duration(total), true
}
