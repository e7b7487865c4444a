package tier

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/varvelog/varve/meta/boltfile"
)

// manifestDB is the node's copy of manifests, one bbolt file: a restart reads
// nothing from the bucket before the first request needs it. It is a cache: the
// bucket is the truth, and an entry that does not decode counts as absent.
//
// Buckets, version 1:
//
//	heads: topic id (16), partition (4) -> CRC-32C of the rest (4), length of the
//	       ETag (2), ETag, head object. An empty ETag says that the bucket has no head.
//	pages: topic id (16), partition (4), base (8), epoch (4), random (8) -> page object
//	scrub: topic id (16), partition (4) -> CRC-32C of the rest (4), wall clock in ms when
//	       the pass began (8), offset at which it goes on, -1 when it is over (8)
type manifestDB struct {
	db *bolt.DB // nil keeps nothing
}

var (
	bucketHeads = []byte("heads-1")
	bucketPages = []byte("pages-1")
	bucketScrub = []byte("scrub-1")
)

func openManifestDB(path string, log *slog.Logger) (*manifestDB, error) {
	if path == "" {
		return &manifestDB{}, nil
	}
	options := &bolt.Options{Timeout: 5 * time.Second, FreelistType: bolt.FreelistMapType}
	if err := boltfile.Check(path, *options); errors.Is(err, boltfile.ErrDamaged) {
		// A copy is no loss: it is set aside and the bucket read again.
		log.Warn("manifest cache is damaged, starting afresh", "file", path, "err", err)
		if err := os.Rename(path, path+".damaged"); err != nil {
			return nil, fmt.Errorf("set damaged manifest cache aside: %w", err)
		}
	} else if err != nil {
		return nil, fmt.Errorf("open manifest cache: %w", err)
	}
	db, err := bolt.Open(path, 0o600, options)
	if err != nil {
		return nil, fmt.Errorf("open manifest cache %s: %w", path, err)
	}
	db.MaxBatchDelay = 2 * time.Millisecond // how long a lone commit waits for company
	err = db.Update(func(tx *bolt.Tx) error {
		_, err1 := tx.CreateBucketIfNotExists(bucketHeads)
		_, err2 := tx.CreateBucketIfNotExists(bucketPages)
		_, err3 := tx.CreateBucketIfNotExists(bucketScrub)
		return errors.Join(err1, err2, err3)
	})
	if err != nil {
		db.Close()
		return nil, fmt.Errorf("prepare manifest cache %s: %w", path, err)
	}
	return &manifestDB{db: db}, nil
}

func (d *manifestDB) close() error {
	if d.db == nil {
		return nil
	}
	return d.db.Close()
}

func (k partitionKey) append(b []byte) []byte {
	b = append(b, k.topic[:]...)
	return binary.BigEndian.AppendUint32(b, uint32(k.index))
}

func (k pageKey) bytes() []byte {
	b := k.partition.append(make([]byte, 0, 40))
	b = binary.BigEndian.AppendUint64(b, uint64(k.id.Base))
	b = binary.BigEndian.AppendUint32(b, uint32(k.id.Epoch))
	return binary.BigEndian.AppendUint64(b, k.id.Random)
}

// head returns the cached head object and its ETag.
func (d *manifestDB) head(k partitionKey) (body []byte, etag string, ok bool) {
	if d.db == nil {
		return nil, "", false
	}
	_ = d.db.View(func(tx *bolt.Tx) error {
		v := tx.Bucket(bucketHeads).Get(k.append(nil))
		if len(v) < 6 || crc32c(v[4:]) != binary.BigEndian.Uint32(v) {
			return nil
		}
		n := int(binary.BigEndian.Uint16(v[4:]))
		if len(v) < 6+n {
			return nil
		}
		etag, body, ok = string(v[6:6+n]), append([]byte(nil), v[6+n:]...), true
		return nil
	})
	return body, etag, ok
}

// putHead stores the head object and the pages that came with it, in one
// synced transaction shared with others that commit at the same time.
func (d *manifestDB) putHead(k partitionKey, etag string, body []byte, pages map[pageKey][]byte) error {
	if d.db == nil {
		return nil
	}
	v := make([]byte, 4, 6+len(etag)+len(body))
	v = binary.BigEndian.AppendUint16(v, uint16(len(etag)))
	v = append(append(v, etag...), body...)
	binary.BigEndian.PutUint32(v, crc32c(v[4:]))
	return d.db.Batch(func(tx *bolt.Tx) error {
		for pk, b := range pages {
			if err := tx.Bucket(bucketPages).Put(pk.bytes(), b); err != nil {
				return err
			}
		}
		return tx.Bucket(bucketHeads).Put(k.append(nil), v)
	})
}

func (d *manifestDB) page(k pageKey) ([]byte, bool) {
	if d.db == nil {
		return nil, false
	}
	var body []byte
	_ = d.db.View(func(tx *bolt.Tx) error {
		body = append(body, tx.Bucket(bucketPages).Get(k.bytes())...)
		return nil
	})
	return body, len(body) > 0
}

func (d *manifestDB) putPage(k pageKey, body []byte) error {
	if d.db == nil {
		return nil
	}
	return d.db.Batch(func(tx *bolt.Tx) error { return tx.Bucket(bucketPages).Put(k.bytes(), body) })
}

// dropPages forgets the pages of k that keep does not name.
func (d *manifestDB) dropPages(k partitionKey, keep func(SegmentID) bool) error {
	if d.db == nil {
		return nil
	}
	return d.db.Batch(func(tx *bolt.Tx) error {
		prefix := k.append(nil)
		c := tx.Bucket(bucketPages).Cursor()
		var gone [][]byte
		for key, _ := c.Seek(prefix); len(key) == 40 && string(key[:20]) == string(prefix); key, _ = c.Next() {
			id := SegmentID{
				Base:   int64(binary.BigEndian.Uint64(key[20:])),
				Epoch:  int32(binary.BigEndian.Uint32(key[28:])),
				Random: binary.BigEndian.Uint64(key[32:]),
			}
			if !keep(id) {
				gone = append(gone, append([]byte(nil), key...))
			}
		}
		for _, key := range gone {
			if err := tx.Bucket(bucketPages).Delete(key); err != nil {
				return err
			}
		}
		return nil
	})
}

// forget drops everything about k.
func (d *manifestDB) forget(k partitionKey) error {
	if d.db == nil {
		return nil
	}
	err := d.db.Batch(func(tx *bolt.Tx) error {
		return errors.Join(tx.Bucket(bucketHeads).Delete(k.append(nil)), tx.Bucket(bucketScrub).Delete(k.append(nil)))
	})
	if errors.Is(err, bolterrors.ErrDatabaseNotOpen) {
		return ErrClosed
	}
	return errors.Join(err, d.dropPages(k, func(SegmentID) bool { return false }))
}
