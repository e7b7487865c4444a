package s3front_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/varvelog/varve/tier/objstore"
	"github.com/varvelog/varve/tier/objstore/objstoretest"
	"github.com/varvelog/varve/tier/objstore/s3front"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve starts a server over a store in memory and gives its address and the folder of
// bodies on their way.
func serve(t *testing.T) (address, temp string) {
	t.Helper()
	store := objstore.NewMem(0)
	temp = t.TempDir()
	s, err := s3front.New("varve", store, temp, nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // what tests left open is not waited for
		_ = s.Close(ctx)
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String(), temp
}

func open(t *testing.T, address, params string) *objstore.S3 {
	t.Helper()
	st, err := objstore.Open(t.Context(), "s3://varve/some/prefix?region=local&path-style=true&endpoint=http://"+address+params,
		objstore.Options{Credentials: objstore.Credentials{AccessKey: "any", SecretKey: "any"}})
	if err != nil {
		t.Fatal(err)
	}
	return st.(*objstore.S3)
}

// The suite that every store passes, through the client that speaks to any S3.
func TestItServesWhatAStorePromises(t *testing.T) {
	for name, params := range map[string]string{"unsigned": "", "signed": "&no-checksum=true&single-deletes=true"} {
		t.Run(name, func(t *testing.T) {
			objstoretest.AcceptanceTest(t, func(t *testing.T) objstore.Store {
				address, temp := serve(t)
				t.Cleanup(func() {
					if left, err := os.ReadDir(temp); err != nil || len(left) != 0 {
						t.Errorf("bodies left behind: %v, %v", left, err)
					}
				})
				return open(t, address, params)
			})
		})
	}
}

func TestUploadsInPartsAppearWholeAndOnce(t *testing.T) {
	address, temp := serve(t)
	ask := func(method, path, body string, want int) string {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+"/varve/"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(path, "uploadId") && method == http.MethodPost {
			req.Header.Set("If-None-Match", "*")
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != want {
			t.Fatalf("%s %s: %d, want %d: %s %v", method, path, resp.StatusCode, want, b, err)
		}
		return string(b) + resp.Header.Get("ETag")
	}
	upload := func(key string, parts ...string) (id, list string) {
		t.Helper()
		_, rest, _ := strings.Cut(ask("POST", key+"?uploads", "", 200), "<UploadId>")
		id, _, _ = strings.Cut(rest, "<")
		var b strings.Builder
		b.WriteString("<CompleteMultipartUpload>")
		for i, p := range parts {
			etag := ask("PUT", fmt.Sprintf("%s?partNumber=%d&uploadId=%s", key, i+1, id), p, 200)
			fmt.Fprintf(&b, "<Part><PartNumber>%d</PartNumber><ETag>%s</ETag></Part>", i+1, strings.ReplaceAll(etag, `"`, "&quot;"))
		}
		return id, b.String() + "</CompleteMultipartUpload>"
	}
	long := strings.Repeat("abcdefg", 50_000)
	id, list := upload("k", long, "", "-", long)
	ask("HEAD", "k", "", 404)
	ask("POST", "k?uploadId="+id, list, 200)
	if got := ask("GET", "k", "", 200); !strings.HasPrefix(got, long+"-"+long) {
		t.Error("the parts are not what was sent")
	}
	again, list := upload("k", "other")
	ask("POST", "k?uploadId="+again, list, 412)
	ask("DELETE", "k?uploadId="+again, "", 204)
	ask("POST", "k?uploadId="+again, list, 404)
	if left, err := os.ReadDir(temp); err != nil || len(left) != 0 {
		t.Errorf("parts left behind: %v, %v", left, err)
	}
}

func TestItSaysWhatItDoesNotServe(t *testing.T) {
	address, _ := serve(t)
	for _, c := range []struct {
		method, path string
		status       int
		text         string
	}{
		{"GET", "/", 200, "<Name>varve</Name>"},
		{"GET", "/varve?location", 200, "LocationConstraint"},
		{"GET", "/other/key", 404, "NoSuchBucket"},
		{"GET", "/varve/none", 404, "NoSuchKey"},
		{"PUT", "/varve", 501, "NotImplemented"},
		{"GET", "/varve?list-type=2&delimiter=/", 501, "NotImplemented"},
		{"PUT", "/varve/k?uploadId=none&partNumber=1", 404, "NoSuchUpload"},
		{"POST", "/varve?delete", 400, "MalformedXML"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, "http://"+address+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := resp.Write(&b); err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != c.status || !strings.Contains(b.String(), c.text) {
			t.Errorf("%s %s: %s, want %d with %s", c.method, c.path, b.String(), c.status, c.text)
		}
	}
}
