//go:build linux

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"
)

// s3fault is how the bucket misbehaves.
type s3fault int32

const (
	s3good        s3fault = iota
	s3unavailable         // 503 SlowDown to everything
	s3flaky               // 503 to half of the requests
	s3stall               // no answer for a minute
	s3truncate            // bodies end half-way and the connection with them
	s3drop                // what was asked for is done, and the connection cut instead of an answer
	s3slow                // one second before each answer
)

var s3faultNames = map[s3fault]string{
	s3good: "answers", s3unavailable: "answers 503", s3flaky: "answers every second request with 503", s3stall: "stalls",
	s3truncate: "cuts bodies short", s3drop: "does what it is asked and cuts the connection", s3slow: "is slow",
}

// s3proxy stands before the S3 server and breaks what passes on demand.
type s3proxy struct {
	addr   string
	server *http.Server
	fault  atomic.Int32
	hits   atomic.Int64 // requests that met a fault
}

func startS3Proxy(listen, target string) (*s3proxy, error) {
	to, err := url.Parse(target)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, err
	}
	p := &s3proxy{addr: l.Addr().String()}
	// The Host header stays as it came: the signature covers it.
	forward := &httputil.ReverseProxy{
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(to); r.Out.Host = r.In.Host },
		Transport:    &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true, ExpectContinueTimeout: time.Second},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, _ error) { panic(http.ErrAbortHandler) },
	}
	p.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.serve(w, r, forward) })}
	go func() { _ = p.server.Serve(l) }() // ends with close
	return p, nil
}

func (p *s3proxy) behave() { p.fault.Store(int32(s3good)) }

func (p *s3proxy) misbehave(f s3fault) { p.fault.Store(int32(f)) }

func (p *s3proxy) close() error { return p.server.Close() }

func (p *s3proxy) serve(w http.ResponseWriter, r *http.Request, forward http.Handler) {
	f := s3fault(p.fault.Load())
	if f != s3good {
		p.hits.Add(1)
	}
	switch f {
	case s3flaky:
		if rand.IntN(2) == 0 {
			forward.ServeHTTP(w, r)
			return
		}
		slowDown(w)
	case s3unavailable:
		slowDown(w)
	case s3stall:
		stall(r.Context(), time.Minute)
		panic(http.ErrAbortHandler)
	case s3slow:
		stall(r.Context(), time.Second)
		forward.ServeHTTP(w, r)
	case s3truncate:
		forward.ServeHTTP(&halfWriter{ResponseWriter: w}, r)
	case s3drop:
		forward.ServeHTTP(&noWriter{header: http.Header{}}, r)
		panic(http.ErrAbortHandler)
	default:
		forward.ServeHTTP(w, r)
	}
}

func slowDown(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(http.StatusServiceUnavailable)
	fmt.Fprint(w, `<?xml version="1.0"?><Error><Code>SlowDown</Code><Message>reduce your request rate</Message></Error>`)
}

func stall(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// halfWriter passes on half of an announced body and then cuts the connection.
type halfWriter struct {
	http.ResponseWriter
	left int64
}

func (h *halfWriter) WriteHeader(status int) {
	length, err := strconv.ParseInt(h.Header().Get("Content-Length"), 10, 64)
	if err != nil {
		length = 200 // chunked, as listings are
	}
	h.left = length / 2
	h.ResponseWriter.WriteHeader(status)
}

func (h *halfWriter) Write(b []byte) (int, error) {
	n, err := h.ResponseWriter.Write(b[:min(int64(len(b)), h.left)])
	h.left -= int64(n)
	if err == nil && h.left == 0 {
		if f, ok := h.ResponseWriter.(http.Flusher); ok {
			f.Flush()
		}
		panic(http.ErrAbortHandler)
	}
	return n, err
}

// noWriter swallows the answer.
type noWriter struct{ header http.Header }

func (n *noWriter) Header() http.Header         { return n.header }
func (n *noWriter) WriteHeader(int)             {}
func (n *noWriter) Write(b []byte) (int, error) { return len(b), nil }
