// Package coordinator runs consumer groups and transactions: who is a member, who reads what, how far everybody has read, and
// which transactions are open and how they end.
//
// Groups speak one of several protocols, as Kafka 4.4 has them. In the classic one (JoinGroup, SyncGroup, Heartbeat, LeaveGroup),
// static membership and incremental rebalancing included, rebalancing is the clients' business: the coordinator only passes
// their metadata and assignments on. In the consumer protocol (KIP-848) the coordinator decides who reads what, and tells
// members one by one. In the streams protocol (KIP-1071) members bring the topology of their application instead of
// subscriptions: the coordinator holds it against the topics there are, has internal topics made that it lacks, and gives out tasks,
// active and standby. In share groups (KIP-932) several members read one partition, and what has become of records is kept by the
// share coordinator, which is another machine over another topic: ShareState is how it is reached. Transactions are those of
// KIP-98, in both versions of the protocol (KIP-890). Requests and results are
// typed, errors are sentinels: Kafka's error codes are the front door's.
//
// # Use
//
// Open with a Log, which is the topic __consumer_offsets, and the metadata quorum; OpenTransactions with the topic
// __transaction_state, and with Markers, which ends transactions in their partitions; OpenShares with the topic
// __share_group_state. Locate finds the broker that a group or a
// transactional id belongs to and has the topic created when there is none. Every other call is a request of a client; Join and
// Sync block as long as the protocol makes members wait for each other.
//
// # How it works
//
// A group or transactional id belongs to one partition of its topic, and whoever leads that partition coordinates it. Each
// partition led here has a shard: a goroutine that owns a machine. The machine holds the state and decides, without goroutine,
// clock or lock: step(event, now) changes its state and returns the records to be written and the replies to be given. The shard
// steps all requests that have come, writes their records in one append, and replies when that is committed: one round of the
// log's group commit serves many requests, and nobody hears of what could still be lost.
//
// A group changes between the classic and the consumer protocol with its members in it, as group.consumer.migration.policy
// allows (migrate.go). When somebody joins a classic group by the consumer protocol, its members become members of a consumer
// group, with the partitions that they may still be reading and the generation as their epoch; they go on with the requests of the
// classic protocol, and take each step towards their target by joining again (consumerclassic.go). When nobody is left but such
// members, the group is a classic one again.
//
// The end of a transaction is decided by such a record. What is decided is carried out (endings): every partition of the
// transaction gets its marker, from whoever leads it, again and again until it has; then the end is noted. Offsets committed in
// a transaction are records of it in the offsets topic, and count once their marker is there.
//
// A group is classic, or one of the newer protocols (modern): what serves every group asks that interface. Of a streams group,
// streamstopology.go works out tasks and topics, streamsassign.go who is to run what, streamsreconcile.go how members get there,
// and streamsrecord.go has the formats. Internal topics are made by the shell (internaltopics.go), once a heartbeat has found that
// they are missing; the metadata image that has them makes the next heartbeat give out tasks.
//
// A share-partition exists once the share coordinator has begun it. The group's machine writes down which are to be begun or
// forgotten, the shell has the share coordinator do that, and the machine notes what came of it; members are given only
// partitions that are begun. The share coordinator's records are snapshots and updates. All updates since a snapshot are needed
// though they have one key, so that topic is not compacted: the machine says below which offset it is redundant, and there the
// shell cuts it off.
//
// # Crashes and fail-over
//
// Nothing but the log is kept. A shard reads it back when its broker begins to lead the partition, and after an append whose
// outcome it does not know: everybody who waits is told to ask again, and the state is what the log says. Decided ends of
// transactions are then carried out again, which changes nothing where they were already. Of classic groups, written are
// offsets, and groups that are stable or without members. A rebalance under way is not written: it ends with the broker, and
// its members, who know no newer generation than the one that was stable, join again. Share-partitions that were being begun
// are begun again with a heartbeat of their group; one that has begun under the same state epoch stays as it is.
//
// # Locks
//
// service.mu guards the set of shards and nothing else, internalTopics.mu what is being made for topologies; neither is ever held
// while waiting, nor one with the other. A shard's state belongs to its
// goroutine.
//
// # Non-obvious
//
//   - What a step changes is visible to the steps after it at once, though its records are not written yet. That is right
//     because nobody is answered before they are, readers included.
//   - What a classic member was assigned and what it reads are two things until it has synced. A group that is upgraded in
//     between takes both for the member's own.
//   - Who reads what is worked out once in consumer.assignment.interval.ms at most (KIP-1263). There is no timer: the next
//     heartbeat or join after that time does it, and a member that came too early learns its share with its own next heartbeat.
//   - A commit in a transaction carries a guard, the number of transactions that had ended in the partition before the
//     transaction was verified (txnguard.go): a marker that comes between the two refuses the commit.
//   - A member that has never been answered does not know its id and cannot heartbeat. While it waits it has a session of
//     five minutes, and unlike others it may be removed while its join is parked: its client may be long gone.
//   - Each partition has 256 requests in its queue at most; further ones wait in their connections' goroutines.
//   - An answer about members or offsets is given from memory and is as old as the last append: linearizable as long as this
//     broker leads, which the leader epoch of every append enforces for writes. A deposed leader may answer reads until it
//     hears of it, as in Kafka.
//   - Of a streams group, offsets that members report, endpoint epochs and the wish to end the application are not written, as in
//     Kafka: they come again with heartbeats, or are lost with the coordinator.
package coordinator
