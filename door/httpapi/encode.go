package httpapi

import (
	"encoding/base64"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/budget"
)

// encoder writes JSON to w in pieces, so that the largest event does not need room for its escaped whole.
type encoder struct {
	w   io.Writer
	buf []byte
	err error // the first that w returned; nothing is written after it
}

const (
	pieceBytes = 16 << 10
	chunkBytes = 3 << 10 // of a value, taken at once; a multiple of three, for base64
)

func newEncoder(w io.Writer) *encoder { return &encoder{w: w, buf: make([]byte, 0, 1<<10)} }

// pageEncoder writes a page that is the whole answer, and holds so much memory. end must be called before the claim is released.
func pageEncoder(c *call, claim *budget.Claim) (e *encoder, end func()) {
	p := &pace{c: c}
	p.begin(claim)
	e = newEncoder(p)
	return e, func() {
		e.flush()
		p.rest()
	}
}

// spill writes what has gathered once that is enough.
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

// event writes an event as one line, without its end.
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

// content writes the rest of an object: a key, a value and headers.
func (e *encoder) content(key, value []byte, headers []batch.RecordHeader) {
	e.string(`,`)
	e.field("key", key)
	e.string(`,`)
	e.field("value", value)
	if len(headers) > 0 {
		e.string(`,"headers":[`)
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

// gapLine writes a gap as a line of its own among events.
func (e *encoder) gapLine(topic string, partition int32, g gap) {
	e.place(topic, partition)
	e.string(`,"gap":`)
	e.gap(g)
	e.string("}\n")
}

// place begins an object with where it is about. Only readers of several topics need the topic; for others it is "".
func (e *encoder) place(topic string, partition int32) {
	e.string(`{`)
	if topic != "" {
		e.string(`"topic":"`)
		e.string(topic) // nothing in a topic's name needs escaping
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

// field writes bytes as text where they are UTF-8, else under the name with _b64, in base64. nil becomes null.
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

// text writes the inside of a JSON string.
func (e *encoder) text(value []byte) {
	for len(value) > 0 {
		n := min(len(value), chunkBytes)
		e.buf = appendEscaped(e.buf, value[:n])
		value = value[n:]
		e.spill()
	}
}

// appendEscaped escapes what JSON demands. A character may lie across two calls: none of its bytes is escaped.
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
