package batch_test

import (
	"bytes"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/varvelog/varve/hot/batch"
)

// golden reads annotated hex: blanks are dropped, # starts a comment.
func golden(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	var digits strings.Builder
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		digits.WriteString(strings.Join(strings.Fields(line), ""))
	}
	b, err := hex.DecodeString(digits.String())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestGoldenTransactionalBatch(t *testing.T) {
	recs := []rec{
		{offset: 258, timestamp: 1700000000000, key: []byte("k"), value: []byte("hello"),
			headers: []batch.Header{{Key: []byte("h"), Value: []byte{0xff}}, {Key: []byte("n")}}},
		{offset: 259, timestamp: 1699999999900},
		{offset: 323, timestamp: 1700000000001, key: []byte{}, value: []byte{}},
	}
	b := batch.NewBuilder(batch.Options{BaseOffset: 258, LeaderEpoch: 7, Transactional: true, Producer: &batch.Producer{ID: 4660, Epoch: 3, Sequence: 21}})
	for _, r := range recs {
		if err := b.AppendAt(r.offset, r.timestamp, r.key, r.value, r.headers); err != nil {
			t.Fatal(err)
		}
	}
	want := golden(t, "transactional.hex")
	if !bytes.Equal(b.Bytes(), want) {
		t.Fatalf("built\n%x\nwant\n%x", []byte(b.Bytes()), want)
	}
	framed, _, err := batch.Next(want)
	if err != nil || framed.VerifyCRC() != nil {
		t.Fatal(err)
	}
	sameRecords(t, readAll(t, framed), recs)
}

func TestGoldenCommitMarker(t *testing.T) {
	want := golden(t, "commit.hex")
	m := batch.Marker{Type: batch.Commit, CoordinatorEpoch: 12}
	if b := batch.EndTxn(m, 4660, 3, 1700000000000); !bytes.Equal(b, want) {
		t.Fatalf("built\n%x\nwant\n%x", []byte(b), want)
	}
	got, ok, err := batch.Batch(want).EndTxnMarker()
	if got != m || !ok || err != nil {
		t.Fatalf("%v %v %v", got, ok, err)
	}
}

func TestGoldenSnappyBatch(t *testing.T) {
	value := bytes.Repeat([]byte("a"), 24)
	want := golden(t, "snappy.hex")
	b := batch.NewBuilder(batch.Options{Codec: batch.Snappy})
	if err := b.Append(0, nil, value, nil); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b.Bytes(), want) {
		t.Fatalf("built\n%x\nwant\n%x", []byte(b.Bytes()), want)
	}
	sameRecords(t, readAll(t, batch.Batch(want)), []rec{{value: value}})
}
