// Package replica is a partition as this broker holds it: leader or not, its high watermark and in-sync set, and one read
// path over both tiers, the local log (hot) and the archive in the bucket (tier).
//
// Use: NewManager follows the metadata image and opens, leads, configures and deletes partitions by itself. Requests find
// theirs with Partition or PartitionByID and call Append, Read (never blocks on the bucket), ReadCold (does), ListOffset,
// DeleteRecords. Acknowledgements wait with OnCommitted, long polls with a Waiter.
//
// The decisions are in pure cores: package isr (who counts for the high watermark), commits, watchers
// and tail (who is woken by what), schedule (whose housekeeping is due). The rest is the shell around them.
//
// Lock order: Partition.leading, then Partition.mu; everything else is a leaf (Manager.mu, table.mu, watchers.mu, tail.mu,
// keeper.mu). No lock but leading is held across I/O, and callbacks run under none but, on a change of leadership, leading.
//
// Crash behaviour: nothing here is durable by itself. The hot store keeps high watermarks, leader epochs and the log start;
// the metadata keeps what exists; the bucket's manifest keeps what is archived. A deletion interrupted by a crash is repeated
// from its tombstone.
//
// Non-obvious:
//
//   - The watermark counts durable ends only, and over the maximal in-sync set: a proposed member holds it back before the
//     controller has answered.
//   - A directory goes only for a tombstone that names its topic id. A topic missing from the image stops being served; its
//     data stays.
//   - Readers cannot see the seam. Whatever decides by looking at both tiers looks again when the local start has moved
//     meanwhile: what was local when the archive was asked may be remote when the log is.
//   - A miss in the archive is an error only after its manifest was read afresh, and OFFSET_OUT_OF_RANGE only below the
//     committed start.
package replica
