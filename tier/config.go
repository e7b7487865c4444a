package tier

import (
	"errors"
	"log/slog"
	"time"

	"github.com/varvelog/varve/tier/objstore"
)

// Config bounds the archive's memory and its use of the store.
type Config struct {
	// Prefix is put before every key, without a trailing slash; empty for none.
	Prefix string
	// CacheBytes bounds the chunk cache, decoded chunks and chunks being read
	// together (varve.tier.cache.bytes).
	CacheBytes int64
	// IndexCacheBytes bounds the cache of object indexes.
	IndexCacheBytes int64
	// ManifestCacheBytes bounds the manifests and pages kept decoded in memory;
	// the others are read again from the local database. Without a database all
	// heads stay in memory.
	ManifestCacheBytes int64
	// ReadParallelism is the number of chunk GETs in flight
	// (varve.tier.read.parallelism).
	ReadParallelism int
	// ReadRangeBytes is the largest range of stored bytes asked for in one GET.
	ReadRangeBytes int64
	// GetTimeout bounds one GET, from the request to its last byte.
	GetTimeout time.Duration
	// CommitTimeout bounds one manifest commit, with its retries.
	CommitTimeout time.Duration
	// UploadMemoryBytes bounds the compressed chunks that uploads keep until they
	// are sent, all together; what does not fit is compressed twice.
	UploadMemoryBytes int64
}

// DefaultConfig returns the documented defaults.
func DefaultConfig() Config {
	return Config{
		CacheBytes:         256 << 20,
		IndexCacheBytes:    32 << 20,
		ManifestCacheBytes: 32 << 20,
		ReadParallelism:    12,
		ReadRangeBytes:     8 << 20,
		GetTimeout:         30 * time.Second,
		CommitTimeout:      60 * time.Second,
		UploadMemoryBytes:  64 << 20,
	}
}

// Validate says what is wrong with c, or nil.
func (c Config) Validate() error {
	switch {
	case c.CacheBytes < 4*chunkBytes:
		return errors.New("tier: cache bytes must hold at least four chunks (4 MiB)")
	case c.IndexCacheBytes < 1<<20:
		return errors.New("tier: index cache bytes must be at least 1 MiB")
	case c.ManifestCacheBytes < 1<<20:
		return errors.New("tier: manifest cache bytes must be at least 1 MiB")
	case c.ReadParallelism < 1:
		return errors.New("tier: read parallelism must be at least 1")
	case c.ReadRangeBytes < chunkBytes:
		return errors.New("tier: read range bytes must be at least one chunk (1 MiB)")
	case c.UploadMemoryBytes < 0:
		return errors.New("tier: upload memory bytes must not be negative")
	case c.GetTimeout <= 0 || c.CommitTimeout <= 0:
		return errors.New("tier: timeouts must be positive")
	}
	return nil
}

// Deps are the components the archive stands on.
type Deps struct {
	Store  objstore.Store
	DB     string       // path of the local manifest cache (bbolt); empty keeps it in memory only
	Logger *slog.Logger // nil discards
}
