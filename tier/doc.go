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
//
// # Locks of the archive
//
// Remote.committing (held across I/O, guards only the order of edits) before
// Remote.mu; reader.mu before the chunk cache's own; an lru's lock before
// Remote.mu. Archive.mu is a leaf. No lock that guards state is held across I/O.
//
// # After a crash
//
// The bucket is the truth. The local database may lag behind it by the commits
// of the last moment; a put over an ETag that is gone is refused, so a stale
// copy costs a read and never a wrong head. Spool files have no name and go with
// the process. An object whose commit did not happen is found by the collector.
//
// # Non-obvious
//
//   - A commit's error other than ErrFenced, ErrConflict and ErrTooManyMarked
//     leaves the outcome open: the put may still arrive. Never delete on it.
//   - A head that is missing although one was known, or whose sequence went
//     back, is an error and never an empty archive.
//   - Fills and index reads run under the archive's context: a client that gives
//     up after its 500 ms leaves the bytes to its next fetch.
//   - A chunk is checked once, when it arrives; what is in the cache is served
//     unchecked. Chunk CRCs are needed beside the batches' own, which do not
//     cover base offset and leader epoch.
//   - The time index holds each chunk's own maximum, not a running one, so that
//     a lookup from the middle of a segment is exact too.
//   - Segments of one partition may begin anywhere: another leader rolls
//     elsewhere. BuildOptions.From cuts a segment at the archive's end, which is
//     a batch boundary on every replica.
package tier
