// Package replica is a partition as this broker holds it: leader or not, its high watermark and in-sync set, and one read
// path over both tiers, the local log (hot) and the archive in the bucket (tier).
//
// Use: NewManager follows the metadata image and opens, leads, configures and deletes partitions by itself. Requests find
// theirs with Partition or PartitionByID and call Append, Read (never blocks on the bucket), ReadCold (does), ListOffset,
// DeleteRecords. Acknowledgements wait with OnCommitted, long polls with a Waiter.
//
// What this broker leads it lets others copy: their fetches are reads with a replica id, which count for the watermark, and
// proposals asks the controller for in-sync sets without those that lag and with those that caught up. What others lead a
// fetcher copies, one for each leader with one connection.
//
// The decisions are in pure cores: package isr (who counts for the high watermark and who is in sync, what a follower does
// with an answer), commits, watchers and tail (who is woken by what), schedule (whose housekeeping is due). The rest is the
// shell around them.
//
// Lock order: Partition.leading, then Partition.mu; everything else is a leaf (Manager.mu, table.mu, watchers.mu, tail.mu,
// keeper.mu, proposals.mu, fetcher.mu). No lock but leading is held across I/O, and callbacks run under none but, on a change of leadership, leading.
//
// Crash behaviour: nothing here is durable by itself. The hot store keeps high watermarks, leader epochs and the log start;
// the metadata keeps what exists; the bucket's manifest keeps what is archived. A deletion interrupted by a crash is repeated
// from its tombstone.
//
// Damage (damage.go): the hot store bars what its disk has damaged. It is fetched from the bucket, the leader or another replica and
// written in its place. A follower's fetch says from where on it has only damage, so it counts for nothing above that, and
// where it got damage from the leader; the leader then looks at its own copy. A leader that cannot mend its copy, or whose disk fails,
// names itself among the replicas that lost records, and so does one that finds at its start that its log's end is missing:
// someone in sync takes over. So does one that knows not all producers, because it was opened with damage; alone in the in-sync set it
// takes no batch of a producer before every copy was asked for. A follower that cannot be mended in place begins anew once the controller counts on it no more.
//
// Non-obvious:
//
//   - A log that has lost its end stays lost, whatever it fetches, until a leader lets it into its in-sync set: what it had is known at
//     least, not at most.
//   - A log that has begun anew goes on at what it had, so that no offset names two records. One in a bucket cannot: the archive
//     takes no gap, so it goes on where the bucket ends, and offsets that were handed out behind that are handed out again. Only
//     after an unclean election that is on record, in a later epoch: whoever has read the old ones hears by KIP-320 that their history has
//     ended at the bucket's end, and the archive never held them.
//   - A follower changes its log only under leading, held shared, and only while Partition.following is the very leadership
//     whose leader said so: what an earlier one said is void.
//   - A fetch says what is durable. So an answer's appends are waited for, all together, before the next fetch; who is not
//     followed any more is not waited for.
//   - An accepted in-sync set counts when the image has it: the image may bring another min.insync.replicas as well.
//   - Images are not followed until they know this very start of the broker: after a restart the first ones are old.
//   - The watermark counts durable ends only, and over the maximal in-sync set: a proposed member holds it back before the
//     controller has answered.
//   - A directory goes only for a tombstone that names its topic id. A topic missing from the image stops being served; its
//     data stays.
//   - Readers cannot see the seam. Whatever decides by looking at both tiers looks again when the local start has moved
//     meanwhile: what was local when the archive was asked may be remote when the log is.
//   - A miss in the archive is an error only after its manifest was read afresh, and OFFSET_OUT_OF_RANGE only below the
//     committed start.
package replica
