// Package share is the state machine of a share-partition (KIP-932): what one share group has of one partition, on the broker
// that leads it. It is a leaf, and pure: it reads no clock, no log and no disk. The shell around it is in broker.
//
// # What it is
//
//	start                                            next
//	  |  acknowledged | acquired | available | acquired |  not delivered yet …
//
// Everything below start is done. From start to next lies the window: offsets that were handed out at least once, or that were
// found not to be records. The window is a list of runs, neighbouring offsets in the same state, so that what costs memory is
// not how many records are out but how often their state changes along the window.
//
//	available ──Acquire──▶ acquired ──accept──▶ acknowledged
//	    ▲                     │  ├──reject, gap, last delivery──▶ archived
//	    └──release, expiry────┘  └──the same, with a dead-letter topic──▶ archiving ──Buried──▶ archived
//
// # How to use it
//
//	at, ok := p.NextFetch()             // where the log is to be read
//	out := p.Acquire(…, batches, out)   // of what was read: what the member gets
//	round, err := p.Acknowledge(…)      // what members say
//	w, ok := p.TakeWrite()              // what must be durable; one write at a time
//	p.Written(err == nil, now)          // now it is: answer those who wait for rounds up to this one
//	p.Tick(now)                         // locks that have run out; again at NextDeadline
//	p.DeadLetters(out), p.Buried(…)     // records whose dead letter is to be produced, and has been
//
// # What holds
//
//   - A record is acknowledged or archived once, or it is available, acquired or archiving. It is never none of these.
//   - A change is answered, and has an effect on what others are given, only when it has been written: until then its records
//     belong to its round, and nobody can acquire or acknowledge them. If the write fails they are what they were before.
//   - Who is told that an acknowledgement succeeded knows that its records are done and that nobody is given them again. It does
//     not know that it was the one who did them: once the start has passed a record, those whose locks ran out before are told
//     so too, as in Kafka.
//   - start passes only over records that are acknowledged or archived, durably, or that the log does not hold any more.
//   - A record's delivery count rises with each Acquire and never falls. At the limit it is archived, or first moved to the
//     dead-letter topic, when it comes back: released, with its lock run out, or with its member gone.
//   - The window never holds more than Limits.LocksMax records that are not done; after each write runs are
//     at most twice that and one.
//
// # Crash behaviour
//
// The machine is rebuilt with Restore from what was written. What was acquired then is available again, with the count it had
// when it was acquired. Offsets that were found not to be records are found so again.
//
// # Non-obvious
//
//   - Acquiring is not written. A leader that dies forgets who holds what, and with it one delivery: the limit counts deliveries
//     that ended.
//   - Records of aborted transactions, control records and holes that compaction left are archived when they are read, and not
//     handed out. (Kafka hands control records out and expects their consumers to acknowledge them as gaps; those who do so get
//     an answer all the same.)
//   - A record that has had half of its deliveries is handed out with fewer and fewer others, and at last alone, so that one
//     that kills its consumers does not take others down with it.
package share
