package audit

import (
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/varvelog/varve/integration/fuzztest"
)

// entryFactor is how many bytes reading a journal, a chain, a snapshot or a
// segment may allocate per byte of input: the auditor keeps an entry of a map or
// a list for each of them, of 100 bytes for 28 at least.
const entryFactor = 16

// FuzzFiles reads what a node's directories may hold, with right checksums
// around whatever a fuzzer makes of the rest.
func FuzzFiles(f *testing.F) {
	journal := make([]byte, 16+2*120)
	copy(journal, "VARVEJNL")
	journal[11] = 1
	chain := make([]byte, 16+12)
	copy(chain, "VEPC")
	chain[5], chain[15] = 1, 1
	snapshot := make([]byte, 24+40+28)
	copy(snapshot, "VPSN")
	snapshot[5], snapshot[23], snapshot[24+11] = 2, 1, 1
	second := make([]byte, 16+2*128)
	copy(second, journal[:16])
	second[11] = 2
	f.Add(uint8(0), second)
	for kind, b := range [][]byte{journal, chain, snapshot, make([]byte, 100)} {
		f.Add(uint8(kind), b)
	}
	f.Fuzz(func(t *testing.T, kind uint8, b []byte) {
		switch kind % 4 {
		case 0:
			size := 120
			if len(b) > 11 && b[11] == 2 {
				size = 128
			}
			for at := 16; at+size <= len(b); at += size {
				binary.BigEndian.PutUint32(b[at:], crc32.Checksum(b[at+4:at+size], castagnoli))
			}
		case 1, 2:
			if len(b) >= 12 {
				binary.BigEndian.PutUint32(b[8:], crc32.Checksum(b[12:], castagnoli))
			}
		}
		fuzztest.Within(t, entryFactor*len(b)+fuzztest.Floor, func() {
			switch kind % 4 {
			case 0:
				if states, err := parseJournal(b); err == nil && len(states) > len(b)/120 {
					t.Fatalf("%d states of %d bytes", len(states), len(b))
				}
			case 1:
				if chain, err := parseChain(b); err == nil && 16+12*len(chain) != len(b) {
					t.Fatalf("%d epochs of %d bytes", len(chain), len(b))
				}
			case 2:
				if found, err := readProducers(b); err == nil && len(found) > len(b)/28 {
					t.Fatalf("%d producers of %d bytes", len(found), len(b))
				}
			case 3:
				list, at, damage := spans(b)
				if at > int64(len(b)) || damage == "" && len(list) > 0 && list[len(list)-1].position+int64(list[len(list)-1].bytes) != int64(len(b)) {
					t.Fatalf("%d batches, stopped at %d of %d: %q", len(list), at, len(b), damage)
				}
			}
		})
	})
}
