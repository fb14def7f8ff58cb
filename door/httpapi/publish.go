package httpapi

import (
	"encoding/base64"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/use/publish"
)

// publishOne publishes the body as the value of one event.
func (s *Server) publishOne(c *call) error {
	event, err := describedEvent(c)
	if err != nil {
		return err
	}
	tombstone := event.Value == nil
	if event.Value, err = s.body(c); err != nil {
		return err
	}
	switch {
	case tombstone && len(event.Value) > 0:
		return kindInvalidRequest.because("a tombstone has no value, but the body has %d bytes; send no body", len(event.Value))
	case !tombstone && event.Value == nil:
		event.Value = []byte{}
	}
	placed, err := s.publish(c, event)
	if err != nil {
		return err
	}
	c.Header()["Content-Type"] = jsonType
	c.send(http.StatusOK, append(appendPlaced(make([]byte, 0, 64), placed[0]), '\n'))
	return nil
}

// onceKeyMax bounds the characters of an idempotency key.
const onceKeyMax = 255

// publish publishes events: exactly once if the request has an idempotency key.
func (s *Server) publish(c *call, events ...publish.Event) ([]publish.Placed, error) {
	ctx, cancel := c.withTimeout()
	defer cancel()
	keys := c.r.Header["Idempotency-Key"]
	if len(keys) == 0 {
		return s.cfg.Publisher.Publish(ctx, events...)
	}
	if len(keys) > 1 || len(keys[0]) > onceKeyMax || !isToken(keys[0]) {
		return nil, kindInvalidRequest.because("send one Idempotency-Key, with 1 to %d printable ASCII characters and no space", onceKeyMax)
	}
	placed, repeated, err := s.cfg.Publisher.PublishOnceIn(ctx, events[0].Topic, keys[0], events...)
	if repeated {
		c.Header().Set("Idempotent-Replayed", "true")
	}
	return placed, err
}

func appendPlaced(b []byte, p publish.Placed) []byte {
	b = strconv.AppendInt(append(b, `{"partition":`...), int64(p.Partition), 10)
	b = strconv.AppendInt(append(b, `,"offset":`...), int64(p.Offset), 10)
	return append(b, '}')
}

// describedEvent reads an event's key, headers and options from the request. The value is the body;
// nil only for a tombstone.
func describedEvent(c *call) (publish.Event, error) {
	e := publish.Event{Topic: c.r.PathValue("topic"), Value: []byte{}}
	if err := eventlog.CheckTopicName(e.Topic); err != nil {
		return e, err
	}
	var err error
	q := c.query
	if e.Key, err = keyOf(c.r.Header["Weir-Key"], q); err != nil {
		return e, err
	}
	if e.Headers, err = headersOf(c.r.Header); err != nil {
		return e, err
	}
	if q == nil {
		return e, nil
	}
	if q.Has("partition") {
		n, err := number(q, "partition", 0, math.MaxInt32, 0)
		if err != nil {
			return e, err
		}
		p := int32(n)
		e.Partition = &p
	}
	if q.Has("timestamp") {
		n, err := number(q, "timestamp", 0, timestampMax, 0)
		if err != nil {
			return e, err
		}
		e.Time = time.UnixMilli(n)
	}
	tombstone, err := truth(q, "tombstone")
	if tombstone {
		e.Value = nil
	}
	return e, err
}

// timestampMax is the end of the year 9999, in Unix milliseconds.
const timestampMax = 253402300799999

// keyOf reads the event's key from one of the three places where it may be.
func keyOf(header []string, q url.Values) ([]byte, error) {
	given := len(header)
	var key []byte
	if len(header) > 0 {
		key = []byte(header[0])
	}
	if q.Has("key") {
		given++
		key = []byte(q.Get("key"))
	}
	if q.Has("key_b64") {
		given++
		var err error
		if key, err = base64.StdEncoding.Strict().DecodeString(q.Get("key_b64")); err != nil {
			return nil, kindInvalidRequest.because("key_b64 is not valid base64 (RFC 4648, with padding; in a URL write + as %%2B)")
		}
	} else if !utf8.Valid(key) {
		return nil, kindInvalidRequest.because("the key is not valid UTF-8; send a binary key as key_b64")
	}
	if given > 1 {
		return nil, kindInvalidRequest.because("the key is given %d times; give it once: in the header Weir-Key, in key or in key_b64", given)
	}
	return key, nil
}

// headersOf reads the event's own headers from the request's: each Weir-Header is one,
// "name=value", in their order. The request's trace context is added.
func headersOf(h http.Header) ([]batch.RecordHeader, error) {
	var out []batch.RecordHeader
	for _, line := range h["Weir-Header"] {
		name, value, ok := strings.Cut(line, "=")
		switch {
		case !ok || name == "":
			return nil, kindInvalidRequest.because("Weir-Header: %s: it must be name=value", shorten(line))
		case !utf8.ValidString(line):
			return nil, kindInvalidRequest.because("Weir-Header is not valid UTF-8; send a binary header in base64 with POST …/batch")
		}
		out = append(out, batch.RecordHeader{Key: name, Value: []byte(value)})
	}
	return withTrace(out, traceOf(h)), nil
}

// traceOf returns the request's trace context (W3C) as headers of an event.
func traceOf(h http.Header) (trace []batch.RecordHeader) {
	parent := h["Traceparent"]
	if len(parent) != 1 || len(parent[0]) > traceMax {
		return nil
	}
	trace = append(trace, batch.RecordHeader{Key: eventlog.TraceParent, Value: []byte(parent[0])})
	if state := strings.Join(h["Tracestate"], ","); state != "" && len(state) <= traceMax {
		trace = append(trace, batch.RecordHeader{Key: eventlog.TraceState, Value: []byte(state)})
	}
	return trace
}

// withTrace adds a trace context to an event that has none of its own.
func withTrace(headers, trace []batch.RecordHeader) []batch.RecordHeader {
	if len(trace) == 0 {
		return headers
	}
	if _, has := eventlog.TraceOf(headers); has {
		return headers
	}
	return append(headers, trace...)
}

// traceMax bounds the length of each part of a trace context; W3C requires at least 512 characters
// of tracestate.
const traceMax = 512
