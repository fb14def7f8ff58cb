package httpapi

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/weir-log/weir/internal/budget"
)

// Bounds of bodies.
const (
	bodyMax  = 16 << 20 // also after decompression
	bodyFree = 16 << 10 // read without a claim on Server.bodies

	windowMax = 8 << 20  // most memory that a zstd body may ask of its decompressor
	unzipMax  = 64 << 10 // memory of gzip's decompressor

	bodyGrace = 10 * time.Second // time for any body to arrive
	bodyRate  = 64 << 10         // bytes a second: the time that the body's bytes take at this rate is added to bodyGrace
	bodyLong  = time.Second      // a body that takes longer counts as a wait: rights may have ended meanwhile
)

// bodyTime is how long a request's body has to arrive.
func bodyTime(r *http.Request) time.Duration {
	size := r.ContentLength
	if size < 0 || size > bodyMax {
		size = bodyMax
	}
	return bodyGrace + time.Duration(size/bodyRate)*time.Second
}

// timeBody sets the deadline for a request's body. It also bounds the reading of a body that no
// handler reads. At the end of the body net/http removes the deadline, so that it does not limit
// the wait for the store.
func timeBody(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength == 0 {
		return
	}
	readBy(w, time.Now().Add(bodyTime(r)))
}

func readBy(w http.ResponseWriter, deadline time.Time) {
	_ = http.NewResponseController(w).SetReadDeadline(deadline) // fails only if a test has no connection
}

// body reads and decompresses the whole body. If no memory of Server.bodies is free, it waits for
// it. While other requests wait, a client that sends nothing for budget.SilentMax is disconnected.
// After a body that took long to arrive, body checks again that the client may do what it asks for.
// The claim is released when the call ends. The caller owns the bytes.
func (s *Server) body(c *call) ([]byte, error) {
	if c.r.ContentLength == 0 {
		return nil, nil
	}
	encoding := strings.ToLower(c.r.Header.Get("Content-Encoding"))
	with, known := unpackers[encoding]
	if !known {
		c.Header().Set("Accept-Encoding", "gzip, zstd")
		return nil, kindMediaType.because("Content-Encoding %s is not supported; use gzip or zstd, or send the body without an encoding", shorten(encoding))
	}
	began := time.Now()
	if c.r.ContentLength > bodyMax {
		return nil, kindTooLarge.past(bodyMax, "the body has %d bytes; the limit is %d", c.r.ContentLength, bodyMax)
	}
	src, size := io.Reader(c.r.Body), c.r.ContentLength
	if size < 0 {
		src = http.MaxBytesReader(c.ResponseWriter, c.r.Body, bodyMax)
	}
	c.memory = s.bodies.Begin()
	c.memory.Moves(func() { readBy(c.ResponseWriter, time.Unix(1, 0)) })
	b, err := readBody(&arriving{c: c, src: src, by: began.Add(bodyTime(c.r))}, size)
	if c.memory.Rests() {
		err = kindSlowBody.because("no byte of the body arrived for %v, while other clients waited for memory. Nothing happened; try again", budget.SilentMax)
	}
	if time.Since(began) > bodyLong {
		c.restartTimeout()
	}
	if err == nil && with != nil {
		b, err = unpack(c, b, with)
	}
	if err != nil {
		return nil, unreadable(err)
	}
	if time.Since(began) > bodyLong {
		err = s.stillMay(c)
	}
	return b, err
}

// releaseBody releases the body's claim on Server.bodies, once the body is not needed any more.
func (c *call) releaseBody() {
	c.s.keyBodies.add(c.who, -c.memory.Held())
	c.memory.Release()
}

func (c *call) shrinkBody(n int64) {
	c.s.keyBodies.add(c.who, -n)
	c.memory.Shrink(n)
}

// claimMemory waits for n bytes of Server.bodies, which the call holds until its end.
func (c *call) claimMemory(n int64) (waited time.Duration, err error) {
	if share := c.s.keyBodies.most; !c.s.keyBodies.take(c.who, n, c.memory.Held()) {
		return 0, kindTooManyCalls.past(share, "request bodies of the %s already take %d bytes of memory, the limit for one client. Nothing happened; try again when some of its requests are answered", c.who, share)
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), storeTimeout)
	defer cancel()
	held := c.memory.Held()
	if waited, err = c.memory.Grow(ctx, n); err != nil {
		c.s.keyBodies.add(c.who, c.memory.Held()-held-n) // the claim may have been granted at the last moment
		return waited, kindOverloaded.past(c.s.cfg.limits.BodyBytes, "request bodies already take %d bytes of memory, the limit. Nothing happened; try again, or send smaller bodies", c.s.cfg.limits.BodyBytes)
	}
	return waited, nil
}

// arriving reads a body as its client sends it.
type arriving struct {
	c   *call
	src io.Reader
	by  time.Time // when all of it must be there
}

func (a *arriving) Read(b []byte) (int, error) {
	n, err := a.src.Read(b)
	a.c.memory.Progress()
	return n, err
}

// grow claims memory for more of the body. The client's time does not run while this waits.
func (a *arriving) grow(n int64) error {
	waited, err := a.c.claimMemory(n)
	if waited > 0 && err == nil {
		a.by = a.by.Add(waited)
		readBy(a.c.ResponseWriter, a.by)
	}
	return err
}

// unpacker decompresses bodies. memory is how many bytes the decompressor itself needs.
type unpacker struct {
	open   func(io.Reader) (io.ReadCloser, error)
	memory int64
}

// unpackers are the unpackers by Content-Encoding; nil means that the body is not compressed.
var unpackers = map[string]*unpacker{
	"": nil, "identity": nil, "gzip": {unzip, unzipMax}, "x-gzip": {unzip, unzipMax}, "zstd": {unzstd, windowMax},
}

func unzip(src io.Reader) (io.ReadCloser, error) { return gzip.NewReader(src) }

func unzstd(src io.Reader) (io.ReadCloser, error) {
	d, err := zstd.NewReader(src, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(windowMax))
	if err != nil {
		return nil, err
	}
	return d.IOReadCloser(), nil
}

// unpack decompresses a body that has arrived, so that a slow client does not hold a decompressor.
func unpack(c *call, packed []byte, with *unpacker) ([]byte, error) {
	arrived := c.memory.Held()
	if _, err := c.claimMemory(with.memory); err != nil {
		return nil, err
	}
	r, err := with.open(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b, err := readBody(unpacking{c, r}, -1)
	c.shrinkBody(arrived + with.memory) // neither the compressed body nor the decompressor is needed any more
	return b, err
}

// unpacking reads a body as it is decompressed.
type unpacking struct {
	c *call
	io.Reader
}

func (u unpacking) grow(n int64) error {
	_, err := u.c.claimMemory(n)
	return err
}

// growing is the source of a body: grow claims memory for n more bytes of the body.
type growing interface {
	io.Reader
	grow(n int64) error
}

// readBody reads all of src: size bytes, or an unknown number if size is -1. It claims memory as
// the bytes arrive, so that a client that announces a large body and sends nothing costs nothing.
func readBody(src growing, size int64) ([]byte, error) {
	most := int64(bodyMax)
	if size >= 0 {
		most = size
	}
	b, has := make([]byte, 0, min(most, bodyFree)), int64(0) // has counts the claimed bytes
	for {
		if len(b) == cap(b) {
			if int64(len(b)) == most {
				return b, atEnd(src, most)
			}
			room := min(2*int64(cap(b)), most)
			if err := src.grow(room - has); err != nil {
				return nil, err
			}
			has = room
			b = append(make([]byte, 0, room), b...)
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
		return kindSlowBody.because("the body must arrive within %v, plus a second for each %d bytes of its Content-Length", bodyGrace, bodyRate)
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return kindTooLarge.past(bodyMax, "the body needs more memory to be decompressed than weir allows; send it in several requests")
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
		return nil, kindMediaType.because("Content-Type is %q; it must be application/json", shorten(media))
	}
	return s.body(c)
}

// noBody refuses a request that has a body.
func (s *Server) noBody(c *call) error {
	if c.r.ContentLength == 0 {
		return nil
	}
	body, err := s.body(c)
	if err == nil && len(body) > 0 {
		err = kindInvalidRequest.because("this request takes no body, but this one has %d bytes; leave it out", len(body))
	}
	return err
}
