package parity

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"
)

// clientsDir is where integration/clients/setup.sh put Kafka's jars.
func clientsDir() string { return os.Getenv("VARVE_CLIENTS") }

// needsJava leaves a test out where Apache Kafka is not. .ci/run sets VARVE_CLIENTS and fails on a test that is left out.
func needsJava(t *testing.T) {
	t.Helper()
	if clientsDir() == "" {
		t.Skip("needs a JDK and Kafka's jars: run ../clients/setup.sh DIR and set VARVE_CLIENTS=DIR (.ci/run does)")
	}
}

// TestAnswersEqualApacheKafkas runs every story against both brokers.
func TestAnswersEqualApacheKafkas(t *testing.T) {
	needsJava(t)
	expected := readDifferences(t)
	kafka := startKafka(t)
	varve, restart := startOther(t)
	for _, st := range stories() {
		st.compare(t, kafka.Bootstrap, varve, expected)
	}
	t.Run("restart", func(t *testing.T) {
		k, v := both(t, func(t *testing.T) []*transcript { return againstRestarted(t, kafka.Bootstrap, kafka.Restart) },
			func(t *testing.T) []*transcript { return againstRestarted(t, varve, restart) })
		compareRestarted(t, k, v, expected)
	})
	if !t.Failed() && !againstItself() {
		expected.unused(t, false)
	}
}

// compare runs a story against both brokers, and fails for what they do not
// share and are not expected to differ in.
func (st story) compare(t *testing.T, kafka, varve string, expected *differences) {
	t.Helper()
	t.Run(st.name, func(t *testing.T) {
		want, got := both(t, func(t *testing.T) *transcript { return st.against(t, kafka) },
			func(t *testing.T) *transcript { return st.against(t, varve) })
		if len(want.lines) < 2 {
			t.Fatalf("the story wrote only %d lines", len(want.lines))
		}
		for _, d := range compare(want.lines, got.lines) {
			if !expected.allows(st.name, d) {
				t.Errorf("%s", d)
			}
		}
	})
}

// both asks the two brokers at the same time: most of a story is waiting.
func both[T any](t *testing.T, askKafka, askVarve func(t *testing.T) T) (kafka, varve T) {
	t.Helper()
	ok := t.Run("asked", func(t *testing.T) {
		t.Run("kafka", func(t *testing.T) { t.Parallel(); kafka = askKafka(t) })
		t.Run("varve", func(t *testing.T) { t.Parallel(); varve = askVarve(t) })
	})
	if !ok {
		t.FailNow()
	}
	return kafka, varve
}

// difference is one line that the brokers do not share.
type difference struct{ path, kafka, varve string }

func (d difference) String() string {
	return fmt.Sprintf("%s\n  kafka %s\n  varve %s", d.path, d.kafka, d.varve)
}

// compare holds two transcripts against each other by path; a path that
// repeats (a step run twice) is numbered.
func compare(kafka, varve []string) []difference {
	index := func(lines []string) ([]string, map[string]string) {
		var order []string
		values := map[string]string{}
		seen := map[string]int{}
		for _, line := range lines {
			path, value, _ := strings.Cut(line, ": ")
			if seen[path]++; seen[path] > 1 {
				path = fmt.Sprintf("%s #%d", path, seen[path])
			}
			order = append(order, path)
			values[path] = value
		}
		return order, values
	}
	kafkaOrder, kafkaValues := index(kafka)
	varveOrder, varveValues := index(varve)
	var out []difference
	for _, path := range kafkaOrder {
		if v, ok := varveValues[path]; !ok {
			out = append(out, difference{path, kafkaValues[path], "(nothing)"})
		} else if v != kafkaValues[path] {
			out = append(out, difference{path, kafkaValues[path], v})
		}
	}
	for _, path := range varveOrder {
		if _, ok := kafkaValues[path]; !ok {
			out = append(out, difference{path, "(nothing)", varveValues[path]})
		}
	}
	return out
}

// differences is differences.txt: blocks of `# reason` lines followed by lines
// `story | path pattern`, in which * stands for any text.
type differences struct {
	entries []entry
	used    []bool
}

type entry struct{ story, pattern, reason string }

func readDifferences(t *testing.T) *differences {
	f, err := os.Open("differences.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d := &differences{}
	reason := ""
	lines := bufio.NewScanner(f)
	for fresh := true; lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		text, isReason := strings.CutPrefix(line, "#")
		switch {
		case line == "":
			reason, fresh = "", true
		case isReason && !fresh:
			t.Fatalf("differences.txt: a reason must stand before its entries, after an empty line: %q", line)
		case isReason:
			reason += text
		default:
			fresh = false
			story, pattern, ok := strings.Cut(line, " | ")
			if !ok || reason == "" {
				t.Fatalf("differences.txt: %q needs `story | path` and a reason above it", line)
			}
			d.entries = append(d.entries, entry{story, pattern, reason})
		}
	}
	d.used = make([]bool, len(d.entries))
	return d
}

func (d *differences) allows(story string, diff difference) bool {
	allowed := false
	for i, e := range d.entries {
		if !againstItself() && matches(e.story, story) && matches(e.pattern, diff.path) {
			d.used[i] = true
			allowed = true
		}
	}
	return allowed
}

// unused fails on entries that allowed nothing, of the tiered stories or of the
// others.
func (d *differences) unused(t *testing.T, tiered bool) {
	for i, e := range d.entries {
		if !d.used[i] && strings.HasPrefix(e.story, "tiered") == tiered {
			t.Errorf("differences.txt: `%s | %s` is no longer a difference: remove it", e.story, e.pattern)
		}
	}
}

// matches reports whether text fits a pattern in which * is any text.
func matches(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == text
	}
	if !strings.HasPrefix(text, parts[0]) || !strings.HasSuffix(text, parts[len(parts)-1]) {
		return false
	}
	text = text[len(parts[0]):]
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(text, part)
		if i < 0 {
			return false
		}
		text = text[i+len(part):]
	}
	return len(text) >= len(parts[len(parts)-1])
}

func TestPatternsInDifferencesMatchAnyText(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		want          bool
	}{
		{"a b", "a b", true}, {"a b", "a bc", false}, {"a*", "abc", true}, {"*c", "abc", true},
		{"a*c", "abc", true}, {"a*b*c", "aXbYc", true}, {"a*b*c", "aXYc", false}, {"ab*ba", "aba", false},
	} {
		if got := matches(c.pattern, c.text); got != c.want {
			t.Errorf("matches(%q, %q) = %v", c.pattern, c.text, got)
		}
	}
}

func TestCompareFindsEveryKindOfDifference(t *testing.T) {
	got := compare([]string{"a: 1", "b: 2", "b: 3", "c: 4"}, []string{"a: 1", "b: 2", "b: 9", "d: 5"})
	want := []difference{{"b #2", "3", "9"}, {"c", "4", "(nothing)"}, {"d", "(nothing)", "5"}}
	if len(got) != len(want) {
		t.Fatalf("got %v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("difference %d is %v, want %v", i, got[i], want[i])
		}
	}
}
