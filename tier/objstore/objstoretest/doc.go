// Package objstoretest holds the acceptance suite that every object store passes, and a real S3 server to run it on.
//
// # How to use it
//
//	objstoretest.AcceptanceTest(t, func(t *testing.T) objstore.Store { return objstore.NewMem(0) })
//
//	srv := objstoretest.StartVersityGW(t) // versitygw v1.8.0 over a temporary folder
//	st, err := objstore.Open(ctx, srv.URL("bucket", "prefix"), srv.Options())
//
// The S3 server is built from the module in integration/tools/versitygw, once per version, into the user's cache folder;
// that takes about 90 s of one core. See [StartVersityGW] for when tests use it.
package objstoretest
