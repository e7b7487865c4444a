// Command chaos runs a cluster of real processes under faults, writes down
// what clients saw, and judges it.
//
//	go run ./integration/chaos -list
//	go run ./integration/chaos -row kill-leader -seed 7 -duration 60s
//	go run ./integration/chaos -row mix -seed 3 -duration 20m -durability replicated
//	go run ./integration/chaos -soak 8h -seed 1 -duration 60s
//	go run ./integration/chaos -check history.jsonl
//
// A row is one line of the fault matrix. Every row ends the same way: all
// faults are healed; within a scaled limit every key must take and give records
// again and every in-sync set must be full (liveness); everything is read by
// fresh clients, from every replica; the cluster is stopped, and `varve audit`
// compares the directories with each other and the bucket. The verdict speaks
// of invariants, not of latency. Status 1: something was found. Status 3: this
// machine cannot run the row.
//
// # How the machine is used
//
// With root each broker lives in a network namespace of its own, joined by a
// router's, where rules drop what goes from one address to another: one way or
// both, at once, without a word to either side. The clients and the S3 server
// (versitygw behind a proxy that misbehaves on demand) have addresses of their
// own. Disks are ext4 on loop devices where a row cuts the power (the file
// system's own shutdown ioctl: what was not synced is gone) or fills them.
// Without root brokers share the loopback; rows that need more say so.
//
// The process that the user started only makes the namespaces, runs itself in
// the clients' one, with mounts that nobody else sees, and removes everything
// afterwards, however that ends. What a killed run has left behind is removed
// by the next.
//
// # Clients
//
// Four kinds of worker: franz-go with idempotent producers, assigned and
// subscribed consumers, some with a rack; sarama, the same, as a process that
// speaks JSON lines; a raw one whose every produce request is sent once, so
// that a refusal is certain; and watchers that ask leaders for their offsets and
// every broker for its batches, byte for byte, and coordinators for what groups
// have committed and who owns what.
//
// Beside them tellers make transactions, by franz-go and, where
// integration/clients is installed (-clients), confluent-kafka in a process of
// its own: sends and polls of what is committed, ended one way or the other, under
// transactional ids that they take from each other; and groups of both protocols
// that consume, transform and produce, their offsets in the transaction.
package main
