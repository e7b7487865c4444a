// Package sim drives the pure cores of a whole cluster through faults, on one
// goroutine and from one seed: meta's decisions and image, replica/isr's leader
// and follower, and tier's manager with the real manifests over a store in
// memory. Everything around them is a model: logs, disks, the network, raft's
// agreement, the bucket. The model gives the cores what production must give
// them, and takes away what faults take away.
//
// The invariants of oracle_test.go and standing_test.go are the properties known
// from the TLA+ models of this protocol, told anew. They are asserted
//
//   - when something happens: "epochs", "active", "clean", "budget", "reassign" and
//     "determinism" at each metadata entry, "matching" at each append and election,
//     "reads" at each move of a watermark, "lost" at each acknowledgement,
//     "truncation" and "deletion" before each, "bucket" at each change there;
//   - after every step: "candidates" and "quorum", and of one broker in turn
//     "bounds", "lineage", "counted", "matching" and "reads";
//   - once all faults have ended: "settled", that all agree and have everything.
//
// mutants_test.go lists one-line breaks of the rules; each must turn the
// simulation red.
//
//	go test ./integration/sim                                   # 100,000 steps
//	VARVE_LONG=1 go test ./integration/sim                      # 300,000, and the mutants
//	go test ./integration/sim -run Simulated -sim.steps=5000000 -sim.from=1000 -timeout=0   # a soak
//	go test ./integration/sim -run Simulated -sim.seed=77 -v    # one seed again, with its story
//
// The coordinators' machines have a simulation of their own, beside them, since
// they are nobody else's to see (coordinator/sim_world_test.go); their mutants are
// listed here with the others.
//
// # The fault budget
//
// A record acknowledged with acks=all may be lost only if the budget is
// exceeded, and then the metadata record an unclean election:
//
//   - An unclean election was asked for or configured (opted into), or
//   - every member of the in-sync set and of the ELR had lost data at one time: in
//     the default durability (fsync) only a wiped disk loses what was
//     acknowledged, or one that loses the end of what it had synced; with
//     varve.durability=replicated any unclean stop may.
//
// Everything else, in any number and at once, must lose nothing: killed and
// paused processes, power loss of all brokers (fsync), cut, slow and one-way
// links, lost, late and repeated messages, zombies of leader and controller,
// clocks that jump, a bucket that is slow, down, or unsure of what it did.
package sim
