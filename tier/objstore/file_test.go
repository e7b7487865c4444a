package objstore_test

import (
	"testing"

	"github.com/varvelog/varve/tier/objstore"
	"github.com/varvelog/varve/tier/objstore/objstoretest"
)

func openFolder(t *testing.T, dir string) *objstore.Folder {
	t.Helper()
	st, err := objstore.OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return st
}

func TestFolderAcceptance(t *testing.T) {
	objstoretest.AcceptanceTest(t, func(t *testing.T) objstore.Store { return openFolder(t, t.TempDir()) })
}
