// Package lineage is the leader-epoch chain of a partition: which epoch wrote
// which offsets.
//
// A [Chain] lists, in rising order, every leader epoch that is still
// represented in a log together with the first offset it may have written.
// Followers find their point of divergence with it (KIP-101, KIP-279), fetches
// are checked against it (KIP-320), and segments in the bucket carry the part
// that covers them, so that a reader can tell bytes of its own history from
// bytes of an abandoned one.
//
// Chains are values: every method that changes one returns a new chain and
// never writes into the memory of the old one, so that a chain read under an
// atomic pointer stays valid.
//
// Non-obvious:
//
//   - An epoch without records is recorded too (KAFKA-7415): becoming leader
//     adds an entry even when nothing is appended.
//   - Offsets strictly rise with epochs. Assigning an epoch at an offset that
//     earlier epochs claimed drops the claims at and above it.
//   - Trimming the front keeps the epoch that covers the new start, with its
//     start moved up, so that the first entry always covers the log start.
package lineage
