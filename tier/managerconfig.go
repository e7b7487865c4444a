package tier

import (
	"errors"
	"log/slog"
	"time"

	"github.com/varvelog/varve/meta/topic"
)

// ManagerConfig bounds the manager's work.
type ManagerConfig struct {
	Uploads             int // uploads at once in the process (remote.log.manager.copier.thread.pool.size)
	UploadsPerPartition int // uploads of one partition at once; their commits stay in order
	Deletes             int // delete requests at once (remote.log.manager.expiration.thread.pool.size)
	Calls               int // manifest calls at once

	// UploadBytesPerSecond limits what uploads send, all together: the lower of
	// remote.log.manager.copy.max.bytes.per.second and
	// varve.tier.upload.max.bytes.per.second. ≤ 0 is no limit.
	UploadBytesPerSecond int64

	// DeleteGrace is how long a marked object stays readable
	// (varve.tier.delete.grace.ms).
	DeleteGrace time.Duration
	// DeleteBatch is the number of objects of one delete request.
	DeleteBatch int

	// UploadTimeout plus one second for each UploadMinRate bytes is the hard
	// deadline of an upload, but never more than UploadTimeoutMax.
	UploadTimeout    time.Duration
	UploadMinRate    int64
	UploadTimeoutMax time.Duration
	// CallTimeout is the hard deadline of every other call.
	CallTimeout time.Duration
	// CollectTimeout is the hard deadline of one orphan collection.
	CollectTimeout time.Duration

	// StuckAfter is how long a partition with work may go without progress before
	// the watchdog reports it.
	StuckAfter time.Duration

	// RecheckAfter bounds how long a partition with data is left unlooked at,
	// whatever wakes were missed. It costs no request.
	RecheckAfter time.Duration

	// OrphanSearch is how often a leader looks for objects in the bucket that no
	// manifest names and nobody tells of (varve.tier.orphan.search.interval.ms): a list
	// request for each thousand objects of a partition. The first search of a leadership
	// comes once uploads of the leader before must be over, within a seventh of it. 0
	// turns it off.
	OrphanSearch time.Duration

	// Survey is how often a leader compares names and sizes in the bucket with its
	// manifest (varve.tier.scrub.interval.ms), by the listing of the orphan search where
	// both are due. 0 turns it off.
	Survey time.Duration
	// ReadEvery is how often every object is read and its checksum compared
	// (varve.tier.scrub.read.interval.ms). 0 turns it off.
	ReadEvery time.Duration
	// ScrubBytesPerSecond and ScrubRequestsPerDay limit that reading, of all partitions
	// together. 0 is no limit.
	ScrubBytesPerSecond int64
	ScrubRequestsPerDay int64

	// DisableCollection turns orphan collection off, for buckets that must be
	// immutable.
	DisableCollection bool

	Seed uint64 // of the jitter; 0 draws one
}

// DefaultManagerConfig returns the documented defaults.
func DefaultManagerConfig() ManagerConfig {
	return ManagerConfig{
		Uploads:             10,
		UploadsPerPartition: 4,
		Deletes:             10,
		Calls:               16,
		DeleteGrace:         15 * time.Minute,
		DeleteBatch:         500,
		UploadTimeout:       60 * time.Second,
		UploadMinRate:       256 << 10,
		UploadTimeoutMax:    3 * time.Hour,
		CallTimeout:         90 * time.Second,
		CollectTimeout:      10 * time.Minute,
		StuckAfter:          5 * time.Minute,
		RecheckAfter:        15 * time.Minute,
		OrphanSearch:        7 * 24 * time.Hour,
		Survey:              7 * 24 * time.Hour,
		ScrubBytesPerSecond: 4 << 20,
		ScrubRequestsPerDay: 20_000,
	}
}

// Validate says what is wrong with c, or nil.
func (c ManagerConfig) Validate() error {
	switch {
	case c.Uploads < 1 || c.UploadsPerPartition < 1 || c.Deletes < 1 || c.Calls < 1:
		return errors.New("tier: uploads, uploads per partition, deletes and calls must be at least 1")
	case c.DeleteBatch < 1 || c.DeleteBatch > 1000:
		return errors.New("tier: delete batch must be between 1 and 1000")
	case c.OrphanSearch < 0:
		return errors.New("tier: the interval of orphan searches must not be negative")
	case c.Survey < 0 || c.ReadEvery < 0 || c.ScrubBytesPerSecond < 0 || c.ScrubRequestsPerDay < 0:
		return errors.New("tier: intervals and limits of scrubs must not be negative")
	case c.DeleteGrace < 0:
		return errors.New("tier: delete grace must not be negative")
	case c.UploadTimeout <= 0 || c.UploadMinRate < 1 || c.UploadTimeoutMax < c.UploadTimeout:
		return errors.New("tier: upload timeout and minimum rate must be positive, and the largest timeout no less than the base")
	case c.CallTimeout <= 0 || c.CollectTimeout <= 0 || c.StuckAfter <= 0 || c.RecheckAfter <= 0:
		return errors.New("tier: timeouts must be positive")
	}
	return nil
}

// ManagerDeps are the components the manager stands on.
type ManagerDeps struct {
	Logger *slog.Logger // nil discards
	// JournalPath is a file that remembers topic deletions until they are done;
	// empty keeps them in memory only.
	JournalPath string
	// Removed, when set, is told when a removal that TopicDeleted began is done:
	// nothing of the partition is left in the bucket. No lock is held.
	Removed func(p topic.Partition)
}
