package objstore_test

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/varvelog/varve/tier/objstore"
	"github.com/varvelog/varve/tier/objstore/objstoretest"
)

// openOn opens a store in a bucket of its own.
func openOn(t testing.TB, srv *objstoretest.Server, prefix, params string) *objstore.S3 {
	t.Helper()
	bucket := fmt.Sprintf("bucket-%d", bucketCount.Add(1))
	if err := srv.MakeBucket(bucket); err != nil {
		t.Fatal(err)
	}
	st, err := objstore.Open(t.Context(), srv.URL(bucket, prefix)+params, srv.Options())
	if err != nil {
		t.Fatal(err)
	}
	return st.(*objstore.S3)
}

var bucketCount atomic.Int64

func TestS3Acceptance(t *testing.T) {
	srv := objstoretest.StartVersityGW(t)
	t.Run("unsigned", func(t *testing.T) {
		objstoretest.AcceptanceTest(t, func(t *testing.T) objstore.Store { return openOn(t, srv, "some/prefix", "") })
	})
	t.Run("signed", func(t *testing.T) {
		objstoretest.AcceptanceTest(t, func(t *testing.T) objstore.Store {
			return openOn(t, srv, "", "&no-checksum=true&single-deletes=true")
		})
	})
	t.Run("parts", func(t *testing.T) {
		objstoretest.AcceptanceTest(t, func(t *testing.T) objstore.Store {
			st := openOn(t, srv, "parts", "")
			st.SetLimits(6<<20, 5<<20)
			return st
		})
	})
}

func TestS3PartsLeaveNothingBehindWhenTheyFail(t *testing.T) {
	srv := objstoretest.StartVersityGW(t)
	st := openOn(t, srv, "", "")
	st.SetLimits(6<<20, 5<<20)
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<20) // 16 MiB
	wrong := crc32.ChecksumIEEE(content)
	_, err := st.Put(t.Context(), "k", objstore.Bytes(content), objstore.PutOptions{CRC32C: &wrong})
	wantKind(t, err, objstore.ErrRejected)
	_, err = st.Put(t.Context(), "k", &failingBody{Body: objstore.Bytes(content), after: 11 << 20}, objstore.PutOptions{IfNoneMatch: true})
	wantKind(t, err, errBroken)
	wantKind(t, err, objstore.ErrUnavailable)
	put(t, st, "k", string(content))
	_, err = st.Put(t.Context(), "k", objstore.Bytes(content[:10<<20]), objstore.PutOptions{IfNoneMatch: true})
	wantKind(t, err, objstore.ErrPrecondition)
	ctx, cancel := context.WithCancel(t.Context())
	_, err = st.Put(ctx, "k2", &failingBody{Body: objstore.Bytes(content), after: 11 << 20, hook: cancel}, objstore.PutOptions{})
	wantKind(t, err, context.Canceled)

	// versitygw keeps the parts under way in a folder of the bucket.
	var left []string
	err = filepath.WalkDir(filepath.Join(srv.Dir), func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() && strings.Contains(path, "multipart") {
			left = append(left, path)
		}
		return err
	})
	if err != nil || len(left) != 0 {
		t.Fatalf("parts left behind: %q, %v", left, err)
	}
}

var errBroken = fmt.Errorf("the disk is broken")

// failingBody fails, or only calls its hook, when it is read behind a position.
type failingBody struct {
	objstore.Body
	after int64
	hook  func()
}

func (b *failingBody) ReadAt(p []byte, off int64) (int, error) {
	if off >= b.after {
		if b.hook == nil {
			return 0, errBroken
		}
		b.hook()
	}
	return b.Body.ReadAt(p, off)
}

func TestPartsAreFewAndLargeEnough(t *testing.T) {
	const mib, gib = 1 << 20, 1 << 30
	for size, want := range map[int64]int64{1: 25 * mib, 5*gib + 1: 25 * mib, 250 * gib: 26 * mib, 5000 * gib: 512 * mib} {
		got := objstore.PartSize(size, 25*mib)
		if got != want || (size+got-1)/got > 10_000 {
			t.Errorf("%d bytes go up in parts of %d, want %d", size, got, want)
		}
	}
}

func TestS3MissingBucketIsNamed(t *testing.T) {
	srv := objstoretest.StartVersityGW(t)
	st, err := objstore.Open(t.Context(), srv.URL("no-such-bucket", ""), srv.Options())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, headErr := st.Head(ctx, "k")
	_, _, getErr := st.Get(ctx, "k", 0, -1)
	_, putErr := st.Put(ctx, "k", objstore.Bytes(nil), objstore.PutOptions{IfNoneMatch: true})
	listErr := st.List(ctx, "", "", func(objstore.Object) bool { return true })
	for _, err := range []error{headErr, getErr, putErr, listErr, st.Delete(ctx, "a", "b"), objstore.CheckConditional(ctx, st)} {
		wantKind(t, err, objstore.ErrNoBucket)
		if !strings.Contains(err.Error(), "s3://no-such-bucket/") {
			t.Error(err)
		}
	}
}

func TestS3WrongKeyIsDenied(t *testing.T) {
	srv := objstoretest.StartVersityGW(t)
	if err := srv.MakeBucket("bucket"); err != nil {
		t.Fatal(err)
	}
	o := srv.Options()
	o.Credentials.SecretKey += "x"
	st, err := objstore.Open(t.Context(), srv.URL("bucket", ""), o)
	if err != nil {
		t.Fatal(err)
	}
	wantKind(t, putOne(t, st, objstore.PutOptions{}), objstore.ErrDenied)
}
