// Package vfs is the file system as the log sees it: few operations, each with
// a stated meaning after power loss.
//
// [OS] is the machine's file system. [Mem] keeps files in memory and can lose
// power: [Mem.Crash] returns what a disk might hold afterwards, chosen by a
// seed. [Faults] wraps either and makes chosen operations fail.
//
// What survives power loss:
//
//   - bytes and length of a file, as of its last successful Sync;
//   - a created, renamed or removed name, as of the last SyncDir of the
//     directory (of both directories for a rename across two);
//   - everything, as of the last SyncFS.
//
// Anything else may be there, be gone, or be there in part. A failed Sync,
// SyncDir or SyncFS leaves that open for ever: a later success proves nothing
// about the bytes of the failed one, since the kernel marks pages clean after
// reporting an error once. Callers stop using the file.
//
// Non-obvious:
//
//   - Write appends at the handle's own end, not at a kernel file position. It
//     and Truncate belong to one owner; ReadAt and WriteAt may run beside.
//   - Sync is fdatasync: data and length, not access times.
//   - Syncing a new file does not make its name durable. ext4 happens to do
//     that; Mem does not.
package vfs
