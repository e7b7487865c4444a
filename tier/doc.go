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
// # Using the manager
//
//	m, err := tier.NewManager(tier.DefaultManagerConfig(), a, tier.ManagerDeps{JournalPath: "…/deletions"})
//	lead := m.Lead(log)        // this broker leads the partition in log.LeaderEpoch()
//	lead.Rolled()              // a segment was sealed
//	lead.Advanced(stable)      // min(high watermark, last stable offset, durable end) moved
//	m.Resign(p)                // leadership is over; uploads in flight are abandoned
//	m.TopicDeleted(p)          // everything of p in the bucket goes, after a grace
//
// The manager's decisions are a pure core (core.go): step(event, now) → effects.
// Its shell (manager.go, carryout.go) runs the effects: one goroutine owns the
// core, calls that may block run beside it, and the core bounds how many. The
// core works by deadlines and by what it is told; a partition with nothing to do
// has no timer and makes no request.
//
// Lock order: none. Leadership.mu, Manager.mu, the journal's, the counters' and
// the look pool's locks are leaves; no two are held together, and none across a
// call to a Log or the store (the journal's is held across its own write).
//
// # Crashes
//
// Every step of the manager may be cut off: an object without a commit is an
// orphan, a mark without a delete is deleted by the next leader, a start that was
// committed stands although the log start had not followed. What a topic's
// deletion still has to do is in a journal beside the manifest cache.
//
// # Non-obvious
//
//   - Only a claim, or a commit, under our epoch makes the cached manifest a
//     fact. A cached state alone releases no local data and deletes nothing.
//   - After a commit with an open outcome the manifest is read again before
//     anything else is decided, and uploads in line are neither dropped nor
//     repeated until then.
//   - An upload that could not be committed within uploads' lifetime is given up,
//     because collectors may take its object for an orphan from then on.
//   - The grace of a mark runs on the steady clock of the leader that deletes,
//     from when it first saw the mark. A clock that is set cannot shorten it.
//   - Replicas roll at different offsets: a segment, or the active one, may
//     straddle the archive's end. It is uploaded from the end on, and retention
//     by size does not count it twice.
//   - A start beyond the end is legal: what lay between was given up locally
//     (copying disabled, an outage). The archive goes on with the segment that
//     holds the start.
//   - Tiering switched off drops the archive (State.Dropped) without moving the
//     log start past the local part; only a Reset makes it usable again.
//   - Orphans that a leader knows it may have left, or the one before it, are
//     collected once the longest upload is over. Others (of a partition that is never
//     written again, or of a leader that was cut off and went on uploading later) are
//     found by a search once a week: a list request for each thousand objects, no
//     claim. Of a topic whose tiering is switched off they stay until it is switched on
//     again or deleted.
//   - A survey compares a listing with the manifest once a week, and a scrub, where it
//     is switched on, reads every object (lane_scrub.go). What they or a reader suspect
//     is examined before it is called damaged: the manifest is read from the bucket
//     first, and the object twice. A store that fails is no damage.
//   - What is damaged is put anew from the leader's own log (lane_mend.go), if that has
//     the whole range, in sealed segments, of the same epochs, bytes and timestamps as
//     the manifest says, and if it reads back as it was put. Nothing is deleted for it:
//     the old object is marked by the edit that names the new one. Damage that no leader
//     can mend stays named: varve_tier_damagedobjects counts it, the log names it once,
//     and varve segments if it holds records.
//   - Until an object that may be damaged is found sound, mended or beyond mending from
//     here, local retention keeps what the log has of it and all that lies above
//     (keptFrom); that this lasts is told like any other work that does not get on.
//   - Ends do not tell whether an archive and a log belong together (divergence.go):
//     the leader epoch of the archive's last offset does.
//   - Without a lease nothing is claimed, uploaded or committed: what a leader puts
//     there whose topic was deleted meanwhile would be found by nobody. Nor does the
//     log start rise: the next leader may have had nothing to commit yet, so that
//     nothing fences this one, whose retention may be of yesterday.
//   - A topic's removal retires the manifest also where there is none yet. One whose
//     manifest cannot be read waits for an operator, keeps everything, and is told
//     (varve_tier_blockedremovals, /healthz, the log at each try).
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
// copy costs a read and never a wrong head. An object whose commit did not happen is found by the collector.
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
