package objstore

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"sync"
	"syscall"
	"time"
)

// lockStripes is how many lock files a file store has; keys share them by hash.
const lockStripes = 256

// keyLocks are the file store's locks: between goroutines a channel, between processes flock(2) on a lock file. Both are
// held only while one file is renamed or removed and its folders are synced.
type keyLocks struct {
	root *os.Root

	mu      sync.Mutex // guards the following
	stripes [lockStripes]chan struct{}
}

func (l *keyLocks) init(root *os.Root) { l.root = root }

// lock waits for the stripe of a name until the context ends.
func (l *keyLocks) lock(ctx context.Context, name string) (unlock func(), err error) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	i := h.Sum32() % lockStripes
	l.mu.Lock()
	if l.stripes[i] == nil {
		l.stripes[i] = make(chan struct{}, 1)
	}
	held := l.stripes[i]
	l.mu.Unlock()

	select {
	case held <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for lock %02x: %w", i, ctx.Err())
	}
	file, err := l.lockFile(ctx, fmt.Sprintf("%s/%02x", lockDir, i))
	if err != nil {
		<-held
		return nil, err
	}
	return func() {
		_ = file.Close() // closing drops the lock; nothing was written
		<-held
	}, nil
}

// lockFile polls, because a blocking flock could not be given up when the context ends.
func (l *keyLocks) lockFile(ctx context.Context, name string) (*os.File, error) {
	file, err := l.root.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return nil, err
	}
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		err := flock(file)
		if err == nil {
			return file, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", name, err), file.Close())
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("lock %s is held by another process: %w", name, ctx.Err()), file.Close())
		}
	}
}

func flock(file *os.File) error {
	conn, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var lockErr error
	if err := conn.Control(func(fd uintptr) {
		lockErr = syscall.Flock(int(fd), syscall.LOCK_EX|syscall.LOCK_NB)
	}); err != nil {
		return err
	}
	return lockErr
}
