package objstore_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/varvelog/varve/tier/objstore"
	"github.com/varvelog/varve/tier/objstore/objstoretest"
)

// openOn opens a store in a bucket of its own.
func openOn(t *testing.T, srv *objstoretest.Server, prefix, params string) *objstore.S3 {
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
}
