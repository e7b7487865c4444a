package tier

import "github.com/varvelog/varve/meta/topic"

// effect is something the shell must do. Effects marked "answered" get exactly
// one event back.
type effect interface{ isEffect() }

// ref names a leadership: the partition and its generation.
type ref struct {
	p   topic.Partition
	gen uint64
}

type (
	fxLook struct { // answered: evLooked; sealed segments that end above, or all
		ref
		above int64
		all   bool
		judge int64 // offset whose leader epoch is asked for, −1 none
	}
	fxRoll struct{ ref } // answered: evRolled
	fxLoad struct {
		ref
		scrub         bool // and how far the archive was read
		timeoutMillis int64
	} // answered: evLoaded
	fxClaim struct { // answered: evClaimed
		ref
		epoch         int32
		fresh         bool // the outcome of a commit is open: read the bucket
		timeoutMillis int64
	}
	fxUpload struct { // answered: evUploaded
		ref
		id            uint64
		epoch         int32
		from, end     int64
		bytes         int64
		timeoutMillis int64
	}
	fxCommit struct { // answered: evCommitted
		ref
		edit          Edit
		timeoutMillis int64
	}
	fxOldest struct { // answered: evOldest
		ref
		n             int
		timeoutMillis int64
	}
	fxMarked struct { // answered: evMarked
		ref
		timeoutMillis int64
	}
	fxDelete struct { // answered: evDeleted
		ref
		ids           []MarkID
		keys          []string
		timeoutMillis int64
	}
	fxCollect struct { // answered: evCollected
		ref
		epoch          int32
		search         bool // only say whether there is anything that the manifest does not name
		orphans        bool
		survey         bool // and what is not there, or of another size, that it does
		lifetimeMillis int64
		timeoutMillis  int64
	}
	fxScrub struct { // answered: evScrubbed; read the next piece of the archive
		ref
		place         scrubPlace
		timeoutMillis int64
	}
	fxExamine struct { // answered: evExamined
		ref
		object        MarkID
		before        examined // as it was found before, zero for never
		timeoutMillis int64
	}
	fxMend struct { // answered: evMended; put an object anew from the local log
		ref
		id            uint64
		epoch         int32
		object        MarkID
		bytes         int64
		timeoutMillis int64
	}
	fxTell struct { // say what is known of an object
		ref
		tale  tale
		found examined
		err   error
	}
	fxSetRemoteEnd struct {
		ref
		end int64
	}
	fxAdvanceStart struct {
		ref
		offset int64
	} // answered: evStarted
	fxWatch struct {
		ref
		stable int64
	} // wake when the stable offset reaches it; MaxInt64 = never
	fxCancel  struct{ ref } // abandon what is in flight for this generation
	fxRelease struct {      // uploads that are settled (committed or given up): their keys are free
		ref
		ids []uint64
	}
	fxReport struct { // the watchdog speaks
		ref
		stuck   bool
		problem *Problem
		what    string
		since   int64
	}
)

func (fxLook) isEffect()         {}
func (fxRoll) isEffect()         {}
func (fxLoad) isEffect()         {}
func (fxClaim) isEffect()        {}
func (fxUpload) isEffect()       {}
func (fxCommit) isEffect()       {}
func (fxOldest) isEffect()       {}
func (fxMarked) isEffect()       {}
func (fxDelete) isEffect()       {}
func (fxCollect) isEffect()      {}
func (fxScrub) isEffect()        {}
func (fxExamine) isEffect()      {}
func (fxMend) isEffect()         {}
func (fxTell) isEffect()         {}
func (fxSetRemoteEnd) isEffect() {}
func (fxAdvanceStart) isEffect() {}
func (fxWatch) isEffect()        {}
func (fxCancel) isEffect()       {}
func (fxRelease) isEffect()      {}
func (fxReport) isEffect()       {}
