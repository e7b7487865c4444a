package s3front

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/varvelog/varve/tier/objstore"
)

// Server serves one bucket.
type Server struct {
	bucket string
	store  objstore.Store
	temp   string
	log    *slog.Logger
	http   http.Server

	mu      sync.Mutex // guards the following
	uploads map[string]*upload
}

// New makes a server of a bucket over store. Bodies on their way are kept in
// the folder temp.
func New(bucket string, store objstore.Store, temp string, log *slog.Logger) (*Server, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(temp, 0o755); err != nil {
		return nil, fmt.Errorf("serve a bucket: %w", err)
	}
	s := &Server{bucket: bucket, store: store, temp: temp, log: log, uploads: map[string]*upload{}}
	s.http.Handler = s
	s.http.ReadHeaderTimeout = 30 * time.Second
	return s, nil
}

// Serve takes requests from l until Close; then it returns nil.
func (s *Server) Serve(l net.Listener) error {
	if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Close ends the server when the requests at hand are done, and cuts them off
// when ctx ends before.
func (s *Server) Close(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, u := range s.uploads {
		u.remove()
		delete(s.uploads, id)
	}
	return err
}

// failure is an answer that is an S3 error.
type failure struct {
	status        int
	code, message string
}

func (f *failure) Error() string { return f.code + ": " + f.message }

func refuse(status int, code, format string, args ...any) error {
	return &failure{status, code, fmt.Sprintf(format, args...)}
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	err := s.answer(w, r)
	if err == nil {
		return
	}
	f := asFailure(err)
	if f.status >= 500 {
		s.log.Error("request failed", "method", r.Method, "path", r.URL.Path, "err", err)
	}
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(f.status)
	if r.Method == http.MethodHead {
		return
	}
	_ = writeXML(w, struct {
		XMLName xml.Name `xml:"Error"`
		Code    string
		Message string
	}{Code: f.code, Message: f.message}) // a client that is gone needs no error
}

// asFailure maps what the Store says to what S3 would.
func asFailure(err error) *failure {
	var f *failure
	switch {
	case errors.As(err, &f):
		return f
	case errors.Is(err, objstore.ErrNotFound):
		return &failure{http.StatusNotFound, "NoSuchKey", "The specified key does not exist."}
	case errors.Is(err, objstore.ErrPrecondition):
		return &failure{http.StatusPreconditionFailed, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold"}
	case errors.Is(err, objstore.ErrRange):
		return &failure{http.StatusRequestedRangeNotSatisfiable, "InvalidRange", "The requested range is not satisfiable"}
	case errors.Is(err, objstore.ErrInvalidKey):
		return &failure{http.StatusBadRequest, "KeyTooLongError", err.Error()}
	case errors.Is(err, objstore.ErrRejected):
		return &failure{http.StatusBadRequest, "BadDigest", err.Error()}
	case errors.Is(err, objstore.ErrDenied):
		return &failure{http.StatusForbidden, "AccessDenied", err.Error()}
	case errors.Is(err, objstore.ErrUnavailable):
		return &failure{http.StatusServiceUnavailable, "SlowDown", err.Error()}
	}
	return &failure{http.StatusInternalServerError, "InternalError", err.Error()}
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request) error {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if bucket == "" {
		return s.listBuckets(w)
	}
	if bucket != s.bucket {
		return refuse(http.StatusNotFound, "NoSuchBucket", "The specified bucket does not exist; it is %s", s.bucket)
	}
	if key == "" {
		return s.answerBucket(w, r)
	}
	q := r.URL.Query()
	switch {
	case q.Has("uploads") && r.Method == http.MethodPost:
		return s.createUpload(w, r, key)
	case q.Has("uploadId"):
		return s.answerUpload(w, r, key, q)
	}
	switch r.Method {
	case http.MethodGet:
		return s.get(w, r, key)
	case http.MethodHead:
		return s.head(w, r, key)
	case http.MethodPut:
		return s.put(w, r, key)
	case http.MethodDelete:
		if err := s.store.Delete(r.Context(), key); err != nil {
			return err
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return notServed(r)
}

func notServed(r *http.Request) error {
	return refuse(http.StatusNotImplemented, "NotImplemented", "%s %s is not served", r.Method, r.URL)
}

func (s *Server) answerBucket(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	switch {
	case r.Method == http.MethodHead:
		return nil
	case r.Method == http.MethodPost && q.Has("delete"):
		return s.deleteMany(w, r)
	case r.Method == http.MethodGet && q.Has("location"):
		return writeXML(w, struct {
			XMLName xml.Name `xml:"LocationConstraint"`
		}{})
	case r.Method == http.MethodGet && q.Get("list-type") == "2":
		return s.list(w, r)
	}
	return notServed(r)
}

func (s *Server) get(w http.ResponseWriter, r *http.Request, key string) error {
	off, n, ranged, err := s.span(r, key)
	if err != nil {
		return err
	}
	body, obj, err := s.store.Get(r.Context(), key, off, n)
	if err != nil {
		return err
	}
	defer body.Close()
	describe(w, obj)
	if n < 0 {
		n = obj.Size - off
	}
	w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
	if ranged {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", off, off+n-1, obj.Size))
		w.WriteHeader(http.StatusPartialContent)
	}
	if _, err := io.Copy(w, body); err != nil {
		panic(http.ErrAbortHandler) // the status has left: a cut connection is all that can be said
	}
	return nil
}

// span reads the Range header: one range, as S3 serves it.
func (s *Server) span(r *http.Request, key string) (off, n int64, ranged bool, err error) {
	text, ok := strings.CutPrefix(r.Header.Get("Range"), "bytes=")
	if !ok {
		return 0, -1, false, nil
	}
	first, last, _ := strings.Cut(text, "-")
	obj, err := s.store.Head(r.Context(), key)
	if err != nil {
		return 0, 0, false, err
	}
	from, fromErr := strconv.ParseInt(first, 10, 64)
	to, toErr := strconv.ParseInt(last, 10, 64)
	switch {
	case first == "" && toErr == nil: // the last bytes
		from, to = max(0, obj.Size-to), obj.Size-1
	case fromErr != nil || last != "" && toErr != nil:
		return 0, -1, false, nil // a range that is none is left out
	case last == "":
		to = obj.Size - 1
	}
	if from >= obj.Size || to < from {
		return 0, 0, false, objstore.ErrRange
	}
	return from, min(to, obj.Size-1) - from + 1, true, nil
}

func (s *Server) head(w http.ResponseWriter, r *http.Request, key string) error {
	obj, err := s.store.Head(r.Context(), key)
	if err != nil {
		return err
	}
	describe(w, obj)
	w.Header().Set("Content-Length", strconv.FormatInt(obj.Size, 10))
	return nil
}

func describe(w http.ResponseWriter, obj objstore.Object) {
	h := w.Header()
	h.Set("ETag", quoted(obj.ETag))
	h.Set("Last-Modified", obj.Modified.UTC().Format(http.TimeFormat))
	h.Set("Accept-Ranges", "bytes")
	h.Set("Content-Type", "binary/octet-stream")
}

func quoted(etag string) string {
	if strings.HasPrefix(etag, `"`) {
		return etag
	}
	return `"` + etag + `"`
}

// stored is the Store's form of an ETag that a client gives back.
func (s *Server) stored(ctx context.Context, key, etag string) (string, error) {
	obj, err := s.store.Head(ctx, key)
	switch {
	case errors.Is(err, objstore.ErrNotFound):
		return "", refuse(http.StatusNotFound, "NoSuchKey", "The specified key does not exist.")
	case err != nil:
		return "", err
	case quoted(obj.ETag) != quoted(etag):
		return "", objstore.ErrPrecondition
	}
	return obj.ETag, nil
}

// conditions reads If-Match and If-None-Match.
func (s *Server) conditions(r *http.Request, key string) (o objstore.PutOptions, err error) {
	switch none := r.Header.Get("If-None-Match"); none {
	case "", "*":
		o.IfNoneMatch = none == "*"
	default:
		return o, refuse(http.StatusNotImplemented, "NotImplemented", "If-None-Match takes * only")
	}
	if etag := r.Header.Get("If-Match"); etag != "" {
		// The Store compares again, under its lock.
		if o.IfMatch, err = s.stored(r.Context(), key, etag); err != nil {
			return o, err
		}
	}
	return o, nil
}

func (s *Server) put(w http.ResponseWriter, r *http.Request, key string) error {
	if r.Header.Get("X-Amz-Copy-Source") != "" {
		return notServed(r)
	}
	o, err := s.conditions(r, key)
	if err != nil {
		return err
	}
	f, sum, err := s.spool(r)
	if err != nil {
		return err
	}
	defer f.remove()
	o.CRC32C = &sum
	obj, err := s.store.Put(r.Context(), key, f, o)
	if err != nil {
		return err
	}
	w.Header().Set("ETag", quoted(obj.ETag))
	return nil
}

func writeXML(w http.ResponseWriter, v any) error {
	w.Header().Set("Content-Type", "application/xml")
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return nil // the client is gone
	}
	return xml.NewEncoder(w).Encode(v)
}
