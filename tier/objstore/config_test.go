package objstore

import (
	"errors"
	"strings"
	"testing"
)

func TestStoreURLsAreParsed(t *testing.T) {
	for url, want := range map[string]Config{
		"file:///var/lib/x":                 {Scheme: SchemeFile, Dir: "/var/lib/x"},
		"file:/var/lib/x/":                  {Scheme: SchemeFile, Dir: "/var/lib/x"},
		"file://localhost/a%20b":            {Scheme: SchemeFile, Dir: "/a b"},
		"FILE:///x":                         {Scheme: SchemeFile, Dir: "/x"},
		"mem:":                              {Scheme: SchemeMem},
		"mem:?max-bytes=1000":               {Scheme: SchemeMem, MaxBytes: 1000},
		"s3://bucket":                       {Scheme: SchemeS3, Bucket: "bucket"},
		"s3://bucket/":                      {Scheme: SchemeS3, Bucket: "bucket"},
		"s3://my.bucket-1/a/b/?region=eu-1": {Scheme: SchemeS3, Bucket: "my.bucket-1", Prefix: "a/b", Region: "eu-1"},
		"s3://bucket/p?endpoint=http://127.0.0.1:9000&path-style=true": {Scheme: SchemeS3, Bucket: "bucket", Prefix: "p",
			Endpoint: "http://127.0.0.1:9000", PathStyle: true},
		"s3://bucket?endpoint=https%3A%2F%2Fhost%2F&sign-payload=true&single-deletes=true": {Scheme: SchemeS3, Bucket: "bucket",
			Endpoint: "https://host", SignPayload: true, SingleDeletes: true},
		"s3://bucket?no-checksum=true": {Scheme: SchemeS3, Bucket: "bucket", NoChecksum: true, SignPayload: true},
	} {
		got, err := ParseURL(url)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", url, got, err, want)
		}
	}
}

func TestStoreURLsAreRefusedWithAReason(t *testing.T) {
	for url, reason := range map[string]string{
		"":                                     "it is empty",
		" s3://bucket":                         "white space",
		"/var/lib/x":                           "write file:// and the absolute path",
		"./x":                                  "bare path",
		"bucket/prefix":                        "no scheme",
		"file://var/lib/x":                     "write file:///var/lib/x with three slashes",
		"file:x/y":                             "relative",
		"file://":                              "folder is missing",
		"file:///x?sync=no":                    "file URLs have none",
		"gs://bucket":                          "only S3's API",
		"s3a://bucket":                         "write s3",
		"https://host/bucket":                  "write s3://BUCKET?endpoint=https://host",
		"ftp://x":                              "unknown scheme ftp",
		"s3:bucket":                            "two slashes",
		"s3://":                                "bucket is missing",
		"s3://Bucket_/x":                       "not a bucket name",
		"s3://host:9000/bucket":                "goes into endpoint=",
		"s3://ab":                              "not a bucket name",
		"s3://k:secret@bucket":                 "AWS_ACCESS_KEY_ID",
		"s3://bucket?regoin=x":                 "did you mean region",
		"s3://bucket?pathstyle=1":              "did you mean path-style",
		"s3://bucket?path-style=1":             "neither true nor false",
		"s3://bucket?region=":                  "is empty",
		"s3://bucket?region=a&region=b":        "given 2 times",
		"s3://bucket?zzz=1":                    "known are endpoint, no-checksum",
		"s3://bucket?secret_key=hunter2":       "AWS chain",
		"s3://bucket?region=a/b":               "not a region name",
		"s3://bucket?endpoint=localhost:9000":  "http://HOST:PORT",
		"s3://bucket?endpoint=http://h/bucket": "no path",
		"s3://bucket?endpoint=http://u:p@h":    "AWS chain",
		"s3://bucket/a//b":                     "empty part",
		"s3://bucket/a/../b":                   "part . or ..",
		"s3://bucket/" + strings.Repeat("abcdefghi/", 30) + "x": "allowed are 223",
		"s3://bucket/a#b":        "%23",
		"mem:name":               "no name",
		"mem:?max-bytes=many":    "positive number",
		"s3://bucket?region=%zz": "malformed",
	} {
		_, err := ParseURL(url)
		if !errors.Is(err, ErrInvalidURL) || !strings.Contains(err.Error(), reason) {
			t.Errorf("%q: %v; want a message with %q", url, err, reason)
		}
		if err != nil && (strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "k:secret")) {
			t.Errorf("%q: the message shows a secret: %v", url, err)
		}
	}
}
