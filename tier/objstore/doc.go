// Package objstore is the door to the bucket: a small object store interface, its three stores (s3, a local folder,
// memory) and the wrappers that count, limit and break them.
//
// # How to use it
//
//	st, err := objstore.Open(ctx, "s3://archive/varve?region=eu-central-1", objstore.Options{})
//	obj, err := st.Put(ctx, "heads/t1/0", objstore.Bytes(head), objstore.PutOptions{IfNoneMatch: true})
//	raw, obj, err := objstore.ReadAll(ctx, st, "heads/t1/0", 1<<20)
//	obj, err = st.Put(ctx, "heads/t1/0", objstore.Bytes(next), objstore.PutOptions{IfMatch: obj.ETag})
//
// Every error is a *[Error] that names operation, place and key and wraps exactly one of the sentinels in errors.go, so
// callers decide with errors.Is.
//
// # Keys
//
// A key is 1 to [MaxKeyBytes] bytes of UTF-8 without control characters: parts joined by '/', no part empty, "." or
// "..". A key must not be a folder of another key ("a" beside "a/b"): S3 allows that, but stores that are folders
// underneath cannot, and may answer [ErrInvalidKey].
//
// # What holds
//
//   - Put is atomic: readers see the whole old object or the whole new one. It is durable when Put returns nil.
//   - A put with IfMatch or IfNoneMatch is a compare-and-swap, also between processes.
//   - A read never ends early without an error: the reader gives exactly the bytes asked for, or fails.
//   - List is strongly consistent with finished puts and deletes, and in byte order of the keys.
//
// # Non-obvious
//
//   - A conditional put whose answer was lost is [ErrUnknownOutcome]: it may have been applied, or may even be applied a
//     little later. Read the object before deciding anything. It is never retried inside a store: a second attempt would
//     be refused because the first one succeeded.
//   - [ErrNotFound] speaks of the object alone. A bucket or root folder that is gone is [ErrNoBucket], so that an
//     unmounted disk is never mistaken for an empty archive.
//   - Retries happen inside the s3 store only, only for operations that may be repeated, and never past the context.
//     Give every call a deadline: a store has none of its own.
package objstore
