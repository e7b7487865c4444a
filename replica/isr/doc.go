// Package isr has the pure cores of replication: what a leader and a follower of one partition decide. They take events and
// return what is to be done; they hold no lock, clock, file or connection. The shells are in package replica, and the
// simulator of integration/sim drives the same code through faults.
//
// Offsets are exclusive ends. The numbers in the comments are those of the replication invariants in RELIABILITY.md.
package isr
