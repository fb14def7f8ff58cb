package httpapi

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/weir-log/weir/use/queue"
)

// enqueueOne enqueues the body as the value of one message.
func (s *Server) enqueueOne(c *call) error {
	m, err := describedMessage(c)
	if err != nil {
		return err
	}
	if m.Value, err = s.body(c); err != nil {
		return err
	}
	if m.Value == nil {
		m.Value = []byte{}
	}
	at, err := s.enqueue(c, m)
	if err != nil {
		return err
	}
	c.Header()["Content-Type"] = jsonType
	c.send(http.StatusOK, append(appendEnqueued(nil, at[0]), '\n'))
	return nil
}

// enqueueMany enqueues the messages of a body: all or none.
func (s *Server) enqueueMany(c *call) error {
	parse := parseMessages
	switch media := c.mediaType(); media {
	case "application/json":
	case "application/x-ndjson", "application/ndjson", "application/jsonl":
		parse = parseMessageLines
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
	messages, headers, err := parse(body)
	if err != nil {
		return err
	}
	if len(messages) == 0 {
		return kindInvalidRequest.because("the body has no messages")
	}
	if err := parsed(len(messages), headers); err != nil {
		return err
	}
	trace := traceOf(c.r.Header)
	for i := range messages {
		messages[i].Headers = withTrace(messages[i].Headers, trace)
	}
	answer, err := c.claimOutcomes(len(messages), placedBytes)
	if err != nil {
		return err
	}
	defer answer.Release()
	at, err := s.enqueue(c, messages...)
	if err != nil {
		return err
	}
	c.sendOutcomes(http.StatusOK, "messages", len(at), answer, func(b []byte, i int) []byte { return appendEnqueued(b, at[i]) })
	return nil
}

func (s *Server) enqueue(c *call, messages ...queue.NewMessage) (at []queue.Enqueued, err error) {
	if c.r.Header["Idempotency-Key"] != nil {
		return nil, kindInvalidRequest.because("enqueueing takes no Idempotency-Key; leave it out, and give each message a unique key (unique) if the queue has the setting unique")
	}
	ctx, cancel := c.withTimeout()
	defer cancel()
	err = s.withQueue(ctx, c, func(q *queue.Queue) error {
		at, err = q.Enqueue(ctx, messages...)
		return err
	})
	if toldUnknown(err) {
		return nil, unknownEnqueue(err, messages)
	}
	return at, err
}

// unknownEnqueue says what may be sent again: queues take no Idempotency-Key.
func unknownEnqueue(err error, messages []queue.NewMessage) error {
	p := kindUnknown.because("the messages were sent to the store, but no answer came. Enqueue them again: because of their unique keys no message is enqueued twice, unless a worker has finished it meanwhile, and the answer has the ids of those that were already enqueued")
	for _, m := range messages {
		if m.Unique == "" {
			p = kindUnknown.because("the messages were sent to the store, but no answer came. GET …/messages shows the messages that are ready, claimed or waiting, and with state=delayed those that are delayed. If you enqueue them again, those without a unique key (`unique`) may be there twice; those with one only if a worker has finished them meanwhile")
			break
		}
	}
	return p.causedBy(err)
}

func appendEnqueued(b []byte, at queue.Enqueued) []byte {
	b = fmt.Appendf(b, `{"id":"%v"`, at.ID)
	if at.Repeated {
		b = append(b, `,"repeated":true`...)
	}
	return append(b, '}')
}

// describedMessage reads a message's key, headers and options from the request; the value is the
// body.
func describedMessage(c *call) (m queue.NewMessage, err error) {
	q := c.query
	if m.Key, err = keyOf(c.r.Header["Weir-Key"], q); err != nil {
		return m, err
	}
	if m.Headers, err = headersOf(c.r.Header); err != nil {
		return m, err
	}
	delay, err := number(q, "delay_ms", 0, pauseMax, 0)
	if err != nil {
		return m, err
	}
	m.Delay = time.Duration(delay) * time.Millisecond
	if q.Has("at") {
		at, err := number(q, "at", 0, timestampMax, 0)
		if err != nil {
			return m, err
		}
		m.At = time.UnixMilli(at)
	}
	priority, err := number(q, "priority", 0, prioritiesMax-1, 0)
	m.Priority = int(priority)
	m.Unique = q.Get("unique")
	if err == nil && q.Has("unique") && m.Unique == "" {
		err = kindInvalidRequest.because("unique is empty; leave it out if the message has no unique key")
	}
	return m, err
}

// parseMessages reads {"messages": [...]}.
func parseMessages(body []byte) (messages []queue.NewMessage, headers int, err error) {
	seen := false
	err = readJSON(body, 0, func(r *jsonReader) error {
		return r.object(func(name string) error {
			if name != "messages" {
				return r.unknown(name, "messages")
			}
			seen = true
			return r.array(func(i int) error {
				if i == eventsMax {
					return tooManyMessages()
				}
				m, err := parseMessage(r)
				messages = append(messages, m)
				if headers += len(m.Headers); headers > headersMax {
					return tooManyHeaders()
				}
				return err
			})
		})
	})
	if err == nil && !seen {
		err = kindInvalidJSON.because(`"messages" is missing`)
	}
	return messages, headers, err
}

// parseMessageLines reads one message per line. Empty lines are skipped.
func parseMessageLines(body []byte) (messages []queue.NewMessage, headers int, err error) {
	for line := 0; len(body) > 0; line++ {
		text, rest, _ := bytes.Cut(body, []byte("\n"))
		body = rest
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		if len(messages) == eventsMax {
			return nil, 0, tooManyMessages()
		}
		err := readJSON(text, line, func(r *jsonReader) error {
			m, err := parseMessage(r)
			messages = append(messages, m)
			if headers += len(m.Headers); headers > headersMax {
				return tooManyHeaders()
			}
			return err
		})
		if err != nil {
			if line == 0 && len(body) == 0 && bytes.Contains(text, []byte("}{")) {
				err = joinedLines(err)
			}
			return nil, 0, err
		}
	}
	return messages, headers, nil
}

func tooManyMessages() error {
	return kindTooLarge.past(eventsMax, "the request has more than %d messages, the limit", eventsMax)
}

// parseMessage reads one message.
func parseMessage(r *jsonReader) (m queue.NewMessage, err error) {
	keys, values := 0, 0
	err = r.object(func(name string) (err error) {
		switch name {
		case "key", "key_b64":
			if keys++; keys > 1 {
				return r.fail("the message has both key and key_b64; give one of them")
			}
			m.Key, err = bytesOrNull(r, name == "key_b64")
		case "value":
			values++
			m.Value, err = anyValue(r)
		case "value_b64":
			values++
			m.Value, err = bytesOrNull(r, true)
		case "headers":
			m.Headers, err = parseHeaders(r)
		case "timestamp":
			m.Time, err = moment(r)
		case "at":
			m.At, err = moment(r)
		case "delay_ms":
			if r.null() {
				return nil
			}
			var ms int64
			ms, err = r.integer(0, pauseMax)
			m.Delay = time.Duration(ms) * time.Millisecond
		case "priority":
			var n int64
			n, err = r.integer(0, prioritiesMax-1)
			m.Priority = int(n)
		case "unique":
			if r.null() {
				return nil
			}
			m.Unique, err = r.string()
			if err == nil && m.Unique == "" {
				err = r.fail("it is empty; leave it out if the message has no unique key")
			}
		default:
			err = r.unknown(name, "key", "key_b64", "value", "value_b64", "headers", "timestamp", "at", "delay_ms", "priority", "unique")
		}
		if err == nil && values > 1 {
			err = r.fail("the message has both value and value_b64; give one of them")
		}
		return err
	})
	if err == nil && values == 0 {
		err = r.fail(`the message has no value; if it is meant to have none, send "value": null`)
	}
	return m, err
}

// moment reads milliseconds since the Unix epoch; null: no time.
func moment(r *jsonReader) (at time.Time, err error) {
	if r.null() {
		return at, nil
	}
	ms, err := r.integer(0, timestampMax)
	return time.UnixMilli(ms), err
}

// positive reads a number above 0.
func (r *jsonReader) positive(most float64) (float64, error) {
	start := *r
	raw, err := r.number()
	if err != nil {
		return 0, err
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || f <= 0 || f > most {
		*r = start
		return 0, r.fail("this must be a number above 0 and up to %v; here is %s", most, shorten(string(raw)))
	}
	return f, nil
}

// boolean reads true or false.
func (r *jsonReader) boolean() (bool, error) {
	switch first := r.peek(); {
	case r.word("true"):
		return true, nil
	case r.word("false"):
		return false, nil
	default:
		return false, r.fail("this must be true or false; here is %s", kindOf(first))
	}
}
