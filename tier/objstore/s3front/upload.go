package s3front

import (
	"crypto/rand"
	"encoding/xml"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
)

const (
	// uploadsMax bounds the uploads under way.
	uploadsMax = 1000
	// partsMax is S3's.
	partsMax = 10_000
)

// upload is a multipart upload under way.
type upload struct {
	key string

	mu    sync.Mutex // guards the following
	parts map[int]*part
	ended bool
}

type part struct {
	body *spooled
	etag string
}

func (u *upload) remove() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ended = true
	for _, p := range u.parts {
		p.body.remove()
	}
	u.parts = nil
}

func (s *Server) createUpload(w http.ResponseWriter, _ *http.Request, key string) error {
	id := rand.Text()
	s.mu.Lock()
	full := len(s.uploads) >= uploadsMax
	if !full {
		s.uploads[id] = &upload{key: key, parts: map[int]*part{}}
	}
	s.mu.Unlock()
	if full {
		return refuse(http.StatusServiceUnavailable, "SlowDown", "%d uploads are under way", uploadsMax)
	}
	return writeXML(w, struct {
		XMLName               xml.Name `xml:"InitiateMultipartUploadResult"`
		Bucket, Key, UploadId string
	}{Bucket: s.bucket, Key: key, UploadId: id})
}

func (s *Server) answerUpload(w http.ResponseWriter, r *http.Request, key string, q url.Values) error {
	id := q.Get("uploadId")
	s.mu.Lock()
	u := s.uploads[id]
	s.mu.Unlock()
	if u == nil || u.key != key {
		return refuse(http.StatusNotFound, "NoSuchUpload", "The specified upload does not exist.")
	}
	switch r.Method {
	case http.MethodPut:
		return s.putPart(w, r, u, q.Get("partNumber"))
	case http.MethodPost:
		return s.complete(w, r, u, id)
	case http.MethodDelete:
		s.end(u, id)
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return notServed(r)
}

func (s *Server) end(u *upload, id string) {
	s.mu.Lock()
	delete(s.uploads, id)
	s.mu.Unlock()
	u.remove()
}

func (s *Server) putPart(w http.ResponseWriter, r *http.Request, u *upload, text string) error {
	number, err := strconv.Atoi(text)
	if err != nil || number < 1 || number > partsMax {
		return refuse(http.StatusBadRequest, "InvalidArgument", "part number %q is none from 1 to %d", text, partsMax)
	}
	body, _, err := s.spool(r)
	if err != nil {
		return err
	}
	p := &part{body: body, etag: `"` + rand.Text() + `"`}
	u.mu.Lock()
	old, ended := u.parts[number], u.ended
	if !ended {
		u.parts[number] = p
	}
	u.mu.Unlock()
	if ended {
		body.remove()
		return refuse(http.StatusNotFound, "NoSuchUpload", "The specified upload does not exist.")
	}
	if old != nil {
		old.body.remove()
	}
	w.Header().Set("ETag", p.etag)
	return nil
}

func (s *Server) complete(w http.ResponseWriter, r *http.Request, u *upload, id string) error {
	var q struct {
		Part []struct {
			PartNumber int
			ETag       string
		}
	}
	if err := readXML(r, &q); err != nil {
		return err
	}
	o, err := s.conditions(r, u.key)
	if err != nil {
		return err
	}
	u.mu.Lock()
	whole := joined{}
	for _, named := range q.Part {
		p := u.parts[named.PartNumber]
		if p == nil || quoted(named.ETag) != p.etag {
			u.mu.Unlock()
			return refuse(http.StatusBadRequest, "InvalidPart", "part %d was not uploaded", named.PartNumber)
		}
		whole.parts = append(whole.parts, p.body)
		whole.size += p.body.size
		whole.ends = append(whole.ends, whole.size)
	}
	u.mu.Unlock()
	obj, err := s.store.Put(r.Context(), u.key, &whole, o)
	if err != nil {
		return err
	}
	s.end(u, id)
	return writeXML(w, struct {
		XMLName           xml.Name `xml:"CompleteMultipartUploadResult"`
		Bucket, Key, ETag string
	}{Bucket: s.bucket, Key: u.key, ETag: quoted(obj.ETag)})
}

// joined is the parts of an upload as one body.
type joined struct {
	parts []*spooled
	ends  []int64 // where each part ends
	size  int64
}

// Size is the whole body's length in bytes.
func (j *joined) Size() int64 { return j.size }

// ReadAt reads from as many parts as the bytes lie in.
func (j *joined) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) {
		i, _ := slices.BinarySearch(j.ends, off+1)
		if i == len(j.parts) {
			return n, io.EOF
		}
		start := j.ends[i] - j.parts[i].size
		m, err := j.parts[i].ReadAt(p[n:min(int64(len(p)), int64(n)+j.ends[i]-off)], off-start)
		if n, off = n+m, off+int64(m); err != nil && err != io.EOF || m == 0 {
			return n, err
		}
	}
	return n, nil
}
