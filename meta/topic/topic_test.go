package topic

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestNewIDIsRandomVersion4AndNeverStartsWithDash(t *testing.T) {
	seen := map[ID]bool{}
	for range 10_000 {
		id := NewID()
		if id.IsZero() || seen[id] {
			t.Fatalf("id %v is zero or repeated", id)
		}
		seen[id] = true
		if s := id.String(); len(s) != 22 || s[0] == '-' {
			t.Fatalf("id prints as %q", s)
		}
		if id[6]>>4 != 4 || id[8]>>6 != 2 {
			t.Fatalf("id %x is not a version 4 UUID", id[:])
		}
	}
}

func TestIDTextIsKafkas(t *testing.T) {
	for text, want := range map[string]ID{
		"AAAAAAAAAAAAAAAAAAAAAA": {},
		"AAAAAAAAAAAAAAAAAAAAAQ": metadataID,
		"_____________________w": {255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255},
	} {
		if got, err := ParseID(text); err != nil || got != want {
			t.Errorf("ParseID(%q) = %v, %v", text, got, err)
		}
		if got := want.String(); got != text {
			t.Errorf("String() = %q, want %q", got, text)
		}
	}
}

func TestIDRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := ID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		text, _ := id.MarshalText()
		var back ID
		if err := back.UnmarshalText(text); err != nil || back != id {
			t.Fatalf("%s reads back as %v, %v", text, back, err)
		}
	})
}

func TestParseIDRefusesOtherTexts(t *testing.T) {
	for _, text := range []string{
		"0000000000000000\n\n0000", "AAAAAAAAAAAAAAAAAAAAAB", "", "AAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAA+", "AAAAAAAAAAAAAAAAAAAAAB", "AAAAAAAAAAAAAAAAAAAA=="} {
		if _, err := ParseID(text); !errors.Is(err, ErrInvalidID) {
			t.Errorf("ParseID(%q): %v, want ErrInvalidID", text, err)
		}
	}
}

func TestValidateName(t *testing.T) {
	for _, ok := range []string{"a", "...", "A.b_c-9", strings.Repeat("x", 249), ConsumerOffsets} {
		if err := ValidateName(ok); err != nil {
			t.Errorf("%q: %v", ok, err)
		}
	}
	for name, message := range map[string]string{
		"":                       "Topic name is invalid: the empty string is not allowed",
		".":                      "Topic name is invalid: '.' is not allowed",
		"..":                     "Topic name is invalid: '..' is not allowed",
		"a b":                    "contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
		"é":                      "contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
		"a/b":                    "contains one or more",
		strings.Repeat("x", 250): "is longer than the max allowed length 249",
	} {
		err := ValidateName(name)
		if !errors.Is(err, ErrInvalidName) || !strings.Contains(err.Error(), message) {
			t.Errorf("%q: %v, want %q", name, err, message)
		}
	}
}

func TestCollides(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{{"a.b", "a_b", true}, {"a.b_c", "a_b.c", true}, {"a-b", "a_b", false}, {"ab", "a.b", false}, {"x", "x", true}} {
		if got := Collides(c.a, c.b); got != c.want {
			t.Errorf("Collides(%q, %q) = %t", c.a, c.b, got)
		}
	}
}

func TestPartitionString(t *testing.T) {
	if s := (Partition{Topic: "a-b", Index: 3}).String(); s != "a-b-3" {
		t.Error(s)
	}
}
