package meta

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
)

// Whatever bit of the structure of the log's file is another one, the log is refused as corrupt or holds what it held.
func TestFlippedBitsInPagesAreRefusedOrHarmless(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "raft.db")
	s, err := openLogStore(path, lockTimeout, nil)
	if err != nil {
		t.Fatal(err)
	}
	const entries = 90
	for i := uint64(1); i <= entries; i++ {
		data := bytes.Repeat([]byte{byte(i)}, 150)
		if i == 40 {
			data = bytes.Repeat(data, 70) // several pages
		}
		if err := s.StoreLog(&raft.Log{Index: i, Term: 1, Type: raft.LogCommand, Data: data}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	refused, harmless := 0, 0
	for _, at := range structure(t, file) {
		for _, bit := range []byte{0x01, 0x10, 0x80} {
			file[at] ^= bit
			if opens(t, path, file, entries) {
				harmless++
			} else {
				refused++
			}
			file[at] ^= bit
		}
	}
	if refused < 500 || harmless == 0 { // pages that are free are of no interest to anybody
		t.Errorf("%d flips refused, %d harmless", refused, harmless)
	}
}

// structure is where page headers are, and the headers of each page's first and last elements.
func structure(t *testing.T, file []byte) []int {
	t.Helper()
	size := int(binary.LittleEndian.Uint32(file[headOffset+8:]))
	var list []int
	for page := 2 * size; page+size <= len(file); page += size {
		flags, count := binary.LittleEndian.Uint16(file[page+8:]), int(binary.LittleEndian.Uint16(file[page+10:]))
		if flags != pageBranch && flags != pageLeaf || count > size/elementBytes {
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

// opens says whether the log is opened; if it is, every entry must be what it was, or found to be damaged.
func opens(t *testing.T, path string, file []byte, entries uint64) bool {
	t.Helper()
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := openLogStore(path, lockTimeout, nil)
	if err != nil {
		if !errors.Is(err, ErrCorrupt) {
			t.Fatalf("refused, but not as corrupt: %v", err)
		}
		return false
	}
	defer func() { _ = s.close() }() // nothing was written
	for i := uint64(1); i <= entries; i++ {
		var l raft.Log
		if err := s.GetLog(i, &l); err != nil {
			return false
		}
		if l.Index != i || len(l.Data) == 0 || l.Data[0] != byte(i) {
			t.Fatalf("entry %d is read as something else", i)
		}
	}
	return true
}
