package s3front

import (
	"bufio"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
)

// spooled is a body in a temporary file.
type spooled struct {
	*os.File
	size int64
}

// Size is the body's length in bytes.
func (f *spooled) Size() int64 { return f.size }

func (f *spooled) remove() {
	f.Close()
	os.Remove(f.Name())
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const checksumHeader = "X-Amz-Checksum-Crc32c"

// spool reads a request's body into a temporary file and compares its checksum
// when it has one. The caller removes the file.
func (s *Server) spool(r *http.Request) (_ *spooled, sum uint32, err error) {
	file, err := os.CreateTemp(s.temp, "body-")
	if err != nil {
		return nil, 0, err
	}
	f := &spooled{File: file}
	defer func() {
		if err != nil {
			f.remove()
		}
	}()
	var body io.Reader = r.Body
	var chunks *chunkReader
	want := r.Header.Get(checksumHeader)
	if strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING-") {
		chunks = &chunkReader{r: bufio.NewReader(r.Body)}
		body = chunks
	}
	crc := crc32.New(castagnoli)
	if f.size, err = io.Copy(io.MultiWriter(file, crc), body); err != nil {
		return nil, 0, refuse(http.StatusBadRequest, "IncompleteBody", "the body ended early: %v", err)
	}
	if chunks != nil && want == "" {
		want = chunks.checksum
	}
	if sum = crc.Sum32(); want != "" && want != base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, sum)) {
		return nil, 0, refuse(http.StatusBadRequest, "BadDigest", "the body is not what its checksum says")
	}
	return f, sum, nil
}

// chunkReader reads a body in aws-chunked coding: size in hexadecimal, perhaps
// with a signature, the bytes, and after the last chunk, of size 0, the
// trailer's fields.
type chunkReader struct {
	r        *bufio.Reader
	left     int64
	begun    bool
	done     bool
	checksum string
}

// chunkLineMax bounds a chunk's header and a field of the trailer.
const chunkLineMax = 4096

var errChunk = errors.New("malformed chunk")

func (c *chunkReader) Read(p []byte) (int, error) {
	for c.left == 0 {
		if c.done {
			return 0, io.EOF
		}
		if err := c.next(); err != nil {
			return 0, err
		}
	}
	n, err := c.r.Read(p[:min(int64(len(p)), c.left)])
	if c.left -= int64(n); err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (c *chunkReader) next() error {
	if c.begun { // the line break after a chunk's bytes
		if line, err := c.line(); err != nil || line != "" {
			return errors.Join(errChunk, err)
		}
	}
	c.begun = true
	line, err := c.line()
	if err != nil {
		return err
	}
	text, _, _ := strings.Cut(line, ";")
	if c.left, err = strconv.ParseInt(text, 16, 64); err != nil || c.left < 0 {
		return errors.Join(errChunk, err)
	}
	if c.left > 0 {
		return nil
	}
	for c.done = true; ; {
		field, err := c.line()
		if err != nil && err != io.ErrUnexpectedEOF {
			return err
		}
		if field == "" || err != nil {
			return nil // bodies without a trailer may end right after the last chunk
		}
		if name, value, _ := strings.Cut(field, ":"); strings.EqualFold(name, checksumHeader) {
			c.checksum = strings.TrimSpace(value)
		}
	}
}

// line reads up to a line break.
func (c *chunkReader) line() (string, error) {
	var b strings.Builder
	for b.Len() < chunkLineMax {
		ch, err := c.r.ReadByte()
		switch {
		case err == io.EOF:
			return b.String(), io.ErrUnexpectedEOF
		case err != nil:
			return "", err
		case ch == '\n':
			return strings.TrimSuffix(b.String(), "\r"), nil
		}
		b.WriteByte(ch)
	}
	return "", errChunk
}
