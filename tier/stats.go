package tier

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// ReadStats counts what the archive's readers did since the start. Bytes are
// raw unless said otherwise.
type ReadStats struct {
	Reads          int64 // Read calls
	ReadErrors     int64 // Read calls that failed, other than for an offset outside the archive
	ReadBytes      int64 // returned
	Lookups        int64 // time lookups
	LookupErrors   int64
	ChunkHits      int64 // chunks a call found at hand
	ChunkWaits     int64 // chunks a call waited for
	Fetches        int64 // GETs of chunk ranges
	FetchedBytes   int64 // stored bytes of the chunks that came
	AheadFetches   int64 // of Fetches, those that no one waited for yet
	IndexFetches   int64 // GETs of indexes
	Damaged        int64 // chunks or indexes that failed a check
	CacheBytes     int64 // in the chunk cache now
	CacheBytesMax  int64
	IndexBytes     int64 // in the index cache now
	ManifestBytes  int64 // decoded manifests and pages in memory now
	FetchesPending int64 // chunks asked for and not there yet
}

// readCounters are the counting part of ReadStats.
type readCounters struct {
	reads, readErrors, readBytes        atomic.Int64
	lookups, lookupErrors               atomic.Int64
	chunkHits, chunkWaits               atomic.Int64
	fetches, fetchedBytes, aheadFetches atomic.Int64
	indexFetches, damaged               atomic.Int64
}

// ReadStats returns the counts so far.
func (a *Archive) ReadStats() ReadStats {
	c := &a.counts
	s := ReadStats{
		Reads: c.reads.Load(), ReadErrors: c.readErrors.Load(), ReadBytes: c.readBytes.Load(),
		Lookups: c.lookups.Load(), LookupErrors: c.lookupErrors.Load(),
		ChunkHits: c.chunkHits.Load(), ChunkWaits: c.chunkWaits.Load(),
		Fetches: c.fetches.Load(), FetchedBytes: c.fetchedBytes.Load(), AheadFetches: c.aheadFetches.Load(),
		IndexFetches: c.indexFetches.Load(), Damaged: c.damaged.Load(),
		CacheBytesMax: a.cfg.CacheBytes,
	}
	s.CacheBytes, _ = a.reader.chunks.stats()
	s.IndexBytes, _ = a.indexes.stats()
	heads, _ := a.manifests.stats()
	pages, _ := a.pages.stats()
	s.ManifestBytes = heads + pages
	a.reader.mu.Lock()
	s.FetchesPending = int64(len(a.reader.pending))
	a.reader.mu.Unlock()
	return s
}

// complaints logs read failures at most once per interval, with the number of
// those left out: an outage fails every read of every consumer.
type complaints struct {
	mu      sync.Mutex // guards the following
	last    time.Time
	omitted int
}

const complaintInterval = time.Second

func (c *complaints) warn(log *slog.Logger, msg string, args ...any) {
	c.mu.Lock()
	now := time.Now()
	if now.Sub(c.last) < complaintInterval {
		c.omitted++
		c.mu.Unlock()
		return
	}
	omitted := c.omitted
	c.last, c.omitted = now, 0
	c.mu.Unlock()
	log.Warn(msg, append(args, "omitted", omitted)...)
}
