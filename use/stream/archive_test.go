package stream_test

import (
	"errors"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/stream"
)

func TestAnArchivedStreamIsReadAndNotAppendedTo(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(*testing.T) eventlog.Store) {
		p, c := orders(t, reopen)
		before := []stream.NewEvent{{ID: "1", Type: "t"}, {ID: "2", Type: "t"}}
		_, err := c.Append(t.Context(), "s", stream.NoStream, before...)
		check(t, err)
		var conflict *stream.ConflictError
		if err := c.Archive(t.Context(), "s", 1); !errors.As(err, &conflict) || conflict.Actual != 2 {
			t.Errorf("at another version: %v, want a *ConflictError", err)
		}
		if err := c.Archive(t.Context(), "never was", stream.Any); !errors.As(err, &conflict) {
			t.Errorf("one that never was: %v, want a *ConflictError", err)
		}
		if err := c.Archive(t.Context(), "never was", 0); !errors.As(err, &conflict) {
			t.Errorf("one that never was, at version 0: %v, want a *ConflictError", err)
		}
		for range 2 {
			check(t, c.Archive(t.Context(), "s", 2))
		}
		refused := func(c *stream.Category) {
			t.Helper()
			for _, expected := range []stream.Expected{2, stream.Any, stream.Exists} {
				if _, err := c.Append(t.Context(), "s", expected, stream.NewEvent{Type: "t"}); !errors.Is(err, stream.ErrArchived) {
					t.Errorf("append at %v: %v, want ErrArchived", expected, err)
				}
			}
			if _, err := c.Append(t.Context(), "s", 1, stream.NewEvent{Type: "t"}); !errors.As(err, &conflict) {
				t.Errorf("append at another version: %v, want a *ConflictError", err)
			}
			parts := []stream.Part{{Category: c, Stream: "s", Expected: 2, Events: []stream.NewEvent{{Type: "t"}}}}
			if _, err := p.AppendAll(t.Context(), parts...); !errors.Is(err, stream.ErrArchived) {
				t.Errorf("with others: %v, want ErrArchived", err)
			}
		}
		refused(c)
		elsewhere, err := begin(t, reopen(t)).Category(t.Context(), "orders")
		check(t, err)
		refused(elsewhere)
		if done, err := c.Append(t.Context(), "s", stream.NoStream, before...); err != nil || !done.Duplicate {
			t.Errorf("what was appended before, again: %+v, %v", done, err)
		}
		n := 0
		for _, err := range c.Events(t.Context(), "s", stream.Range{}) {
			check(t, err)
			n++
		}
		if s, err := c.State(t.Context(), "s"); err != nil || !s.Archived || !s.Exists || n != 2 {
			t.Errorf("%+v, %v, with %d events", s, err, n)
		}
		check(t, c.Unarchive(t.Context(), "s"))
		if done, err := elsewhere.Append(t.Context(), "s", 2, stream.NewEvent{Type: "t"}); err != nil || done.Version != 3 {
			t.Errorf("after it is no longer archived: %+v, %v", done, err)
		}
		check(t, c.Archive(t.Context(), "s", stream.Any))
		_, err = c.Delete(t.Context(), "s", 3)
		check(t, err)
		if done, err := c.Append(t.Context(), "s", 3, stream.NewEvent{Type: "t"}); err != nil || done.Version != 4 {
			t.Errorf("begun again: %+v, %v", done, err)
		}
	})
}
