package objstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// The kinds of failure. Each error of a store wraps exactly one of them.
var (
	// ErrNotFound is returned when the object does not exist, though the store answered and its bucket exists.
	ErrNotFound = errors.New("object not found")
	// ErrPrecondition is returned when a conditional put was refused: the object is not in the state the condition
	// asks for, or another conditional put ran at the same time (S3's 412 and 409). Nothing was written.
	ErrPrecondition = errors.New("condition not met")
	// ErrUnavailable is returned when the store could not be reached or failed for a reason that may pass: 5xx,
	// throttling, timeouts, resets, bodies that ended early, a full disk. The operation may be tried again.
	ErrUnavailable = errors.New("object store unavailable")
	// ErrUnknownOutcome is returned when the answer to a conditional put was lost: it may have been applied or not.
	// Read the object to find out, and never delete on this error.
	ErrUnknownOutcome = errors.New("outcome unknown")
	// ErrDenied is returned when the store refuses the credentials or the operation (401, 403, EACCES).
	ErrDenied = errors.New("access denied")
	// ErrNoBucket is returned when the bucket, or the root folder of a file store, does not exist.
	ErrNoBucket = errors.New("bucket does not exist")
	// ErrCapability is returned when the server lacks something Varve needs, such as conditional puts or ranged reads.
	ErrCapability = errors.New("object store lacks a needed capability")
	// ErrRejected is returned when the store refuses the request as wrong; trying again does not help.
	ErrRejected = errors.New("request rejected")
	// ErrRange is returned when a read asks for bytes outside the object.
	ErrRange = errors.New("range outside the object")
	// ErrTooLarge is returned when an object is larger than the caller, or the store, allows.
	ErrTooLarge = errors.New("object too large")
	// ErrInvalidKey is returned when a key breaks the rules for keys.
	ErrInvalidKey = errors.New("invalid object key")
	// ErrInvalidURL is returned when a store URL cannot be understood.
	ErrInvalidURL = errors.New("invalid object store URL")
)

// Op names an operation of a Store.
type Op string

// The operations, as they appear in errors, counters and fault rules.
const (
	OpPut    Op = "put"
	OpGet    Op = "get"
	OpHead   Op = "head"
	OpDelete Op = "delete"
	OpList   Op = "list"
)

// Ops lists all operations.
func Ops() []Op { return []Op{OpPut, OpGet, OpHead, OpDelete, OpList} }

// Error is a failed operation.
type Error struct {
	Op    Op
	Place string // the store's address, such as s3://bucket/prefix
	Key   string // object, or prefix of a list
	Kind  error  // one of the sentinels
	// Detail says what happened in words; for an HTTP answer its status, code and request id.
	Detail string
	Err    error // the cause; may be nil
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(string(e.Op))
	b.WriteByte(' ')
	if e.Place != "" {
		b.WriteString(strings.TrimSuffix(e.Place, "/"))
		b.WriteByte('/')
	}
	b.WriteString(e.Key)
	b.WriteString(": ")
	b.WriteString(e.Kind.Error())
	if e.Detail != "" {
		b.WriteString(": ")
		b.WriteString(e.Detail)
	}
	if e.Err != nil {
		b.WriteString(": ")
		b.WriteString(e.Err.Error())
	}
	return b.String()
}

// Unwrap gives the kind and the cause to errors.Is and errors.As.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}

// lost is the kind of a failure whose answer never came: known to be harmless for everything but conditional puts.
func lost(conditional bool) error {
	if conditional {
		return ErrUnknownOutcome
	}
	return ErrUnavailable
}

// checkContext fails an operation before it starts, when nothing can have been applied yet.
func checkContext(ctx context.Context, op Op, place, key string) error {
	if err := ctx.Err(); err != nil {
		return &Error{Op: op, Place: place, Key: key, Kind: ErrUnavailable, Detail: "not started", Err: err}
	}
	return nil
}

// errRange says which bytes were asked of how many.
func errRange(place, key string, off, n, size int64) error {
	return &Error{Op: OpGet, Place: place, Key: key, Kind: ErrRange,
		Detail: fmt.Sprintf("asked for %d bytes at %d of %d", n, off, size)}
}
