// Package batch reads, checks and builds record batches, version 2, the unit
// in which records travel and lie on disk.
//
// A [Batch] is a view of bytes that somebody else owns; nothing is copied to
// look at one. [Next] frames the first batch of a buffer, [Batch.VerifyCRC]
// checks it, [Batch.Records] walks its records, inflating as it goes. A
// [Builder] makes batches. [Validate] is the door of the log: what Kafka's
// broker checks before it appends, in Kafka's order and with its messages.
//
// Bytes from outside are hostile until validated. Inflating is bounded by
// [Limits] in bytes and by ratio, and no length field is believed before the
// bytes behind it arrive.
//
// Non-obvious:
//
//   - Base offset and leader epoch lie outside the CRC: the broker patches
//     them in the request buffer and leaves the rest as the producer wrote it.
//   - The base timestamp field holds the delete horizon once compaction has
//     set one (KIP-534).
//   - Compaction removes records but keeps LastOffsetDelta, so Count may be
//     less than LastOffset-BaseOffset+1, and BaseOffset may lie below the
//     first record that is left.
//   - In a LogAppendTime batch every record has the batch's MaxTimestamp.
package batch
