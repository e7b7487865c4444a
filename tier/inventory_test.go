package tier

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/tier/objstore"
)

// What is in the bucket is enough to know which topics there were: an archive
// that has never heard of any of them lists them with names and settings.
func TestBucketAloneTellsItsTopics(t *testing.T) {
	for _, prefix := range []string{"", "a/b"} {
		cfg := testConfig(t)
		cfg.Prefix = prefix
		mem := objstore.NewMem(0)
		want, end := fillInventory(t, cfg, mem)

		ctx := context.Background()
		counted := objstore.NewCounted(mem, nil)
		stranger := openTest(t, cfg, counted, "")
		got, damaged := map[string]TopicInfo{}, 0
		err := stranger.Inventory(ctx, func(p InBucket) bool {
			if p.Err != nil {
				if !errors.Is(p.Err, ErrCorrupt) || p.ID != (topic.ID{3, 7}) || p.Index != 10 {
					t.Errorf("%+v", p)
				}
				damaged++
				return true
			}
			if p.State.Retired != (p.ID == topic.ID{5, 7}) {
				t.Errorf("%s/%d: %+v", p.ID, p.Index, p.State)
			}
			if p.ID == (topic.ID{1, 7}) && p.Index == 0 && (p.State.Segments != 6 || p.State.End != end) {
				t.Errorf("%+v, want 6 segments up to %d", p.State, end)
			}
			got[fmt.Sprint(p.ID, p.Index)] = p.Topic
			return true
		})
		if err != nil || damaged != 1 {
			t.Fatalf("%d damaged, %v", damaged, err)
		}
		if !maps.EqualFunc(got, want, func(a, b TopicInfo) bool { return a.Name == b.Name && maps.Equal(a.Configs, b.Configs) }) {
			t.Errorf("found %v\nwant %v", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
		}
		if s := counted.Stats(); s.Get.Requests != 20 || s.List.Requests > 30 {
			t.Errorf("%d reads and %d lists for 20 manifests", s.Get.Requests, s.List.Requests)
		}
		n := 0
		if err := stranger.Inventory(ctx, func(InBucket) bool { n++; return n < 3 }); err != nil || n != 3 {
			t.Errorf("went on to %d, %v", n, err)
		}
		closeTest(t, stranger)
	}
}

// fillInventory puts five topics of four partitions into a bucket: one deleted,
// one with segments up to end, one manifest damaged, which want leaves out; and
// leftovers and strangers' keys.
func fillInventory(t *testing.T, cfg Config, mem *objstore.Mem) (want map[string]TopicInfo, end int64) {
	t.Helper()
	ctx := context.Background()
	writer := openTest(t, cfg, mem, "")
	want = map[string]TopicInfo{}
	for i := range 5 {
		id := topic.ID{byte(i + 1), 7}
		info := TopicInfo{Name: fmt.Sprint("topic-", i), Configs: map[string]string{"retention.ms": fmt.Sprint(i), "remote.storage.enable": "true"}}
		for _, n := range []int32{0, 1, 10, 2} {
			r := writer.Partition(topic.Partition{ID: id, Index: n, Topic: info.Name})
			if err := r.Commit(ctx, Edit{LeaderEpoch: 0, Topic: &info, Retire: i == 4}); err != nil {
				t.Fatal(err)
			}
			want[fmt.Sprint(id, n)] = info
		}
	}
	r := writer.Partition(topic.Partition{ID: topic.ID{1, 7}, Index: 0, Topic: "topic-0"})
	w := newWorld(5)
	for range 6 { // many objects of a partition cost nothing here
		offload(t, r, 0, w.segment(3, 2))
	}
	root := cfg.root()
	for _, key := range []string{
		root + "strange", root + topic.ID{1, 7}.String() + "/00/head", root + "~",
		cfg.PartitionPrefix(topic.ID{2, 7}, 5) + "seg/" + SegmentID{0, 0, 1}.name(), // never committed
		cfg.PartitionPrefix(topic.ID{3, 7}, 10) + "head",
	} {
		if _, err := mem.Put(ctx, key, objstore.Bytes([]byte("x")), objstore.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	delete(want, fmt.Sprint(topic.ID{3, 7}, int32(10)))
	closeTest(t, writer)
	return want, w.next
}
