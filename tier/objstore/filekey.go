package objstore

import (
	"strings"
)

// The file store keeps an object under its key as a path. What could surprise a file system or clash with the store's
// own names is escaped, one byte at a time, as %XX (upper-case hex), like in a URL:
//
//   - every byte but A-Z a-z 0-9 and - _ . = + @ ,
//   - a '.' that starts a part, so that no key is hidden, is "..", or reaches the store's own folder .varve
//
// The mapping is one to one. Names that it cannot have made are not objects, and List passes them by.

const hexDigits = "0123456789ABCDEF"

// maxNameBytes is the longest file name that common file systems take.
const maxNameBytes = 255

func plainNameByte(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return strings.IndexByte("-_.=+@,", c) >= 0
}

// escapeKey gives the path of a valid key, with '/' between its parts.
func escapeKey(key string) string {
	var b strings.Builder
	b.Grow(len(key) + 8)
	start := true
	for i := range len(key) {
		c := key[i]
		switch {
		case c == '/':
			b.WriteByte('/')
			start = true
			continue
		case plainNameByte(c) && !(start && c == '.'):
			b.WriteByte(c)
		default:
			b.WriteByte('%')
			b.WriteByte(hexDigits[c>>4])
			b.WriteByte(hexDigits[c&15])
		}
		start = false
	}
	return b.String()
}

// unescapeName gives back the key part that was stored under name; false when escapeKey never makes this name.
func unescapeName(name string) (string, bool) {
	if !strings.Contains(name, "%") {
		return name, name != "" && escapeKey(name) == name
	}
	b := make([]byte, 0, len(name))
	for i := 0; i < len(name); i++ {
		if name[i] != '%' {
			b = append(b, name[i])
			continue
		}
		if i+2 >= len(name) {
			return "", false
		}
		hi, lo := strings.IndexByte(hexDigits, name[i+1]), strings.IndexByte(hexDigits, name[i+2])
		if hi < 0 || lo < 0 {
			return "", false
		}
		b = append(b, byte(hi<<4|lo))
		i += 2
	}
	part := string(b)
	return part, !strings.Contains(part, "/") && escapeKey(part) == name
}
