package tier

import "github.com/varvelog/varve/hot/lineage"

// mutant selects a deliberately broken build of the core. The simulator runs
// each and must turn red: a check that no mistake can fail proves nothing.
// Nothing but tests sets it.
type mutant int

const (
	mutantNone mutant = iota
	mutantCommitBeforeUpload
	mutantReleaseEarly
	mutantIgnoreEpoch
	mutantDeleteOnUnknown
	mutantNoGrace
	mutantWallGrace
	mutantDoubleCount
	mutantUploadUnstable
	mutantCollectYoung
	mutantNoCollection
	mutantNoSearch
	mutantStartNotCommitted
	mutantMendSound
)

// fakeDone lets the commit go ahead of the upload.
func (p *partition) fakeDone(u *upload) {
	u.state = uploadDone
	u.add = AddSegment{Segment: RemoteSegment{
		ID:  SegmentID{Base: u.from, Epoch: p.epoch, Random: u.id},
		End: u.end, RawBytes: u.bytes, StoredBytes: u.bytes, MaxTimestamp: NoTimestamp, MinTimestamp: NoTimestamp,
		lookupAt: 1, lookupBytes: u.bytes - 1,
	}, Lineage: lineage.Chain{{Epoch: p.epoch, Start: u.from}}}
}

// deleteUncommitted removes the objects of a commit whose outcome is unknown.
func (p *partition) deleteUncommitted(c *core) {
	for _, u := range p.uploads {
		if u.state == uploadDone {
			p.deletes++
			c.deleteSlots.used++
			c.emit(fxDelete{ref: p.ref(), keys: []string{u.key}, timeoutMillis: c.cfg.callMillis})
		}
	}
}
