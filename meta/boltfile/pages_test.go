package boltfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"
)

// Whatever bit of the structure of a file is another one, the file is damaged, or bbolt can be trusted with it.
func TestFlippedBitsInPagesAreDamageOrHarmless(t *testing.T) {
	for name, options := range map[string]bbolt.Options{
		"free pages are searched for": {NoFreelistSync: true, FreelistType: bbolt.FreelistMapType},
		"free pages are listed":       {FreelistType: bbolt.FreelistMapType},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "file.db")
			want := write(t, path, options)
			file, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			damaged, harmless := 0, 0
			for _, at := range structure(t, file) {
				for _, bit := range []byte{0x01, 0x10, 0x80} {
					file[at] ^= bit
					if isDamaged(t, path, file, options, "") {
						damaged++
					} else {
						harmless++
					}
					file[at] ^= bit
				}
			}
			if isDamaged(t, path, file, options, want) {
				t.Error("it is damaged as it was written")
			}
			if damaged < 500 || harmless == 0 { // pages that are free are of no interest to anybody
				t.Errorf("%d flips are damage, %d harmless", damaged, harmless)
			}
		})
	}
}

// write makes a file with large values, inline buckets, pages of both kinds and free pages, and says what is in it.
func write(t *testing.T, path string, options bbolt.Options) string {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &options)
	if err != nil {
		t.Fatal(err)
	}
	update := func(fn func(*bbolt.Bucket) error) {
		err := db.Update(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte("big"))
			if err != nil {
				return err
			}
			return fn(b)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 90 {
		update(func(b *bbolt.Bucket) error {
			n := 150
			if i == 40 {
				n = 10_000
			}
			return b.Put(fmt.Appendf(nil, "key %03d", i), bytes.Repeat([]byte{byte(i)}, n))
		})
	}
	update(func(b *bbolt.Bucket) error {
		small, err := b.CreateBucket([]byte("small"))
		if err != nil {
			return err
		}
		return small.Put([]byte("a"), []byte("b"))
	})
	for i := range 40 {
		update(func(b *bbolt.Bucket) error { return b.Delete(fmt.Appendf(nil, "key %03d", i)) })
	}
	want := content(t, db)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return want
}

// content is all keys, and how long their values are.
func content(t *testing.T, db *bbolt.DB) string {
	t.Helper()
	var all bytes.Buffer
	var list func(b *bbolt.Bucket) error
	list = func(b *bbolt.Bucket) error {
		return b.ForEach(func(k, v []byte) error {
			fmt.Fprintf(&all, "%x %d\n", k, len(v))
			if inner := b.Bucket(k); inner != nil {
				return list(inner)
			}
			return nil
		})
	}
	err := db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			fmt.Fprintf(&all, "%x:\n", name)
			if b == nil {
				return nil // what was a bucket is none any more: its users notice
			}
			return list(b)
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// structure is where page headers are, the headers of each page's first and last elements, and some ids of free pages.
func structure(t *testing.T, file []byte) []int {
	t.Helper()
	size := int(binary.LittleEndian.Uint32(file[headOffset+8:]))
	var list []int
	for page := 2 * size; page+size <= len(file); page += size {
		flags, count := binary.LittleEndian.Uint16(file[page+8:]), int(binary.LittleEndian.Uint16(file[page+10:]))
		if flags != pageBranch && flags != pageLeaf && flags != pageFree || count > size/elementBytes {
			continue
		}
		for i := range pageHeadBytes {
			list = append(list, page+i)
		}
		for _, e := range []int{0, count - 1} {
			for i := range elementBytes {
				if e >= 0 {
					list = append(list, page+pageHeadBytes+e*elementBytes+i)
				}
			}
		}
	}
	if len(list) < 200 {
		t.Fatalf("only %d bytes of structure were found", len(list))
	}
	return list
}

// isDamaged says what Check says. What it takes for sound is opened and read, and is what was wanted if anything was.
func isDamaged(t *testing.T, path string, file []byte, options bbolt.Options, want string) bool {
	t.Helper()
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Check(path, options); err != nil {
		if !errors.Is(err, ErrDamaged) {
			t.Fatal(err)
		}
		return true
	}
	db, err := bbolt.Open(path, 0o600, &options)
	if err != nil {
		t.Fatalf("it seems sound, and is not opened: %v", err)
	}
	got := content(t, db) // of some sort: what keys and values hold is not looked at
	if want != "" && got != want {
		t.Errorf("it holds\n%s", got)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return false
}
