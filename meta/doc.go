// Package meta is the metadata quorum: what brokers, topics, partitions,
// settings and producer-id blocks there are, and who decides about them.
//
// Every node runs hashicorp/raft with its log in bbolt; a single node is a
// quorum of one on the same code path. The node that leads the quorum is the
// controller: it takes a request, decides on the newest Image what is to
// change, and proposes the changes as one Command. Once the command is
// committed every node applies it to its own Image. Decisions are functions of
// an image and an event (controller_*.go); commands carry their outcome, not
// their reasons, so a later release may decide differently without applying
// old logs differently. The encodings are in FORMAT.md.
//
// A cluster has up to five voters; every other node is an observer that receives
// the same log. Voters of a new cluster find each other first (form.go); a node
// joins by registering its broker (Config.Join), and gets a vote of its own
// accord while that keeps the voters odd in number (quorum.go). What brokers ask
// of the controller they ask of their own Node, which forwards it (forward.go).
//
// The controller knows who lives by heartbeats, by connections that end, and by
// probes of addresses (session.go); a Member is the broker's side of that. So a
// killed process is noticed in milliseconds, a leader of the quorum too
// (standin.go), and one that is cut off or stands still by its silence. An idle
// quorum says little: heartbeats at a pace of their own (pulse.go), and nothing
// that a follower has acknowledged (pipeline.go).
//
// What may be written depends on the feature level varve.version (features.go),
// so that two releases can be in one cluster.
//
// Use: Open a Node, RegisterBroker, then read Image or Subscribe to its
// changes. An Image is immutable and may be kept for as long as one likes.
//
// Lock order: Node.deciding (one decision at a time) before everything else;
// subscriptions.mu, liveness.mu, quorumFounding.mu and fsm state are leaves.
// Node.naming guards the identity file alone. Nothing is called under a lock
// that calls back.
//
// Crash behaviour: raft's log, vote and snapshots are fsynced before anyone
// acts on them. The first error of the log store is final: the node stops and
// Deps.Fatal is called, for a process that has lost its memory must not vote.
// Open verifies every log entry and the newest snapshot, and refuses to start
// on any that is damaged, missing or of an unknown version.
//
// Non-obvious:
//
//   - Command.Base is the index of the image a decision was made on. A command
//     whose base is no longer the newest changes nothing; so two decisions can
//     never both be made on the same state.
//   - Subscribers see every change in order but not every image: a slow
//     subscriber is given the newest one, with the one it saw last before it.
//   - A voter whose directory was replaced has forgotten its votes. It is not let
//     vote again before its vote was taken away; until a node knows that it may
//     vote, its port takes greetings and no calls of raft.
//   - Only the first call of raft's Shutdown returns a future that waits.
//   - A member's lease begins when a heartbeat is sent, the controller's session
//     when it is heard: so the lease ends first. A heartbeat that finds the
//     broker fenced gives no lease, and it is let go on only with an image in
//     which it was fenced: who was cut off reaches the controller before the log
//     reaches it, and believes until then that it leads what others do.
//   - Image.ControllerID is what this node believes; it is not part of the
//     replicated state.
//   - A partition's leader epoch rises whenever its leader is set, to a broker
//     or to none: a restart of a lone replica raises it twice, as in Kafka.
package meta
