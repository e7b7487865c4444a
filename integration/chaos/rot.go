//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"
)

// What a broker has beside its records is damaged while it is down: it must make that anew, or not start.

// rotOf damages files that a broker has of a kind, at most so many of them, by a bit each. names are patterns below its data directory.
func (n *nemesis) rotOf(b *broker, most int, names ...string) (rotten []string, err error) {
	var all []string
	for _, name := range names {
		files, err := filepath.Glob(filepath.Join(b.data, name))
		if err != nil {
			return nil, err
		}
		all = append(all, files...)
	}
	for _, i := range n.rng.Perm(len(all)) {
		if len(rotten) == most {
			break
		}
		_, err := flip(all[i], n.rng.Int64N)
		if errors.Is(err, fs.ErrNotExist) {
			continue // empty
		}
		if err != nil {
			return rotten, err
		}
		rotten = append(rotten, filepath.Join(filepath.Base(filepath.Dir(all[i])), filepath.Base(all[i])))
	}
	return rotten, nil
}

// rotDerived stops or kills a broker, damages what it has derived from its records, and starts it. It is always the same broker's.
func rotDerived(most int, names ...string) attack {
	return func(ctx context.Context, n *nemesis) (string, error) {
		if n.flips == 0 {
			n.flips = n.any()
		}
		if n.flips == 0 || !n.calm(ctx) {
			return "", nil
		}
		b, end, how := n.c.broker(n.flips), (*broker).kill, "killed"
		if n.rng.IntN(2) == 0 {
			end, how = (*broker).stop, "stopped"
		}
		if err := end(b); err != nil {
			return "", err
		}
		rotten, err := n.rotOf(b, most, names...)
		if err = errors.Join(err, b.start()); err != nil || len(rotten) == 0 {
			return "", err
		}
		return fmt.Sprintf("broker %d is %s, and comes back with a bit flipped in each of %s", b.id, how, strings.Join(rotten, ", ")), nil
	}
}

// rotRaft kills a broker and damages its log of the quorum. Either that does not matter, or the broker does not start, and gets an
// empty disk as one that has lost it does.
func rotRaft(ctx context.Context, n *nemesis) (string, error) {
	id := n.any()
	if id == 0 || !n.calm(ctx) {
		return "", nil
	}
	b := n.c.broker(id)
	if err := b.kill(); err != nil {
		return "", err
	}
	rotten, err := n.rotOf(b, 1, "meta/raft.db")
	bits := 1 // in what nobody needs any more, most of the time
	if n.attacks%2 == 0 {
		bits = 400
	}
	for i := 1; i < bits && err == nil; i++ {
		_, err = n.rotOf(b, 1, "meta/raft.db")
	}
	if err != nil || len(rotten) == 0 {
		return "", errors.Join(err, b.start())
	}
	b.hold(true) // a service manager that tries again changes nothing
	defer b.hold(false)
	if err := b.start(); err != nil {
		return "", err
	}
	limited, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for b.is() == up {
		soon, cancel := context.WithTimeout(limited, time.Second)
		err := b.waitReady(soon)
		cancel()
		if err == nil {
			return fmt.Sprintf("%d bits of broker %d's %s flip while it is down, and it starts", bits, id, rotten[0]), nil
		}
		if limited.Err() != nil {
			return "", err
		}
	}
	why := lastLine(b.logPath())
	if !strings.Contains(why, "damaged") && !strings.Contains(why, "corrupt") {
		return "", fmt.Errorf("broker %d did not start, and does not say that its log is damaged: %s", id, why)
	}
	if err := errors.Join(b.wipe(), n.removeVote(ctx, id)); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d bits of broker %d's %s flip while it is down: it does not start, and gets an empty disk", bits, id, rotten[0]), b.start()
}
