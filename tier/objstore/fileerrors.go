package objstore

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// errNotAnObject is the cause when a key's path is a folder or something odd.
var errNotAnObject = errors.New("the path of this key is a folder of other keys")

// fail classifies a file system error.
func (f *Folder) fail(op Op, key, detail string, err error) error {
	var own *Error
	if errors.As(err, &own) {
		return err
	}
	e := &Error{Op: op, Place: f.String(), Key: key, Kind: ErrUnavailable, Detail: detail, Err: err}
	switch {
	case isAbsent(err):
		if root := f.checkRoot(); root != nil {
			e.Kind, e.Err = ErrNoBucket, root
		} else if op == OpGet || op == OpHead {
			e.Kind, e.Err = ErrNotFound, nil
		}
	case errors.Is(err, errNotAnObject), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR),
		errors.Is(err, syscall.ENAMETOOLONG):
		e.Kind = ErrInvalidKey
	case errors.Is(err, errChecksum):
		e.Kind = ErrRejected
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		e.Kind = ErrDenied
	}
	return e
}

// checkRoot tells a key that is absent from a root folder that is: a disk that is not mounted must never look like an
// empty archive.
func (f *Folder) checkRoot() error {
	open, err := f.root.Stat(".")
	if err != nil {
		return &Error{Op: OpHead, Place: f.String(), Kind: ErrNoBucket, Err: err}
	}
	now, err := os.Stat(f.dir)
	if err != nil {
		return &Error{Op: OpHead, Place: f.String(), Kind: ErrNoBucket, Err: err}
	}
	if !os.SameFile(open, now) {
		return &Error{Op: OpHead, Place: f.String(), Kind: ErrNoBucket,
			Detail: "the root folder was replaced by another while in use"}
	}
	return nil
}

// isAbsent also holds when a part of the path is a file, as below "a/b" when "a" is an object.
func isAbsent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
