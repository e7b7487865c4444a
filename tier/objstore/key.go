package objstore

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxKeyBytes bounds a key. S3 allows 1,024 bytes including the store's own prefix.
const MaxKeyBytes = 800

// maxPartBytes bounds one part of a key, so that its escaped form still is a file name in most cases.
const maxPartBytes = 200

// ValidateKey checks the rules for keys: see the package documentation.
func ValidateKey(key string) error {
	reason := ""
	switch {
	case key == "":
		reason = "empty"
	case len(key) > MaxKeyBytes:
		reason = fmt.Sprintf("%d bytes, allowed are %d", len(key), MaxKeyBytes)
	case !utf8.ValidString(key):
		reason = "not UTF-8"
	case strings.ContainsFunc(key, unicode.IsControl):
		reason = "contains a control character"
	default:
		for part := range strings.SplitSeq(key, "/") {
			switch {
			case part == "":
				reason = "has an empty part (two slashes, or one at an end)"
			case part == "." || part == "..":
				reason = "has a part . or .."
			case len(part) > maxPartBytes:
				reason = fmt.Sprintf("has a part of %d bytes, allowed are %d", len(part), maxPartBytes)
			}
		}
	}
	if reason == "" {
		return nil
	}
	return fmt.Errorf("%w %q: %s", ErrInvalidKey, shorten(key), reason)
}

func shorten(s string) string {
	if len(s) <= 80 {
		return s
	}
	return s[:80] + "…"
}

// checkKey is ValidateKey as an operation's error.
func checkKey(op Op, place, key string) error {
	if err := ValidateKey(key); err != nil {
		return &Error{Op: op, Place: place, Key: shorten(key), Kind: ErrInvalidKey, Err: err}
	}
	return nil
}
