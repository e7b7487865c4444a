package s3front

import (
	"encoding/base64"
	"encoding/xml"
	"net/http"
	"strconv"
	"time"

	"github.com/varvelog/varve/tier/objstore"
)

// pageMax is the most objects of one page, S3's.
const pageMax = 1000

type listed struct {
	Key          string
	LastModified string
	ETag         string
	Size         int64
	StorageClass string
}

func (s *Server) listBuckets(w http.ResponseWriter) error {
	type bucket struct{ Name string }
	return writeXML(w, struct {
		XMLName xml.Name `xml:"ListAllMyBucketsResult"`
		Buckets []bucket `xml:"Buckets>Bucket"`
	}{Buckets: []bucket{{s.bucket}}})
}

// list is ListObjectsV2. The token of the next page is the last key of this one.
func (s *Server) list(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	if q.Get("delimiter") != "" {
		return refuse(http.StatusNotImplemented, "NotImplemented", "delimiters are not served")
	}
	most := pageMax
	if n, err := strconv.Atoi(q.Get("max-keys")); err == nil && n >= 0 {
		most = min(n, pageMax)
	}
	after := q.Get("start-after")
	if token := q.Get("continuation-token"); token != "" {
		b, err := base64.URLEncoding.DecodeString(token)
		if err != nil {
			return refuse(http.StatusBadRequest, "InvalidArgument", "the continuation token provided is incorrect")
		}
		after = string(b)
	}
	page := struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		Name                  string
		Prefix                string
		KeyCount              int
		MaxKeys               int
		IsTruncated           bool
		NextContinuationToken string `xml:",omitempty"`
		Contents              []listed
	}{Name: s.bucket, Prefix: q.Get("prefix"), MaxKeys: most}
	err := s.store.List(r.Context(), q.Get("prefix"), after, func(o objstore.Object) bool {
		if len(page.Contents) == most {
			page.IsTruncated = most > 0
			return false
		}
		page.Contents = append(page.Contents, listed{
			Key: o.Key, LastModified: o.Modified.UTC().Format(time.RFC3339Nano), ETag: quoted(o.ETag), Size: o.Size, StorageClass: "STANDARD",
		})
		return true
	})
	if err != nil {
		return err
	}
	if page.KeyCount = len(page.Contents); page.IsTruncated {
		page.NextContinuationToken = base64.URLEncoding.EncodeToString([]byte(page.Contents[most-1].Key))
	}
	return writeXML(w, page)
}

// requestBytesMax bounds a request that is XML.
const requestBytesMax = 4 << 20

func readXML(r *http.Request, v any) error {
	if err := xml.NewDecoder(http.MaxBytesReader(nil, r.Body, requestBytesMax)).Decode(v); err != nil {
		return refuse(http.StatusBadRequest, "MalformedXML", "%v", err)
	}
	return nil
}

func (s *Server) deleteMany(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		Object []struct{ Key string }
		Quiet  bool
	}
	if err := readXML(r, &q); err != nil {
		return err
	}
	type deleted struct{ Key string }
	type failed struct{ Key, Code, Message string }
	answer := struct {
		XMLName xml.Name `xml:"DeleteResult"`
		Deleted []deleted
		Error   []failed
	}{}
	for _, o := range q.Object {
		if err := s.store.Delete(r.Context(), o.Key); err != nil {
			f := asFailure(err)
			answer.Error = append(answer.Error, failed{o.Key, f.code, f.message})
		} else if !q.Quiet {
			answer.Deleted = append(answer.Deleted, deleted{o.Key})
		}
	}
	return writeXML(w, answer)
}
