package tier

import (
	"errors"
	"fmt"
)

var (
	// ErrFenced is returned when the manifest is held by a newer leader epoch
	// than the one an edit or a claim was made under. The caller no longer leads.
	ErrFenced = errors.New("tier: fenced by a newer leader epoch")
	// ErrConflict is returned when an edit does not fit the committed manifest:
	// a segment that does not continue exactly at the archive's end, a purge of a
	// segment that was never marked, a replacement of other segments than those
	// committed. Nothing was changed.
	ErrConflict = errors.New("tier: edit does not fit the manifest")
	// ErrTooManyMarked is returned when an edit would leave more objects marked
	// for deletion than the head manifest may hold. Delete and purge first.
	ErrTooManyMarked = errors.New("tier: too many objects marked for deletion")
	// ErrBelowStart is returned when an offset lies below the archive's start.
	ErrBelowStart = errors.New("tier: offset below the archive's start")
	// ErrNotTiered is returned when an offset lies at or above the archive's end.
	ErrNotTiered = errors.New("tier: offset not in the archive")
	// ErrUnavailable is returned when the store could not be read or written for
	// now; the same call may succeed later.
	ErrUnavailable = errors.New("tier: object store unavailable")
	// ErrMissing is returned when an object that the committed manifest names is
	// not in the store. It wraps ErrUnavailable: the answer may be retried, but an
	// operator must look.
	ErrMissing = fmt.Errorf("tier: object missing from the store: %w", ErrUnavailable)
	// ErrCorrupt is returned when bytes from the store, or from a segment about to
	// be uploaded, fail their checks twice in a row. They are never served, cached
	// or uploaded. CorruptError says what and where.
	ErrCorrupt = errors.New("tier: corrupt data")
	// ErrUnsupported is returned when an object or manifest has a format version
	// that this build does not read.
	ErrUnsupported = errors.New("tier: unsupported format version")
	// ErrClosed is returned when the archive has been closed.
	ErrClosed = errors.New("tier: archive closed")
)

// CorruptError says which bytes failed their check. It unwraps to ErrCorrupt.
type CorruptError struct {
	Key    string // object key, or a segment's name when the bytes were local
	Offset int64  // byte position in the object, -1 when unknown
	Reason string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("tier: corrupt %s at byte %d: %s", e.Key, e.Offset, e.Reason)
}

func (e *CorruptError) Unwrap() error { return ErrCorrupt }

func corrupt(reason string, args ...any) error {
	return &CorruptError{Offset: -1, Reason: fmt.Sprintf(reason, args...)}
}
