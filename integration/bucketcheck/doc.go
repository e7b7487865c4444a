// Package bucketcheck looks into a bucket with an S3 client that is not Varve's own (minio-go), so that a test of what is
// stored does not rest on the code that stored it.
//
//	b, err := bucketcheck.Open(server, "archive")
//	objects, err := b.List(ctx, "varve/")
//	content, err := b.Read(ctx, objects[0].Key)
//	all, err := b.ReadAll(ctx, "varve/") // key → content
package bucketcheck
