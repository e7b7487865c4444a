package objstore

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/varvelog/varve/integration/fuzztest"
)

func FuzzParseURL(f *testing.F) {
	for _, s := range []string{"file:///x", "s3://bucket/p?region=a&endpoint=http://h:1", "mem:?max-bytes=1", "s3://b%20/%2e%2e"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var c Config
		var err error
		fuzztest.Bounded(t, len(s), func() { c, err = ParseURL(s) })
		if err != nil {
			if !errors.Is(err, ErrInvalidURL) {
				t.Fatal(err)
			}
			return
		}
		if c.Scheme == SchemeS3 && (checkBucket(c.Bucket) != nil || c.Prefix != "" && ValidateKey(c.Prefix) != nil) {
			t.Fatalf("%q gives %+v", s, c)
		}
	})
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
		var part string
		var ok bool
		fuzztest.Bounded(t, len(s), func() { part, ok = unescapeName(s) })
		if ok && escapeKey(part) != s {
			t.Fatalf("file %q is key part %q, which is stored as %q", s, part, escapeKey(part))
		}
	})
}

// FuzzContentRange reads a header of the object store's answers.
func FuzzContentRange(f *testing.F) {
	for _, s := range []string{"bytes 0-9/100", "bytes 5-5/6", "bytes 9-0/100", "bytes */100", "bytes 0-9/*"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var first, last, size int64
		var ok bool
		fuzztest.Bounded(t, len(s), func() { first, last, size, ok = parseContentRange(s) })
		if !ok {
			return
		}
		if first < 0 || first > last || last >= size {
			t.Fatalf("%q gives %d to %d of %d", s, first, last, size)
		}
		a, b, c, ok := parseContentRange(fmt.Sprintf("bytes %d-%d/%d", first, last, size))
		if !ok || a != first || b != last || c != size {
			t.Fatalf("%q does not come back", s)
		}
	})
}
