package httpapi

import (
	"errors"
	"math"
	"net/http"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/stream"
)

// partsMax bounds the streams of one request.
const partsMax = 100

// appendPart is what a request appends to one stream.
type appendPart struct {
	category, stream string
	expected         stream.Expected
	events           []stream.NewEvent
}

// appendAll appends to several streams, of one category or of several: to all of them, or to none.
func (s *Server) appendAll(c *call) error {
	for _, name := range []string{"If-Match", "If-None-Match", "Idempotency-Key"} {
		if c.r.Header[name] != nil {
			return kindInvalidRequest.because(`an append to several streams takes no %s; leave it out. Each stream of the body has an "expect" of its own, and each event may have an id`, name)
		}
	}
	body, err := s.jsonBody(c)
	if err != nil {
		return err
	}
	parsed, err := c.claimItems(body)
	if err != nil {
		return err
	}
	parts, n, err := parseParts(body)
	if err != nil {
		return err
	}
	if len(parts) == 0 {
		return kindInvalidRequest.because("the body has no streams")
	}
	for _, p := range parts {
		if err := c.may(toWrite, p.category); err != nil {
			return err
		}
	}
	if err := parsed(n.events, n.headers); err != nil {
		return err
	}
	entry := int64(0)
	for _, p := range parts {
		entry += stream.EntryBytes(p.stream, p.events)
	}
	if err := c.claimEntry(entry); err != nil {
		return err
	}
	done, err := s.appendParts(c, parts)
	var invalid *eventlog.InvalidError
	switch {
	case uncertain(err):
		var all []stream.NewEvent
		for _, p := range parts {
			all = append(all, p.events...)
		}
		return unknownAppend(all)
	case errors.As(err, &invalid):
		return kindInvalidRequest.because("%v. Nothing was appended", err) // err and not invalid: it names the stream, if one stream is to blame
	case err != nil:
		return err
	}
	list := make([]appendedView, len(done))
	for i, at := range done {
		list[i] = appendedView(at)
	}
	status := http.StatusCreated
	if done[0].Duplicate { // all are, or none
		status = http.StatusOK
	}
	return c.json(status, map[string][]appendedView{"streams": list})
}

// appendParts finds the categories, each once, and appends.
func (s *Server) appendParts(c *call, parts []appendPart) ([]stream.Appended, error) {
	ctx, cancel := c.withTimeout()
	defer cancel()
	categories := make(map[string]*stream.Category)
	list := make([]stream.Part, len(parts))
	for i, p := range parts {
		if categories[p.category] == nil {
			category, err := s.cfg.Categories.Category(ctx, p.category)
			if err != nil {
				return nil, err
			}
			categories[p.category] = category
		}
		list[i] = stream.Part{Category: categories[p.category], Stream: p.stream, Expected: p.expected, Events: p.events}
	}
	return s.cfg.Categories.AppendAll(ctx, list...)
}

// parseParts reads {"streams": [...]}.
func parseParts(body []byte) (parts []appendPart, n eventCount, err error) {
	seen := false
	err = readJSON(body, 0, func(r *jsonReader) error {
		return r.object(func(name string) error {
			if name != "streams" {
				return r.unknown(name, "streams")
			}
			seen = true
			return r.array(func(i int) error {
				if i == partsMax {
					return kindTooLarge.past(partsMax, "the request has more than %d streams, the limit", partsMax)
				}
				p, err := parsePart(r, &n)
				parts = append(parts, p)
				return err
			})
		})
	})
	if err == nil && !seen {
		err = kindInvalidJSON.because(`"streams" is missing`)
	}
	return parts, n, err
}

// parsePart reads what is appended to one stream.
func parsePart(r *jsonReader, n *eventCount) (p appendPart, err error) {
	p.expected = stream.Any
	err = r.object(func(name string) (err error) {
		switch name {
		case "category":
			p.category, err = r.string()
		case "stream":
			p.stream, err = r.string()
		case "expect":
			p.expected, err = expectedInJSON(r)
		case "events":
			p.events, err = n.newEvents(r)
		default:
			err = r.unknown(name, "category", "stream", "expect", "events")
		}
		return err
	})
	if err != nil {
		return p, err
	}
	for _, has := range []struct {
		name  string
		there bool
	}{{"category", p.category != ""}, {"stream", p.stream != ""}, {"events", len(p.events) > 0}} {
		if !has.there {
			return p, r.fail("%q is missing or empty; each stream needs a category, a name and events", has.name)
		}
	}
	return p, nil
}

// expectedInJSON reads which version a stream is expected to have: a number, "none", "exists" or
// "any".
func expectedInJSON(r *jsonReader) (stream.Expected, error) {
	if r.peek() != '"' {
		version, err := r.integer(0, math.MaxInt64-1)
		return stream.Expected(version), err
	}
	start := *r
	word, err := r.string()
	if err != nil {
		return 0, err
	}
	words := map[string]stream.Expected{"any": stream.Any, "none": stream.NoStream, "exists": stream.Exists}
	want, known := words[word]
	if !known {
		*r = start
		return 0, r.fail(`it must be a version, "none", "exists" or "any"; here is %q`, shorten(word))
	}
	return want, nil
}
