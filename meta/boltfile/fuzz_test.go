package boltfile

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/varvelog/varve/integration/fuzztest"
)

// FuzzFile checks files with sound heads around whatever a fuzzer makes of the
// rest: what passes is opened and read whole by bbolt, which would end the
// process on a bad page.
func FuzzFile(f *testing.F) {
	path := filepath.Join(f.TempDir(), "seed.db")
	options := bbolt.Options{PageSize: 512, Timeout: time.Second, FreelistType: bbolt.FreelistMapType}
	db, err := bbolt.Open(path, 0o600, &options)
	if err != nil {
		f.Fatal(err)
	}
	for i := range byte(12) {
		if err := db.Update(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte("b"))
			if err != nil {
				return err
			}
			return b.Put([]byte{'k', i}, make([]byte, 100))
		}); err != nil {
			f.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		f.Fatal(err)
	}
	seed, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, at := range []int{headOffset, 512 + headOffset} {
			if len(b) >= at+headBytes {
				sum := fnv.New64a()
				_, _ = sum.Write(b[at : at+headBytes-8])
				binary.LittleEndian.PutUint64(b[at+headBytes-8:], sum.Sum64())
			}
		}
		path := filepath.Join(dir, "it.db")
		_ = os.Remove(path) // a file that is cut to nothing and written again is flushed by ext4 at its close
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		var err error
		fuzztest.Bounded(t, len(b), func() { err = readHeads(path) })
		if err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Fatal(err)
			}
			return
		}
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second, ReadOnly: true, PreLoadFreelist: true})
		if err != nil {
			return // bbolt says so itself
		}
		if err := db.View(func(tx *bbolt.Tx) error { return tx.ForEach(func(_ []byte, b *bbolt.Bucket) error { return walk(b) }) }); err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func walk(b *bbolt.Bucket) error {
	return b.ForEach(func(k, v []byte) error {
		if v == nil {
			if inner := b.Bucket(k); inner != nil {
				return walk(inner)
			}
		}
		return nil
	})
}
