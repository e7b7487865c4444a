//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/varvelog/varve/tier/objstore"
	"github.com/varvelog/varve/tier/objstore/objstoretest"
)

// TestBucketMisbehavesOnDemand: what the proxy does is what a client of the
// store sees.
func TestBucketMisbehavesOnDemand(t *testing.T) {
	server := objstoretest.StartVersityGW(t)
	if err := server.MakeBucket("archive"); err != nil {
		t.Fatal(err)
	}
	p, err := startS3Proxy(net.JoinHostPort("127.0.0.1", "0"), server.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.close(); err != nil {
			t.Error(err)
		}
	})
	st, err := objstore.Open(t.Context(), fmt.Sprintf("s3://archive/v?endpoint=http://%s&region=%s&path-style=true", p.addr, server.Region), server.Options())
	if err != nil {
		t.Fatal(err)
	}
	body := bytes.Repeat([]byte("varve"), 10_000)
	if _, err := st.Put(t.Context(), "a", objstore.Bytes(body), objstore.PutOptions{IfNoneMatch: true}); err != nil {
		t.Fatal(err)
	}
	p.misbehave(s3truncate)
	if got, _, err := objstore.ReadAll(t.Context(), st, "a", 1<<20); err == nil {
		t.Errorf("a body that was cut gives %d bytes and no error", len(got))
	}
	p.misbehave(s3drop)
	if _, err := st.Put(t.Context(), "b", objstore.Bytes(body), objstore.PutOptions{IfNoneMatch: true}); !errors.Is(err, objstore.ErrUnknownOutcome) {
		t.Errorf("a put whose answer is lost gives %v", err)
	}
	p.misbehave(s3unavailable)
	began := time.Now()
	if _, err := st.Head(t.Context(), "a"); !errors.Is(err, objstore.ErrUnavailable) {
		t.Errorf("503 gives %v after %v", err, time.Since(began))
	}
	p.behave()
	if got, _, err := objstore.ReadAll(t.Context(), st, "b", 1<<20); err != nil || !bytes.Equal(got, body) {
		t.Errorf("what was put while answers were lost is not there: %v", err)
	}
}
