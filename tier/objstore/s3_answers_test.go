package objstore_test

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/varvelog/varve/tier/objstore"
)

// oddServer is an S3 server that answers as its test says, and notes what it was asked.
type oddServer struct {
	*objstore.S3
	mu     sync.Mutex // guards the following
	asked  []string   // method and path
	header []http.Header
	bodies [][]byte
}

// serve opens a store in bucket "bucket", prefix "p", on a server with the given handler. call counts from 1.
func serve(t *testing.T, params string, handler func(w http.ResponseWriter, r *http.Request, call int)) *oddServer {
	t.Helper()
	o := &oddServer{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // a request that was cut shows in what it holds
		o.mu.Lock()
		o.asked = append(o.asked, r.Method+" "+r.URL.Path)
		o.header = append(o.header, r.Header)
		o.bodies = append(o.bodies, body)
		call := len(o.asked)
		o.mu.Unlock()
		handler(w, r, call)
	}))
	t.Cleanup(srv.Close)
	o.S3 = openAt(t, srv.URL, params)
	return o
}

func openAt(t *testing.T, endpoint, params string) *objstore.S3 {
	t.Helper()
	st, err := objstore.Open(t.Context(), "s3://bucket/p?path-style=true&endpoint="+endpoint+params, objstore.Options{
		Attempts: 2, Credentials: objstore.Credentials{AccessKey: "key", SecretKey: "secret"}})
	if err != nil {
		t.Fatal(err)
	}
	return st.(*objstore.S3)
}

func (o *oddServer) calls() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.asked)
}

// answerError writes an S3 error document.
func answerError(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.Header().Set("X-Amz-Request-Id", "REQ7")
	w.WriteHeader(status)
	fmt.Fprintf(w, `<?xml version="1.0"?><Error><Code>%s</Code><Message>because of %s.</Message></Error>`, code, code)
}

func cut(http.ResponseWriter) { panic(http.ErrAbortHandler) }

func putOne(t *testing.T, s objstore.Store, o objstore.PutOptions) error {
	t.Helper()
	_, err := s.Put(t.Context(), "k", objstore.Bytes([]byte("content")), o)
	return err
}

var (
	create  = objstore.PutOptions{IfNoneMatch: true}
	replace = objstore.PutOptions{IfMatch: `"e1"`}
)

func TestS3ErrorAnswersAreClassified(t *testing.T) {
	const html = "html" // a 404 page of something that is not S3
	for _, c := range []struct {
		status         int
		code           string
		plain, cond    error
		get            error
		plainRequests  int
		inMessage      string
		conditionalFor objstore.PutOptions
	}{
		{status: 403, code: "AccessDenied", plain: objstore.ErrDenied, cond: objstore.ErrDenied, get: objstore.ErrDenied, plainRequests: 1},
		{status: 403, code: "SignatureDoesNotMatch", plain: objstore.ErrDenied, cond: objstore.ErrDenied, get: objstore.ErrDenied,
			plainRequests: 1, inMessage: "secret key"},
		{status: 404, code: "NoSuchBucket", plain: objstore.ErrNoBucket, cond: objstore.ErrNoBucket, get: objstore.ErrNoBucket, plainRequests: 1},
		{status: 404, code: "NoSuchKey", plain: objstore.ErrUnavailable, cond: objstore.ErrPrecondition, get: objstore.ErrNotFound,
			plainRequests: 1, conditionalFor: replace},
		{status: 404, code: html, plain: objstore.ErrUnavailable, cond: objstore.ErrUnknownOutcome, get: objstore.ErrUnavailable, plainRequests: 1},
		{status: 409, code: "ConditionalRequestConflict", plain: objstore.ErrUnavailable, cond: objstore.ErrPrecondition,
			get: objstore.ErrUnavailable, plainRequests: 1},
		{status: 412, code: "PreconditionFailed", plain: objstore.ErrPrecondition, cond: objstore.ErrPrecondition,
			get: objstore.ErrPrecondition, plainRequests: 1},
		{status: 416, code: "InvalidRange", plain: objstore.ErrRange, cond: objstore.ErrRange, get: objstore.ErrRange, plainRequests: 1},
		{status: 400, code: "InvalidArgument", plain: objstore.ErrRejected, cond: objstore.ErrRejected, get: objstore.ErrRejected, plainRequests: 1},
		{status: 400, code: "RequestTimeout", plain: objstore.ErrUnavailable, cond: objstore.ErrUnavailable,
			get: objstore.ErrUnavailable, plainRequests: 2},
		{status: 429, code: "TooManyRequests", plain: objstore.ErrUnavailable, cond: objstore.ErrUnavailable,
			get: objstore.ErrUnavailable, plainRequests: 2},
		{status: 501, code: "NotImplemented", plain: objstore.ErrCapability, cond: objstore.ErrCapability, get: objstore.ErrCapability, plainRequests: 1},
		{status: 500, code: "InternalError", plain: objstore.ErrUnavailable, cond: objstore.ErrUnknownOutcome,
			get: objstore.ErrUnavailable, plainRequests: 2, inMessage: "request id REQ7 (2 attempts)"},
		{status: 503, code: "SlowDown", plain: objstore.ErrUnavailable, cond: objstore.ErrUnknownOutcome,
			get: objstore.ErrUnavailable, plainRequests: 2, inMessage: "503 Service Unavailable SlowDown, because of SlowDown"},
		{status: 502, code: html, plain: objstore.ErrUnavailable, cond: objstore.ErrUnknownOutcome, get: objstore.ErrUnavailable, plainRequests: 2},
	} {
		t.Run(fmt.Sprint(c.status, c.code), func(t *testing.T) {
			t.Parallel()
			s := serve(t, "", func(w http.ResponseWriter, _ *http.Request, _ int) {
				if c.code == html {
					http.Error(w, "<html>gateway</html>", c.status)
					return
				}
				answerError(w, c.status, c.code)
			})
			err := putOne(t, s, objstore.PutOptions{})
			wantKind(t, err, c.plain)
			if n := s.calls(); n != c.plainRequests {
				t.Errorf("a plain put made %d requests, want %d", n, c.plainRequests)
			}
			for _, want := range []string{"put s3://bucket/p/k: ", fmt.Sprint(c.status), c.inMessage} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q lacks %q", err, want)
				}
			}
			before := s.calls()
			o := create
			if c.conditionalFor.IfMatch != "" {
				o = c.conditionalFor
			}
			wantKind(t, putOne(t, s, o), c.cond)
			if n := s.calls() - before; n != 1 {
				t.Errorf("a conditional put made %d requests, want 1", n)
			}
			_, _, err = s.Get(t.Context(), "k", 0, 10)
			wantKind(t, err, c.get)
		})
	}
}

func TestS3ConditionalPutIsSentOnceAndALostAnswerIsUnknown(t *testing.T) {
	s := serve(t, "", func(w http.ResponseWriter, _ *http.Request, _ int) { cut(w) })
	for i, o := range []objstore.PutOptions{create, replace} {
		wantKind(t, putOne(t, s, o), objstore.ErrUnknownOutcome)
		if s.calls() != i+1 {
			t.Fatalf("%d requests for %d conditional puts", s.calls(), i+1)
		}
	}
}

func TestS3ConditionalPutThatTimesOutIsUnknown(t *testing.T) {
	release := make(chan struct{})
	s := serve(t, "", func(http.ResponseWriter, *http.Request, int) { <-release })
	defer close(release)
	put := func(limit time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		_, err := s.Put(ctx, "k", objstore.Bytes([]byte("x")), create)
		return err
	}
	limit := 100 * time.Millisecond
	err := put(limit)
	for s.calls() == 0 { // a busy machine may not even have sent it by then
		limit *= 2
		err = put(limit)
	}
	wantKind(t, err, objstore.ErrUnknownOutcome)
	wantKind(t, err, context.DeadlineExceeded)
}

func TestS3RefusedConnectionIsNeverAnUnknownOutcome(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	s := openAt(t, srv.URL, "")
	srv.Close()
	err := putOne(t, s, create)
	wantKind(t, err, objstore.ErrUnavailable)
	if errors.Is(err, objstore.ErrUnknownOutcome) || !strings.Contains(err.Error(), "connection refused") {
		t.Fatal(err)
	}
}

func TestS3PlainPutIsRepeatedWithTheWholeBody(t *testing.T) {
	content := bytes.Repeat([]byte("abc"), 100_000)
	s := serve(t, "", func(w http.ResponseWriter, _ *http.Request, call int) {
		if call == 1 {
			cut(w)
		}
		w.Header().Set("ETag", `"e1"`)
	})
	obj, err := s.Put(t.Context(), "k", objstore.Bytes(content), objstore.PutOptions{})
	if err != nil || obj.ETag != `"e1"` {
		t.Fatalf("%+v, %v", obj, err)
	}
	if s.calls() != 2 || !bytes.Equal(s.bodies[1], content) {
		t.Fatalf("%d requests, the last with %d bytes", s.calls(), len(s.bodies[1]))
	}
}

func TestS3PutSendsOneUnsignedRequestWithItsChecksum(t *testing.T) {
	etag := func(w http.ResponseWriter, _ *http.Request, _ int) { w.Header().Set("ETag", "unquoted") }
	for _, c := range []struct{ params, sha, crc string }{
		{"", "UNSIGNED-PAYLOAD", "CRC"},
		{"&sign-payload=true", "SHA", "CRC"},
		{"&no-checksum=true", "SHA", ""},
	} {
		s := serve(t, c.params, etag)
		obj, err := s.Put(t.Context(), "a b/k", objstore.Bytes([]byte("123456789")), create)
		if err != nil || obj.ETag != `"unquoted"` {
			t.Fatalf("%+v, %v", obj, err)
		}
		h := s.header[0]
		want := map[string]string{
			"If-None-Match": "*", "Content-Length": "9", "X-Amz-Content-Sha256": "UNSIGNED-PAYLOAD", "X-Amz-Trailer": "",
			"X-Amz-Checksum-Crc32c": "4waSgw==", "Content-Encoding": "", "X-Amz-Sdk-Checksum-Algorithm": "",
		}
		if c.sha == "SHA" {
			want["X-Amz-Content-Sha256"] = "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225"
		}
		if c.crc == "" {
			want["X-Amz-Checksum-Crc32c"] = ""
		}
		for name, v := range want {
			if h.Get(name) != v {
				t.Errorf("%s: header %s is %q, want %q", c.params, name, h.Get(name), v)
			}
		}
		if s.calls() != 1 || s.asked[0] != "PUT /bucket/p/a b/k" {
			t.Errorf("asked %q", s.asked)
		}
	}
}

func TestS3PutWithoutETagIsNoAnswer(t *testing.T) {
	s := serve(t, "", func(http.ResponseWriter, *http.Request, int) {})
	wantKind(t, putOne(t, s, create), objstore.ErrUnknownOutcome)
	wantKind(t, putOne(t, s, objstore.PutOptions{}), objstore.ErrUnavailable)
}

func TestS3DamagedUploadIsBlamedOnWhomItBelongs(t *testing.T) {
	s := serve(t, "", func(w http.ResponseWriter, _ *http.Request, _ int) { answerError(w, 400, "BadDigest") })
	wantKind(t, putOne(t, s, objstore.PutOptions{}), objstore.ErrUnavailable) // the body is right: damaged on the way
	wrong := uint32(7)
	wantKind(t, putOne(t, s, objstore.PutOptions{CRC32C: &wrong}), objstore.ErrRejected)
}

// getBody reads all that a Get of 1,000 bytes at 500 gives.
func getBody(ctx context.Context, s objstore.Store) (int, error) {
	p := make([]byte, 1000)
	_, err := objstore.ReadAt(ctx, s, "k", p, 500)
	return len(p), err
}

func TestS3ShortOrWrongBodiesNeverPass(t *testing.T) {
	body := make([]byte, 5000)
	ranged := func(w http.ResponseWriter, contentRange string, length int) {
		w.Header().Set("ETag", `"e"`)
		w.Header().Set("Content-Range", contentRange)
		w.Header().Set("Content-Length", fmt.Sprint(length))
		w.WriteHeader(http.StatusPartialContent)
	}
	for name, c := range map[string]struct {
		handler func(w http.ResponseWriter)
		want    error
	}{
		"cut half-way": {func(w http.ResponseWriter) {
			ranged(w, "bytes 500-1499/5000", 1000)
			_, _ = w.Write(body[:400]) // the rest never comes
			w.(http.Flusher).Flush()
			cut(w)
		}, objstore.ErrUnavailable},
		"ends early": {func(w http.ResponseWriter) {
			ranged(w, "bytes 500-1499/5000", 1000)
			_, _ = w.Write(body[:999])
		}, objstore.ErrUnavailable},
		"fewer bytes than asked": {func(w http.ResponseWriter) { ranged(w, "bytes 500-1399/5000", 900); _, _ = w.Write(body[:900]) }, objstore.ErrUnavailable},
		"another place":          {func(w http.ResponseWriter) { ranged(w, "bytes 0-999/5000", 1000); _, _ = w.Write(body[:1000]) }, objstore.ErrUnavailable},
		"nonsense range":         {func(w http.ResponseWriter) { ranged(w, "bytes */5000", 1000); _, _ = w.Write(body[:1000]) }, objstore.ErrUnavailable},
		"object too short":       {func(w http.ResponseWriter) { ranged(w, "bytes 500-1399/1400", 900); _, _ = w.Write(body[:900]) }, objstore.ErrRange},
		"range ignored": {func(w http.ResponseWriter) {
			w.Header().Set("ETag", `"e"`)
			w.Header().Set("Content-Length", "5000")
			_, _ = w.Write(body)
		}, objstore.ErrCapability},
		"length unknown": {func(w http.ResponseWriter) {
			w.Header().Set("ETag", `"e"`)
			w.Header().Set("Content-Range", "bytes 500-1499/5000")
			w.WriteHeader(http.StatusPartialContent)
			w.(http.Flusher).Flush()
			_, _ = w.Write(body[:1000])
		}, objstore.ErrUnavailable},
		"no ETag": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Range", "bytes 500-1499/5000")
			w.Header().Set("Content-Length", "1000")
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write(body[:1000])
		}, objstore.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, "", func(w http.ResponseWriter, _ *http.Request, _ int) { c.handler(w) })
			_, err := getBody(t.Context(), s)
			wantKind(t, err, c.want)
			if !strings.Contains(err.Error(), "get s3://bucket/p/k: ") {
				t.Fatalf("%v does not name operation, bucket and key", err)
			}
		})
	}
}

func TestS3StalledBodyEndsWithItsContext(t *testing.T) {
	release := make(chan struct{})
	s := serve(t, "", func(w http.ResponseWriter, _ *http.Request, _ int) {
		w.Header().Set("ETag", `"e"`)
		w.Header().Set("Content-Range", "bytes 500-1499/5000")
		w.Header().Set("Content-Length", "1000")
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write(make([]byte, 10))
		w.(http.Flusher).Flush()
		<-release
	})
	defer close(release)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := getBody(ctx, s)
	wantKind(t, err, objstore.ErrUnavailable)
	wantKind(t, err, context.DeadlineExceeded)
}

func TestS3HeadTellsAnAbsentObjectFromAnAbsentBucket(t *testing.T) {
	for status, want := range map[int]error{
		200: objstore.ErrNotFound, 403: objstore.ErrNotFound, 404: objstore.ErrNoBucket, 503: objstore.ErrUnavailable,
	} {
		s := serve(t, "", func(w http.ResponseWriter, r *http.Request, _ int) {
			if r.URL.Path == "/bucket/p/k" {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			w.WriteHeader(status)
		})
		_, err := s.Head(t.Context(), "k")
		wantKind(t, err, want)
		if status == 503 && errors.Is(err, objstore.ErrNotFound) {
			t.Fatal("a bucket that cannot be asked about makes an object absent")
		}
	}
}

func TestS3WrongRegionIsNamed(t *testing.T) {
	s := serve(t, "&region=us-west-2", func(w http.ResponseWriter, _ *http.Request, _ int) {
		w.Header().Set("X-Amz-Bucket-Region", "eu-central-1")
		answerError(w, http.StatusMovedPermanently, "PermanentRedirect")
	})
	err := putOne(t, s, objstore.PutOptions{})
	wantKind(t, err, objstore.ErrRejected)
	if !strings.Contains(err.Error(), "the bucket is in region eu-central-1, not us-west-2: set region=eu-central-1") {
		t.Fatal(err)
	}
}

type deleteRequest struct {
	Quiet  bool
	Object []struct{ Key string }
}

func TestS3DeletesInBatchesWithContentMD5(t *testing.T) {
	s := serve(t, "", func(w http.ResponseWriter, _ *http.Request, _ int) { fmt.Fprint(w, `<DeleteResult/>`) })
	var keys []string
	for i := range 2100 {
		keys = append(keys, fmt.Sprint("k", i))
	}
	if err := s.Delete(t.Context(), keys...); err != nil {
		t.Fatal(err)
	}
	var sizes []int
	for i, body := range s.bodies {
		var req deleteRequest
		if err := xml.Unmarshal(body, &req); err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, len(req.Object))
		sum := md5.Sum(body)
		if got := s.header[i].Get("Content-MD5"); got != base64.StdEncoding.EncodeToString(sum[:]) {
			t.Errorf("Content-MD5 is %q", got)
		}
		for name := range s.header[i] {
			if strings.HasPrefix(name, "X-Amz-Checksum-") || name == "X-Amz-Sdk-Checksum-Algorithm" {
				t.Errorf("header %s beside Content-MD5", name)
			}
		}
		if !req.Quiet || req.Object[0].Key != fmt.Sprint("p/k", i*1000) {
			t.Errorf("batch %d: quiet %t, first key %s", i, req.Quiet, req.Object[0].Key)
		}
	}
	if !slices.Equal(sizes, []int{1000, 1000, 100}) {
		t.Fatalf("batches of %v", sizes)
	}
}

func TestS3DeleteReportsEachKeyThatFailed(t *testing.T) {
	s := serve(t, "", func(w http.ResponseWriter, _ *http.Request, _ int) {
		fmt.Fprint(w, `<DeleteResult><Error><Key>p/a</Key><Code>NoSuchKey</Code></Error>`+
			`<Error><Key>p/b</Key><Code>InternalError</Code><Message>try again</Message></Error></DeleteResult>`)
	})
	err := s.Delete(t.Context(), "a", "b", "c")
	wantKind(t, err, objstore.ErrUnavailable)
	if msg := err.Error(); msg != "delete s3://bucket/p/b: object store unavailable: InternalError try again" {
		t.Fatal(msg)
	}
}

func TestS3DeletesSinglyWhereBatchesAreUnknown(t *testing.T) {
	s := serve(t, "", func(w http.ResponseWriter, r *http.Request, _ int) {
		if r.Method == http.MethodPost {
			answerError(w, http.StatusNotImplemented, "NotImplemented")
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	for range 2 {
		if err := s.Delete(t.Context(), "a", "b"); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"POST /bucket", "DELETE /bucket/p/a", "DELETE /bucket/p/b", "DELETE /bucket/p/a", "DELETE /bucket/p/b"}
	if !slices.Equal(s.asked, want) {
		t.Fatalf("asked %q, want %q", s.asked, want)
	}
}

func TestS3ListRefusesBrokenPages(t *testing.T) {
	page := func(truncated bool, token string, keys ...string) string {
		var b strings.Builder
		fmt.Fprintf(&b, `<ListBucketResult><IsTruncated>%t</IsTruncated><NextContinuationToken>%s</NextContinuationToken>`, truncated, token)
		for _, k := range keys {
			fmt.Fprintf(&b, `<Contents><Key>%s</Key><Size>1</Size><ETag>"e"</ETag></Contents>`, k)
		}
		return b.String() + `</ListBucketResult>`
	}
	for name, c := range map[string]struct {
		pages []string
		want  error
		keys  []string
	}{
		"not in order":     {[]string{page(false, "", "p/b", "p/a")}, objstore.ErrCapability, []string{"b"}},
		"no way on":        {[]string{page(true, "", "p/a")}, objstore.ErrUnavailable, []string{"a"}},
		"in a circle":      {[]string{page(true, "t", "p/a"), page(true, "t", "p/b")}, objstore.ErrUnavailable, []string{"a", "b"}},
		"foreign objects":  {[]string{page(false, "", "o/x", "p/", "p/a", "p/dir/", "q")}, nil, []string{"a"}},
		"several pages":    {[]string{page(true, "t", "p/a"), page(true, "u"), page(false, "", "p/b")}, nil, []string{"a", "b"}},
		"not XML at all":   {[]string{"<html>"}, objstore.ErrUnavailable, nil},
		"cut in the midst": {[]string{page(false, "", "p/a")[:150]}, objstore.ErrUnavailable, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, "", func(w http.ResponseWriter, _ *http.Request, call int) {
				fmt.Fprint(w, c.pages[min(call, len(c.pages))-1])
			})
			var keys []string
			err := s.List(t.Context(), "", "", func(o objstore.Object) bool { keys = append(keys, o.Key); return true })
			if c.want != nil {
				wantKind(t, err, c.want)
			} else if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(keys, c.keys) {
				t.Fatalf("listed %q, want %q", keys, c.keys)
			}
		})
	}
}

func TestS3OpenExplainsWhatIsMissing(t *testing.T) {
	for _, v := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"} {
		t.Setenv(v, "")
	}
	t.Setenv("AWS_CONFIG_FILE", t.TempDir()+"/none")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", t.TempDir()+"/none")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	_, err := objstore.Open(t.Context(), "s3://bucket", objstore.Options{})
	wantKind(t, err, objstore.ErrInvalidURL)
	if !strings.Contains(err.Error(), "add ?region=") {
		t.Fatal(err)
	}
	_, err = objstore.Open(t.Context(), "s3://bucket?region=eu-central-1", objstore.Options{})
	wantKind(t, err, objstore.ErrDenied)
	if !strings.Contains(err.Error(), "set AWS_ACCESS_KEY_ID") {
		t.Fatal(err)
	}
}
