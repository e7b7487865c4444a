package objstore

import (
	"strings"
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

func FuzzFileNames(f *testing.F) {
	for _, s := range []string{"a/b", ".x/..y", "%2F", "a%2Fb", "ü ", "a\x00", "//", "%2E"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if ValidateKey(s) == nil {
			path := escapeKey(s)
			var parts []string
			for name := range strings.SplitSeq(path, "/") {
				if name == "" || name[0] == '.' || strings.ContainsAny(name, "\\:\x00") {
					t.Fatalf("%q is stored under the unsafe name %q", s, name)
				}
				part, ok := unescapeName(name)
				if !ok {
					t.Fatalf("%q is stored under %q, which is not taken for an object", s, path)
				}
				parts = append(parts, part)
			}
			if back := strings.Join(parts, "/"); back != s {
				t.Fatalf("%q came back as %q", s, back)
			}
		}
		if part, ok := unescapeName(s); ok && escapeKey(part) != s {
			t.Fatalf("file %q is key part %q, which is stored as %q", s, part, escapeKey(part))
		}
	})
}
