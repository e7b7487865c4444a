// Package audit compares everything that a stopped cluster has left behind:
// the directories of its nodes with each other, with the metadata, and with
// the bucket. It changes nothing.
//
//	report, err := audit.Run(ctx, audit.Input{Dirs: dirs, Store: store})
//
// # What it compares
//
//	metadata    logs and snapshots can be read; at each index two nodes with the
//	            same term have the same entry, and so has everybody below what a
//	            majority has; one cluster id
//	replicas    every batch below the highest known high watermark is on every
//	            replica that reaches that far, byte for byte; who is in the ISR
//	            reaches it
//	segments    checksums, offsets without a gap, epochs that rise
//	lineage     the leader-epoch chain is the one that the batches carry
//	indexes     every entry points at a batch, a sealed segment's footer at its end
//	producers   what a snapshot says a producer wrote last is in the log
//	checkpoint  high watermark, recovery point and log start ≤ end; files from the local start on
//	manifest    ranges without a gap from the start to the end; every object is
//	            there, as long as it is said to be, with its checksum; its chunks
//	            are the replicas' bytes
//	seam        what is no longer on a disk is in the bucket
//	orphans     objects that no manifest names, when they are old enough to have
//	            been collected
//
// # Non-obvious
//
//   - The files are read here by their descriptions (hot/FORMAT.md,
//     tier/FORMAT.md), not by the code that wrote them: an auditor that shared
//     that code would share its mistakes.
//   - A stopped node may have a torn tail. What is above the recovery point of an
//     unclean stop and damaged is noted, not found.
//   - The high watermark of a partition is the highest that any replica has
//     written down. It was true then, so everything below is committed.
//   - Tails above it may differ: nobody was promised them. A replica out of sync
//     answers only up to its own high watermark, until it has cut its tail.
//   - Compacted partitions are compared by what is in both; offsets may be
//     missing, and replicas compact at their own time.
package audit
