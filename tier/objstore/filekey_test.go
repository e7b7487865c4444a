package objstore

import (
	"testing"
)

func TestEscapedKeysAreSafeNames(t *testing.T) {
	for key, want := range map[string]string{
		"a/b":          "a/b",
		".varve/tmp/x": "%2Evarve/tmp/x",
		"...":          "%2E..",
		"a.b":          "a.b",
		"a%2Fb":        "a%252Fb",
		"ü b":          "%C3%BC%20b",
		`a\b:c*`:       "a%5Cb%3Ac%2A",
	} {
		if got := escapeKey(key); got != want {
			t.Errorf("%q is stored as %q, want %q", key, got, want)
		}
	}
	for _, name := range []string{"", ".", "..", ".varve", "%2e", "%41", "a%", "a%2", "%2F", "a b", "%zz"} {
		if part, ok := unescapeName(name); ok {
			t.Errorf("file %q passes for key part %q", name, part)
		}
	}
}
