package coordinator

// txnEnds knows when transactions have ended in a partition of the offsets topic. A commit in a transaction relies on the
// transaction's coordinator having said that the transaction is open. Between that answer and the commit a marker may end that very
// transaction: without more, the commit would be part of one that nobody ends, and its offsets unstable for good (KIP-890). So
// whoever verifies asks for the number of ends first (Coordinator.TxnGuard), and gives it with the commit.
//
// Ends of the last endsKept markers are known by producer. A guard that is older than those is taken for one that has been
// overtaken: asking again costs little.
type txnEnds struct {
	count     uint64 // of ends, on top of what no other state of this process has counted up to
	forgotten uint64 // ends up to this one are not known by producer
	last      map[int64]uint64
	order     []endedTxn // the oldest first
}

type endedTxn struct {
	producer int64
	at       uint64
}

// endsKept bounds how many ends are known by producer: 32 bytes each. At a thousand transactions a second that is the last
// four seconds, and verifying takes milliseconds.
const endsKept = 4096

// begin makes this the state number n of the process: guards of others do not hold here.
func (t *txnEnds) begin(n uint64) { t.count, t.forgotten = n<<32, n<<32 }

// ended notes a marker.
func (t *txnEnds) ended(producer int64) {
	if t.last == nil {
		t.last = make(map[int64]uint64)
	}
	t.count++
	t.last[producer] = t.count
	t.order = append(t.order, endedTxn{producer, t.count})
	if len(t.order) <= endsKept {
		return
	}
	old := t.order[0]
	t.order = t.order[1:]
	t.forgotten = old.at
	if t.last[old.producer] == old.at {
		delete(t.last, old.producer)
	}
}

// overtaken says whether a transaction of the producer may have ended since the guard was given.
func (t *txnEnds) overtaken(producer int64, guard uint64) bool {
	return guard < t.forgotten || t.last[producer] > guard
}
