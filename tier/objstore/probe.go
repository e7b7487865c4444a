package objstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"
)

// probePrefix is where CheckConditional writes and removes its object.
const probePrefix = "varve-probe/"

// probeTries bounds how often a probe is repeated that met another one.
const probeTries = 5

// CheckConditional finds out at start-up whether a store honours conditional puts, on which the fencing of writers
// rests: it creates, replaces and deletes a small object under a random key. A store that ignores the conditions, or
// does not know them, gives ErrCapability.
//
// Servers over a folder may refuse the key as none when another node's probe takes the folder away that both are in,
// as the nodes of a cluster that start together do: the key is tried again, as another one.
func CheckConditional(ctx context.Context, s Store) error {
	for try := 1; ; try++ {
		err := checkConditional(ctx, s)
		if try == probeTries || !errors.Is(err, ErrInvalidKey) || ctx.Err() != nil {
			return err
		}
	}
}

func checkConditional(ctx context.Context, s Store) error {
	p := prober{ctx: ctx, s: s, key: probePrefix + rand.Text()}
	err := p.run()
	// The probe's own object goes in any case, also when the caller's context has ended meanwhile.
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if delErr := s.Delete(clean, p.key); delErr != nil && err == nil {
		err = fmt.Errorf("remove the probe's object: %w", delErr)
	}
	if err != nil {
		return fmt.Errorf("check conditional puts: %w", err)
	}
	return nil
}

type prober struct {
	ctx context.Context
	s   Store
	key string
}

func (p *prober) run() error {
	if err := p.accepted("1", PutOptions{IfNoneMatch: true}); err != nil {
		return err
	}
	if err := p.refused("2", "1", PutOptions{IfNoneMatch: true}, "If-None-Match: *"); err != nil {
		return err
	}
	_, first, err := ReadAll(p.ctx, p.s, p.key, 1<<10)
	if err != nil {
		return err
	}
	if err := p.accepted("3", PutOptions{IfMatch: first.ETag}); err != nil {
		return err
	}
	return p.refused("4", "3", PutOptions{IfMatch: first.ETag}, "If-Match")
}

// accepted puts a value whose condition holds. When the answer was lost, the object itself tells.
func (p *prober) accepted(value string, o PutOptions) error {
	_, err := p.s.Put(p.ctx, p.key, Bytes([]byte(value)), o)
	if errors.Is(err, ErrUnknownOutcome) {
		if got, _, readErr := ReadAll(p.ctx, p.s, p.key, 1<<10); readErr == nil && string(got) == value {
			return nil
		}
	}
	if errors.Is(err, ErrPrecondition) {
		return p.lacks("a conditional put whose condition holds is refused", err)
	}
	return err
}

// refused puts a value whose condition does not hold, and checks that the object is as it was.
func (p *prober) refused(value, want string, o PutOptions, header string) error {
	_, err := p.s.Put(p.ctx, p.key, Bytes([]byte(value)), o)
	if err != nil && !errors.Is(err, ErrPrecondition) && !errors.Is(err, ErrUnknownOutcome) {
		return err
	}
	got, _, readErr := ReadAll(p.ctx, p.s, p.key, 1<<10)
	switch {
	case readErr != nil:
		return readErr
	case err == nil || string(got) != want:
		return p.lacks("PutObject ignores "+header, nil)
	}
	return nil
}

func (p *prober) lacks(what string, err error) error {
	return &Error{Op: OpPut, Place: placeOf(p.s), Key: p.key, Kind: ErrCapability, Detail: what +
		"; Varve needs compare-and-swap to fence writers: use a store that has it (AWS S3, MinIO, Ceph, R2, versitygw), " +
		"or accept the weaker varve.tier.fencing=lease", Err: err}
}
