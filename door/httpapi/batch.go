package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/use/publish"
)

const (
	eventsMax     = 10_000  // most events of one request, and of one answer
	eventsDefault = 1000    // most events of an answer if the client gives no number
	headersMax    = 100_000 // most headers of one request
)

// item is one event of a batch, or its error.
type item struct {
	event publish.Event
	err   error
}

// publishMany publishes the events of a body: all or none, or with partial=true each independently.
func (s *Server) publishMany(c *call) error {
	topic := c.r.PathValue("topic")
	if err := eventlog.CheckTopicName(topic); err != nil {
		return err
	}
	partial, err := truth(c.query, "partial")
	if err != nil {
		return err
	}
	if partial && c.r.Header["Idempotency-Key"] != nil {
		return kindInvalidRequest.because("partial=true and Idempotency-Key cannot be used together: weir could not give a repeated request the first answer. Leave out one of them")
	}
	parse := parseEvents
	switch media := c.mediaType(); media {
	case "application/json":
	case "application/x-ndjson", "application/ndjson", "application/jsonl":
		parse = parseLines
	default:
		return kindMediaType.because("Content-Type is %q; it must be application/json or application/x-ndjson", shorten(media))
	}
	body, err := s.body(c)
	if err != nil {
		return err
	}
	parsed, err := c.claimItems(body)
	if err != nil {
		return err
	}
	items, headers, err := parse(body, partial)
	if err != nil {
		return err
	}
	if len(items) == 0 {
		return kindInvalidRequest.because("the body has no events")
	}
	if err := parsed(len(items), headers); err != nil {
		return err
	}
	trace := traceOf(c.r.Header)
	for i := range items {
		items[i].event.Topic = topic
		items[i].event.Headers = withTrace(items[i].event.Headers, trace)
	}
	if partial {
		return s.publishEach(c, items)
	}
	events := make([]publish.Event, len(items))
	for i := range items {
		events[i] = items[i].event
	}
	answer, err := c.claimOutcomes(len(events), placedBytes)
	if err != nil {
		return err
	}
	defer answer.Release()
	placed, err := s.publish(c, events...)
	if err != nil {
		return err
	}
	c.sendOutcomes(http.StatusOK, "events", len(placed), answer, func(b []byte, i int) []byte { return appendPlaced(b, placed[i]) })
	return nil
}

// publishEach publishes the valid events, in order, and answers for each event. It first publishes
// all of them together. If this is refused because of an event, it publishes those together that
// are not refused by themselves.
func (s *Server) publishEach(c *call, items []item) error {
	answer, err := c.claimOutcomes(len(items), problemBytes)
	if err != nil {
		return err
	}
	defer answer.Release()
	ctx, cancel := c.withTimeout()
	defer cancel()
	each := outcomes{errs: make([]error, len(items)), placed: make([]publish.Placed, len(items))}
	var good []publish.Event
	var at []int // the index of each in items
	for i := range items {
		if each.errs[i] = items[i].err; each.errs[i] == nil {
			good, at = append(good, items[i].event), append(at, i)
		}
	}
	if err := s.publishSome(ctx, good, at, each); serverFailed(err) {
		return err // it concerns all events
	} else if err != nil {
		good, at = s.acceptable(ctx, good, at, each)
		s.publishParts(ctx, good, at, each)
	}
	c.sendOutcomes(http.StatusMultiStatus, "events", len(items), answer, func(b []byte, i int) []byte { return appendItem(b, c, each.errs[i], each.placed[i]) })
	return nil
}

// outcomes are what became of each event of a request.
type outcomes struct {
	errs   []error
	placed []publish.Placed // where errs is nil
}

// publishSome publishes events, all or none. at is the index of each in the request.
func (s *Server) publishSome(ctx context.Context, events []publish.Event, at []int, each outcomes) error {
	if len(events) == 0 {
		return nil
	}
	placed, err := s.cfg.Publisher.Publish(ctx, events...)
	for k, where := range placed {
		each.placed[at[k]] = where
	}
	return err
}

// acceptable returns, in order, those of the events that the publisher does not refuse by
// themselves. The others get their errors. It calls the store at most once.
func (s *Server) acceptable(ctx context.Context, events []publish.Event, at []int, each outcomes) ([]publish.Event, []int) {
	n := 0
	for k := range events {
		_, _, err := s.cfg.Publisher.Choose(ctx, &events[k])
		switch {
		case err == nil:
			events[n], at[n] = events[k], at[k]
			n++
		case ofTheTopic(err):
			each.fail(at[:n], err)
			each.fail(at[k:], err)
			return nil, nil
		default:
			each.errs[at[k]] = err
		}
	}
	return events[:n], at[:n]
}

// publishParts publishes events together. If that is refused, which for acceptable events means
// that they are too large together, it publishes one half of them, and then the other.
func (s *Server) publishParts(ctx context.Context, events []publish.Event, at []int, each outcomes) {
	if ctx.Err() != nil {
		kind := s.kindOfLate()
		each.fail(at, kind.because("the request ran out of time before this event was sent to the store. It was not published; publish it again"))
		return
	}
	err := s.publishSome(ctx, events, at, each)
	switch half := len(events) / 2; {
	case err == nil:
	case half == 0 || ofTheTopic(err):
		each.fail(at, err)
	default:
		s.publishParts(ctx, events[:half], at[:half], each)
		s.publishParts(ctx, events[half:], at[half:], each)
	}
}

// kindOfLate is the kind of a part of a request whose turn did not come in the request's time.
func (s *Server) kindOfLate() kind {
	if errors.Is(s.cfg.Log.Late(time.Time{}), eventlog.ErrOverloaded) {
		return kindOverloaded
	}
	return kindUnavailable
}

// fail gives the events with these indexes an error.
func (o outcomes) fail(at []int, err error) {
	for _, i := range at {
		o.errs[i] = err
	}
}

// serverFailed reports whether an error is no refusal of what the client asked for.
func serverFailed(err error) bool {
	return err != nil && problemOf(err).Status >= http.StatusInternalServerError
}

// ofTheTopic reports whether the error of one event is that of all events for its topic.
func ofTheTopic(err error) bool {
	return serverFailed(err) || errors.Is(err, eventlog.ErrUnknownTopic)
}

// appendItem appends the outcome of one event.
func appendItem(b []byte, c *call, err error, at publish.Placed) []byte {
	if err == nil {
		return fmt.Appendf(b, `{"status":200,"partition":%d,"offset":%d}`, at.Partition, at.Offset)
	}
	p := c.problem(err)
	return fmt.Appendf(b, `{"status":%d,"problem":%s}`, problemOf(err).Status, p)
}

// parseEvents reads {"events": [...]}. With partial, an invalid event does not fail the other
// events, as long as it is JSON.
func parseEvents(body []byte, partial bool) (items []item, headers int, err error) {
	headers, err = eachEvent(body, func(r *jsonReader) (int, error) {
		it, err := parseItem(r, partial)
		items = append(items, it)
		return len(it.event.Headers), err
	})
	return items, headers, err
}

// eachEvent reads {"events": [...]}, and calls parse to read each event. parse returns the number
// of the event's headers, eachEvent their sum.
func eachEvent(body []byte, parse func(*jsonReader) (headers int, err error)) (headers int, err error) {
	seen, n := false, eventCount{}
	err = readJSON(body, 0, func(r *jsonReader) error {
		return r.object(func(name string) error {
			if name != "events" {
				return r.unknown(name, "events")
			}
			seen = true
			return n.array(r, parse)
		})
	})
	if err == nil && !seen {
		err = noEventsMember()
	}
	return n.headers, err
}

func noEventsMember() error { return kindInvalidJSON.because(`"events" is missing`) }

// eventCount counts the events of a request and their headers, which are bounded.
type eventCount struct{ events, headers int }

// array reads an array of events with parse, which returns the number of an event's headers.
func (n *eventCount) array(r *jsonReader, parse func(*jsonReader) (headers int, err error)) error {
	return r.array(func(int) error {
		if n.events++; n.events > eventsMax {
			return tooManyEvents()
		}
		headers, err := parse(r)
		if n.headers += headers; n.headers > headersMax {
			return tooManyHeaders()
		}
		return err
	})
}

// parseItem reads one event. With partial its error is kept, and the rest of its JSON is skipped.
func parseItem(r *jsonReader, partial bool) (it item, err error) {
	pos, depth, at := r.pos, r.depth, len(r.at) // the pointer only grows inside the event
	if it.event, err = parseEvent(r); err == nil || !partial {
		return it, err
	}
	it.err = err
	r.pos, r.depth, r.at = pos, depth, r.at[:at]
	_, err = r.raw()
	return it, err
}

// parseLines reads one event per line. Empty lines are skipped.
func parseLines(body []byte, partial bool) (items []item, headers int, err error) {
	for line := 0; len(body) > 0; line++ {
		text, rest, _ := bytes.Cut(body, []byte("\n"))
		body = rest
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		if len(items) == eventsMax {
			return nil, 0, tooManyEvents()
		}
		var it item
		it.err = readJSON(text, line, func(r *jsonReader) (err error) {
			it.event, err = parseEvent(r)
			return err
		})
		if it.err != nil && line == 0 && len(body) == 0 && bytes.Contains(text, []byte("}{")) {
			it.err = joinedLines(it.err)
		}
		if it.err != nil && !partial {
			return nil, 0, it.err
		}
		items = append(items, it)
		if headers += len(it.event.Headers); headers > headersMax {
			return nil, 0, tooManyHeaders()
		}
	}
	return items, headers, nil
}

// joinedLines explains an error that occurs if curl -d joined the lines.
func joinedLines(err error) error {
	p := *problemOf(err)
	p.Detail += ". The body is one line with more than one object: if you use curl, -d removes line ends; use --data-binary"
	return &p
}

func tooManyEvents() error {
	return kindTooLarge.past(eventsMax, "the request has more than %d events, the limit", eventsMax)
}

func tooManyHeaders() error {
	return kindTooLarge.past(headersMax, "the events of the request have more than %d headers together, the limit", headersMax)
}

// parseEvent reads one event.
func parseEvent(r *jsonReader) (publish.Event, error) {
	e := publish.Event{}
	keys, values := 0, 0
	err := r.object(func(name string) (err error) {
		switch name {
		case "key", "key_b64":
			if keys++; keys > 1 {
				return r.fail("the event has both key and key_b64; give one of them")
			}
			e.Key, err = bytesOrNull(r, name == "key_b64")
		case "value":
			values++
			e.Value, err = anyValue(r)
		case "value_b64":
			values++
			e.Value, err = bytesOrNull(r, true)
		case "headers":
			e.Headers, err = parseHeaders(r)
		case "partition":
			var n int64
			if r.null() {
				return nil
			}
			n, err = r.integer(0, math.MaxInt32)
			p := int32(n)
			e.Partition = &p
		case "timestamp":
			var n int64
			if r.null() {
				return nil
			}
			n, err = r.integer(0, timestampMax)
			e.Time = time.UnixMilli(n)
		default:
			err = r.unknown(name, "key", "key_b64", "value", "value_b64", "headers", "partition", "timestamp")
		}
		if err == nil && values > 1 {
			err = r.fail("the event has both value and value_b64; give one of them")
		}
		return err
	})
	if err == nil && values == 0 {
		err = r.fail(`the event has no value; for a tombstone, send "value": null`)
	}
	return e, err
}

// bytesOrNull reads bytes, as text or in base64; null gives nil.
func bytesOrNull(r *jsonReader, encoded bool) ([]byte, error) {
	switch {
	case r.null():
		return nil, nil
	case encoded:
		return r.base64()
	default:
		return r.text()
	}
}

// anyValue reads a value: a string is its text, null is nil, and any other JSON is kept byte for
// byte.
func anyValue(r *jsonReader) ([]byte, error) {
	if b := r.peek(); b == '"' || b == 'n' {
		return bytesOrNull(r, false)
	}
	return r.raw()
}

// parseHeaders reads {"name": "value", ...}, or [{"name": …, "value": …}, ...] if the order matters
// or a name is repeated.
func parseHeaders(r *jsonReader) (out []batch.RecordHeader, err error) {
	switch b := r.peek(); b {
	case 'n':
		if r.null() {
			return nil, nil
		}
		fallthrough
	default:
		return nil, r.fail("headers must be an object or an array; here is %s", kindOf(b))
	case '{':
		err = r.object(func(name string) error {
			if len(out) == headersMax {
				return tooManyHeaders()
			}
			value, err := bytesOrNull(r, false)
			out = append(out, batch.RecordHeader{Key: name, Value: value})
			return err
		})
	case '[':
		err = r.array(func(i int) error {
			if i == headersMax {
				return tooManyHeaders()
			}
			h, err := parseHeader(r)
			out = append(out, h)
			return err
		})
	}
	return out, err
}

func parseHeader(r *jsonReader) (h batch.RecordHeader, err error) {
	names, values := 0, 0
	err = r.object(func(name string) (err error) {
		switch name {
		case "name":
			names++
			h.Key, err = r.string()
		case "name_b64":
			names++
			var text []byte
			text, err = r.base64()
			h.Key = string(text)
		case "value", "value_b64":
			values++
			h.Value, err = bytesOrNull(r, name == "value_b64")
		default:
			err = r.unknown(name, "name", "name_b64", "value", "value_b64")
		}
		return err
	})
	if err == nil && (names != 1 || values != 1) {
		err = r.fail("a header must have one name (name or name_b64) and one value (value or value_b64)")
	}
	return h, err
}
