package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"time"
)

type streamCmd struct {
	Append    streamAppendCmd    `cmd:"" help:"Append lines from standard input to a stream, as events: all or none."`
	Read      streamReadCmd      `cmd:"" help:"Print the events of a stream."`
	List      streamListCmd      `cmd:"" help:"List the streams of a category."`
	Delete    streamDeleteCmd    `cmd:"" help:"Delete a stream. The category's topic keeps the records until its retention removes them."`
	Archive   streamArchiveCmd   `cmd:"" help:"Archive a stream: it can still be read, but refuses appends."`
	Unarchive streamUnarchiveCmd `cmd:"" help:"Open an archived stream for appends again."`
	Snapshot  streamSnapshotCmd  `cmd:"" help:"Print a stream's newest snapshot, or save one."`
	Tagged    streamTaggedCmd    `cmd:"" help:"Print the events that have a tag, of all streams of a category."`
	Retention streamRetentionCmd `cmd:"" help:"Show or set which events are kept, of all streams of a category or of one."`
	Forget    streamForgetCmd    `cmd:"" help:"Destroy the data about a subject, such as a person."`
	Category  categoryCmd        `cmd:"" help:"Create and list categories of streams."`
}

// streamName names the stream that a command is about.
type streamName struct {
	Category string `arg:"" names:"category" help:"The category's name."`
	Stream   string `arg:"" help:"The stream's name. It may have slashes."`
}

// Validate refuses names that no path of the HTTP API can have, before anything is sent.
func (n streamName) Validate() error {
	switch {
	case n.Category == "":
		return errors.New("the name of the category is empty")
	case n.Stream == "":
		return errors.New("the name of the stream is empty")
	}
	return nil
}

func (n streamName) path(more ...string) string {
	return apiPath(append([]string{"categories", n.Category, "streams", n.Stream}, more...)...)
}

func (n streamName) String() string {
	return fmt.Sprintf("stream %q of category %q", n.Stream, n.Category)
}

// expectation is the version that a stream is expected to have.
type expectation struct {
	Expect string `help:"The version that the stream is expected to have: a number, none, exists, or any." default:"any" env:"-" placeholder:"VERSION"`
}

// headers returns the HTTP headers for the expectation.
func (e expectation) headers() ([]string, error) {
	switch e.Expect {
	case "any":
		return nil, nil
	case "none":
		return []string{"If-None-Match", "*"}, nil
	case "exists":
		return []string{"If-Match", "*"}, nil
	}
	if _, err := strconv.ParseUint(e.Expect, 10, 63); err != nil {
		return nil, usage(fmt.Errorf("--expect %q is not a version", e.Expect), "give a number from 0, none, exists, or any")
	}
	return []string{"If-Match", `"` + e.Expect + `"`}, nil
}

type streamListCmd struct {
	serverFlags
	Category string `arg:"" names:"category" help:"The category's name."`
	Prefix   string `help:"Only streams whose names begin with this prefix." placeholder:"TEXT"`
	Max      int    `help:"Show at most this many; 0: all." short:"n" default:"0"`
	Output   format `help:"What to print: text for people, or json with one stream on each line." enum:"text,json" default:"text"`
}

func (streamListCmd) Help() string {
	return "Examples:\n\n  weir stream list order\n  weir stream list order --prefix eu/ --output json"
}

// streamPicture is a stream as the server lists it.
type streamPicture struct {
	Stream   string `json:"stream"`
	Version  int64  `json:"version"`
	First    int64  `json:"first"`
	Exists   bool   `json:"exists"`
	Archived bool   `json:"archived,omitempty"`
}

// listPage is how many streams one request asks for.
const listPage = 1000

func (c *streamListCmd) Run(ctx context.Context, t *terminal) error {
	if c.Max < 0 {
		return usage(fmt.Errorf("--max %d is less than 0", c.Max), "")
	}
	rows := [][]string{}
	for after, left := "", c.Max; ; {
		most := listPage
		if c.Max > 0 {
			most = min(left, listPage)
		}
		var page struct {
			Streams []streamPicture
			Next    string
		}
		path := apiPath("categories", c.Category, "streams") + "?" + url.Values{"prefix": {c.Prefix}, "after": {after}, "max": {strconv.Itoa(most)}}.Encode()
		if err := c.ask(ctx, "GET", path, nil, &page, 0); err != nil {
			return c.answer(fmt.Sprintf("list the streams of category %q", c.Category), err)
		}
		for _, s := range page.Streams {
			if c.Output.json() {
				if err := printLine(t, s); err != nil {
					return err
				}
				continue
			}
			rows = append(rows, []string{s.Stream, strconv.FormatInt(s.Version, 10), strconv.FormatInt(s.First, 10), s.state()})
		}
		if left -= len(page.Streams); page.Next == "" || c.Max > 0 && left <= 0 {
			break
		}
		after = page.Next
	}
	if c.Output.json() {
		return nil
	}
	return table(t.out, "STREAM VERSION FIRST STATE", rows)
}

func (s streamPicture) state() string {
	switch {
	case !s.Exists:
		return "deleted"
	case s.Archived:
		return "archived"
	}
	return "open"
}

// printLine prints a value as one line of JSON.
func printLine(t *terminal, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("print JSON: %w", err)
	}
	_, err = t.out.Write(append(printableJSON(text), '\n'))
	return err
}

type streamDeleteCmd struct {
	serverFlags
	consent
	streamName
	expectation
}

func (streamDeleteCmd) Help() string {
	return "The command succeeds if the stream does not exist. To get an error then, give --expect exists, or the version.\n\nExamples:\n\n  weir stream delete order 4711\n  weir stream delete order 4711 --expect 12 --yes"
}

func (c *streamDeleteCmd) Run(ctx context.Context, t *terminal) error {
	headers, err := c.headers()
	if err != nil {
		return err
	}
	if err := c.obtain(t, "delete the stream "+c.Stream+" and its snapshots", c.Stream); err != nil {
		return err
	}
	if err := c.send(ctx, "DELETE", c.path(), "", nil, nil, 0, headers...); err != nil {
		return c.answer("delete "+c.String(), err)
	}
	// The server gives the same answer if there was no such stream.
	_, err = fmt.Fprintf(t.out, "stream %s does not exist now\n", printable(c.Stream))
	return err
}

type streamArchiveCmd struct {
	serverFlags
	streamName
	expectation
}

func (streamArchiveCmd) Help() string {
	return "Examples:\n\n  weir stream archive order 4711\n  weir stream archive order 4711 --expect 12"
}

func (c *streamArchiveCmd) Run(ctx context.Context, t *terminal) error {
	headers, err := c.headers()
	if err == nil && c.Expect == "none" {
		err = usage(errors.New("--expect none: a stream that does not exist cannot be archived"), "give a version, exists, or any")
	}
	if err != nil {
		return err
	}
	if err := c.send(ctx, "POST", c.path("archive"), "", nil, nil, 0, headers...); err != nil {
		return c.answer("archive "+c.String(), err)
	}
	_, err = fmt.Fprintf(t.out, "archived stream %s\n", printable(c.Stream))
	return err
}

type streamUnarchiveCmd struct {
	serverFlags
	streamName
}

func (streamUnarchiveCmd) Help() string { return "Examples:\n\n  weir stream unarchive order 4711" }

func (c *streamUnarchiveCmd) Run(ctx context.Context, t *terminal) error {
	if err := c.ask(ctx, "POST", c.path("unarchive"), nil, nil, 0); err != nil {
		return c.answer("unarchive "+c.String(), err)
	}
	_, err := fmt.Fprintf(t.out, "unarchived stream %s\n", printable(c.Stream))
	return err
}

type streamSnapshotCmd struct {
	serverFlags
	streamName
	At     *int64 `help:"Print the newest snapshot at or below this version." env:"-" placeholder:"VERSION"`
	Save   *int64 `help:"Save the bytes of standard input as the snapshot at this version." env:"-" placeholder:"VERSION"`
	Output format `help:"What to print: text prints the value; json the version, too." enum:"text,json" default:"text"`
}

func (streamSnapshotCmd) Help() string {
	return `A snapshot is the state after all events below its version, in the format of the application.

Examples:

  weir stream snapshot order 4711
  weir stream snapshot order 4711 --at 100 --output json
  weir stream snapshot order 4711 --save 100 < state.json`
}

// snapshotRead bounds what is read of a snapshot; the server's limit is lower.
const snapshotRead = 16 << 20

func (c *streamSnapshotCmd) Run(ctx context.Context, t *terminal) error {
	if c.Save != nil {
		if c.At != nil || c.Output.json() {
			return usage(errors.New("--save saves a snapshot, but --at and --output json print one: they cannot be used together"), "give one of them")
		}
		return c.save(ctx, t)
	}
	path := c.path("snapshot")
	if c.At != nil {
		path += "?at=" + strconv.FormatInt(*c.At, 10)
	}
	var one struct {
		Version  int64   `json:"version"`
		Value    *string `json:"value,omitempty"`
		ValueB64 []byte  `json:"value_b64,omitempty"`
	}
	if err := c.ask(ctx, "GET", path, nil, &one, 0); err != nil {
		return c.answer("load a snapshot of "+c.String(), err)
	}
	if c.Output.json() {
		return printJSON(t, one)
	}
	value := one.ValueB64
	if one.Value != nil {
		value = []byte(*one.Value)
	}
	if t.outTTY {
		value = []byte(printable(string(value)) + "\n")
	}
	_, err := t.out.Write(value)
	return err
}

func (c *streamSnapshotCmd) save(ctx context.Context, t *terminal) error {
	if t.inTTY {
		fmt.Fprintln(t.err, "Reading the snapshot from the terminal. Ctrl-D ends.")
	}
	value, err := io.ReadAll(io.LimitReader(t.in, snapshotRead+1))
	if err != nil {
		return failed(fmt.Errorf("read the snapshot: %w", err), "")
	}
	if len(value) > snapshotRead {
		return usage(fmt.Errorf("the snapshot has more than %d bytes, the limit", snapshotRead), "store large data elsewhere, and put a reference to it into the snapshot")
	}
	body := map[string]any{"version": *c.Save}
	if text, base := encodeBytes(value); text != nil {
		body["value"] = *text
	} else {
		body["value_b64"] = *base
	}
	if err := c.ask(ctx, "PUT", c.path("snapshot"), body, nil, 0); err != nil {
		return c.answer("save a snapshot of "+c.String(), err)
	}
	_, err = fmt.Fprintf(t.out, "saved the snapshot at version %d of stream %s\n", *c.Save, printable(c.Stream))
	return err
}

type categoryCmd struct {
	Create categoryCreateCmd `cmd:"" help:"Create a category: a topic of streams."`
	List   categoryListCmd   `cmd:"" help:"List categories."`
}

type categoryCreateCmd struct {
	serverFlags
	Name        string            `arg:"" help:"The name of the category and of its topic."`
	Partitions  int               `help:"Number of partitions of its topic; 0: 4." default:"0"`
	Config      map[string]string `help:"Settings of its topic, such as max.message.bytes=4000000. May be given again." mapsep:"none" placeholder:"NAME=VALUE"`
	KeepEvents  int64             `help:"How many of the newest events each stream keeps; 0: no limit." default:"0"`
	KeepFor     *duration         `help:"How old the events of a stream may be; older ones are deleted. Default: any age." placeholder:"TIME"`
	IfNotExists bool              `help:"Succeed if the category already exists."`
}

func (categoryCreateCmd) Help() string {
	return "Examples:\n\n  weir stream category create order\n  weir stream category create visit --partitions 12 --keep-for 90d --if-not-exists"
}

func (c *categoryCreateCmd) Run(ctx context.Context, t *terminal) error {
	body, retention := map[string]any{"name": c.Name}, map[string]any{}
	if c.Partitions != 0 {
		body["partitions"] = c.Partitions
	}
	if len(c.Config) > 0 {
		body["config"] = c.Config
	}
	if c.KeepEvents != 0 {
		retention["events"] = c.KeepEvents
	}
	if c.KeepFor != nil {
		retention["age_ms"] = time.Duration(*c.KeepFor).Milliseconds()
	}
	if len(retention) > 0 {
		body["retention"] = retention
	}
	err := c.ask(ctx, "POST", apiPath("categories"), body, nil, 0)
	tried := fmt.Sprintf("create category %q", c.Name)
	var p *apiProblem
	if c.IfNotExists && errors.As(err, &p) && p.is("category_exists") {
		if err := c.ask(ctx, "GET", apiPath("categories", c.Name), nil, nil, 0); err != nil {
			return c.answer(tried+": the name is the name of a topic that is not a category", err)
		}
		_, err := fmt.Fprintf(t.out, "category %s already exists\n", printable(c.Name))
		return err
	}
	if err != nil {
		return c.answer(tried, err)
	}
	_, err = fmt.Fprintf(t.out, "created category %s\n", printable(c.Name))
	return err
}

type categoryListCmd struct {
	serverFlags
	Output format `help:"What to print: text for people, or json." enum:"text,json" default:"text"`
}

func (categoryListCmd) Help() string {
	return "Examples:\n\n  weir stream category list\n  weir stream category list --output json"
}

func (c *categoryListCmd) Run(ctx context.Context, t *terminal) error {
	var list struct{ Categories []string }
	if err := c.ask(ctx, "GET", apiPath("categories"), nil, &list, 0); err != nil {
		return c.answer("list categories", err)
	}
	if c.Output.json() {
		return printJSON(t, list.Categories)
	}
	for _, name := range list.Categories {
		if _, err := fmt.Fprintln(t.out, printable(name)); err != nil {
			return err
		}
	}
	return nil
}
