package hot

import (
	"crypto/sha256"
	"encoding/binary"
)

// keyMap remembers the last offset of every key, by 128 bits of the key's
// SHA-256: two keys that met in one entry would lose a record, and keys come
// from clients. Entries take 24 bytes and the table at most limit bytes.
type keyMap struct {
	slots  []keySlot
	n      int
	limit  int   // slots
	over   bool  // the limit was raised for one batch
	latest int64 // last offset covered, -1 none
}

type keySlot struct {
	hi, lo uint64
	offset int64 // +1; 0 marks an empty slot
}

const (
	keySlotSize   = 24
	keySlotsFirst = 1 << 10
)

func newKeyMap(limitBytes int64) *keyMap {
	limit := keySlotsFirst
	for int64(limit)*2*keySlotSize <= limitBytes {
		limit *= 2
	}
	return &keyMap{slots: make([]keySlot, keySlotsFirst), limit: limit, latest: -1}
}

func hashKey(key []byte) (hi, lo uint64) {
	sum := sha256.Sum256(key)
	return binary.BigEndian.Uint64(sum[:8]), binary.BigEndian.Uint64(sum[8:16])
}

// slot is where the key is or belongs.
func (m *keyMap) slot(hi, lo uint64) *keySlot {
	mask := uint64(len(m.slots) - 1)
	for i := lo & mask; ; i = (i + 1) & mask {
		s := &m.slots[i]
		if s.offset == 0 || s.hi == hi && s.lo == lo {
			return s
		}
	}
}

// put records a key's offset and reports false when there is no room.
func (m *keyMap) put(key []byte, offset int64) bool {
	hi, lo := hashKey(key)
	s := m.slot(hi, lo)
	if s.offset == 0 {
		if (m.n+1)*4 > len(m.slots)*3 {
			if len(m.slots)*2 > m.limit {
				return false
			}
			m.grow()
			s = m.slot(hi, lo)
		}
		s.hi, s.lo = hi, lo
		m.n++
	}
	s.offset = max(s.offset, offset+1)
	return true
}

func (m *keyMap) grow() {
	old := m.slots
	m.slots = make([]keySlot, 2*len(old))
	for _, s := range old {
		if s.offset != 0 {
			*m.slot(s.hi, s.lo) = s
		}
	}
}

// get is the last offset of the key, -1 when it is not in the map.
func (m *keyMap) get(key []byte) int64 {
	return m.slot(hashKey(key)).offset - 1
}
