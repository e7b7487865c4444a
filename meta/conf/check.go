package conf

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The checks return the part of the message that follows the value; Def.Parse
// puts Kafka's "Invalid value … for configuration …" before it. They run after
// the value was parsed, so a number is a number here.

func number(text string) float64 {
	f, _ := strconv.ParseFloat(text, 64)
	return f
}

func atLeast(n float64) option {
	return check(func(text string) error {
		if number(text) < n {
			return fmt.Errorf("Value must be at least %s", strconv.FormatFloat(n, 'f', -1, 64))
		}
		return nil
	})
}

func between(low, high float64) option {
	return check(func(text string) error {
		switch f := number(text); {
		case f < low:
			return fmt.Errorf("Value must be at least %s", strconv.FormatFloat(low, 'f', -1, 64))
		case f > high:
			return fmt.Errorf("Value must be no more than %s", strconv.FormatFloat(high, 'f', -1, 64))
		}
		return nil
	})
}

func oneOf(values ...string) option {
	return check(func(text string) error {
		if !slices.Contains(values, text) {
			return errors.New("String must be one of: " + strings.Join(values, ", "))
		}
		return nil
	})
}

// oneOfFold is oneOf without regard to case.
func oneOfFold(values ...string) option {
	return check(func(text string) error {
		for _, v := range values {
			if strings.EqualFold(v, text) {
				return nil
			}
		}
		return errors.New("String must be one of (case insensitive): " + strings.Join(values, ", "))
	})
}

// listOf allows a list without repeats; when values are given, out of these.
func listOf(values ...string) option {
	return func(d *Def) {
		name := d.Name
		d.Check = func(text string) error {
			list := splitList(text)
			for i, v := range list {
				if slices.Contains(list[:i], v) {
					return &Error{Name: name, Message: "Configuration '" + name + "' values must not be duplicated.", kind: ErrInvalid}
				}
			}
			for _, v := range list {
				if v == "" {
					return &Error{Name: name, Message: "Configuration '" + name + "' values must not be empty.", kind: ErrInvalid}
				}
				if len(values) > 0 && !slices.Contains(values, v) {
					return invalid(name, v, "String must be one of: "+strings.Join(values, ", "))
				}
			}
			return nil
		}
	}
}

// gzipLevel allows -1 (the library's default) and 1 to 9.
var gzipLevel = check(func(text string) error {
	if n := number(text); n != -1 && (n < 1 || n > 9) {
		return errors.New("Value must be between 1 and 9 or equal to -1")
	}
	return nil
})

var throttledReplica = regexp.MustCompile(`^([0-9]+:[0-9]+)?$`)

// throttledReplicas allows "*" or a list of partition:broker.
func throttledReplicas(name string) option {
	return check(func(text string) error {
		if text == "*" {
			return nil
		}
		for _, r := range splitList(text) {
			if !throttledReplica.MatchString(r) {
				return errors.New(name + " must be the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],...")
			}
		}
		return nil
	})
}

// Throttles says whether a list of throttled replicas ("*", or partition:broker pairs) names a replica.
func Throttles(list string, partition, broker int32) bool {
	if list == "" || list == "*" {
		return list == "*"
	}
	for entry := range strings.SplitSeq(list, ",") {
		p, b, ok := strings.Cut(strings.TrimSpace(entry), ":")
		if ok && p == strconv.Itoa(int(partition)) && b == strconv.Itoa(int(broker)) {
			return true
		}
	}
	return false
}

var compressionTypes = []string{"uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"}

// perIPOverrides allows address:count pairs.
func perIPOverrides(text string) error {
	for _, entry := range splitList(text) {
		i := strings.LastIndexByte(entry, ':')
		if i <= 0 {
			return fmt.Errorf("%q is not address:count", entry)
		}
		if n, err := strconv.Atoi(strings.TrimSpace(entry[i+1:])); err != nil || n < 0 {
			return fmt.Errorf("%q does not end in a count", entry)
		}
	}
	return nil
}

var isoDuration = regexp.MustCompile(`^P(\d+D)?(T(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?$`)

// shareOffsetReset allows KIP-932's and KIP-1106's ways to start.
func shareOffsetReset(text string) error {
	if text == "latest" || text == "earliest" {
		return nil
	}
	if d, ok := strings.CutPrefix(text, "by_duration:"); ok && len(d) > 2 && !strings.HasSuffix(d, "T") && isoDuration.MatchString(d) {
		return nil
	}
	return errors.New("String must be one of: latest, earliest, by_duration:<duration>")
}
