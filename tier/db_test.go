package tier

import (
	"encoding/binary"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

// A cache whose pages make no sense is set aside: it is a copy, and bbolt would end the process with it.
func TestADamagedManifestCacheIsSetAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "manifests.db")
	open := func() *manifestDB {
		t.Helper()
		d, err := openManifestDB(path, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	k := partitionKey{index: 7}
	d := open()
	if err := d.putHead(k, "etag", []byte("head"), nil); err != nil {
		t.Fatal(err)
	}
	if err := d.close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	size := int(binary.LittleEndian.Uint32(file[24:]))
	for page := 2 * size; page+size <= len(file); page += size {
		if file[page+8] == 2 { // a leaf: its first key is far outside of the file
			binary.LittleEndian.PutUint32(file[page+20:], 1<<30)
		}
	}
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	d = open()
	defer func() {
		if err := d.close(); err != nil {
			t.Error(err)
		}
	}()
	if _, _, ok := d.head(k); ok {
		t.Error("the new cache knows what was in the damaged one")
	}
	if _, err := os.Stat(path + ".damaged"); err != nil {
		t.Error(err)
	}
	if err := d.putHead(k, "etag", []byte("head"), nil); err != nil {
		t.Error(err)
	}
	if head, _, ok := d.head(k); !ok || string(head) != "head" {
		t.Errorf("the new cache keeps nothing: %q", head)
	}
}
