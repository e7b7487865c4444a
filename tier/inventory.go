package tier

import (
	"context"
	"errors"

	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/tier/objstore"
)

// InBucket is a partition as the bucket alone tells of it.
type InBucket struct {
	ID    topic.ID
	Index int32
	Topic TopicInfo // name and settings; the name is empty in archives that were never told it
	State State     // Retired says that the topic was deleted
	Err   error     // ErrCorrupt: the manifest is damaged, and the two before are not known
}

// Inventory calls fn for every partition that has a manifest in the bucket, in
// the order of the keys, until fn returns false. It asks the bucket and nothing
// else: what a cluster that was lost held can be seen with it. It costs one list
// request and one read for each partition, however many segments there are.
func (a *Archive) Inventory(ctx context.Context, fn func(InBucket) bool) error {
	root, from := a.cfg.root(), ""
	for {
		key := ""
		err := a.deps.Store.List(ctx, root, from, func(o objstore.Object) bool {
			key = o.Key
			return false
		})
		if err != nil {
			return storeError("list partitions", err)
		}
		if key == "" {
			return nil
		}
		k, ok := a.cfg.ParseKey(key)
		if !ok {
			from = key // a stranger's
			continue
		}
		// The head sorts first of a partition's objects: without one, what is
		// there are leftovers.
		from = a.cfg.behind(k.Topic, k.Partition)
		if k.Kind != KeyHead {
			continue
		}
		found, err := a.inBucket(ctx, key, k)
		if errors.Is(err, objstore.ErrNotFound) {
			continue // deleted just now
		}
		if err != nil {
			return err
		}
		if !fn(found) {
			return nil
		}
	}
}

// behind is greater than all keys of a partition, and less than all that follow
// them.
func (c Config) behind(id topic.ID, partition int32) string {
	return c.PartitionPrefix(id, partition) + "seg0" // '0' comes after '/'
}

func (a *Archive) inBucket(ctx context.Context, key string, k KeyInfo) (InBucket, error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.GetTimeout)
	defer cancel()
	body, _, err := objstore.ReadAll(ctx, a.deps.Store, key, headBytesMax)
	if errors.Is(err, objstore.ErrNotFound) {
		return InBucket{}, err
	}
	if err != nil {
		return InBucket{}, storeError("read head", err)
	}
	m, err := decodeHead(body)
	if err == nil && (m.topic != k.Topic || m.partition != k.Partition) {
		err = corrupt("head is of partition %s/%d", m.topic, m.partition)
	}
	if err != nil {
		return InBucket{ID: k.Topic, Index: k.Partition, Err: named(err, key)}, nil
	}
	return InBucket{ID: k.Topic, Index: k.Partition, Topic: m.info.clone(), State: m.state()}, nil
}
