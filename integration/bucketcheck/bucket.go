package bucketcheck

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/varvelog/varve/tier/objstore/objstoretest"
)

// objectBytesMax bounds what Read holds in memory.
const objectBytesMax = 1 << 30

// Bucket is one bucket of a server.
type Bucket struct {
	client *minio.Client
	name   string
}

// Object is an object as the server lists it. ETag is without quotes, as minio-go gives it.
type Object struct {
	Key      string
	Size     int64
	ETag     string
	Modified time.Time
}

// Open connects to a bucket of the test server.
func Open(server *objstoretest.Server, bucket string) (*Bucket, error) {
	at, err := url.Parse(server.Endpoint)
	if err != nil {
		return nil, err
	}
	client, err := minio.New(at.Host, &minio.Options{
		Creds:        credentials.NewStaticV4(server.AccessKey, server.SecretKey, ""),
		Region:       server.Region,
		Secure:       at.Scheme == "https",
		BucketLookup: minio.BucketLookupPath,
	})
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", server.Endpoint, err)
	}
	return &Bucket{client: client, name: bucket}, nil
}

// List lists all objects whose key starts with prefix, in the server's order.
func (b *Bucket) List(ctx context.Context, prefix string) ([]Object, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the lister's goroutine after an error
	var found []Object
	for o := range b.client.ListObjects(ctx, b.name, minio.ListObjectsOptions{Prefix: prefix, Recursive: true}) {
		if o.Err != nil {
			return nil, fmt.Errorf("list %s/%s: %w", b.name, prefix, o.Err)
		}
		found = append(found, Object{Key: o.Key, Size: o.Size, ETag: o.ETag, Modified: o.LastModified})
	}
	return found, nil
}

// Read downloads an object, all of it or an error.
func (b *Bucket) Read(ctx context.Context, key string) ([]byte, error) {
	o, err := b.client.GetObject(ctx, b.name, key, minio.GetObjectOptions{})
	if err != nil {
		return nil, fmt.Errorf("get %s/%s: %w", b.name, key, err)
	}
	defer o.Close()
	info, err := o.Stat()
	if err != nil {
		return nil, fmt.Errorf("get %s/%s: %w", b.name, key, err)
	}
	if info.Size > objectBytesMax {
		return nil, fmt.Errorf("get %s/%s: %d bytes are too many", b.name, key, info.Size)
	}
	content := make([]byte, info.Size)
	if _, err := io.ReadFull(o, content); err != nil {
		return nil, fmt.Errorf("read %s/%s: %w", b.name, key, err)
	}
	return content, nil
}

// ReadAll downloads every object below prefix, and checks that each is as long as it was listed.
func (b *Bucket) ReadAll(ctx context.Context, prefix string) (map[string][]byte, error) {
	objects, err := b.List(ctx, prefix)
	if err != nil {
		return nil, err
	}
	contents := make(map[string][]byte, len(objects))
	for _, o := range objects {
		content, err := b.Read(ctx, o.Key)
		if err != nil {
			return nil, err
		}
		if int64(len(content)) != o.Size {
			return nil, fmt.Errorf("%s/%s is listed with %d bytes and has %d", b.name, o.Key, o.Size, len(content))
		}
		contents[o.Key] = content
	}
	return contents, nil
}
