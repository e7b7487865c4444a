package objstoretest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/varvelog/varve/tier/objstore"
)

// callTimeout bounds each test's calls; a store that hangs fails instead of blocking the run.
const callTimeout = 2 * time.Minute

// AcceptanceTest checks everything that package objstore promises of a store. open gives an empty store; the suite calls
// it once for each of its parts.
func AcceptanceTest(t *testing.T, open func(t *testing.T) objstore.Store) {
	parts := []struct {
		name string
		run  func(t *testing.T, s *subject)
	}{
		{"GetReturnsWhatWasPut", testRoundTrip},
		{"PutReplacesTheWholeObject", testReplace},
		{"ReadsOfRangesAreExact", testRanges},
		{"ReadsOutsideTheObjectFail", testRangeErrors},
		{"AbsentObjectsAreNotFound", testNotFound},
		{"DeleteIsIdempotent", testDelete},
		{"DeleteTakesManyKeys", testDeleteMany},
		{"CreateIsRefusedWhenTheObjectExists", testIfNoneMatch},
		{"ReplaceIsRefusedWhenTheObjectChanged", testIfMatch},
		{"LargeConditionalPutIsRefused", testLargeConditional},
		{"OneOfManyCreatorsWins", testCreateRace},
		{"CompareAndSwapLosesNoUpdate", testCounterRace},
		{"ReadersSeeWholeObjects", testAtomicReplace},
		{"ListIsSortedAndFiltered", testList},
		{"ListCrossesPages", testListPages},
		{"KeysAreTakenLiterally", testKeys},
		{"InvalidKeysAreRefused", testInvalidKeys},
		{"EndedContextsFailEverything", testContext},
		{"ChecksumsAreChecked", testChecksum},
		{"ProbeAcceptsTheStore", testProbe},
	}
	for _, part := range parts {
		t.Run(part.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
			defer cancel()
			part.run(t, &subject{Store: open(t), t: t, ctx: ctx})
		})
	}
}

// subject is the store under test with calls that must succeed.
type subject struct {
	objstore.Store
	t   *testing.T
	ctx context.Context
}

func (s *subject) mustPut(key string, content []byte, o objstore.PutOptions) objstore.Object {
	s.t.Helper()
	obj, err := s.Put(s.ctx, key, objstore.Bytes(content), o)
	if err != nil {
		s.t.Fatalf("put %s: %v", key, err)
	}
	if obj.Key != key || obj.Size != int64(len(content)) || obj.ETag == "" {
		s.t.Fatalf("put %s of %d bytes returned %+v", key, len(content), obj)
	}
	return obj
}

func (s *subject) mustRead(key string) ([]byte, objstore.Object) {
	s.t.Helper()
	b, obj, err := objstore.ReadAll(s.ctx, s, key, 1<<30)
	if err != nil {
		s.t.Fatalf("read %s: %v", key, err)
	}
	return b, obj
}

func (s *subject) wantContent(key string, want []byte) {
	s.t.Helper()
	if got, _ := s.mustRead(key); !bytes.Equal(got, want) {
		s.t.Fatalf("%s holds %d bytes that differ from the %d expected", key, len(got), len(want))
	}
}

func (s *subject) list(prefix, after string) []objstore.Object {
	s.t.Helper()
	var found []objstore.Object
	err := s.List(s.ctx, prefix, after, func(o objstore.Object) bool { found = append(found, o); return true })
	if err != nil {
		s.t.Fatalf("list %q after %q: %v", prefix, after, err)
	}
	return found
}

func (s *subject) keys(prefix, after string) []string {
	s.t.Helper()
	var keys []string
	for _, o := range s.list(prefix, after) {
		keys = append(keys, o.Key)
	}
	return keys
}

// wantRefused checks a refused conditional put. A server may cut the connection instead of answering, so the outcome may
// be unknown; then the object must still be as it was.
func (s *subject) wantRefused(err error, key string, want []byte) {
	s.t.Helper()
	if !errors.Is(err, objstore.ErrPrecondition) && !errors.Is(err, objstore.ErrUnknownOutcome) {
		s.t.Fatalf("conditional put of %s: %v, want ErrPrecondition", key, err)
	}
	if want == nil {
		wantKind(s.t, second(s.Head(s.ctx, key)), objstore.ErrNotFound)
		return
	}
	s.wantContent(key, want)
}

func wantKind(t *testing.T, err, kind error) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("got error %v, want %v", err, kind)
	}
	var e *objstore.Error
	if !errors.As(err, &e) {
		t.Fatalf("%v is not an *objstore.Error", err)
	}
}

func second[T any](_ T, err error) error { return err }

// pattern gives n reproducible bytes.
func pattern(seed byte, n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(b) // never fails
	return b
}

func testRoundTrip(t *testing.T, s *subject) {
	for i, n := range []int{0, 1, 511, 4096, 1 << 20, 9<<20 + 7} {
		key := fmt.Sprintf("round/%d", i)
		content := pattern(1, n)
		put := s.mustPut(key, content, objstore.PutOptions{})
		got, obj := s.mustRead(key)
		if !bytes.Equal(got, content) {
			t.Fatalf("%d bytes came back different", n)
		}
		head, err := s.Head(s.ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range []objstore.Object{obj, head} {
			if o.Key != key || o.Size != int64(n) || o.ETag != put.ETag {
				t.Fatalf("described as %+v, put said %+v", o, put)
			}
			if age := time.Since(o.Modified).Abs(); age > time.Hour {
				t.Fatalf("modified at %v, which is %v from now", o.Modified, age)
			}
		}
	}
}

func testReplace(t *testing.T, s *subject) {
	first := s.mustPut("r/x", pattern(1, 5000), objstore.PutOptions{})
	next := s.mustPut("r/x", pattern(2, 300), objstore.PutOptions{})
	if first.ETag == next.ETag {
		t.Fatalf("two contents share the ETag %s", first.ETag)
	}
	s.wantContent("r/x", pattern(2, 300))
}

func testRanges(t *testing.T, s *subject) {
	content := pattern(3, 100_000)
	put := s.mustPut("ranges/x", content, objstore.PutOptions{})
	for _, r := range []struct{ off, n int64 }{{0, -1}, {0, 1}, {0, 100_000}, {99_999, 1}, {99_999, -1}, {1000, 64 << 10}, {5, 0}, {100_000, 0}} {
		body, obj, err := s.Get(s.ctx, "ranges/x", r.off, r.n)
		if err != nil {
			t.Fatalf("get %d bytes at %d: %v", r.n, r.off, err)
		}
		got, err := io.ReadAll(body)
		if err != nil {
			t.Fatalf("read %d bytes at %d: %v", r.n, r.off, err)
		}
		if err := body.Close(); err != nil {
			t.Fatal(err)
		}
		n := r.n
		if n < 0 {
			n = int64(len(content)) - r.off
		}
		if !bytes.Equal(got, content[r.off:r.off+n]) {
			t.Fatalf("%d bytes at %d differ", r.n, r.off)
		}
		if obj.Size != int64(len(content)) || obj.ETag != put.ETag {
			t.Fatalf("get %d bytes at %d described the object as %+v", r.n, r.off, obj)
		}
	}
	p := make([]byte, 77)
	if _, err := objstore.ReadAt(s.ctx, s, "ranges/x", p, 1234); err != nil || !bytes.Equal(p, content[1234:1234+77]) {
		t.Fatalf("ReadAt: %v, or other bytes", err)
	}
	_, _, err := objstore.ReadAll(s.ctx, s, "ranges/x", 99_999)
	wantKind(t, err, objstore.ErrTooLarge)
}

func testRangeErrors(t *testing.T, s *subject) {
	s.mustPut("short", pattern(4, 1000), objstore.PutOptions{})
	for _, r := range []struct{ off, n int64 }{{1000, -1}, {1000, 1}, {1001, -1}, {999, 2}, {0, 1001}, {5000, 10}, {1001, 0}, {-1, 4}} {
		body, _, err := s.Get(s.ctx, "short", r.off, r.n)
		if err == nil {
			_ = body.Close()
		}
		wantKind(t, err, objstore.ErrRange)
	}
}

func testNotFound(t *testing.T, s *subject) {
	s.mustPut("dir/object", []byte("x"), objstore.PutOptions{})
	for _, key := range []string{"absent", "dir", "dir/absent", "dir/absent/deep"} {
		_, _, err := s.Get(s.ctx, key, 0, -1)
		wantKind(t, err, objstore.ErrNotFound)
		_, _, err = s.Get(s.ctx, key, 5, 10)
		wantKind(t, err, objstore.ErrNotFound)
		_, err = s.Head(s.ctx, key)
		wantKind(t, err, objstore.ErrNotFound)
		if msg := err.Error(); !strings.Contains(msg, key) || !strings.HasPrefix(msg, "head ") {
			t.Fatalf("%q does not name operation and key", msg)
		}
	}
}

func testDelete(t *testing.T, s *subject) {
	s.mustPut("d/x", []byte("x"), objstore.PutOptions{})
	for range 2 {
		if err := s.Delete(s.ctx, "d/x"); err != nil {
			t.Fatal(err)
		}
		wantKind(t, second(s.Head(s.ctx, "d/x")), objstore.ErrNotFound)
	}
	if err := s.Delete(s.ctx); err != nil {
		t.Fatalf("deleting nothing: %v", err)
	}
	s.mustPut("d/x", []byte("y"), objstore.PutOptions{IfNoneMatch: true})
	s.wantContent("d/x", []byte("y"))
	if keys := s.keys("", ""); !slices.Equal(keys, []string{"d/x"}) {
		t.Fatalf("listed %q", keys)
	}
}

func testDeleteMany(t *testing.T, s *subject) {
	var keys []string
	for i := range 25 {
		key := fmt.Sprintf("many/%02d/%d", i%3, i)
		s.mustPut(key, []byte{byte(i)}, objstore.PutOptions{})
		keys = append(keys, key)
	}
	keep := keys[7]
	gone := slices.Delete(slices.Clone(keys), 7, 8)
	for i := range 2500 { // more than one request's worth, most of them absent
		gone = append(gone, fmt.Sprintf("many/absent/%d", i))
	}
	if err := s.Delete(s.ctx, gone...); err != nil {
		t.Fatal(err)
	}
	if left := s.keys("many/", ""); !slices.Equal(left, []string{keep}) {
		t.Fatalf("left are %q, want only %s", left, keep)
	}
}

func testIfNoneMatch(t *testing.T, s *subject) {
	create := objstore.PutOptions{IfNoneMatch: true}
	s.mustPut("c/x", []byte("first"), create)
	_, err := s.Put(s.ctx, "c/x", objstore.Bytes([]byte("second")), create)
	s.wantRefused(err, "c/x", []byte("first"))
	if err := s.Delete(s.ctx, "c/x"); err != nil {
		t.Fatal(err)
	}
	s.mustPut("c/x", []byte("third"), create)
	s.wantContent("c/x", []byte("third"))
}

func testIfMatch(t *testing.T, s *subject) {
	put := func(etag, content string) error {
		return second(s.Put(s.ctx, "m/x", objstore.Bytes([]byte(content)), objstore.PutOptions{IfMatch: etag}))
	}
	s.wantRefused(put(`"0123456789abcdef0123456789abcdef"`, "none"), "m/x", nil)
	one := s.mustPut("m/x", []byte("one"), objstore.PutOptions{IfNoneMatch: true})
	two := s.mustPut("m/x", []byte("two"), objstore.PutOptions{IfMatch: one.ETag})
	s.wantRefused(put(one.ETag, "three"), "m/x", []byte("two"))
	listed := s.list("m/", "")
	if len(listed) != 1 || listed[0].ETag != two.ETag {
		t.Fatalf("list shows %+v, put returned %+v", listed, two)
	}
	s.mustPut("m/x", []byte("four"), objstore.PutOptions{IfMatch: listed[0].ETag})
	_, obj := s.mustRead("m/x")
	s.mustPut("m/x", []byte("five"), objstore.PutOptions{IfMatch: obj.ETag})
	if err := s.Delete(s.ctx, "m/x"); err != nil {
		t.Fatal(err)
	}
	s.wantRefused(put(obj.ETag, "six"), "m/x", nil)
	_, err := s.Put(s.ctx, "m/x", objstore.Bytes(nil), objstore.PutOptions{IfMatch: `"x"`, IfNoneMatch: true})
	wantKind(t, err, objstore.ErrRejected)
}

func testLargeConditional(t *testing.T, s *subject) {
	big := pattern(5, 12<<20)
	s.mustPut("big/x", big, objstore.PutOptions{IfNoneMatch: true})
	for range 4 {
		_, err := s.Put(s.ctx, "big/x", objstore.Bytes(pattern(6, 12<<20)), objstore.PutOptions{IfNoneMatch: true})
		s.wantRefused(err, "big/x", big)
	}
}

func testCreateRace(t *testing.T, s *subject) {
	for round := range 5 {
		key := fmt.Sprintf("race/%d", round)
		var (
			wg   sync.WaitGroup
			mu   sync.Mutex // guards the following
			won  []string
			lost []error
		)
		for i := range 8 {
			wg.Go(func() {
				content := fmt.Sprintf("writer %d", i)
				_, err := s.Put(s.ctx, key, objstore.Bytes([]byte(content)), objstore.PutOptions{IfNoneMatch: true})
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					won = append(won, content)
				} else {
					lost = append(lost, err)
				}
			})
		}
		wg.Wait()
		for _, err := range lost {
			if !errors.Is(err, objstore.ErrPrecondition) && !errors.Is(err, objstore.ErrUnknownOutcome) {
				t.Fatal(err)
			}
		}
		got, _ := s.mustRead(key)
		if len(won) > 1 || len(won) == 1 && won[0] != string(got) {
			t.Fatalf("winners %q, the object holds %q", won, got)
		}
	}
}

// testCounterRace lets writers count up one object by compare-and-swap; each value names its writer, so that a writer
// whose answer was lost can find out.
func testCounterRace(t *testing.T, s *subject) {
	const writers, each = 4, 6
	s.mustPut("counter", nil, objstore.PutOptions{})
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				token := fmt.Sprintf("w%d-%d\n", w, i)
				for {
					done, err := s.appendOnce("counter", token)
					if err != nil {
						t.Error(err)
						return
					}
					if done {
						break
					}
				}
			}
		})
	}
	wg.Wait()
	got, _ := s.mustRead("counter")
	lines := strings.Split(strings.TrimSpace(string(got)), "\n")
	slices.Sort(lines)
	if len(lines) != writers*each || len(slices.Compact(lines)) != writers*each {
		t.Fatalf("%d distinct updates survived of %d: %q", len(slices.Compact(lines)), writers*each, lines)
	}
}

// appendOnce adds a token to an object unless it is there already; false means that another writer was faster.
func (s *subject) appendOnce(key, token string) (bool, error) {
	b, obj, err := objstore.ReadAll(s.ctx, s, key, 1<<20)
	if err != nil {
		return false, err
	}
	if bytes.Contains(b, []byte(token)) {
		return true, nil
	}
	_, err = s.Put(s.ctx, key, objstore.Bytes(append(b, token...)), objstore.PutOptions{IfMatch: obj.ETag})
	if errors.Is(err, objstore.ErrPrecondition) || errors.Is(err, objstore.ErrUnknownOutcome) {
		return false, nil
	}
	return err == nil, err
}

func testAtomicReplace(t *testing.T, s *subject) {
	const size = 256 << 10
	fill := func(c byte) []byte { return bytes.Repeat([]byte{c}, size) }
	s.mustPut("atomic", fill('a'), objstore.PutOptions{})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				b, _, err := objstore.ReadAll(s.ctx, s, "atomic", size)
				if err != nil {
					t.Error(err)
					return
				}
				if len(b) != size || bytes.Count(b, b[:1]) != size {
					t.Errorf("a reader saw a mix: %d bytes, %d equal to the first", len(b), bytes.Count(b, b[:1]))
					return
				}
			}
		})
	}
	for i := range 20 {
		s.mustPut("atomic", fill(byte('a'+i)), objstore.PutOptions{})
	}
	close(stop)
	wg.Wait()
}

func testList(t *testing.T, s *subject) {
	keys := []string{"a-b", "a.b", "a/0", "a/b-c/1", "a/b/1", "a/b/2", "a/b0", "a0", "b", "é/1", "Z/1"}
	for _, key := range keys {
		s.mustPut(key, []byte(key), objstore.PutOptions{})
	}
	slices.Sort(keys)
	prefixes := []string{"", "a", "a/", "a/b", "a/b/", "a/b/1", "a/b/1/", "b", "c", "é", "nowhere/"}
	afters := append([]string{"", "a", "a/", "a/b", "a/b/", "a/b/11", "zzz"}, keys...)
	for _, prefix := range prefixes {
		for _, after := range afters {
			var want []string
			for _, key := range keys {
				if strings.HasPrefix(key, prefix) && key > after {
					want = append(want, key)
				}
			}
			if got := s.keys(prefix, after); !slices.Equal(got, want) {
				t.Fatalf("list %q after %q: %q, want %q", prefix, after, got, want)
			}
		}
	}
	for _, o := range s.list("", "") {
		if head, err := s.Head(s.ctx, o.Key); err != nil || head.Size != o.Size || head.ETag != o.ETag {
			t.Fatalf("list shows %+v, head shows %+v, %v", o, head, err)
		}
	}
	calls := 0
	if err := s.List(s.ctx, "", "", func(objstore.Object) bool { calls++; return calls < 3 }); err != nil || calls != 3 {
		t.Fatalf("a list told to stop at 3 made %d calls: %v", calls, err)
	}
}

func testListPages(t *testing.T, s *subject) {
	const n = 1100 // S3 answers 1,000 a page
	var wg sync.WaitGroup
	want := make([]string, n)
	for w := range 8 {
		wg.Go(func() {
			for i := w; i < n; i += 8 {
				want[i] = fmt.Sprintf("pages/%02d/%04d", i/100, i)
				if _, err := s.Put(s.ctx, want[i], objstore.Bytes([]byte{1}), objstore.PutOptions{}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if got := s.keys("pages/", ""); !slices.Equal(got, want) {
		t.Fatalf("listed %d keys of %d, or in another order", len(got), n)
	}
	if err := s.Delete(s.ctx, want...); err != nil {
		t.Fatal(err)
	}
	if left := s.keys("", ""); len(left) != 0 {
		t.Fatalf("%d keys left after deleting all", len(left))
	}
}

func testKeys(t *testing.T, s *subject) {
	keys := []string{
		"plain", "with space", "per%41cent", "per%2Fcent", "plus+sign", "q?x=1&y=2", "#hash", "ünï/çödé", "semi;colon:colon",
		"..hidden", ".varve-like/x", "quo'te\"s", "(a)[b]{c}", "a*b", "tilde~", "back\\slash", "日本/語", "UPPER/lower",
		"x=y/@at,comma!", strings.Repeat("long", 50) + "/" + strings.Repeat("p", 200),
	}
	for _, key := range keys {
		s.mustPut(key, []byte(key), objstore.PutOptions{})
	}
	for _, key := range keys {
		s.wantContent(key, []byte(key))
	}
	slices.Sort(keys)
	if got := s.keys("", ""); !slices.Equal(got, keys) {
		t.Fatalf("listed %q,\nwant %q", got, keys)
	}
	if err := s.Delete(s.ctx, keys...); err != nil {
		t.Fatal(err)
	}
	if left := s.keys("", ""); len(left) != 0 {
		t.Fatalf("left after deleting all: %q", left)
	}
}

func testInvalidKeys(t *testing.T, s *subject) {
	for _, key := range []string{"", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "a/.", "a\x00b", "a\nb", "\xff", strings.Repeat("x", 201), strings.Repeat("a/", 500) + "b"} {
		_, err := s.Put(s.ctx, key, objstore.Bytes(nil), objstore.PutOptions{})
		wantKind(t, err, objstore.ErrInvalidKey)
		_, _, err = s.Get(s.ctx, key, 0, -1)
		wantKind(t, err, objstore.ErrInvalidKey)
		_, err = s.Head(s.ctx, key)
		wantKind(t, err, objstore.ErrInvalidKey)
		wantKind(t, s.Delete(s.ctx, key), objstore.ErrInvalidKey)
	}
	if got := s.keys("", ""); len(got) != 0 {
		t.Fatalf("listed %q in an empty store", got)
	}
}

func testContext(t *testing.T, s *subject) {
	s.mustPut("ctx/x", []byte("x"), objstore.PutOptions{})
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	_, putErr := s.Put(ctx, "ctx/y", objstore.Bytes([]byte("y")), objstore.PutOptions{})
	_, _, getErr := s.Get(ctx, "ctx/x", 0, -1)
	_, headErr := s.Head(ctx, "ctx/x")
	listErr := s.List(ctx, "", "", func(objstore.Object) bool { return true })
	for _, err := range []error{putErr, getErr, headErr, listErr, s.Delete(ctx, "ctx/x")} {
		wantKind(t, err, objstore.ErrUnavailable)
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("%v hides that the context was cancelled", err)
		}
	}
	s.wantContent("ctx/x", []byte("x"))
	wantKind(t, second(s.Head(s.ctx, "ctx/y")), objstore.ErrNotFound)

	// A context that ends while the body is read ends the reading.
	s.mustPut("ctx/big", pattern(7, 8<<20), objstore.PutOptions{})
	ctx, cancel = context.WithCancel(s.ctx)
	defer cancel()
	body, _, err := s.Get(ctx, "ctx/big", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if _, err := io.ReadFull(body, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	cancel()
	_, err = io.Copy(io.Discard, body)
	wantKind(t, err, objstore.ErrUnavailable)
}

func testChecksum(t *testing.T, s *subject) {
	content := pattern(8, 70_000)
	sum := crc32.Checksum(content, crc32.MakeTable(crc32.Castagnoli))
	s.mustPut("crc/good", content, objstore.PutOptions{CRC32C: &sum})
	s.wantContent("crc/good", content)
	wrong := sum + 1
	_, err := s.Put(s.ctx, "crc/bad", objstore.Bytes(content), objstore.PutOptions{CRC32C: &wrong})
	wantKind(t, err, objstore.ErrRejected)
	wantKind(t, second(s.Head(s.ctx, "crc/bad")), objstore.ErrNotFound)
}

func testProbe(t *testing.T, s *subject) {
	if err := objstore.CheckConditional(s.ctx, s); err != nil {
		t.Fatal(err)
	}
	if left := s.keys("", ""); len(left) != 0 {
		t.Fatalf("the probe left %q behind", left)
	}
}
