package tier

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/varvelog/varve/tier/objstore"
)

// Waits between the tries of a commit whose answer is open.
const (
	commitWaitMin = 20 * time.Millisecond
	commitWaitMax = 2 * time.Second
)

func randomUint64() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return binary.BigEndian.Uint64(b[:])
}

// Claim makes epoch the one that holds the manifest, creating the manifest when
// there is none: from then on edits under older epochs fail with ErrFenced. A
// leader claims before its first upload. After Claim the local copy is known to
// be current, and State and Find need no request.
func (r *Remote) Claim(ctx context.Context, epoch int32) error {
	if err := r.committing.lock(ctx); err != nil {
		return fmt.Errorf("claim %s: %w", r.p, err)
	}
	defer r.committing.unlock()
	m := r.known()
	if m == nil {
		// Never heard of: most likely there is no head, and the put is refused
		// if there is one.
		m = emptyManifest(r.p.ID, r.p.Index)
	}
	var err error
	if m.leaderEpoch == epoch && !r.trusted.Load() {
		// Claimed by this leader before a restart: only the bucket knows what
		// came of the last commit.
		if m, err = r.refresh(ctx); err != nil {
			return fmt.Errorf("claim %s: %w", r.p, err)
		}
	}
	if m.leaderEpoch == epoch {
		r.trusted.Store(true)
		return nil
	}
	if err := r.change(ctx, m, &Edit{LeaderEpoch: epoch}); err != nil {
		return fmt.Errorf("claim %s: %w", r.p, err)
	}
	return nil
}

// Commit applies edit to the committed manifest: all of it or nothing. It
// retries lost races and lost answers by reading the manifest again, so nil
// means committed, and ErrFenced, ErrConflict and ErrTooManyMarked mean not
// committed. Any other error leaves the outcome open: the caller must not delete
// anything on its account, and may call Refresh and look.
func (r *Remote) Commit(ctx context.Context, edit Edit) error {
	if err := r.committing.lock(ctx); err != nil {
		return fmt.Errorf("commit %s: %w", r.p, err)
	}
	defer r.committing.unlock()
	m, err := r.load(ctx)
	if err != nil {
		return fmt.Errorf("commit %s: %w", r.p, err)
	}
	if err := r.change(ctx, m, &edit); err != nil {
		return fmt.Errorf("commit %s: %w", r.p, err)
	}
	return nil
}

// change runs the compare-and-swap loop of one edit from the manifest m on. The
// edit carries a random id, kept in the head, by which it is known again when
// the answer to its put was lost. A put that arrives late cannot do harm: it
// is conditional on a head that is gone by then, or it is the edit itself.
func (r *Remote) change(ctx context.Context, m *manifest, edit *Edit) error {
	ctx, cancel := context.WithTimeout(ctx, r.a.cfg.CommitTimeout)
	defer cancel()
	id := randomUint64()
	fresh := false // m was read from the bucket within this call
	for wait := commitWaitMin; ; wait = min(2*wait, commitWaitMax) {
		next, made, err := applyEdit(m, edit, id, func(ref pageRef) (*page, error) { return r.loadPage(ctx, ref) }, randomUint64)
		if err != nil {
			if fresh || r.trusted.Load() {
				return err
			}
			// What this process knows may be old: the bucket decides.
			if m, err = r.refresh(ctx); err != nil {
				return err
			}
			fresh = true
			continue
		}
		err = r.swap(ctx, next, made)
		if err == nil {
			r.trusted.Store(true)
			return nil
		}
		if final(err) {
			return err
		}
		if !errors.Is(err, objstore.ErrPrecondition) || fresh {
			// Unavailable, or refused although the head had just been read.
			if sleep(ctx, wait) != nil {
				return storeError("put head", err)
			}
		}
		r.trusted.Store(false) // until the edit is in, others may have the manifest
		if m, err = r.refreshUntil(ctx, &wait); err != nil {
			return err
		}
		fresh = true
		if m.hasEdit(id) {
			r.trusted.Store(m.leaderEpoch == edit.LeaderEpoch)
			return nil
		}
	}
}

// final says that trying again cannot help: the store understood and refused.
func final(err error) bool {
	return errors.Is(err, objstore.ErrDenied) || errors.Is(err, objstore.ErrRejected) || errors.Is(err, objstore.ErrNoBucket) ||
		errors.Is(err, objstore.ErrCapability) || errors.Is(err, objstore.ErrInvalidKey) || errors.Is(err, ErrCorrupt)
}

// refreshUntil reads the head, waiting out a store that is unavailable: the
// outcome of an edit is known only once it answers.
func (r *Remote) refreshUntil(ctx context.Context, wait *time.Duration) (*manifest, error) {
	for {
		m, err := r.refresh(ctx)
		if err == nil || !errors.Is(err, objstore.ErrUnavailable) {
			return m, err
		}
		if sleep(ctx, *wait) != nil {
			return nil, err
		}
		*wait = min(2**wait, commitWaitMax)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// swap puts the new pages, then the head over the one next was made from.
func (r *Remote) swap(ctx context.Context, next *manifest, made []madePage) error {
	bodies := make(map[pageKey][]byte, len(made))
	for _, p := range made {
		ref := &next.pages[p.index]
		body := p.body.encode(r.p.ID, r.p.Index)
		ref.size, ref.crc = uint32(len(body)), crc32c(body)
		if err := r.putPage(ctx, ref, body); err != nil {
			return err
		}
		bodies[pageKey{r.key, ref.id}] = body
	}
	body := next.encode()
	crc := crc32c(body)
	o := objstore.PutOptions{IfMatch: next.etag, IfNoneMatch: next.etag == "", CRC32C: &crc}
	obj, err := r.a.deps.Store.Put(ctx, r.headKey(), objstore.Bytes(body), o)
	if err != nil {
		return err
	}
	next.etag = obj.ETag
	for _, p := range made {
		r.a.pages.put(pageKey{r.key, next.pages[p.index].id}, &p.body)
	}
	r.publish(next, body, bodies)
	return nil
}

// putPage writes a page under its new, random name. A refusal because the name
// exists can only come of our own try before: the bytes tell.
func (r *Remote) putPage(ctx context.Context, ref *pageRef, body []byte) error {
	key := r.pageKey(ref.id)
	_, err := r.a.deps.Store.Put(ctx, key, objstore.Bytes(body), objstore.PutOptions{IfNoneMatch: true, CRC32C: &ref.crc})
	if !errors.Is(err, objstore.ErrPrecondition) && !errors.Is(err, objstore.ErrUnknownOutcome) {
		return err
	}
	got, _, rerr := objstore.ReadAll(ctx, r.a.deps.Store, key, pageBytesMax)
	switch {
	case rerr != nil:
		// Not there, or not known: the next try takes a new name.
		return fmt.Errorf("%w: put page: %w", objstore.ErrUnavailable, errors.Join(err, rerr))
	case crc32c(got) != ref.crc || len(got) != int(ref.size):
		return &CorruptError{Key: key, Offset: -1, Reason: "store holds another page"}
	}
	return nil
}
