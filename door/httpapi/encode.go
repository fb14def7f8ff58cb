package httpapi

import (
	"encoding/base64"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/budget"
)

// encoder writes JSON to w in pieces, so that a large event is never in memory as a whole in its
// escaped form.
type encoder struct {
	w   io.Writer
	buf []byte
	err error // the first error of w; nothing is written after it
}

const (
	pieceBytes = 16 << 10
	chunkBytes = 3 << 10 // bytes of a value that are encoded in one step; a multiple of three, for base64
)

func newEncoder(w io.Writer) *encoder { return &encoder{w: w, buf: make([]byte, 0, encoderKept)} }

const (
	encoderKept  = 1 << 10  // bytes that an encoder keeps while it has nothing to write
	encoderBytes = 40 << 10 // bytes that it may have while it writes: a piece, a chunk in its escaped form, and what append adds
)

// rest gives the memory back that the encoder does not need until it writes again.
func (e *encoder) rest() {
	if len(e.buf) == 0 && cap(e.buf) > encoderKept {
		e.buf = nil
	}
}

// pageEncoder returns an encoder for a page that is the whole answer and holds the claim's memory.
// Call end before the claim is released.
func pageEncoder(c *call, claim *budget.Claim) (e *encoder, end func()) {
	p := &pageWriter{c: c}
	p.begin(claim)
	e = newEncoder(p)
	return e, func() {
		e.flush()
		p.finish()
	}
}

// spill writes the buffer once it has pieceBytes.
func (e *encoder) spill() {
	if len(e.buf) >= pieceBytes {
		e.flush()
	}
}

func (e *encoder) flush() {
	if e.err == nil && len(e.buf) > 0 {
		_, e.err = e.w.Write(e.buf)
	}
	e.buf = e.buf[:0]
}

func (e *encoder) string(s string) { e.buf = append(e.buf, s...) }
func (e *encoder) int(n int64)     { e.buf = strconv.AppendInt(e.buf, n, 10) }

// event writes an event as one line, without the line's end.
func (e *encoder) event(topic string, partition int32, rec *batch.Record) {
	e.place(topic, partition)
	e.string(`,"offset":`)
	e.int(rec.Offset)
	if rec.Timestamp != batch.NoTimestamp {
		e.string(`,"timestamp":`)
		e.int(rec.Timestamp)
	}
	e.content(rec.Key, rec.Value, rec.Headers)
	e.string(`}`)
}

// content writes the end of an object: key, value and headers.
func (e *encoder) content(key, value []byte, headers []batch.RecordHeader) {
	e.string(`,`)
	e.field("key", key)
	e.string(`,`)
	e.field("value", value)
	e.headerList("headers", headers)
}

// headerList writes headers under a name, if there are any.
func (e *encoder) headerList(name string, headers []batch.RecordHeader) {
	if len(headers) > 0 {
		e.string(`,"` + name + `":[`)
		for i, h := range headers {
			if i > 0 {
				e.string(`,`)
			}
			e.string(`{`)
			e.field("name", []byte(h.Key))
			e.string(`,`)
			e.field("value", h.Value)
			e.string(`}`)
		}
		e.string(`]`)
	}
}

// gapLine writes a gap as a line between events.
func (e *encoder) gapLine(topic string, partition int32, g gap) {
	e.place(topic, partition)
	e.string(`,"gap":`)
	e.gap(g)
	e.string("}\n")
}

// place starts an object with topic and partition. If topic is "", it is left out: the client reads
// only one topic.
func (e *encoder) place(topic string, partition int32) {
	e.string(`{`)
	if topic != "" {
		e.string(`"topic":"`)
		e.string(topic) // a topic's name needs no escaping
		e.string(`",`)
	}
	e.string(`"partition":`)
	e.int(int64(partition))
}

func (e *encoder) gap(g gap) {
	e.string(`{"from":`)
	e.int(int64(g.from))
	e.string(`,"to":`)
	e.int(int64(g.to))
	e.string("}")
}

// field writes bytes as text if they are UTF-8, otherwise in base64 with _b64 after the name. nil
// becomes null.
func (e *encoder) field(name string, value []byte) {
	e.string(`"`)
	e.string(name)
	switch {
	case value == nil:
		e.string(`":null`)
	case utf8.Valid(value):
		e.string(`":"`)
		e.text(value)
		e.string(`"`)
	default:
		e.string(`_b64":"`)
		for len(value) > 0 {
			n := min(len(value), chunkBytes)
			e.buf = base64.StdEncoding.AppendEncode(e.buf, value[:n])
			value = value[n:]
			e.spill()
		}
		e.string(`"`)
	}
}

// text writes the contents of a JSON string, without quotes.
func (e *encoder) text(value []byte) {
	for len(value) > 0 {
		n := min(len(value), chunkBytes)
		e.buf = appendEscaped(e.buf, value[:n])
		value = value[n:]
		e.spill()
	}
}

// appendEscaped escapes what JSON requires. A character may be split between two calls, because no
// byte of a multi-byte character is escaped.
func appendEscaped(b, text []byte) []byte {
	const hex = "0123456789abcdef"
	done := 0
	for i, c := range text {
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		b = append(b, text[done:i]...)
		done = i + 1
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(b, text[done:]...)
}
