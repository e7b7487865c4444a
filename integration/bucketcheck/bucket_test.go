package bucketcheck_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/varvelog/varve/integration/bucketcheck"
	"github.com/varvelog/varve/tier/objstore"
	"github.com/varvelog/varve/tier/objstore/objstoretest"
)

func TestAnotherClientSeesWhatTheStoreWrote(t *testing.T) {
	server := objstoretest.StartVersityGW(t)
	if err := server.MakeBucket("archive"); err != nil {
		t.Fatal(err)
	}
	st, err := objstore.Open(t.Context(), server.URL("archive", "varve"), server.Options())
	if err != nil {
		t.Fatal(err)
	}
	want := make(map[string][]byte)
	etags := make(map[string]string)
	for i, size := range []int{0, 1, 70_000, 6 << 20} {
		key := fmt.Sprintf("dir %d/ü+%%2F", i)
		content := bytes.Repeat([]byte{byte('a' + i)}, size)
		obj, err := st.Put(t.Context(), key, objstore.Bytes(content), objstore.PutOptions{IfNoneMatch: true})
		if err != nil {
			t.Fatal(err)
		}
		want["varve/"+key], etags["varve/"+key] = content, obj.ETag
	}
	b, err := bucketcheck.Open(server, "archive")
	if err != nil {
		t.Fatal(err)
	}
	objects, err := b.List(t.Context(), "varve/")
	if err != nil || len(objects) != len(want) {
		t.Fatalf("listed %+v, %v", objects, err)
	}
	for _, o := range objects {
		if `"`+o.ETag+`"` != etags[o.Key] {
			t.Errorf("%s has the ETag %s, put returned %s", o.Key, o.ETag, etags[o.Key])
		}
	}
	got, err := b.ReadAll(t.Context(), "varve/")
	if err != nil {
		t.Fatal(err)
	}
	for key, content := range want {
		if !bytes.Equal(got[key], content) {
			t.Errorf("%s holds %d bytes, %d were put", key, len(got[key]), len(content))
		}
	}
	if nothing, err := b.List(t.Context(), "other/"); err != nil || len(nothing) != 0 {
		t.Errorf("listed %+v, %v below a prefix without objects", nothing, err)
	}
	if _, err := b.Read(t.Context(), "varve/absent"); err == nil {
		t.Error("an absent object was read")
	}
}
