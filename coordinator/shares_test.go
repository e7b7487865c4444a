package coordinator

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/topic"
)

// TestShareLogIsCutOffAndReadBack writes more than a log is to hold, and goes on under the next leader epoch from what is left.
func TestShareLogIsCutOffAndReadBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := DefaultConfig()
		cfg.NodeID, cfg.ShareSnapshotUpdates = 1, 50
		log, md := newMemLog(2), newMemMetadata(t, 0)
		c, err := OpenShares(cfg, ShareDeps{Log: log, Metadata: md})
		if err != nil {
			t.Fatal(err)
		}
		k := ShareKey{Group: "g", Topic: topic.ID{9}, Partition: 3}
		if _, err := c.Locate(t.Context(), k.String()); !errors.Is(err, ErrNotAvailable) {
			t.Fatalf("located before there is a topic: %v", err)
		}
		synctest.Wait()
		md.mu.Lock()
		made := md.create[0]
		md.mu.Unlock()
		if made.Name != topic.ShareGroupState || made.Partitions != 50 || *made.Configs[0].Value != "delete" {
			t.Fatalf("the topic is made as %+v", made)
		}
		md.topic(t, topic.ShareGroupState, topic.ID{1}, 2)
		md.topic(t, "t", k.Topic, 4)
		synctest.Wait()
		if at, err := c.Locate(t.Context(), k.String()); at != 1 || err != nil {
			t.Fatalf("located %d, %v", at, err)
		}
		if err := c.Initialize(t.Context(), &ShareInitialize{ShareKey: k, StateEpoch: 1, Start: 0}); err != nil {
			t.Fatal(err)
		}
		for i := range int64(480) {
			if err := c.Write(t.Context(), &ShareWrite{ShareKey: k, StateEpoch: 1, Start: i, DeliveryCompleteCount: 1,
				Batches: []ShareBatch{{First: i, Last: i, State: ShareAcknowledged, DeliveryCount: 1}}}); err != nil {
				t.Fatal(err)
			}
		}
		var last batch.Record
		index := Partition(k.String(), 2)
		time.Sleep(time.Duration(cfg.ShareCutMillis)*time.Millisecond + time.Second)
		synctest.Wait()
		log.set(func() {
			if n := len(log.batches[index]); n > int(cfg.ShareSnapshotUpdates)+1 {
				t.Errorf("%d batches are left", n)
			}
			log.epochs[index]++
		})
		if s := c.Summary(t.Context(), k); s.Err != nil || s.Start != 479 || s.DeliveryCompleteCount != 1 {
			t.Fatalf("read back: %+v", s)
		}
		md.apply(t, meta.DeleteTopic{ID: k.Topic})
		synctest.Wait()
		if s := c.Summary(t.Context(), k); !errors.Is(s.Err, ErrShareStateUnknown) {
			t.Fatalf("of a deleted topic: %+v", s)
		}
		if err := log.Read(t.Context(), index, func(b batch.Batch) error {
			for r := range b.Records(batch.Limits{}) {
				last = r
			}
			return nil
		}); err != nil || last.Value != nil {
			t.Errorf("the last record is %+v, not the end of the state; %v", last, err)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// TestShareKeysAreReadAsWritten takes group names with colons, and refuses what names no share-partition.
func TestShareKeysAreReadAsWritten(t *testing.T) {
	for _, group := range []string{"g", "a:b", ":", "ä: "} {
		k := ShareKey{Group: group, Topic: topic.NewID(), Partition: 7}
		if got, err := ParseShareKey(k.String()); got != k || err != nil {
			t.Errorf("%v is read as %v, %v", k, got, err)
		}
	}
	for _, text := range []string{"", "g", "g:1", ":AAAAAAAAAAAAAAAAAAAAAQ:1", " :AAAAAAAAAAAAAAAAAAAAAQ:1", "g:short:1", "g:AAAAAAAAAAAAAAAAAAAAAQ:x"} {
		if k, err := ParseShareKey(text); !errors.Is(err, ErrInvalidShareState) {
			t.Errorf("%q is read as %v, %v", text, k, err)
		}
	}
}
