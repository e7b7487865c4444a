// Package topic names topics and partitions.
//
// A topic has a name, which clients use and which may be used again after the
// topic was deleted, and an ID, which is never used twice. Anything that
// outlives a request (directories, objects in the bucket, metadata commands)
// is keyed by ID; the name alone never identifies data.
package topic
