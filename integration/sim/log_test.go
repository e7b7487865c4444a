package sim

import (
	"fmt"

	"github.com/varvelog/varve/hot/lineage"
	"github.com/varvelog/varve/replica/isr"
)

// record is one record of one batch; its value is written once in a simulation.
type record struct {
	epoch int32
	value int64
	at    int64 // wall clock of its leader
}

// diskLog is a partition's directory on one broker. Written bytes survive the
// process; only synced ones survive the power.
type diskLog struct {
	logStart  int64
	start     int64 // first offset that is here
	records   []record
	durable   int64
	chain     lineage.Chain
	hw        int64
	hwSaved   int64   // the checkpoint
	rolls     []int64 // where segments begin, the first at start
	remoteEnd int64
	had       int64 // a checkpoint's watermark beyond the end that a disk has lost
	hadEpoch  int32
}

func newLog(at int64) *diskLog {
	return &diskLog{logStart: at, start: at, durable: at, hw: at, hwSaved: at, rolls: []int64{at}, remoteEnd: -1}
}

func (l *diskLog) end() int64 { return l.start + int64(len(l.records)) }

func (l *diskLog) at(offset int64) record { return l.records[offset-l.start] }

func (l *diskLog) append(r record) {
	if l.chain.Latest() < r.epoch {
		l.chain = l.chain.Assign(r.epoch, l.end())
	}
	l.records = append(l.records, r)
}

// from are up to n records from offset on.
func (l *diskLog) from(offset int64, n int) []record {
	rest := l.records[offset-l.start:]
	return rest[:min(n, len(rest))]
}

// truncate cuts the log at end; the cut is durable.
func (l *diskLog) truncate(end int64) {
	l.records = l.records[:max(end-l.start, 0)]
	l.chain = l.chain.TruncateEnd(end)
	l.durable, l.hw, l.hwSaved = min(l.durable, end), min(l.hw, end), min(l.hwSaved, end)
	for len(l.rolls) > 1 && l.rolls[len(l.rolls)-1] >= end {
		l.rolls = l.rolls[:len(l.rolls)-1]
	}
}

// restart begins anew at an offset with nothing in it but the lineage below.
func (l *diskLog) restart(at, logStart int64, chain lineage.Chain) {
	had, epoch := l.had, l.hadEpoch
	*l = *newLog(at)
	l.had, l.hadEpoch = had, epoch
	l.logStart, l.chain = min(logStart, at), chain.TruncateEnd(at)
}

// raiseStart raises the log start: what lies below may not be read any more.
func (l *diskLog) raiseStart(to int64) {
	if to <= l.logStart {
		return
	}
	l.logStart = min(to, l.end())
	l.drop(l.logStart)
	l.hw = max(l.hw, l.logStart)
	if l.remoteEnd < 0 {
		l.chain = l.chain.TruncateStart(min(l.logStart, l.start))
	}
}

// drop removes whole segments that end at or below to.
func (l *diskLog) drop(to int64) {
	for len(l.rolls) > 1 && l.rolls[1] <= to {
		l.records = append([]record(nil), l.records[l.rolls[1]-l.start:]...)
		l.start = l.rolls[1]
		l.rolls = l.rolls[1:]
		l.durable = max(l.durable, l.start)
	}
}

func (l *diskLog) roll() {
	if l.end() > l.rolls[len(l.rolls)-1] {
		l.rolls = append(l.rolls, l.end())
	}
}

// power is what is left after a power loss: what was synced, and by chance some
// of what was not.
func (l *diskLog) power(extra int64) {
	end := min(l.durable+extra, l.end())
	hw := l.hwSaved
	if end < l.end() {
		l.truncate(end)
	}
	l.hw, l.hwSaved = min(hw, end), min(hw, end)
	if end < l.logStart { // all that is left was deleted
		l.restart(l.logStart, l.logStart, nil)
	}
}

// rot is a disk that loses the end of what it had synced, down to an offset below
// the watermark that its journal still names.
func (l *diskLog) rot(to int64) {
	l.had, l.hadEpoch = max(l.had, l.hwSaved), max(l.hadEpoch, l.chain.Latest())
	l.truncate(to)
}

// lost says that the log's end was missing, and nobody has found it complete since.
func (l *diskLog) lost() bool { return l.had > 0 }

// localStart is the first offset that may be read here.
func (l *diskLog) localStart() int64 { return max(l.start, l.logStart) }

// view is the log as the cores see it.
func (l *diskLog) view(fsync, tiered bool) isr.View {
	v := isr.View{
		LogStart: l.logStart, LocalStart: l.localStart(), End: l.end(), Counted: l.end(),
		HighWatermark: l.hw, Lineage: l.chain, Tiered: tiered,
	}
	if fsync {
		v.Counted = l.durable
	}
	return v
}

func (l *diskLog) String() string {
	return fmt.Sprintf("[%d %d %d..%d) hw %d durable %d lineage %s", l.logStart, l.remoteEnd, l.start, l.end(), l.hw, l.durable, l.chain)
}
