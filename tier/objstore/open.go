package objstore

import (
	"context"
	"fmt"
)

// Open opens the store that a URL names:
//
//	file:///folder                    one file per object; the folder is made if it is absent
//	s3://bucket/prefix                AWS, or any server that speaks S3's API; the bucket must exist
//	    ?region=eu-central-1          else from the AWS chain, else us-east-1 when an endpoint is given
//	    &endpoint=http://127.0.0.1:9000
//	    &path-style=true              for servers without a host name per bucket
//	    &sign-payload=true            for servers that refuse unsigned payloads
//	    &no-checksum=true             for servers that refuse x-amz-checksum-crc32c; implies sign-payload
//	    &single-deletes=true          for servers without DeleteObjects
//	mem:?max-bytes=100000000          in memory, gone with the process
//
// Credentials for S3 come from the AWS chain. Open sends no request to the store.
func Open(ctx context.Context, url string, o Options) (Store, error) {
	c, err := ParseURL(url)
	if err != nil {
		return nil, err
	}
	switch c.Scheme {
	case SchemeFile:
		return OpenFolder(c.Dir)
	case SchemeMem:
		return NewMem(c.MaxBytes), nil
	case SchemeS3:
		return openS3(ctx, c, o)
	}
	return nil, fmt.Errorf("%w: scheme %s", ErrInvalidURL, c.Scheme)
}
