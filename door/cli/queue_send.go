package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

type queueSendCmd struct {
	serverFlags
	Name      string    `arg:"" names:"queue" help:"The queue's name."`
	Input     string    `help:"Format of a line: text, where the line is the value; or json, where it is a message as in POST /v1/queues/{queue}/batch." enum:"text,json" default:"text"`
	Key       *string   `help:"The key of every line." placeholder:"KEY"`
	Delay     *duration `help:"Delay the messages for this time." placeholder:"TIME"`
	At        time.Time `help:"Delay the messages until this time: 2026-01-31T08:00:00Z." env:"-" placeholder:"TIME"`
	Unique    string    `help:"The messages' unique key. While a message with this key is not done, no other is enqueued; so at most the first of several lines is enqueued." env:"-" placeholder:"KEY"`
	Priority  int       `help:"The messages' priority; 0 is the lowest." default:"0"`
	IDs       bool      `help:"Print the messages' ids, one on each line. If another message has the unique key, print the id of that message, a tab, and the word repeated." name:"ids"`
	LineLimit size      `help:"The longest line. A longer one is an error." default:"1MiB"`
}

func (queueSendCmd) Help() string {
	return `Each line of standard input becomes a message. With --input text, the line end (LF or CRLF) is removed, and nothing else is changed.

Examples:

  echo 'to: a@example.org' | weir queue send mail
  weir queue send mail --delay 10m < later.txt
  echo '{"value": "hello", "key": "k", "unique": "order-17"}' | weir queue send mail --input json --ids`
}

// Bounds of one request: it has as many lines as have arrived, up to these.
const (
	sendLines = 1000
	sendBytes = 4 << 20
)

func (c *queueSendCmd) Run(ctx context.Context, t *terminal) error {
	switch {
	case c.Delay != nil && !c.At.IsZero():
		return usage(errors.New("--delay and --at cannot be used together"), "give one of them")
	case c.Input == "json" && (c.Key != nil || c.Delay != nil || !c.At.IsZero() || c.Unique != "" || c.Priority != 0):
		return usage(errors.New("--input json takes the whole message from the line"), "leave out --key, --delay, --at, --unique and --priority")
	}
	if t.inTTY {
		fmt.Fprintln(t.err, "Reading lines from the terminal. Ctrl-D ends.")
	}
	lines := readLines(t.in, int(min(int64(c.LineLimit), bufferMax)))
	var sent enqueued
	bar := progress{t: t}
	defer bar.done()
	for more := true; more; {
		var batch []byte
		var n int64
		var stop error
		batch, n, more, stop = c.gather(ctx, lines)
		if n > 0 {
			if err := c.enqueue(ctx, t, batch, &sent); err != nil {
				return c.answer(fmt.Sprintf("send to queue %q (%v before the error)", c.Name, sent), err)
			}
			bar.say("%v", sent)
		}
		if errors.As(stop, &stopped{}) {
			fmt.Fprintf(t.err, "weir: interrupted; %v\n", sent)
			return stop
		}
		if stop != nil {
			return failed(fmt.Errorf("send to queue %q: %w (%v: all lines before it)", c.Name, stop, sent), "correct the line, and send it and the rest again; --line-limit sets how long a line may be")
		}
	}
	bar.done()
	fmt.Fprintln(t.err, sent)
	return nil
}

// enqueued counts the lines by their result.
type enqueued struct{ new, repeated int64 }

func (e enqueued) String() string {
	text := plural(e.new, "message") + " enqueued"
	if e.repeated > 0 {
		text += fmt.Sprintf(", %d not, because another message has the unique key", e.repeated)
	}
	return text
}

// gather takes the lines that have arrived, and waits for the first one. It returns them as JSON,
// one message a line.
func (c *queueSendCmd) gather(ctx context.Context, lines <-chan line) (batch []byte, n int64, more bool, stop error) {
	for n < sendLines && len(batch) < sendBytes {
		var l line
		select {
		case l, more = <-lines:
		default:
			if n > 0 {
				return batch, n, true, nil
			}
			select {
			case l, more = <-lines:
			case <-ctx.Done():
				return batch, n, false, context.Cause(ctx)
			}
		}
		if !more {
			return batch, n, false, nil
		}
		if l.err != nil {
			return batch, n, false, fmt.Errorf("line %d: %w", l.number, l.err)
		}
		if c.Input == "json" && len(bytes.TrimSpace(l.text)) == 0 {
			continue
		}
		text, err := c.message(l.text)
		if err != nil {
			return batch, n, false, fmt.Errorf("line %d: %w", l.number, err)
		}
		batch = append(append(batch, text...), '\n')
		n++
	}
	return batch, n, true, nil
}

// message returns a line in the form that the server takes.
func (c *queueSendCmd) message(text []byte) ([]byte, error) {
	if c.Input == "json" {
		if !json.Valid(text) {
			return nil, errors.New("it is not JSON")
		}
		return text, nil
	}
	m := map[string]any{}
	if value, base := encodeBytes(text); value != nil {
		m["value"] = *value
	} else {
		m["value_b64"] = *base
	}
	if c.Key != nil {
		m["key"] = *c.Key
	}
	if c.Delay != nil {
		m["delay_ms"] = time.Duration(*c.Delay).Milliseconds()
	}
	if !c.At.IsZero() {
		m["at"] = c.At.UnixMilli()
	}
	if c.Unique != "" {
		m["unique"] = c.Unique
	}
	if c.Priority != 0 {
		m["priority"] = c.Priority
	}
	return json.Marshal(m)
}

func (c *queueSendCmd) enqueue(ctx context.Context, t *terminal, batch []byte, sent *enqueued) error {
	var at struct {
		Messages []struct {
			ID       string
			Repeated bool
		}
	}
	// A request that was begun is finished: a signal takes effect between two requests.
	if err := c.send(context.WithoutCancel(ctx), "POST", apiPath("queues", c.Name, "batch"), "application/x-ndjson", batch, &at, 0); err != nil {
		return err
	}
	for _, m := range at.Messages {
		line := m.ID
		if m.Repeated {
			sent.repeated++
			line += "\trepeated"
		} else {
			sent.new++
		}
		if !c.IDs {
			continue
		}
		if _, err := fmt.Fprintln(t.out, line); err != nil {
			return err
		}
	}
	return nil
}
