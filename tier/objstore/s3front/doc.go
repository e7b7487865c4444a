// Package s3front serves a Store over S3's HTTP API, so that a cluster on one
// machine can be tried with a bucket that it reaches as it would reach any
// other: over a socket, shared by all nodes, with conditional writes.
//
// It is for trying things: it listens where it is told to, believes every
// signature, and knows one bucket. Objects are those of the Store; a folder
// that was filled through it can be opened as a file:// store, and the other
// way round.
//
// Served are, with paths and never with host names as buckets: GetObject (with
// ranges), HeadObject, PutObject, DeleteObject, DeleteObjects, ListObjectsV2,
// multipart uploads, HeadBucket, GetBucketLocation and ListBuckets. PutObject
// and CompleteMultipartUpload take If-Match and If-None-Match: *. A checksum
// x-amz-checksum-crc32c is compared, in a header or, after a chunked body, in
// the trailer.
//
// Bodies are spooled to a temporary file before the Store has them; parts of an
// upload stay there until it ends.
package s3front
