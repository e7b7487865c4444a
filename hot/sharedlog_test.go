package hot

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
)

// sharedFile is a file of the shared log with rounds of random entries, what
// was written into each, and where each begins.
func sharedFile(rng *rand.Rand, rounds int) (g sharedGeneration, b []byte, wrote [][]string, at []int) {
	g = sharedGeneration{number: 3, salt: rng.Uint64(), first: 17}
	b = append(g.append(nil), make([]byte, sharedBlock-sharedHeaderSize)...)
	for i := range rounds {
		var entries []sharedEntry
		var said []string
		for range 1 + rng.IntN(4) {
			e := sharedEntry{cut: rng.Uint64N(3), base: rng.Int64N(1 << 40), pos: rng.Uint32(), bytes: make([]byte, 1+rng.IntN(6000))}
			e.key.index = rng.Int32N(100)
			e.key.id[0] = byte(rng.IntN(5))
			for j := range e.bytes {
				e.bytes[j] = byte(rng.Uint32())
			}
			entries = append(entries, e)
			said = append(said, fmt.Sprintf("%v %d %d %d %x", e.key, e.cut, e.base, e.pos, e.bytes))
		}
		at, wrote = append(at, len(b)), append(wrote, said)
		b = g.appendRound(b, g.first+uint64(i), entries)
	}
	return g, b, wrote, at
}

// readShared is the rounds that are read back.
func readShared(b []byte) (read [][]string, err error) {
	g, err := parseSharedHeader(b)
	if err != nil {
		return nil, err
	}
	r := sharedReader{f: bytes.NewReader(b), size: int64(len(b)), g: g}
	_, err = r.walk(func(seq uint64, e sharedEntry) error {
		for uint64(len(read)) <= seq-g.first {
			read = append(read, nil)
		}
		i := seq - g.first
		read[i] = append(read[i], fmt.Sprintf("%v %d %d %d %x", e.key, e.cut, e.base, e.pos, e.bytes))
		return nil
	})
	return read, err
}

// written is how many bytes the round at a place has, without what fills its
// last block.
func written(b []byte, at int) int {
	return sharedRoundHead + int(binary.BigEndian.Uint32(b[at+32:]))
}

func sameRounds(t *testing.T, seed uint64, got, want [][]string) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("seed %d: read %d rounds that are not the %d written", seed, len(got), len(want))
	}
}

func TestSharedLogEndsAtATornRound(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		_, b, wrote, at := sharedFile(rng, 6)
		b = append(b, make([]byte, 4*sharedBlock)...)
		got, err := readShared(b)
		if err != nil {
			t.Fatal(seed, err)
		}
		sameRounds(t, seed, got, wrote)
		torn := bytes.Clone(b)
		torn[at[5]+rng.IntN(written(torn, at[5]))] ^= 1 << rng.IntN(8)
		if got, err = readShared(torn); err != nil {
			t.Fatal(seed, err)
		}
		sameRounds(t, seed, got, wrote[:5])
		clear(b[at[5]+rng.IntN(written(b, at[5])-1):]) // cut short, zeros were there
		if got, err = readShared(b); err != nil {
			t.Fatal(seed, err)
		}
		if len(got) == 6 && fmt.Sprint(got) == fmt.Sprint(wrote) {
			continue // what it lacks was zeros
		}
		sameRounds(t, seed, got, wrote[:5])
	}
}

func TestSharedLogSaysDamageInItsMiddle(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 2))
		_, b, wrote, at := sharedFile(rng, 6)
		i := rng.IntN(5)
		b[at[i]+rng.IntN(written(b, at[i]))] ^= 1 << rng.IntN(8)
		got, err := readShared(b)
		if !errors.Is(err, errSharedDamage) {
			t.Fatalf("seed %d: round %d damaged: %v", seed, i, err)
		}
		sameRounds(t, seed, got, wrote[:i])
	}
}

func TestSharedLogPassesOverAnEarlierGeneration(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 3))
	_, old, _, _ := sharedFile(rng, 8)
	g := sharedGeneration{number: 4, salt: rng.Uint64(), first: 25}
	b := bytes.Clone(old)
	copy(b, g.append(nil))
	got, err := readShared(b)
	if err != nil || len(got) != 0 {
		t.Fatalf("%d rounds of another generation, %v", len(got), err)
	}
	b[9]++
	if _, err := parseSharedHeader(b); !errors.Is(err, errSharedHeader) {
		t.Fatalf("header with a flipped bit: %v", err)
	}
}
