//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// flipBit changes one bit of a sealed segment on one broker's disk, under its
// feet. It is always the same broker's: a record of which every copy is damaged
// is lost, whatever anybody does.
func flipBit(ctx context.Context, n *nemesis) (string, error) {
	if n.flips == 0 {
		n.flips = n.any()
	}
	if n.flips == 0 || !n.calm(ctx) {
		return "", nil
	}
	b := n.c.broker(n.flips)
	files, err := filepath.Glob(filepath.Join(b.data, "log", "*", "*.log"))
	if err != nil {
		return "", err
	}
	var sealed []string
	for i, f := range files {
		name := filepath.Base(filepath.Dir(f))
		ours := strings.HasPrefix(name, plainTopic) || strings.HasPrefix(name, tieredTopic) || strings.HasPrefix(name, ledgerTopic)
		// The last of a directory is still written to.
		if ours && i+1 < len(files) && filepath.Dir(files[i+1]) == filepath.Dir(f) {
			sealed = append(sealed, f)
		}
	}
	if len(sealed) == 0 {
		return "", nil
	}
	path := sealed[n.rng.IntN(len(sealed))]
	at, err := flip(path, n.rng.Int64N)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil // the broker was faster: it is in the bucket
	}
	if err != nil {
		return "", err
	}
	what := fmt.Sprintf("one bit of %s on broker %d flips, at %d", filepath.Join(filepath.Base(filepath.Dir(path)), filepath.Base(path)), b.id, at)
	if n.rng.IntN(2) == 0 {
		return what, nil
	}
	return what + "; it is killed and comes back", errors.Join(b.kill(), b.start())
}

func flip(path string, random func(int64) int64) (at int64, err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Sync(), f.Close()) }()
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return 0, errors.Join(err, fs.ErrNotExist)
	}
	at = random(info.Size())
	one := make([]byte, 1)
	if _, err := f.ReadAt(one, at); err != nil {
		return at, err
	}
	one[0] ^= 1 << random(8)
	_, err = f.WriteAt(one, at)
	return at, err
}
