package hot

import (
	"encoding/hex"
	"testing"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/lineage"
	"github.com/varvelog/varve/meta/topic"
)

// TestFormatVectors pins the files of FORMAT.md. A change here is a change of
// format and needs a new version.
func TestFormatVectors(t *testing.T) {
	x := newSegIndex(100)
	x.add(indexEntry{rel: 5, pos: 4200, maxTs: 1700000000000, relMax: 3})
	ps := newProducers()
	b := batch.NewBuilder(batch.Options{Producer: &batch.Producer{ID: 9, Epoch: 2, Sequence: 4}})
	for i := range 3 {
		if err := b.Append(int64(10+i), nil, []byte("v"), nil); err != nil {
			t.Fatal(err)
		}
	}
	ps.apply(b.Bytes(), nil, 1700000000123)
	st := newPartitionState(5)
	st.epoch, st.epochs, st.position = lineage.Entry{Epoch: 3, Start: 4}, 2, 77
	gen := sharedGeneration{number: 3, salt: 0x0102030405060708, first: 17, serial: 5, mark: journalMark{2, 500}}
	entry := sharedWrite{sharedEntry{key: journalKey{id: topic.ID{1}, index: 2}, cut: 8, base: 100, pos: 4200}, []byte("ab")}
	round := gen.appendRound(nil, 17, appendGroup(nil, 16, nil), entry)
	cut := st
	cut.cut = 8
	for name, c := range map[string]struct {
		got  []byte
		want string
	}{
		"index":    {x.encode(0, 1), "00000005000010680000018bcfe56800000000030812dad4"},
		"txnindex": {encodeTxns(100, []batch.AbortedTxn{{ProducerID: 7, FirstOffset: 101, LastOffset: 109, LastStable: 110}}), "00000000000000070000000000000065000000000000006d000000000000006e000000000d6a4947"},
		"snapshot": {ps.encode(3), "5650534e0002000078699863000000000000000300000001000000000000000900020001ffffffff000000000000000cffffffffffffffff0000018bcfe5687b0000000400000006000000020000000000000002000000000000000c"},
		"epochs":   {encodeEpochs(lineage.Chain{{Epoch: 1, Start: 0}, {Epoch: 4, Start: 10}}), "56455043000100001387c7b50000000200000001000000000000000000000004000000000000000a"},
		"shared":   {gen.append(nil), "564152564553484c0000000200000000000000000000000301020304050607080000000000000011ffbf390600000000000000050000000200000000000001f4859835b3"},
		"round":    {round[:sharedRoundHead+sharedEntryHead+2+sharedGroupHead], "df37eb7500000001000000000000000301020304050607080000000000000011000000020000000ca442d48e000000000100000000000000000000000000000000000002000000020000000000000008000000000000006400001068e2a229366162000000000000001000000000"},
		"journal2": {appendJournalRecord(nil, journalVersionCut, recordState, keyOf(testPartition), &cut), "03a678210100000001020300000000000000000000000000000000030000000300000000000000040000000000000005000000000000000500000000000000050000004d000000000000000000000005ffffffffffffffffffffffffffffffff0000000000000000000000020000000000000000000000050000000000000008"},
		"journal":  {appendJournalRecord(nil, journalVersion, recordState, keyOf(testPartition), &st), "9a8513800100000001020300000000000000000000000000000000030000000300000000000000040000000000000005000000000000000500000000000000050000004d000000000000000000000005ffffffffffffffffffffffffffffffff000000000000000000000002000000000000000000000005"},
	} {
		if got := hex.EncodeToString(c.got); got != c.want {
			t.Errorf("%s is\n%s, want\n%s", name, got, c.want)
		}
	}
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
