// Package tier keeps sealed segments in an object store and reads them back.
//
// It has two halves. The archive (Archive, Remote) is what the bucket holds as
// this process knows it: the manifest of every partition, the objects'
// indexes, a chunk cache and a bounded pool of readers. The manager (Manager)
// decides what to upload, when to delete, and does both.
//
// # Using the archive
//
//	a, err := tier.OpenArchive(cfg, tier.Deps{Store: store, DB: "…/manifests.db"})
//	r := a.Partition(p)
//	err = r.Claim(ctx, epoch)                     // fence: before the first upload
//	obj, err := r.Build(ctx, seg, tier.BuildOptions{LeaderEpoch: epoch, From: end, Now: now})
//	defer obj.Close()
//	err = obj.Put(ctx, nil)                        // one PUT, verified
//	err = r.Commit(ctx, tier.Edit{LeaderEpoch: epoch, Add: []tier.AddSegment{obj.Add()}})
//	chunk, err := r.Read(ctx, offset, maxBytes, upper)
//
// # Order of deletion
//
// Advance the committed start, mark the segments below it, wait out the grace,
// delete the objects, purge the marks. An edit may carry the first two
// together: a reader that still holds the older manifest is covered by the
// grace.
//
// The bytes of objects and manifests are described in FORMAT.md.
package tier
