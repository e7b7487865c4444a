package broker

import "github.com/varvelog/varve/coordinator/share"

// ShareStats is what this broker does for share groups.
type ShareStats struct {
	Sessions, SessionParts, Evicted int64 // sessions, the partitions that they name, and how many ended with their connections
	Parts, InFlight, Runs           int64 // share-partitions in memory, records that they hold, and in how many stretches
	Expired                         int64 // records whose locks have run out
	Loads, LoadNanos                int64 // share-partitions loaded
	Accepted, Released, Rejected    int64 // acknowledgements by type
	Renewed                         int64
	Fetched, FetchedAcquired        int64 // partitions that share fetches asked for, and those of which they got records
	DeadLetterRequests              int64 // batches of dead letters
	DeadLettersFailed               int64
	DeadLetterRecords               int64
	AnswerBytes                     int64 // of records on their way to members
}

func (x *shares) statistics() ShareStats {
	c := &x.stats
	s := ShareStats{
		Evicted: c.evicted.Load(), Expired: c.expired.Load(), Loads: c.loads.Load(), LoadNanos: c.loadNanos.Load(),
		Accepted: c.acknowledged[share.Accept].Load(), Released: c.acknowledged[share.Release].Load(),
		Rejected: c.acknowledged[share.Reject].Load(), Renewed: c.acknowledged[share.Renew].Load(),
		Fetched: c.fetched.Load(), FetchedAcquired: c.fetchedAcquired.Load(), DeadLetterRequests: c.letters.Load(),
		DeadLettersFailed: c.lettersFailed.Load(), DeadLetterRecords: c.letterRecords.Load(), AnswerBytes: x.held.Load(),
	}
	x.mu.Lock()
	s.Sessions, s.SessionParts, s.Parts = int64(len(x.sessions)), int64(x.parts), int64(len(x.byKey))
	parts := make([]*sharePart, 0, len(x.byKey))
	for _, p := range x.byKey {
		parts = append(parts, p)
	}
	x.mu.Unlock()
	for _, p := range parts {
		p.mu.Lock()
		if p.core != nil {
			s.InFlight += int64(p.core.InFlight())
			s.Runs += int64(p.core.Runs())
		}
		p.mu.Unlock()
	}
	return s
}
