// Package history checks what clients of a cluster saw against what a log may
// show them. It is pure: a history goes in, a report comes out.
//
// A history is a list of events, each the begin or the end of an operation of
// one process, with a monotonic time. As JSON, one event a line:
//
//	{"t":1200,"p":3,"type":"invoke","f":"send","steps":[{"f":"send","key":"a/0","value":17,"offset":-1}]}
//	{"t":5100,"p":3,"type":"ok","f":"send","steps":[{"f":"send","key":"a/0","value":17,"offset":4}]}
//
// A key is a partition. A value is sent at most once to a key.
//
// # Outcomes
//
// The whole rests on them. An operation ends as
//
//	ok    it happened
//	fail  it certainly did not: nothing was, or ever will be, appended
//	info  nobody knows
//
// A timeout, a cut connection and NOT_ENOUGH_REPLICAS_AFTER_APPEND are info,
// and so is every error of a client that may have tried more than once. After
// an info the process takes a new number, since its operation may still be
// under way.
//
// # Passes
//
//	inconsistent-offset  two values at one offset
//	duplicate            one value at two offsets
//	aborted-read         a value was read that had failed
//	precommitted-read    a transaction read what it wrote itself
//	lost                 a value acknowledged, or read before, is missing below what was read at the end
//	unseen               the same, above it: lost, or reading is stuck
//	gap                  an offset holds nothing, though the partition is dense
//	poll-skip            a consumer passed over a value
//	nonmonotonic-poll    a consumer went back
//	int-poll-skip        the same two within one poll
//	int-nonmonotonic-poll
//	send-order           a send that began after another had ended got the smaller offset
//	int-send-order       the same within one operation of one producer
//	divergent-batch      one offset, two contents: of two replicas, two moments or two tiers
//	epoch-order          leader epochs fall along the offsets
//	offset-regress       an end or a start that was seen went back
//	G0, G1c              transactions that overwrite, or read, each other in a circle
//	zombie-commit        a producer whose transactional id was taken over commits
//	retransformed        a record was consumed and turned into output twice
//	untransformed        its offset is committed and its output is not there
//	uncommitted-output   its output is there and its offset is not committed
//	lost-commit          an offset that was acknowledged as committed has gone back
//	commit-regress       the same of one that the coordinator had told
//	invented-commit      the coordinator tells an offset that nobody has committed
//	owned-twice          a partition has two owners in one generation or epoch, or the next one had it before the last gave it up
//	unowned              a group is stable and a partition has no owner
//	assignment-changed   one epoch, two assignments
//	epoch-regress        a group's epoch went back
//	share-lost           a record was neither acknowledged nor delivered again
//	share-redelivered    a record came again after its acknowledgement, or rejection, was accepted
//	share-overdelivered  a record was delivered more often than is allowed
//	no-final             a group was used, and nothing tells what it has in the end: some of the above cannot be seen
//
// The first eleven and G0, G1c are after the passes of Jepsen's Kafka workload;
// the others ask more than it does. Consumers under subscribe may skip and
// repeat; transactions may be interleaved in the log, so that circles over the
// order of writes mean nothing: such findings are counted, and marked as legal.
//
// # Unclean elections
//
// Where an operator lets them happen, acknowledged records may be gone, and an
// offset may hold another one later. With Options.Unclean those findings are
// legal, and what is read at the end is held to all passes by itself.
//
// # Non-obvious
//
//   - What was read counts as much as what was acknowledged: a record that a
//     consumer has seen was committed.
//   - A partition may be trimmed. What lies below the highest start that was
//     ever seen is owed to nobody.
//   - A history in which nothing happened is found good by every pass. Report
//     has the counts; the caller says how many are enough.
package history
