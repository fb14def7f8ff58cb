package stream

import (
	"context"

	"github.com/weir-log/weir/eventlog"
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
	return c.edit(ctx, "archive", stream, expected, func(h head) head { h.Archived = true; return h })
}

// Unarchive ends an Archive.
func (c *Category) Unarchive(ctx context.Context, stream string) error {
	return c.edit(ctx, "unarchive", stream, Exists, func(h head) head { h.Archived = false; return h })
}

// edit changes only a stream's head.
func (c *Category) edit(ctx context.Context, verb, stream string, expected Expected, edit func(head) head) error {
	_, err := c.remove(ctx, verb, &op{stream: stream, expected: expected, edit: edit})
	return err
}
