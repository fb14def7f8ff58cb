package stream

import (
	"bytes"
	"context"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/audit"
)

// Archive closes a stream that is as expected and exists: it can be read, and appends are refused
// with ErrArchived until Unarchive. A *ConflictError says that it is not as expected. Archiving an
// archived stream changes nothing. Its events may be forgotten, and it may be deleted.
func (c *Category) Archive(ctx context.Context, stream string, expected Expected) error {
	if expected == NoStream {
		return &eventlog.InvalidError{What: "expected version", Value: expected.String(), Why: "a stream that does not exist cannot be archived"}
	}
	if expected == Any {
		expected = Exists
	}
	return c.edit(ctx, "archive", stream, expected, streamTold{Archived: new(true)}, func(h head) head { h.Archived = true; return h })
}

// Unarchive ends an Archive.
func (c *Category) Unarchive(ctx context.Context, stream string) error {
	return c.edit(ctx, "unarchive", stream, Exists, streamTold{Archived: new(false)}, func(h head) head { h.Archived = false; return h })
}

// streamTold is what an audit event says of a change of a stream: the part that was changed.
type streamTold struct {
	Stream    string     `json:"stream"`
	Archived  *bool      `json:"archived,omitempty"`
	Before    int64      `json:"before_version,omitempty"` // events before it were to be deleted
	Retention *Retention `json:"retention,omitempty"`      // none of these three is set: the stream has its category's retention again
}

// edit changes only a stream's head, and records who does it. If the function edit leaves the head
// as it is, nothing is written.
func (c *Category) edit(ctx context.Context, verb, stream string, expected Expected, after streamTold, edit func(head) head) error {
	after.Stream = stream
	same := func(h head) bool {
		return h.exists() && expected.allows(h) && bytes.Equal(edit(h).encode(), h.encode())
	}
	_, err := c.remove(ctx, verb, &op{stream: stream, expected: expected, edit: edit, unless: same}, audit.Event{Verb: audit.StreamAlter, Object: c.Name() + "/" + stream, After: after})
	return err
}
