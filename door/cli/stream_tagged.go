package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
)

type streamTaggedCmd struct {
	serverFlags
	Category string   `arg:"" names:"category" help:"The category's name."`
	Tags     []string `arg:"" name:"tag" help:"Tags: an event is printed if it has one of them. At most 16."`
	Output   format   `help:"What to print: text for people, or json with one event on each line, and the boundary on the last." enum:"text,json" default:"text"`
}

func (streamTaggedCmd) Help() string {
	return `Events of all streams of the category are printed, at most 10,000: the stream, the version, the time, the type and the value. Events with the same tag come in the order in which they were appended.
The boundary, {"boundary": …}, stands for what was read: "weir stream append --within" appends only if no event with one of these tags was appended since then.

Examples:

  weir stream tagged course course:1
  weir stream tagged course course:1 student:7 --output json`
}

func (c *streamTaggedCmd) Run(ctx context.Context, t *terminal) error {
	var found struct {
		Events   []json.RawMessage
		Boundary string
	}
	if err := c.ask(ctx, "GET", apiPath("categories", c.Category, "events")+"?"+url.Values{"tag": c.Tags}.Encode(), nil, &found, 0); err != nil {
		return c.answer(fmt.Sprintf("read events of category %q by tags", c.Category), err)
	}
	for _, raw := range found.Events {
		if c.Output.json() {
			if _, err := t.out.Write(append(printableJSON(bytes.TrimSpace(raw)), '\n')); err != nil {
				return err
			}
			continue
		}
		var e struct {
			appendedEvent
			Stream string
		}
		if err := json.Unmarshal(raw, &e); err != nil {
			return fmt.Errorf("the server's answer: %w", err)
		}
		if _, err := fmt.Fprintf(t.out, "%s\t%s\n", printable(e.Stream), e.appendedEvent); err != nil {
			return err
		}
	}
	if c.Output.json() {
		line, err := json.Marshal(map[string]string{"boundary": found.Boundary})
		if err == nil {
			_, err = t.out.Write(append(line, '\n'))
		}
		return err
	}
	return nil
}
