package httpapi

import (
	"net/http"

	"github.com/weir-log/weir/use/stream"
)

// appendedView is where events were appended.
type appendedView struct {
	First     int64 `json:"first"`
	Version   int64 `json:"version"` // of the stream after them
	Duplicate bool  `json:"duplicate,omitempty"`
}

// appendEvents appends the events of a body to a stream: all or none. The request's trace context
// is not added to them, because a repeated request has another trace context, and its events would
// no longer be the same.
func (s *Server) appendEvents(c *call) error {
	if c.r.Header["Idempotency-Key"] != nil {
		return kindInvalidRequest.because("an append takes no Idempotency-Key; leave it out, and give each event an id")
	}
	want, err := expected(c.r.Header)
	if err != nil {
		return err
	}
	body, err := s.jsonBody(c)
	if err != nil {
		return err
	}
	parsed, err := c.claimItems(body)
	if err != nil {
		return err
	}
	events, within, n, err := parseAppend(body)
	if err != nil {
		return err
	}
	if len(events) == 0 {
		return kindInvalidRequest.because("the body has no events")
	}
	if err := parsed(n.events, n.headers); err != nil {
		return err
	}
	if err := c.claimEntry(stream.EntryBytes(c.r.PathValue("stream"), events)); err != nil {
		return err
	}
	ctx, cancel := c.withTimeout()
	defer cancel()
	category, err := s.category(ctx, c)
	if err != nil {
		return err
	}
	var boundary stream.Boundary
	if within != "" {
		if boundary, err = category.Boundary(within); err != nil {
			return err
		}
	}
	done, err := category.AppendWithin(ctx, boundary, c.r.PathValue("stream"), want, events...)
	if uncertain(err) {
		return unknownAppend(events)
	}
	if err != nil {
		return err
	}
	status := http.StatusCreated
	if done.Duplicate {
		status = http.StatusOK
	}
	c.Header().Set("Etag", etag(done.Version))
	return c.json(status, appendedView(done))
}

// unknownAppend says how to find out whether events were appended.
func unknownAppend(events []stream.NewEvent) error {
	for _, e := range events {
		if e.ID == "" {
			return kindUnknown.because("the events were sent to the store, but no answer came. Read the stream to see whether they were appended. If every event has an id, an append can be repeated safely")
		}
	}
	return kindUnknown.because("the events were sent to the store, but no answer came. Append them again with the same ids and the same expected version: if they were already appended, the answer has duplicate")
}

// parseAppend reads {"events": [...], "within": …}. Each tag counts as two headers.
func parseAppend(body []byte) (events []stream.NewEvent, within string, n eventCount, err error) {
	seen := false
	err = readJSON(body, 0, func(r *jsonReader) error {
		return r.object(func(name string) (err error) {
			switch name {
			case "events":
				seen = true
				events, err = n.newEvents(r)
			case "within":
				within, err = wordOrNull(r)
			default:
				err = r.unknown(name, "events", "within")
			}
			return err
		})
	})
	if err == nil && !seen {
		err = noEventsMember()
	}
	return events, within, n, err
}

// newEvents reads an array of events of a stream.
func (n *eventCount) newEvents(r *jsonReader) (events []stream.NewEvent, err error) {
	err = n.array(r, func(r *jsonReader) (int, error) {
		e, err := parseNewEvent(r)
		events = append(events, e)
		return len(e.Metadata) + 2*len(e.Tags), err
	})
	return events, err
}

// parseNewEvent reads one event of a stream.
func parseNewEvent(r *jsonReader) (e stream.NewEvent, err error) {
	values := 0
	err = r.object(func(name string) (err error) {
		switch name {
		case "id":
			e.ID, err = wordOrNull(r)
		case "type":
			e.Type, err = r.string()
		case "value":
			values++
			e.Data, err = anyValue(r)
		case "value_b64":
			values++
			e.Data, err = bytesOrNull(r, true)
		case "subject":
			e.Subject, err = wordOrNull(r)
		case "tags":
			err = r.array(func(i int) error {
				if i == headersMax {
					return tooManyHeaders()
				}
				tag, err := r.string()
				e.Tags = append(e.Tags, tag)
				return err
			})
		case "metadata":
			e.Metadata, err = parseHeaders(r)
		case "timestamp":
			e.Time, err = moment(r)
		default:
			err = r.unknown(name, "id", "type", "value", "value_b64", "subject", "tags", "metadata", "timestamp")
		}
		if err == nil && values > 1 {
			err = r.fail("the event has both value and value_b64; give one of them")
		}
		return err
	})
	if err == nil && e.Type == "" {
		err = r.fail(`"type" is missing or empty; it is the kind of event, such as "OrderPlaced"`)
	}
	return e, err
}

// wordOrNull reads a string that is not empty, or null, for which it returns "".
func wordOrNull(r *jsonReader) (string, error) {
	if r.null() {
		return "", nil
	}
	r.space()
	start := *r
	text, err := r.string()
	if err == nil && text == "" {
		*r = start
		err = r.fail("it is empty; leave it out, or send null")
	}
	return text, err
}
