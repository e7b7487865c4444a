package tier

import (
	"context"
	"errors"
)

// secondLook runs a read on the manifest at hand and, when something that this names
// is not there, once more on the one read afresh: it may have been deleted since
// (T12). What is damaged is read again only when the manifest has changed. What is
// missing then is an error to be tried again, and an operator must look.
func secondLook[T any](ctx context.Context, r *Remote, read func(*manifest) (T, error)) (T, error) {
	var none T
	m, err := r.load(ctx)
	if err != nil {
		return none, err
	}
	v, err := read(m)
	if errors.Is(err, ErrCorrupt) { // it may have been put anew
		if fresh, rerr := r.refresh(ctx); rerr == nil && fresh.sequence != m.sequence {
			return read(fresh)
		}
		return v, err
	}
	if !errors.Is(err, ErrMissing) {
		return v, err
	}
	if m, err = r.refresh(ctx); err != nil {
		return none, err
	}
	return read(m)
}
