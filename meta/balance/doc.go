// Package balance works out which replicas to move so that brokers hold as
// many of them, and as many bytes, as each other, and so that brokers which
// are to go hold none. It is pure: it is given a Cluster and returns Moves;
// the caller carries them out by reassignment (KIP-455), a few at a time, and
// plans again on what has become of it.
//
// Rules, in this order:
//
//  1. A replica on a broker that is being drained moves, and so does one on a
//     broker that is none of the cluster's any more.
//  2. Replicas of one partition that share a rack while another rack has none
//     of them move apart (KIP-36).
//  3. Where a broker is further above or below the mean than the threshold, in
//     replicas or in bytes, replicas move from the fullest to the emptiest. A
//     move never brings replicas of a partition into fewer racks.
//  4. Where a broker is the preferred leader of more partitions than others,
//     the order of replicas changes, which moves no data.
//
// Nothing moves onto a broker that is fenced, cordoned or being drained, and a
// partition that is being reassigned or has no leader is left alone. The same
// Cluster always gives the same plan.
package balance
