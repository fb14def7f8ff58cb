package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"
)

type streamRetentionCmd struct {
	serverFlags
	Category   string    `arg:"" names:"category" help:"The category's name."`
	Stream     string    `arg:"" optional:"" help:"A stream that is to have a retention of its own. Without it: all streams that have none of their own."`
	KeepEvents int64     `help:"How many of the newest events a stream keeps; 0: no limit." default:"0" env:"-"`
	KeepFor    *duration `help:"How old events may be; older ones are deleted. Default: any age." env:"-" placeholder:"TIME"`
	KeepAll    bool      `help:"Keep all events." env:"-"`
	Inherit    bool      `help:"Give the stream the retention of its category again." env:"-"`
}

func (streamRetentionCmd) Help() string {
	return `Without flags the command prints which events are kept. With flags it sets both limits: a limit that is not given is removed.
Retention is applied about every ten minutes. Events after the newest snapshot are always kept. The category's topic keeps the records as long as its own retention.ms says.

Examples:

  weir stream retention visit
  weir stream retention visit --keep-for 90d --keep-events 10000
  weir stream retention visit eu/17 --keep-all
  weir stream retention visit eu/17 --inherit`
}

// keptPicture is a retention as the server shows it and takes it.
type keptPicture struct {
	Events int64 `json:"events,omitempty"`
	Age    int64 `json:"age_ms,omitempty"`
}

func (k keptPicture) String() string {
	age := (time.Duration(k.Age) * time.Millisecond).String()
	switch {
	case k.Events > 0 && k.Age > 0:
		return fmt.Sprintf("the newest %d events that are at most %s old", k.Events, age)
	case k.Events > 0:
		return fmt.Sprintf("the newest %d events", k.Events)
	case k.Age > 0:
		return fmt.Sprintf("events that are at most %s old", age)
	}
	return "all events"
}

func (c *streamRetentionCmd) Run(ctx context.Context, t *terminal) error {
	limits := c.KeepEvents != 0 || c.KeepFor != nil
	switch {
	case c.KeepEvents < 0:
		return usage(fmt.Errorf("--keep-events %d is less than 0", c.KeepEvents), "")
	case c.KeepAll && limits, c.Inherit && (limits || c.KeepAll):
		return usage(errors.New("--keep-all, --inherit and limits exclude each other"), "give one of them")
	case c.Inherit && c.Stream == "":
		return usage(errors.New("--inherit is for a stream"), "to keep all events of a category's streams, give --keep-all")
	}
	name := streamName{c.Category, c.Stream}
	if c.Stream != "" {
		if err := name.Validate(); err != nil {
			return usage(err, "")
		}
	}
	kept := keptPicture{Events: c.KeepEvents}
	if c.KeepFor != nil {
		kept.Age = time.Duration(*c.KeepFor).Milliseconds()
	}
	switch {
	case !limits && !c.KeepAll && !c.Inherit:
		return c.show(ctx, t)
	case c.Stream == "":
		return c.set(ctx, t, "PATCH", apiPath("categories", c.Category), map[string]any{"retention": kept}, fmt.Sprintf("streams of category %s keep %s", printable(c.Category), kept))
	case c.Inherit:
		return c.set(ctx, t, "DELETE", name.path("retention"), nil, fmt.Sprintf("stream %s keeps what its category says", printable(c.Stream)))
	}
	return c.set(ctx, t, "PUT", name.path("retention"), kept, fmt.Sprintf("stream %s keeps %s", printable(c.Stream), kept))
}

func (c *streamRetentionCmd) set(ctx context.Context, t *terminal, method, path string, body any, done string) error {
	if err := c.ask(ctx, method, path, body, nil, 0); err != nil {
		return c.answer("set the retention of "+c.what(), err)
	}
	_, err := fmt.Fprintln(t.out, done)
	return err
}

func (c *streamRetentionCmd) what() string {
	if c.Stream == "" {
		return fmt.Sprintf("category %q", c.Category)
	}
	return streamName{c.Category, c.Stream}.String()
}

// show prints the retention. The server lists streams by name, so of those whose names begin with
// c.Stream the first is the stream itself.
func (c *streamRetentionCmd) show(ctx context.Context, t *terminal) error {
	var category struct{ Retention keptPicture }
	path := apiPath("categories", c.Category)
	if err := c.ask(ctx, "GET", path, nil, &category, 0); err != nil {
		return c.answer("show the retention of "+c.what(), err)
	}
	if c.Stream == "" {
		_, err := fmt.Fprintf(t.out, "streams of category %s keep %s\n", printable(c.Category), category.Retention)
		return err
	}
	var list struct {
		Streams []struct {
			Stream    string
			Exists    bool
			Retention *keptPicture
		}
	}
	path += "/streams?" + url.Values{"prefix": {c.Stream}, "max": {strconv.Itoa(1)}}.Encode()
	if err := c.ask(ctx, "GET", path, nil, &list, 0); err != nil {
		return c.answer("show the retention of "+c.what(), err)
	}
	if len(list.Streams) == 0 || list.Streams[0].Stream != c.Stream || !list.Streams[0].Exists {
		return failed(fmt.Errorf("show the retention of %s: the stream does not exist", c.what()), "`weir stream list CATEGORY` lists the streams")
	}
	kept, whose := category.Retention, ", as its category says"
	if own := list.Streams[0].Retention; own != nil {
		kept, whose = *own, ""
	}
	_, err := fmt.Fprintf(t.out, "stream %s keeps %s%s\n", printable(c.Stream), kept, whose)
	return err
}

type streamForgetCmd struct {
	serverFlags
	consent
	Category string `arg:"" names:"category" help:"The category's name."`
	Subject  string `arg:"" help:"The subject, as it is named in the events."`
}

func (streamForgetCmd) Help() string {
	return `The key that encrypts the data of the subject's events is destroyed. The events stay, without their data. The command also succeeds if there are no such events.
Earlier backups, snapshots, metadata and the name of the subject are not changed.

Examples:

  weir stream forget order customer-17
  weir stream forget order customer-17 --yes`
}

func (c *streamForgetCmd) Run(ctx context.Context, t *terminal) error {
	if err := c.obtain(t, fmt.Sprintf("destroy the data about subject %q in category %q", c.Subject, c.Category), c.Subject); err != nil {
		return err
	}
	if err := c.ask(ctx, "POST", apiPath("categories", c.Category, "subjects", "forget"), map[string]string{"subject": c.Subject}, nil, 0); err != nil {
		return c.answer(fmt.Sprintf("forget subject %q of category %q", c.Subject, c.Category), err)
	}
	_, err := fmt.Fprintf(t.out, "category %s has no data about subject %s now\n", printable(c.Category), printable(c.Subject))
	return err
}
