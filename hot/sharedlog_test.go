package hot

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"testing"
)

// sharedWrite is an entry with its bytes.
type sharedWrite struct {
	sharedEntry
	bytes []byte
}

// appendRound appends a round to dst, with earlier heads.
func (g sharedGeneration) appendRound(dst []byte, seq uint64, older []byte, entries ...sharedWrite) []byte {
	b := make([]byte, sharedRoundHead+len(entries)*sharedEntryHead)
	for i, e := range entries {
		e.size, e.sum = uint32(len(e.bytes)), crc32.Checksum(e.bytes, castagnoli)
		e.put(b[sharedRoundHead+i*sharedEntryHead:])
		b = append(b, e.bytes...)
	}
	b = append(b, older...)
	return append(dst, g.finishRound(b, seq, len(entries), len(older))...)
}

// headsOf is what later rounds have of the round at a place in a file.
func headsOf(b []byte, at int) []byte {
	n := int(binary.BigEndian.Uint32(b[at+4:]))
	return appendGroup(nil, binary.BigEndian.Uint64(b[at+24:]), b[at+sharedRoundHead:at+sharedRoundHead+n*sharedEntryHead])
}

// sharedFile is a file of the shared log with rounds of random entries, what
// was written into each, and where each begins.
func sharedFile(rng *rand.Rand, rounds int) (g sharedGeneration, b []byte, wrote [][]string, at []int) {
	g = sharedGeneration{number: 3, salt: 77, first: 17}
	b = append(g.append(nil), make([]byte, sharedBlock-sharedHeaderSize)...)
	for i := range rounds {
		var entries []sharedWrite
		var said []string
		for range 1 + rng.IntN(4) {
			e := sharedWrite{sharedEntry{cut: rng.Uint64N(3), base: rng.Int64N(1 << 40), pos: rng.Uint32()}, make([]byte, 1+rng.IntN(6000))}
			e.key.index = rng.Int32N(100)
			e.key.id[0] = byte(rng.IntN(5))
			for j := range e.bytes {
				e.bytes[j] = byte(rng.Uint32())
			}
			entries = append(entries, e)
			said = append(said, fmt.Sprintf("%v %d %d %d %x", e.key, e.cut, e.base, e.pos, e.bytes))
		}
		var heads []byte
		if i > 0 {
			heads = headsOf(b, at[i-1])
		}
		at, wrote = append(at, len(b)), append(wrote, said)
		b = g.appendRound(b, g.first+uint64(i), heads, entries...)
	}
	return g, append(b, make([]byte, sharedBlock)...), wrote, at
}

// readShared is what is whole of the rounds of a file, by sequence.
func readShared(b []byte) (read [][]string, err error) {
	g, err := readSharedHeader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, err
	}
	r := sharedReader{f: bytes.NewReader(b), size: int64(len(b)), salt: g.salt}
	rounds, err := r.scan()
	for i := range rounds {
		q := &rounds[i]
		if q.gen != g.number || err != nil {
			continue
		}
		for uint64(len(read)) <= q.seq-g.first {
			read = append(read, nil)
		}
		err = r.entries(q, func(e sharedEntry, at int64) error {
			b, whole, _, err := r.bytes(&e, at)
			if whole {
				read[q.seq-g.first] = append(read[q.seq-g.first], fmt.Sprintf("%v %d %d %d %x", e.key, e.cut, e.base, e.pos, b))
			}
			return err
		})
	}
	return read, err
}

func sameRounds(t *testing.T, seed uint64, got, want [][]string) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("seed %d: read %d rounds that are not the %d written", seed, len(got), len(want))
	}
}

// What is torn or damaged of a round costs the entries that it hit, and no other
// round.
func TestSharedLogGivesWhatIsWhole(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 1))
		_, b, wrote, at := sharedFile(rng, 6)
		got, err := readShared(b)
		if err != nil {
			t.Fatal(seed, err)
		}
		sameRounds(t, seed, got, wrote)
		i := rng.IntN(6)
		heads := sharedRoundHead + len(wrote[i])*sharedEntryHead
		size := int(binary.BigEndian.Uint32(b[at[i]+32:]))
		hit := rng.IntN(heads + size)
		b[at[i]+hit] ^= 1 << rng.IntN(8)
		want := slices.Clone(wrote)
		if want[i] = nil; hit >= heads {
			for pos, j := heads, 0; j < len(wrote[i]); j++ {
				n := int(binary.BigEndian.Uint32(b[at[i]+sharedRoundHead+j*sharedEntryHead+20:]))
				if hit < pos || hit >= pos+n {
					want[i] = append(want[i], wrote[i][j])
				}
				pos += n
			}
		}
		if i == 5 && want[i] == nil && hit < heads {
			want = want[:5]
		}
		if got, err = readShared(b); err != nil {
			t.Fatal(seed, err)
		}
		sameRounds(t, seed, got, want)
	}
}

// A round tells what the one before it had.
func TestRoundTellsOfTheOneBefore(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	g, b, wrote, at := sharedFile(rng, 6)
	r := sharedReader{f: bytes.NewReader(b), size: int64(len(b)), salt: g.salt}
	q, _, ok, err := r.round(int64(at[4]))
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	var told []uint64
	had := 0
	if err := r.earlier(&q, func(seq uint64) { told = append(told, seq) }, func(uint64, sharedEntry) { had++ }); err != nil {
		t.Fatal(err)
	}
	if len(told) != 1 || told[0] != g.first+3 || had != len(wrote[3]) {
		t.Fatalf("told of rounds %v with %d entries, want %d", told, had, len(wrote[3]))
	}
}

func TestSharedLogPassesOverAnEarlierGeneration(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 3))
	_, old, _, _ := sharedFile(rng, 8)
	g := sharedGeneration{number: 4, salt: 77, first: 25, serial: 2}
	b := bytes.Clone(old)
	copy(b, g.append(nil))
	got, err := readShared(b)
	if err != nil || len(got) != 0 {
		t.Fatalf("%d rounds of another generation, %v", len(got), err)
	}
}

// The header with the higher serial counts; any of the two will do.
func TestSharedLogHasTwoHeaders(t *testing.T) {
	_, b, _, _ := sharedFile(rand.New(rand.NewPCG(1, 4)), 3)
	read := func() sharedGeneration {
		g, err := readSharedHeader(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	last := sharedGeneration{number: 9, salt: 77, first: 30, serial: 1, mark: journalMark{2, 500}}
	copy(b[last.place(int64(len(b))):], last.append(nil))
	if got := read(); got != last {
		t.Fatalf("%+v", got)
	}
	for bit := range sharedHeaderSize * 8 {
		b[bit/8] ^= 1 << (bit % 8)
		if got := read(); got != last {
			t.Fatalf("bit %d of the first: %+v", bit, got)
		}
		b[bit/8] ^= 1 << (bit % 8)
		at := len(b) - sharedBlock + bit/8
		b[at] ^= 1 << (bit % 8)
		if got := read(); got.number != 3 {
			t.Fatalf("bit %d of the last: %+v", bit, got)
		}
		b[at] ^= 1 << (bit % 8)
	}
	clear(b[:8])
	clear(b[len(b)-sharedBlock:])
	if _, err := readSharedHeader(bytes.NewReader(b), int64(len(b))); !errors.Is(err, errSharedHeader) {
		t.Fatal(err)
	}
}
