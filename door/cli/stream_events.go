package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"
)

type streamAppendCmd struct {
	serverFlags
	streamName
	expectation
	Input     string   `help:"Format of a line: text, where the line is the data of an event; or json, where it is an event: {\"type\": …, \"value\": …, \"id\": …, \"tags\": […]}." enum:"text,json" default:"text" short:"i"`
	Type      string   `help:"For text: the type of the events." env:"-" placeholder:"TYPE"`
	ID        string   `help:"For text, and a single line: the event's id. With it, the append can be repeated safely." env:"-" name:"id" placeholder:"ID"`
	Tag       []string `help:"For text: a tag that each event gets. May be given again." env:"-" sep:"none" placeholder:"TAG"`
	Within    string   `help:"Append only if no event with the tags that \"weir stream tagged\" read was appended since then: the boundary that it printed." env:"-" placeholder:"BOUNDARY"`
	LineLimit size     `help:"The longest line. A longer one is an error." default:"1MiB"`
}

func (streamAppendCmd) Help() string {
	return `Each line of standard input becomes an event, at most 10,000 lines and 15 MiB. All events are appended in one step, or none.
If the stream is not at the expected version, or an event came within the boundary, nothing is appended, and the exit status is 1.
If the answer is lost, the events may have been appended, and the exit status is 4. If all events have ids, the append can be repeated with the same --expect: no event is appended twice.

Examples:

  echo '{"item": "teapot"}' | weir stream append order 4711 --type Placed --expect none
  echo '{}' | weir stream append course signups --type Subscribed --tag course:1 --tag student:7
  weir stream append course signups --type Subscribed --tag course:1 --within "$boundary" < signup.json
  weir stream append order 4711 --input json --expect 1 < events.jsonl`
}

// Bounds of one append, within the server's bounds.
const (
	appendLines = 10_000
	appendBytes = 15 << 20
)

func (c *streamAppendCmd) Run(ctx context.Context, t *terminal) error {
	headers, err := c.headers()
	switch {
	case err != nil:
		return err
	case c.Input == "json" && (c.Type != "" || c.ID != "" || len(c.Tag) > 0):
		return usage(errors.New("--input json takes the whole event from the line"), "leave out --type, --id and --tag")
	case c.Input == "text" && c.Type == "":
		return usage(errors.New("the events have no type"), "give the type with --type")
	}
	if t.inTTY {
		fmt.Fprintln(t.err, "Reading lines from the terminal. Ctrl-D ends.")
	}
	body, n, err := c.body(ctx, readLines(t.in, int(min(int64(c.LineLimit), appendBytes))))
	switch {
	case errors.As(err, &stopped{}):
		return err
	case err != nil:
		return usage(fmt.Errorf("append to %v: %w (nothing was appended)", c.String(), err), "")
	case n == 0:
		return usage(errors.New("there are no events on standard input"), "")
	case c.ID != "" && n > 1:
		return usage(fmt.Errorf("--id is the id of one event, but there are %d events", n), "give each event an id, with --input json")
	}
	var at struct {
		First, Version int64
		Duplicate      bool
	}
	// A request that was begun is not interrupted: its outcome would be unknown.
	err = c.send(context.WithoutCancel(ctx), "POST", c.path("events"), "application/json", body, &at, 0, headers...)
	var lost *lostAnswer
	switch {
	case errors.As(err, &lost):
		return unreachable(fmt.Errorf("append to %v: %w", c.String(), err), "read the stream; or, if each event has an id, repeat the append with the same --expect: no event is appended twice")
	case err != nil:
		return c.answer("append to "+c.String(), err)
	}
	after := "after it"
	if n > 1 {
		after = "after them"
	}
	if at.Duplicate {
		_, err = fmt.Fprintf(t.out, "%s already appended before; the stream was at version %d %s\n", plural(n, "event"), at.Version, after)
		return err
	}
	_, err = fmt.Fprintf(t.out, "%s appended; the stream is at version %d %s\n", plural(n, "event"), at.Version, after)
	return err
}

// body reads all lines into the body of a request.
func (c *streamAppendCmd) body(ctx context.Context, lines <-chan line) (body []byte, n int64, err error) {
	body = []byte(`{"events":[`)
	for {
		var l line
		more := false
		select {
		case l, more = <-lines:
		case <-ctx.Done():
			return nil, n, context.Cause(ctx)
		}
		switch {
		case !more:
			body = append(body, ']')
			if c.Within != "" {
				within, _ := json.Marshal(c.Within) // a string always encodes
				body = fmt.Appendf(body, `,"within":%s`, within)
			}
			return append(body, '}'), n, nil
		case l.err != nil:
			return nil, n, fmt.Errorf("line %d: %w", l.number, l.err)
		case c.Input == "json" && len(bytes.TrimSpace(l.text)) == 0:
			continue
		}
		text, err := c.event(l.text)
		if err != nil {
			return nil, n, fmt.Errorf("line %d: %w", l.number, err)
		}
		if n > 0 {
			body = append(body, ',')
		}
		body = append(body, text...)
		if n++; n > appendLines || len(body) > appendBytes {
			return nil, n, fmt.Errorf("line %d: one append can have at most %d events and %d bytes", l.number, appendLines, appendBytes)
		}
	}
}

// event returns a line in the form that the server takes.
func (c *streamAppendCmd) event(text []byte) ([]byte, error) {
	if c.Input == "json" {
		if !json.Valid(text) {
			return nil, errors.New("it is not JSON")
		}
		return text, nil
	}
	e := map[string]any{"type": c.Type}
	if value, base := encodeBytes(text); value != nil {
		e["value"] = *value
	} else {
		e["value_b64"] = *base
	}
	if c.ID != "" {
		e["id"] = c.ID
	}
	if len(c.Tag) > 0 {
		e["tags"] = c.Tag
	}
	return json.Marshal(e)
}

type streamReadCmd struct {
	serverFlags
	streamName
	From     int64      `help:"Only events at or above this version." env:"-" default:"0"`
	To       int64      `help:"Only events below this version; 0: to the end." env:"-" default:"0"`
	Until    *time.Time `help:"Only events with a timestamp up to this time: 2026-01-31T08:00:00Z." env:"-" placeholder:"TIME"`
	Type     string     `help:"Only events of this type." env:"-" placeholder:"TYPE"`
	Backward bool       `help:"Print the newest events first."`
	Max      int        `help:"Print at most this many; 0: all." short:"n" default:"0"`
	Output   format     `help:"What to print: text for people, or json with one event on each line." enum:"text,json" default:"text"`
}

func (streamReadCmd) Help() string {
	return `Examples:

  weir stream read order 4711
  weir stream read order 4711 --from 12 --output json
  weir stream read order 4711 --backward -n 1`
}

// readPage is how many events one request asks for.
const readPage = 1000

// appendedEvent is an event as the server shows it.
type appendedEvent struct {
	Version, Timestamp int64
	Type               string
	Erased             bool
	Value              *string
}

func (c *streamReadCmd) Run(ctx context.Context, t *terminal) error {
	if c.Max < 0 {
		return usage(fmt.Errorf("--max %d is less than 0", c.Max), "")
	}
	from, to, left := c.From, c.To, c.Max
	var before *streamSpan // of the page before
	for {
		var page struct {
			streamSpan
			Next   *int64
			Events []json.RawMessage
		}
		if err := c.ask(ctx, "GET", c.path("events")+"?"+c.query(from, to, left).Encode(), nil, &page, 0); err != nil {
			return c.answer("read "+c.String(), err)
		}
		if before != nil && c.broken(*before, page.streamSpan, from) {
			return failed(fmt.Errorf("read %v: events were deleted while the stream was read, or its store was restored: not all events were printed", c.String()), "read it again")
		}
		before = &page.streamSpan
		for _, e := range page.Events {
			if err := c.print(t, e); err != nil {
				return err
			}
		}
		if left -= len(page.Events); page.Next == nil || c.Max > 0 && left <= 0 {
			return nil
		}
		if c.Backward {
			to = *page.Next
		} else {
			from = *page.Next
		}
	}
}

// streamSpan says which events a stream has; each page has it.
type streamSpan struct {
	First   int64 // version of the first event that can be read
	Version int64 // version of the stream
}

// broken reports whether events have gone since the page before was read: the stream was deleted
// and begun again, its store was restored, or retention deleted them. from is where this page
// begins; if backward, where the last page is to end.
func (c *streamReadCmd) broken(before, now streamSpan, from int64) bool {
	if c.Backward {
		from = max(before.First, from)
	}
	return now.First > from || now.Version < before.Version
}

// query asks for one page.
func (c *streamReadCmd) query(from, to int64, left int) url.Values {
	most := readPage
	if c.Max > 0 {
		most = min(left, readPage)
	}
	q := url.Values{"from": {strconv.FormatInt(from, 10)}, "max": {strconv.Itoa(most)}}
	if to != 0 {
		q.Set("to", strconv.FormatInt(to, 10))
	}
	if c.Until != nil {
		q.Set("until", strconv.FormatInt(c.Until.UnixMilli(), 10))
	}
	if c.Type != "" {
		q.Set("type", c.Type)
	}
	if c.Backward {
		q.Set("backward", "true")
	}
	return q
}

// print prints an event on one line: its version, its time, its type and its value.
func (c *streamReadCmd) print(t *terminal, raw json.RawMessage) error {
	if c.Output.json() {
		_, err := t.out.Write(append(printableJSON(bytes.TrimSpace(raw)), '\n'))
		return err
	}
	var e appendedEvent
	if err := json.Unmarshal(raw, &e); err != nil {
		return fmt.Errorf("the server's answer: %w", err)
	}
	_, err := fmt.Fprintln(t.out, e)
	return err
}

func (e appendedEvent) String() string {
	value := "(bytes)"
	switch {
	case e.Erased:
		value = "(erased)"
	case e.Value != nil:
		value = *e.Value
	}
	return fmt.Sprintf("%d\t%s\t%s\t%s", e.Version, moment(&e.Timestamp), printable(e.Type), printable(value))
}
