package kafka

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/weir-log/weir/internal/budget"
)

// A request on the wire:
//
//	0        4      6         8             12
//	| length | key  | version | correlation | client id | tags | body
//	         |<------------------- length ------------------------->|
//
// The client id is a nullable string with a two-byte length, even in flexible versions. Tags are
// there in flexible versions only.
const (
	lengthSize    = 4
	headerMin     = 8       // key, version and correlation
	smallFrameMax = 4 << 20 // largest request of any key but Produce
	readBuffer    = 4 << 10 // a frame's first bytes: they must have arrived before memory is claimed for the rest
)

// refusal is the reason why the server closes a connection.
type refusal struct {
	reason string // one of a few fixed words, for metrics
	text   string
	answer string // plain text for a client that does not speak Kafka

	lacks, clientID string // a feature that weir does not have, and the client that used it: logged once
}

func (r *refusal) Error() string { return r.text }

func refuse(reason, format string, args ...any) *refusal {
	return &refusal{reason: reason, text: fmt.Sprintf(format, args...)}
}

// header is the beginning of a request, before the client id.
type header struct {
	length       int
	key, version int16
	correlation  int32
}

// readHeader peeks at the next frame: it neither consumes it nor allocates memory for it.
func readHeader(in *bufio.Reader, httpAddr string, at *Listener) (header, error) {
	first, err := in.Peek(lengthSize)
	if err != nil {
		return header{}, err
	}
	if r := otherProtocol(first, httpAddr, at); r != nil {
		return header{}, r
	}
	length := int32(binary.BigEndian.Uint32(first))
	if length < headerMin {
		return header{}, refuse("bad_length", "the frame length is %d; a request has at least %d bytes", length, headerMin)
	}
	b, err := in.Peek(lengthSize + headerMin)
	if err != nil {
		return header{}, err
	}
	return header{
		length:      int(length),
		key:         int16(binary.BigEndian.Uint16(b[4:])),
		version:     int16(binary.BigEndian.Uint16(b[6:])),
		correlation: int32(binary.BigEndian.Uint32(b[8:])),
	}, nil
}

// A frame's memory grows while it arrives: frameFirst bytes at first, then frameGrows times what
// has arrived.
const (
	frameFirst = 64 << 10
	frameGrows = 4
)

// readFrame reads the frame that readHeader peeked at and returns the bytes after the header:
// client id, tags and body. The caller owns the bytes: the batches of a produce request are slices
// of them. Memory is claimed as bytes arrive, unless free is set.
func (c *conn) readFrame(ctx context.Context, h header, claim *budget.Claim, free bool) ([]byte, error) {
	if _, err := c.in.Discard(lengthSize + headerMin); err != nil {
		return nil, err
	}
	if free { // it fits into readBuffer, so it has arrived
		b := make([]byte, h.length-headerMin)
		_, err := io.ReadFull(c.in, b)
		return b, err
	}
	claim.Moves(func() { c.nc.SetReadDeadline(time.Unix(1, 0)) })
	defer claim.Rests()
	var b []byte
	for size := 0; len(b) < h.length-headerMin; {
		more := min(h.length-headerMin, max(frameFirst, frameGrows*size)) - size
		waited, err := claim.Grow(ctx, int64(more))
		if err != nil {
			return nil, err
		}
		if waited > 0 { // the wait for memory does not count against the client
			c.deadline = c.deadline.Add(waited)
			c.nc.SetReadDeadline(c.deadline)
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
		}
		size += more
		b = append(make([]byte, 0, size), b...)
		if b, err = c.fill(b, claim); err != nil {
			if claim.Rests() {
				return nil, refuse("slow_frame", "only %d bytes of a request of %d bytes arrived, and then none for %v, while other clients waited for memory", len(b), h.length, budget.SilentMax)
			}
			return nil, c.readFailed(err)
		}
	}
	return b, nil
}

// fill reads until b is full.
func (c *conn) fill(b []byte, claim *budget.Claim) ([]byte, error) {
	for len(b) < cap(b) {
		piece := b[len(b):min(cap(b), len(b)+frameFirst)]
		n, err := io.ReadFull(c.in, piece)
		b = b[:len(b)+n]
		if err != nil {
			return b, err
		}
		claim.Progress()
	}
	return b, nil
}

// shorten cuts a client's text for logs and answers.
func shorten(s string) string {
	if len(s) > shortenedMax {
		return s[:shortenedMax] + "…"
	}
	return s
}

const shortenedMax = 64

// otherProtocol recognises clients of other protocols by their first four bytes. Read as a
// frame's length, each of these would be more than 350 MB.
func otherProtocol(first []byte, httpAddr string, at *Listener) *refusal {
	switch p := string(first); p {
	case "GET ", "POST", "PUT ", "HEAD", "DELE", "OPTI", "PATC", "CONN", "TRAC", "PRI ":
		r := refuse("http", "an HTTP client connected to the Kafka port")
		text := "This is the Kafka port."
		if httpAddr != "" {
			text += " HTTP is on " + httpAddr + "."
		}
		r.answer = fmt.Sprintf("HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s\n", len(text)+1, text)
		return r
	case "SSH-":
		r := refuse("ssh", "an SSH client connected to the Kafka port")
		r.answer = "This is the Kafka port.\r\n"
		return r
	default:
		if strings.HasPrefix(p, "\x16\x03") || strings.HasPrefix(p, "\x15\x03") {
			r := refuse("tls", "a TLS client connected to a listener without TLS: set security.protocol=%s in the client", at.protocol())
			r.answer = "\x15\x03\x01\x00\x02\x02\x46" // a fatal alert, protocol_version: the client reports it immediately
			return r
		}
		return nil
	}
}
