// Package hot is the local log: the recent part of every partition this node
// holds, on its own disk.
//
// A [Store] owns one data directory and every [Log] in it. A Log is a list of
// segments, each a plain run of record batches as they arrived, the last one
// active. [Log.Append] writes, [Log.Read] gives a pinned [Slice] that goes to a
// socket without a copy, and everything else (indexes, producer state, leader
// epochs) is derived from the batches and can be rebuilt from them.
// FORMAT.md describes the files byte for byte.
//
// # Durability
//
// Append returns once the bytes are in the kernel, which is what survives the
// death of the process. Power loss is another matter: with [Fsync] one syncer
// per store makes dirty partitions durable together and moves Durable on;
// with [Replicated] Durable is End, and flushing happens in the background.
// The first write or sync error takes the log offline for good ([Log.Err]):
// after a failed sync nobody knows what the disk holds, and asking again can
// falsely succeed. DURABILITY.md has the measurements behind the syncer.
//
// # Locks
//
// Order: Log.compactMu → Log.maintMu → Log.appendMu → Log.stateMu. appendMu serialises
// appenders and guards the tail alone; it is held across the write. stateMu guards producer
// state and is never held across I/O. Readers take none of them: they see
// atomically published offsets, segment lists and indexes. The offset cell,
// the handle cache, the journal and the syncer's queue have leaf locks.
//
// # Crash behaviour
//
// A segment's index ends in a footer only when its log file is synced, so a
// segment with footer that does not check out is damage: it is quarantined,
// reported, and never cut. A segment without footer above the recovery point
// is a tail: it is scanned and cut at the first bad batch, and whatever
// follows it is dropped, which is sound because Durable never passes a
// segment that is not synced. The recovery point lies in the store's journal,
// together with log start and high watermark. What is bad below that watermark,
// or was written while the same kernel ran, is damage, too.
//
// # Damage
//
// Whoever meets bytes that are not what was written (a read with [Slice.Verify],
// an upload, recovery, a follower by [Log.CheckAt]) has the segment looked through
// at once: the damaged runs of offsets are barred, [Log.Damaged] lists them, and
// what is around them is read as ever. [Log.Repair] writes sound batches over
// them. A log that opens with less than its journal says it had is [Log.Lost];
// one of which synced bytes are gone opens offline, and [Store.SetAside] begins it
// anew when others have the records.
//
// # Non-obvious
//
//   - A partition that was not written since its last checkpoint costs one
//     journal record and one directory listing at start; no file of it is
//     opened until somebody needs its bytes.
//   - A segment's end offset is the next segment's base offset, also when
//     compaction or truncation left a gap before it.
//   - Index entries carry the largest timestamp before their position, so
//     one index answers lookups by offset and by time (the latter exactly,
//     whatever the order of timestamps).
//   - With a shared log, Durable may be ahead of what is synced in the log's own
//     files. Whatever makes the latter a premise (recovery point, footer, cut)
//     waits for a round in place.
//   - A failed syncfs names no file, so it takes every log of the store
//     offline.
package hot
