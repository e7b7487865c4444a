//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"golang.org/x/sys/unix"

	"github.com/varvelog/varve/integration/history"
	"github.com/varvelog/varve/tier"
)

// archived is a file of the S3 server's folder: an object of one of the workload's partitions.
type archived struct {
	key  string // of the workload
	path string
	info tier.KeyInfo
}

// archive lists the tiered partitions' objects of one kind, those of a partition in the order of their offsets.
func (n *nemesis) archive(ctx context.Context, kind tier.KeyKind) (list []archived) {
	limited, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	topics, err := kadm.NewClient(n.eye.cl).ListTopics(limited, tieredTopic)
	if err != nil {
		return nil
	}
	names := map[[16]byte]string{}
	for _, t := range topics {
		names[t.ID] = t.Topic
	}
	root := filepath.Join(n.c.s3.Dir, "archive", "varve")
	_ = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil // objects come and go
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		info, ok := tier.DefaultConfig().ParseKey(filepath.ToSlash(rel))
		if name := names[info.Topic]; ok && info.Kind == kind && name != "" {
			list = append(list, archived{joinKey(name, info.Partition), path, info})
		}
		return nil
	})
	slices.SortFunc(list, func(a, b archived) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.info.ID.Base, b.info.ID.Base))
	})
	return list
}

// aside is a new name beside the S3 server's folder.
func (n *nemesis) aside() (string, error) {
	dir := filepath.Join(n.c.dir, "aside")
	n.spoils++
	return filepath.Join(dir, fmt.Sprint(n.spoils)), os.MkdirAll(dir, 0o755)
}

// hideObject takes an object away, behind the brokers' backs. It is put back when the round ends.
func hideObject(ctx context.Context, n *nemesis) (string, error) {
	return n.spoilSegment(ctx, "is gone", func(path string) (undo func() error, err error) {
		aside, err := n.aside()
		if err != nil {
			return nil, err
		}
		return func() error { return os.Rename(aside, path) }, os.Rename(path, aside)
	})
}

// damageObject changes a byte of an object where it lies: its ETag stays what it was.
func damageObject(ctx context.Context, n *nemesis) (string, error) {
	return n.spoilSegment(ctx, "is damaged", func(path string) (undo func() error, err error) {
		whole, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		at := n.rng.Int64N(int64(len(whole)/2)) + 1 // of the records: indexes and footer come last
		return func() error { return writeAt(path, whole[at:at+1], at) }, writeAt(path, []byte{^whole[at]}, at)
	})
}

func writeAt(path string, b []byte, at int64) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = f.WriteAt(b, at)
	return err
}

// spoilSegment breaks one object after another until some broker has to have it, and cannot: most are in caches, or on the
// brokers' own disks still. What is served then is right, and goes into the history, which is held to that. A refusal has to
// be in the log, with the object's name, and other partitions have to be served as ever.
func (n *nemesis) spoilSegment(ctx context.Context, what string, spoil func(path string) (undo func() error, err error)) (string, error) {
	for try := range 16 {
		if try == 4 { // who has just started has nothing in its memory
			if err := n.restart(ctx); err != nil {
				return "", err
			}
		}
		all := n.archive(ctx, tier.KeySegment)
		if len(all) == 0 || ctx.Err() != nil {
			return "", nil
		}
		o := all[n.rng.IntN(len(all))]
		undo, err := spoil(o.path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it went meanwhile, for a reason of its own
		}
		if err != nil {
			return "", err
		}
		refused := n.probe(ctx, o)
		if len(refused) == 0 {
			if err := undo(); err != nil {
				return "", err
			}
			continue
		}
		n.undo = append(n.undo, undo)
		n.serve(ctx, "an object of "+o.key+" is spoilt", slices.DeleteFunc(slices.Clone(allKeys), func(key string) bool { return key == o.key })...)
		for _, id := range refused {
			if !n.told[fmt.Sprint(o.key, id)] && !n.logSays(id, filepath.Base(o.path)) {
				n.trouble = append(n.trouble, fmt.Sprintf("broker %d refuses records of %s, and its log does not name %s", id, o.key, filepath.Base(o.path)))
			}
			n.told[fmt.Sprint(o.key, id)] = true // a failure that comes again is logged once a minute
		}
		return fmt.Sprintf("object %s of %s %s; brokers %v refuse its records", filepath.Base(o.path), o.key, what, refused), nil
	}
	return "", nil
}

// restart stops and starts some broker, in order.
func (n *nemesis) restart(ctx context.Context) error {
	id := n.any()
	if id == 0 || !n.calm(ctx) {
		return nil
	}
	b := n.c.broker(id)
	if err := errors.Join(b.stop(), b.start()); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, healLimit)
	defer cancel()
	if err := b.waitReady(limited); ctx.Err() == nil {
		return err
	}
	return nil
}

// probe asks every broker for an object's first records. Those that refuse say that they cannot read them, and nothing else.
func (n *nemesis) probe(ctx context.Context, o archived) (refused []int) {
	for _, b := range n.c.members() {
		limited, cancel := context.WithTimeout(ctx, 10*time.Second)
		found, _, err := n.eye.batches(limited, b.id, o.key, o.info.ID.Base)
		cancel()
		if len(found) > 0 {
			n.rec.add(history.Event{Process: -2, Type: history.OK, F: history.Batches, Key: o.key, Source: endName(b.id), Batches: found})
		}
		switch {
		case errors.Is(err, kerr.KafkaStorageError):
			refused = append(refused, b.id)
		case errors.Is(err, kerr.OffsetOutOfRange):
			n.trouble = append(n.trouble, fmt.Sprintf("broker %d says that offset %d of %s is out of range, and only its object cannot be read", b.id, o.info.ID.Base, o.key))
		}
	}
	return refused
}

// serve sees to it that the leaders of keys serve records from their beginnings, which are in the bucket for half of them.
func (n *nemesis) serve(ctx context.Context, while string, keys ...string) {
	for _, key := range keys {
		var last error
		served := false
		for try := 0; try < 20 && !served; try++ {
			l, err := n.eye.leader(ctx, key)
			if last = err; err == nil && l.broker > 0 {
				limited, cancel := context.WithTimeout(ctx, 10*time.Second)
				found, _, err := n.eye.batches(limited, int(l.broker), key, 0)
				cancel()
				last, served = err, len(found) > 0
			}
			if served {
				break
			}
			if pause(ctx, 500*time.Millisecond); ctx.Err() != nil {
				return
			}
		}
		if !served {
			n.trouble = append(n.trouble, fmt.Sprintf("%s is not served while %s: %v", key, while, last))
		}
	}
}

func (n *nemesis) logSays(id int, words string) bool {
	text, err := os.ReadFile(n.c.broker(id).logPath())
	return err == nil && strings.Contains(string(text), words)
}

// rollBack puts an older version of a partition's head manifest in place of the newest, at one moment, and the newest back when
// the round ends. Until then nobody may build on the older one, and who would commit has to say why he cannot.
func rollBack(ctx context.Context, n *nemesis) (string, error) {
	heads := n.archive(ctx, tier.KeyHead)
	if len(heads) == 0 {
		return "", nil
	}
	o := heads[n.rng.IntN(len(heads))]
	aside, err := n.aside()
	if err != nil {
		return "", err
	}
	if err := os.Link(o.path, aside); err != nil {
		return "", err
	}
	older, err := os.Stat(aside)
	if err != nil {
		return "", err
	}
	changed := func() bool {
		now, err := os.Stat(o.path)
		return err == nil && !os.SameFile(older, now)
	}
	for end := time.Now().Add(10 * time.Second); !changed(); pause(ctx, 100*time.Millisecond) {
		if time.Now().After(end) || ctx.Err() != nil {
			return "", os.Remove(aside)
		}
	}
	n.sleep(ctx, 0, 1500) // by then it may be several versions older
	if err := exchange(aside, o.path); err != nil {
		return "", err
	}
	n.undo = append(n.undo, func() error {
		if !slices.ContainsFunc(n.c.members(), func(b *broker) bool { return n.logSays(b.id, "went back from sequence") }) {
			n.trouble = append(n.trouble, fmt.Sprintf("the manifest of %s went back, and no broker's log says so", o.key))
		}
		if changed() {
			n.trouble = append(n.trouble, fmt.Sprintf("the manifest of %s was committed to while it was an older version", o.key))
		}
		return exchange(aside, o.path)
	})
	o.info.ID.Base = 0
	n.probe(ctx, o) // a follower that knows nothing newer may have to refuse what the older version lacks
	n.serve(ctx, "the manifest of "+o.key+" has gone back", allKeys...)
	n.sleep(ctx, 4000, 6000) // for a commit to be tried
	return fmt.Sprintf("the manifest of %s is an older version", o.key), nil
}

// exchange lets two files change places, at one moment.
func exchange(a, b string) error {
	return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
}

// unspoil puts back what was taken from the bucket, or changed there.
func (n *nemesis) unspoil() error {
	var errs []error
	for _, undo := range slices.Backward(n.undo) {
		errs = append(errs, undo())
	}
	n.undo = nil
	return errors.Join(errs...)
}
