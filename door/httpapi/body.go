package httpapi

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
)

// Bounds of bodies.
const (
	bodyMax  = 16 << 20 // also after decompression
	bodyFree = 16 << 10 // read without a claim on Server.bodies

	windowMax    = 8 << 20 // largest window of a zstd body
	unpackingMax = 4       // bodies being decompressed at once

	bodyGrace = 10 * time.Second // for a body to arrive, and more for a large one:
	bodyRate  = 64 << 10         // bytes a second
)

// timeBody sets the deadline for a request's body. It also bounds the reading of a body that no handler reads. At the end of the body net/http
// removes the deadline, so that it does not limit the wait for the store.
func timeBody(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength == 0 {
		return
	}
	size := r.ContentLength
	if size < 0 || size > bodyMax {
		size = bodyMax
	}
	deadline := time.Now().Add(bodyGrace + time.Duration(size/bodyRate)*time.Second)
	_ = http.NewResponseController(w).SetReadDeadline(deadline) // fails only where a test has no connection
}

// body reads and decompresses the whole body. Its claim on Server.bodies is released when the call ends. The caller owns
// the bytes.
func (s *Server) body(c *call) ([]byte, error) {
	if c.r.ContentLength == 0 {
		return nil, nil
	}
	encoding := strings.ToLower(c.r.Header.Get("Content-Encoding"))
	unpack, known := unpackers[encoding]
	if !known {
		c.Header().Set("Accept-Encoding", "gzip, zstd")
		return nil, kindMediaType.because("Content-Encoding: %s is not known here; send gzip, zstd or none", shorten(encoding))
	}
	began := time.Now()
	if c.r.ContentLength > bodyMax {
		return nil, kindTooLarge.past(bodyMax, "the body has %d bytes; the limit is %d", c.r.ContentLength, bodyMax)
	}
	src, size := io.Reader(c.r.Body), c.r.ContentLength
	if size < 0 {
		src = http.MaxBytesReader(c.ResponseWriter, c.r.Body, bodyMax)
	}
	b, err := s.readBody(c, src, size)
	if took := time.Since(began); took > time.Second {
		c.restartTimeout()
	}
	if err == nil && unpack != nil {
		b, err = s.unpack(c, b, unpack)
	}
	if err != nil {
		return nil, unreadable(err)
	}
	return b, nil
}

// releaseBody releases the body's claim on Server.bodies, once the body is not needed any more.
func (c *call) releaseBody(s *Server) {
	s.bodies.Release(c.held)
	c.held = 0
}

// unpackers are the decompressors by Content-Encoding; nil: not compressed.
var unpackers = map[string]func(io.Reader) (io.ReadCloser, error){
	"": nil, "identity": nil, "gzip": unzip, "x-gzip": unzip, "zstd": unzstd,
}

func unzip(src io.Reader) (io.ReadCloser, error) { return gzip.NewReader(src) }

func unzstd(src io.Reader) (io.ReadCloser, error) {
	d, err := zstd.NewReader(src, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(windowMax))
	if err != nil {
		return nil, err
	}
	return d.IOReadCloser(), nil
}

// unpack decompresses a body that has arrived completely. A decompressor needs up to windowMax, as the body's header says: so there are at
// most unpackingMax, and none waits for a slow client.
func (s *Server) unpack(c *call, packed []byte, open func(io.Reader) (io.ReadCloser, error)) ([]byte, error) {
	ctx, cancel := c.withTimeout()
	defer cancel()
	if err := s.unpacking.Acquire(ctx, 1); err != nil {
		return nil, kindOverloaded.because("too many compressed bodies wait to be decompressed. Nothing happened; try again")
	}
	defer s.unpacking.Release(1)
	arrived := c.held
	r, err := open(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b, err := s.readBody(c, r, -1)
	s.bodies.Release(arrived) // the compressed bytes are not needed any more
	c.held -= arrived
	return b, err
}

// readBody reads all of src: size bytes, or -1 if the size is unknown. It claims memory as the bytes arrive, so that a
// client that announces a large body and sends nothing costs nothing.
func (s *Server) readBody(c *call, src io.Reader, size int64) ([]byte, error) {
	most := int64(bodyMax)
	if size >= 0 {
		most = size
	}
	b, has := make([]byte, 0, min(most, bodyFree)), int64(0) // of Server.bodies
	for {
		if len(b) == cap(b) {
			if int64(len(b)) == most {
				return b, atEnd(src, most)
			}
			grown := min(2*int64(cap(b)), most)
			if !s.bodies.TryAcquire(grown - has) {
				return nil, kindOverloaded.because("too many large bodies are being read at once. Nothing happened; try again, or send less at a time")
			}
			c.held += grown - has
			has = grown
			b = append(make([]byte, 0, grown), b...)
		}
		n, err := src.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case err == io.EOF && size >= 0 && int64(len(b)) < size:
			return nil, io.ErrUnexpectedEOF
		case err == io.EOF:
			return b, nil
		case err != nil:
			return nil, err
		}
	}
}

// atEnd checks that nothing follows the largest allowed body.
func atEnd(src io.Reader, most int64) error {
	var one [1]byte
	n, err := src.Read(one[:])
	switch {
	case n > 0:
		return kindTooLarge.past(most, "the body has more than %d bytes, the limit", most)
	case err == io.EOF:
		return nil
	default:
		return err
	}
}

// unreadable is the problem for a body that could not be read.
func unreadable(err error) error {
	var tooLarge *http.MaxBytesError
	var p *problem
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &tooLarge):
		return kindTooLarge.past(tooLarge.Limit, "the body has more than %d bytes, the limit", tooLarge.Limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return kindSlowBody.because("a body has %v, and a second more for each %d bytes of its Content-Length", bodyGrace, bodyRate)
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return kindTooLarge.past(bodyMax, "the body decompresses to more than may be held in memory")
	default:
		return kindInvalidRequest.because("the body cannot be read: %v", err)
	}
}

// mediaType returns the type of the body, without its parameters, in lower case.
func (c *call) mediaType() string {
	given := c.r.Header.Get("Content-Type")
	if media, _, err := mime.ParseMediaType(given); err == nil {
		return media
	}
	return given
}

// jsonBody reads a body that must be JSON.
func (s *Server) jsonBody(c *call) ([]byte, error) {
	if media := c.mediaType(); media != "application/json" {
		return nil, kindMediaType.because("Content-Type is %q; application/json is needed", shorten(media))
	}
	return s.body(c)
}
