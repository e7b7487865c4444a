package vfs

import (
	"errors"
	"io/fs"
)

// ErrLocked is returned when another process, or another handle of this one,
// holds the lock file.
var ErrLocked = errors.New("locked by another process")

// ErrReplaced is returned when WriteFileAtomic has put the new content in place and
// could not make that durable: after power loss there is either.
var ErrReplaced = errors.New("file is replaced, and its name not synced")

// ErrTooLarge is returned when ReadFile meets a file above the caller's limit.
var ErrTooLarge = errors.New("file is larger than allowed")

// ErrNotExist is returned when a name is absent; it is fs.ErrNotExist.
var ErrNotExist = fs.ErrNotExist
