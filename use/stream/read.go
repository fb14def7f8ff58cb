package stream

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

// Range is a part of a stream. The zero value is all of it.
type Range struct {
	From, To int64     // versions from From to below To; To 0: to the end
	Until    time.Time // only events whose time is not after it; zero: any
	Types    []string  // only events of these types; none: all
	Backward bool      // the newest first
}

// How much one store call reads: about pageBytes, and never more than pageMost nor eventsMax
// events.
const (
	pageBytes = 1 << 20
	pageMost  = 64 << 20
	eventsMax = 1000
)

// Events reads a part of a stream: one store call for its state, and one for each MiB of events,
// about. The cost does not grow with the stream, nor with the log. A stream that does not exist has
// no events.
//
// Events that are appended meanwhile are not read. It ends with the first error: ErrChanged if
// events were deleted meanwhile.
func (c *Category) Events(ctx context.Context, stream string, r Range) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		err := c.visit(ctx, stream, r, func(e Event) bool { return yield(e, nil) })
		if err != nil {
			yield(Event{}, fmt.Errorf("read stream %q of category %q: %w", shorten(stream), c.Name(), err))
		}
	}
}

func (c *Category) visit(ctx context.Context, stream string, r Range, yield func(Event) bool) error {
	if err := r.check(); err != nil {
		return err
	}
	h, err := c.readHead(ctx, stream)
	if err != nil || !h.exists() {
		return err
	}
	return c.visitFrom(ctx, stream, h, r, yield)
}

func (r Range) check() error {
	if r.From < 0 || r.To < 0 || r.To > 0 && r.To < r.From {
		return &eventlog.InvalidError{What: "range of versions", Value: fmt.Sprintf("%d to %d", r.From, r.To), Why: "versions begin at 0, and a range must not end before it begins"}
	}
	return nil
}

// within returns the part of the range that can be read in a stream.
func (r Range) within(h head) (from, to int64) {
	from, to = max(r.From, h.First), h.Next
	if r.To > 0 {
		to = min(to, r.To)
	}
	return from, to
}

// visitFrom reads a part of a stream that has a head.
func (c *Category) visitFrom(ctx context.Context, stream string, h head, r Range, yield func(Event) bool) error {
	from, to := r.within(h)
	for from < to {
		events, span, err := c.look(ctx, stream, h, from, to, pageStep(h), r.Backward)
		if err != nil {
			return err
		}
		if r.Backward {
			to = span[0]
		} else {
			from = span[1]
		}
		for _, e := range events {
			if r.matches(e) && !yield(e) {
				return nil
			}
		}
	}
	return nil
}

// look reads at most step events in [from, to), the first or, backward, the last ones, and returns
// the range of versions that it has read.
func (c *Category) look(ctx context.Context, stream string, h head, from, to, step int64, backward bool) (events []Event, span [2]int64, err error) {
	span = [2]int64{from, min(from+step, to)}
	if backward {
		span = [2]int64{max(to-step, from), to}
	}
	if events, err = c.page(ctx, stream, span[0], span[1]); err != nil {
		return nil, span, err
	}
	if n := int(span[1]-span[0]) - len(events); n > 0 {
		return nil, span, c.missing(ctx, stream, h, span, n)
	}
	if backward {
		slices.Reverse(events)
	}
	return events, span, nil
}

// missing returns why n of the events in a range of versions were not read: they were deleted since
// the head was read, or the store has lost them.
func (c *Category) missing(ctx context.Context, stream string, h head, span [2]int64, n int) error {
	now, err := c.readHead(ctx, stream)
	switch {
	case err != nil:
		return err
	case now.version != h.version && (now.First > span[0] || now.Born != h.Born || now.Next < span[1]): // now.Next is lower if the store was rewound
		return fmt.Errorf("%w: it had the versions [%d, %d), and has [%d, %d) now", ErrChanged, h.First, h.Next, now.First, now.Next)
	}
	return fmt.Errorf("%d of its events with the versions %d to %d are missing in the store: restore a backup", n, span[0], span[1]-1)
}

// pageStep returns how many events to read in one call.
func pageStep(h head) int64 {
	usual := max(h.Bytes/max(h.Next, 1), 1)
	return max(min(pageBytes/usual, pageMost/max(h.Largest, 1), eventsMax), 1)
}

func (r Range) matches(e Event) bool {
	return (len(r.Types) == 0 || slices.Contains(r.Types, e.Type)) && (r.Until.IsZero() || !e.Time.After(r.Until))
}

// page reads the events in [from, to) that are there: one store call, and one for all their
// subjects.
func (c *Category) page(ctx context.Context, stream string, from, to int64) (events []Event, err error) {
	prefix := c.key(eventPrefix, stream) + "/"
	after := ""
	if from > 0 {
		after = prefix + digits(from-1)
	}
	list, err := c.owner.log.List(ctx, prefix, after, int(to-from))
	if err != nil {
		return nil, err
	}
	for _, kv := range list {
		e, err := eventIn(kv)
		if err != nil {
			return nil, err
		}
		if e.Version < to {
			events = append(events, e)
		}
	}
	return events, c.reveal(ctx, events)
}

// eventIn reads the event that a key holds, as a batch of its one record.
func eventIn(kv eventlog.KeyValue) (Event, error) {
	damaged := func(err error) (Event, error) {
		return Event{}, fmt.Errorf("key %s is damaged in the store: %w; restore a backup", kv.Key, err)
	}
	version, err := versionIn(kv.Key)
	if err == nil {
		_, err = batch.Check(kv.Value)
	}
	if err != nil {
		return damaged(err)
	}
	for r, err := range batch.Records(kv.Value, batch.DefaultMaxDecompressed) {
		if err != nil {
			return damaged(err)
		}
		return eventOf(r, version), nil
	}
	return damaged(batch.ErrCorrupt)
}
