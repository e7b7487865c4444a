package objstore

import (
	"fmt"
	"log/slog"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Options is what Open needs besides the URL. The zero value is right for production.
type Options struct {
	// Credentials, when its AccessKey is set, replaces the AWS chain (environment, shared files, web identity,
	// container and instance roles).
	Credentials Credentials
	// Concurrency is how many requests may run at once without opening connections anew; 0 means 64.
	Concurrency int
	// Attempts bounds how often a repeatable S3 request is sent; 0 means 4. A call's context ends it earlier.
	Attempts int
	Logger   *slog.Logger
}

// Credentials are fixed S3 credentials.
type Credentials struct{ AccessKey, SecretKey, SessionToken string }

// Scheme says which kind of store a URL names.
type Scheme string

// The schemes of store URLs.
const (
	SchemeFile Scheme = "file"
	SchemeS3   Scheme = "s3"
	SchemeMem  Scheme = "mem"
)

// Config is a store URL taken apart.
type Config struct {
	Scheme Scheme
	// Dir is the folder of a file store.
	Dir string
	// MaxBytes bounds a mem store; 0 means no bound.
	MaxBytes int64
	// Bucket and Prefix say where an s3 store keeps its objects; Prefix has no slash at its ends.
	Bucket, Prefix string
	// Endpoint is the S3 server's base URL; empty means AWS.
	Endpoint string
	Region   string
	// PathStyle puts the bucket into the path instead of the host name.
	PathStyle bool
	// SignPayload signs the body of each put with SHA-256, for servers that refuse unsigned payloads. It costs about
	// three times the CPU; the CRC-32C that is sent anyway detects damage as well.
	SignPayload bool
	// NoChecksum leaves the CRC-32C header out, for servers that refuse it. Bodies are then signed.
	NoChecksum bool
	// SingleDeletes deletes with one request per key, for servers without DeleteObjects.
	SingleDeletes bool
}

// urlHelp ends every complaint about a URL.
const urlHelp = "known forms: file:///folder, s3://bucket/prefix?region=…&endpoint=https://…&path-style=true, mem:"

// ParseURL takes a store URL apart. It is strict: what it does not know, it refuses with the nearest thing it knows.
func ParseURL(raw string) (Config, error) {
	c, err := parseURL(raw)
	if err != nil {
		return Config{}, fmt.Errorf("%w %q: %w; %s", ErrInvalidURL, redactURL(raw), err, urlHelp)
	}
	return c, nil
}

const (
	urlBytesMax   = 8 << 10 // room for the longest path, and its escapes
	paramsMax     = 16      // several times what any scheme knows
	paramBytesMax = 64      // of a name that is compared with what is known
	urlToldMax    = 1 << 10 // bytes of the longest URL that an error repeats
)

func parseURL(raw string) (Config, error) {
	switch {
	case len(raw) > urlBytesMax:
		return Config{}, fmt.Errorf("it has %d bytes, the limit is %d", len(raw), urlBytesMax)
	case raw == "":
		return Config{}, fmt.Errorf("it is empty")
	case strings.TrimSpace(raw) != raw:
		return Config{}, fmt.Errorf("it has white space around it")
	}
	u, err := url.Parse(raw)
	if err != nil {
		return Config{}, fmt.Errorf("it is not a URL")
	}
	switch {
	case u.Scheme == "" && (strings.HasPrefix(raw, "/") || strings.HasPrefix(raw, ".")):
		return Config{}, fmt.Errorf("it is a bare path; write file:// and the absolute path")
	case u.User != nil:
		return Config{}, fmt.Errorf("it holds credentials; give them through the AWS chain, for example AWS_ACCESS_KEY_ID")
	case u.Fragment != "" || strings.Contains(raw, "#"):
		return Config{}, fmt.Errorf("it has a fragment (#…); write %%23 for a # in a name")
	}
	switch Scheme(strings.ToLower(u.Scheme)) {
	case SchemeFile:
		return parseFileURL(u)
	case SchemeS3:
		return parseS3URL(u)
	case SchemeMem:
		return parseMemURL(u)
	case "s3a", "s3n":
		return Config{}, fmt.Errorf("scheme %s is Hadoop's; write s3", u.Scheme)
	case "http", "https":
		return Config{}, fmt.Errorf("it is an endpoint; write s3://BUCKET?endpoint=%s://%s", u.Scheme, shorten(u.Host))
	case "gs", "az", "abfs", "wasb":
		return Config{}, fmt.Errorf("scheme %s is not supported; only S3's API is", u.Scheme)
	case "":
		return Config{}, fmt.Errorf("it has no scheme")
	}
	return Config{}, fmt.Errorf("unknown scheme %s", shorten(u.Scheme))
}

func parseFileURL(u *url.URL) (Config, error) {
	switch {
	case u.Opaque != "":
		return Config{}, fmt.Errorf("the path is relative; write file:// and the absolute path")
	case u.Host != "" && u.Host != "localhost":
		return Config{}, fmt.Errorf("%q stands where a host does; write file:///%s with three slashes", shorten(u.Host), shorten(u.Host+u.Path))
	case u.Path == "":
		return Config{}, fmt.Errorf("the folder is missing")
	case strings.ContainsRune(u.Path, 0):
		return Config{}, fmt.Errorf("the path holds a zero byte")
	}
	return Config{Scheme: SchemeFile, Dir: path.Clean(u.Path)}, parseParams(u, nil)
}

func parseMemURL(u *url.URL) (Config, error) {
	if u.Opaque != "" || u.Host != "" || u.Path != "" {
		return Config{}, fmt.Errorf("a mem store has no name")
	}
	c := Config{Scheme: SchemeMem}
	err := parseParams(u, map[string]func(string) error{"max-bytes": func(v string) error {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n <= 0 {
			return fmt.Errorf("is not a positive number of bytes")
		}
		c.MaxBytes = n
		return nil
	}})
	return c, err
}

func parseS3URL(u *url.URL) (Config, error) {
	c := Config{Scheme: SchemeS3, Bucket: u.Host, Prefix: strings.TrimSuffix(strings.TrimPrefix(u.Path, "/"), "/")}
	if u.Opaque != "" {
		return Config{}, fmt.Errorf("write s3:// with two slashes")
	}
	if err := checkBucket(u.Host); err != nil {
		return Config{}, err
	}
	if c.Prefix != "" {
		if err := ValidateKey(c.Prefix); err != nil {
			return Config{}, fmt.Errorf("prefix: %w", err)
		}
		if len(c.Prefix)+1+MaxKeyBytes > 1024 {
			return Config{}, fmt.Errorf("prefix: %d bytes, allowed are %d", len(c.Prefix), 1024-MaxKeyBytes-1)
		}
	}
	flag := func(dst *bool) func(string) error {
		return func(v string) error {
			if v != "true" && v != "false" {
				return fmt.Errorf("is neither true nor false")
			}
			*dst = v == "true"
			return nil
		}
	}
	err := parseParams(u, map[string]func(string) error{
		"endpoint":       func(v string) (err error) { c.Endpoint, err = checkEndpoint(v); return err },
		"region":         func(v string) error { c.Region = v; return checkRegion(v) },
		"path-style":     flag(&c.PathStyle),
		"sign-payload":   flag(&c.SignPayload),
		"no-checksum":    flag(&c.NoChecksum),
		"single-deletes": flag(&c.SingleDeletes),
	})
	if err != nil {
		return Config{}, err
	}
	if c.NoChecksum {
		c.SignPayload = true // never send a body that nothing protects
	}
	return c, nil
}

// parseParams hands each parameter to its setter; each may appear once.
func parseParams(u *url.URL, known map[string]func(string) error) error {
	if n := strings.Count(u.RawQuery, "&"); n >= paramsMax {
		return fmt.Errorf("it has %d parameters, the limit is %d", n+1, paramsMax)
	}
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return fmt.Errorf("its parameters are malformed: %w", err)
	}
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names) // the same complaint every time
	for _, name := range names {
		set, ok := known[name]
		switch {
		case !ok:
			return unknownParam(name, u.Scheme, known)
		case len(values[name]) > 1:
			return fmt.Errorf("parameter %s is given %d times", shorten(name), len(values[name]))
		}
		if v := values[name][0]; v == "" {
			return fmt.Errorf("parameter %s is empty", shorten(name))
		} else if err := set(v); err != nil {
			return fmt.Errorf("parameter %s=%s %w", shorten(name), shorten(v), err)
		}
	}
	return nil
}

func unknownParam(name, scheme string, known map[string]func(string) error) error {
	lower := strings.ToLower(name[:min(len(name), paramBytesMax)])
	if strings.Contains(lower, "key") || strings.Contains(lower, "secret") {
		return fmt.Errorf("unknown parameter %s; credentials come from the AWS chain, for example AWS_ACCESS_KEY_ID", shorten(name))
	}
	names := slices.Sorted(mapKeys(known))
	best, bestDistance := "", 4
	for _, k := range names {
		if d := editDistance(lower, k); d < bestDistance {
			best, bestDistance = k, d
		}
	}
	switch {
	case best != "":
		return fmt.Errorf("unknown parameter %s; did you mean %s", shorten(name), best)
	case len(known) == 0:
		return fmt.Errorf("unknown parameter %s; %s URLs have none", shorten(name), scheme)
	}
	return fmt.Errorf("unknown parameter %s; known are %s", shorten(name), strings.Join(names, ", "))
}

func mapKeys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// editDistance is Levenshtein's, for short names.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}

func checkBucket(name string) error {
	ok := len(name) >= 3 && len(name) <= 63
	for i := range len(name) {
		c := name[i]
		letter := 'a' <= c && c <= 'z' || '0' <= c && c <= '9'
		inner := i > 0 && i < len(name)-1 && (c == '-' || c == '.' || c == '_')
		ok = ok && (letter || inner)
	}
	switch {
	case name == "":
		return fmt.Errorf("the bucket is missing")
	case strings.Contains(name, ":"):
		return fmt.Errorf("%q is not a bucket name; a server's address goes into endpoint=", shorten(name))
	case !ok:
		return fmt.Errorf("%q is not a bucket name (3 to 63 of a-z, 0-9, '-' and '.', a letter or digit at both ends)", shorten(name))
	}
	return nil
}

func checkRegion(v string) error {
	for _, c := range v {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_') {
			return fmt.Errorf("is not a region name")
		}
	}
	return nil
}

func checkEndpoint(v string) (string, error) {
	e, err := url.Parse(v)
	switch {
	case err != nil || e.Scheme != "http" && e.Scheme != "https" || e.Hostname() == "":
		return "", fmt.Errorf("is not of the form http://HOST:PORT or https://HOST:PORT")
	case e.User != nil:
		return "", fmt.Errorf("holds credentials; give them through the AWS chain")
	case strings.Trim(e.Path, "/") != "" || e.RawQuery != "" || e.Fragment != "":
		return "", fmt.Errorf("must have no path: the bucket goes into s3://BUCKET/PREFIX")
	}
	return e.Scheme + "://" + e.Host, nil
}

// redactURL hides what may be a password before a URL is shown.
func redactURL(raw string) string {
	if len(raw) > urlToldMax {
		return beforeName(raw) // escaping all of it takes several times its bytes
	}
	u, err := url.Parse(raw)
	if err != nil {
		return beforeName(raw)
	}
	if u.User != nil {
		u.User = url.User("xxxxx")
	}
	if strings.Count(u.RawQuery, "&") >= paramsMax {
		u.RawQuery = "…"
		return u.String()
	}
	q, hidden := u.Query(), false
	for name := range q {
		if n := strings.ToLower(name); strings.Contains(n, "key") || strings.Contains(n, "secret") || strings.Contains(n, "token") {
			q.Set(name, "xxxxx")
			hidden = true
		}
	}
	if hidden {
		u.RawQuery = q.Encode()
	}
	return u.String()
}

// beforeName is what of a URL can be told when it is not known where in it
// credentials are.
func beforeName(raw string) string {
	if scheme, _, ok := strings.Cut(raw, "://"); ok {
		return shorten(scheme) + "://…"
	}
	return shorten(raw)
}
