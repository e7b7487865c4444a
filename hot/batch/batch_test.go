package batch_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/varvelog/varve/hot/batch"
)

var codecs = []batch.Codec{batch.None, batch.Gzip, batch.Snappy, batch.LZ4, batch.Zstd}

// rec is a record in memory of its own.
type rec struct {
	offset, timestamp int64
	key, value        []byte
	headers           []batch.Header
}

func readAll(t testing.TB, b batch.Batch) []rec {
	t.Helper()
	var out []rec
	for r, err := range b.Records(batch.Limits{}) {
		if err != nil {
			t.Fatal(err)
		}
		c := rec{offset: r.Offset, timestamp: r.Timestamp, key: bytes.Clone(r.Key), value: bytes.Clone(r.Value)}
		for _, h := range r.Headers {
			c.headers = append(c.headers, batch.Header{Key: bytes.Clone(h.Key), Value: bytes.Clone(h.Value)})
		}
		out = append(out, c)
	}
	return out
}

func sample(n int) []rec {
	recs := make([]rec, n)
	for i := range recs {
		recs[i] = rec{offset: int64(i), timestamp: 1_700_000_000_000 + int64(i%7)*13,
			key: fmt.Appendf(nil, "key-%d", i), value: bytes.Repeat([]byte{byte('a' + i%26)}, i%300)}
		if i%3 == 0 {
			recs[i].headers = []batch.Header{{Key: []byte("h"), Value: []byte{1, 2}}, {Key: []byte{}, Value: nil}}
		}
		if i%5 == 0 {
			recs[i].key = nil
		}
		if i%11 == 0 {
			recs[i].value = nil
		}
	}
	return recs
}

func build(t testing.TB, o batch.Options, recs []rec) batch.Batch {
	t.Helper()
	b := batch.NewBuilder(o)
	for _, r := range recs {
		if err := b.AppendAt(o.BaseOffset+r.offset, r.timestamp, r.key, r.value, r.headers); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func sameRecords(t testing.TB, got, want []rec) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d records, want %d", len(got), len(want))
	}
	for i := range want {
		if g, w := fmt.Sprintf("%#v", got[i]), fmt.Sprintf("%#v", want[i]); g != w {
			t.Fatalf("record %d:\n got %s\nwant %s", i, g, w)
		}
	}
}

func TestBuilderRoundTripsEveryCodec(t *testing.T) {
	for _, codec := range codecs {
		for _, n := range []int{1, 2, 100, 5000} {
			t.Run(fmt.Sprintf("%s/%d", codec, n), func(t *testing.T) {
				recs := sample(n)
				b := build(t, batch.Options{BaseOffset: 0, Codec: codec}, recs)
				framed, rest, err := batch.Next(append(bytes.Clone(b), 1, 2, 3))
				if err != nil || len(rest) != 3 || !bytes.Equal(framed, b) {
					t.Fatalf("Next: %v, %d bytes left", err, len(rest))
				}
				if err := framed.VerifyCRC(); err != nil {
					t.Fatal(err)
				}
				sameRecords(t, readAll(t, framed), recs)
			})
		}
	}
}

func TestNextWantsWholeBatch(t *testing.T) {
	b := build(t, batch.Options{}, sample(10))
	for n := range len(b) {
		if _, _, err := batch.Next(b[:n]); !errors.Is(err, batch.ErrShort) {
			t.Fatalf("Next of %d bytes: %v", n, err)
		}
	}
}

func TestNextRefusesWhatIsNoBatch(t *testing.T) {
	for _, c := range []struct {
		name string
		at   int
		b    byte
		want error
	}{{"magic 1", atMagic, 1, batch.ErrUnsupportedVersion}, {"negative length", atLength, 0x80, batch.ErrCorrupt}, {"length 0", atLength + 3, 0, batch.ErrCorrupt}} {
		b := bytes.Clone(three(t, batch.None))
		b[c.at] = c.b
		_, _, err := batch.Next(b)
		var corrupt *batch.CorruptError
		if !errors.Is(err, c.want) || !errors.Is(err, batch.ErrCorrupt) || !errors.As(err, &corrupt) {
			t.Errorf("%s: %v", c.name, err)
		}
		if _, err := batch.PeekHeader(b[:batch.HeaderSize]); !errors.Is(err, c.want) {
			t.Errorf("%s: PeekHeader: %v", c.name, err)
		}
	}
}
