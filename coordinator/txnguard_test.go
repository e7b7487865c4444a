package coordinator

import (
	"context"
	"errors"
	"testing"
)

// inTxn commits an offset in a producer's transaction.
func (r *rig) inTxn(group string, producer int64, guard uint64) error {
	res, err := r.Commit(context.Background(), &CommitRequest{
		Group: group, Generation: NoGeneration, RetentionMillis: -1, Producer: &Producer{ID: producer}, Guarded: true, Guard: guard,
		Partitions: []CommitPartition{{Topic: "t", Offset: 1}},
	})
	if err != nil {
		return err
	}
	return res.Errs[0]
}

func (r *rig) guard(group string) uint64 {
	r.t.Helper()
	g, err := r.TxnGuard(group)
	r.must(err)
	return g
}

func TestCommitThatAMarkerHasOvertakenIsRefused(t *testing.T) {
	bubble(t, func(r *rig) {
		guard := r.guard("g")
		r.must(r.inTxn("g", 7, guard))
		r.must(r.EndTransaction(context.Background(), Partition("g", 2), &EndMarker{Producer: Producer{ID: 7}, Commit: true}))
		if err := r.inTxn("g", 7, guard); !errors.Is(err, ErrTxnEndedMeanwhile) {
			t.Errorf("a commit that was verified before the marker: %v", err)
		}
		if got := r.fetched("g"); got != 1 {
			t.Errorf("offset %d", got)
		}
		guard = r.guard("g")
		r.must(r.inTxn("g", 7, guard))

		// A marker may be in the log without this broker knowing: after an append that failed the state is another, and no guard of
		// before holds.
		r.log.set(func() { r.log.mislead = 1 })
		if err := r.EndTransaction(context.Background(), Partition("g", 2), &EndMarker{Producer: Producer{ID: 7}, Commit: true}); err == nil {
			t.Fatal("an append that failed was answered as done")
		}
		if err := r.inTxn("g", 7, guard); !errors.Is(err, ErrTxnEndedMeanwhile) {
			t.Errorf("a commit that was verified before the state was read back: %v", err)
		}
		r.must(r.inTxn("g", 7, r.guard("g")))
	})
}

func TestEndsOfTransactionsAreForgottenOnTheSafeSide(t *testing.T) {
	var ends txnEnds
	ends.begin(3)
	old := ends.count
	ends.ended(1)
	ends.ended(2)
	young := ends.count
	for range endsKept - 1 {
		ends.ended(2)
	}
	if len(ends.last) != 1 || len(ends.order) != endsKept {
		t.Fatalf("%d producers and %d ends are kept", len(ends.last), len(ends.order))
	}
	for _, c := range []struct {
		producer int64
		guard    uint64
		want     bool
	}{
		{1, old, true},    // its end is forgotten
		{3, old, true},    // it cannot be told from those that are
		{1, young, false}, // nothing has ended since that is not known
		{2, young, true},
		{2, ends.count, false},
		{2, 2<<32 | 9, true}, // of another state
	} {
		if got := ends.overtaken(c.producer, c.guard); got != c.want {
			t.Errorf("producer %d with guard %x: overtaken is %v", c.producer, c.guard, got)
		}
	}
}
