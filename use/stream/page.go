package stream

import (
	"context"
	"fmt"

	"github.com/weir-log/weir/eventlog"
)

// Page is a part of a stream that was read with one call.
type Page struct {
	State  State
	Events []Event
	// More: the range goes on beyond this page. Then Next is the Range.From of the next page, or
	// the Range.To if it is read backward. A page may have More and no events: then none of the
	// events that were read matched the range.
	More bool
	Next int64
}

// PageLimit bounds a page.
type PageLimit struct {
	Events int // 1 to 1000
	// Room returns how many bytes the events may take in memory. It is called once, before any is
	// read, with the memory that the largest event of the stream takes. If there is less room than
	// that, a page has one event. nil: 64 MiB.
	Room func(ctx context.Context, largest int64) (int64, error)
}

const (
	eventMemory    = 512 // memory of an event, besides its bytes
	tagMemory      = 16  // memory of a tag, besides its bytes
	metadataMemory = 64  // memory of a metadata header, besides its bytes
	pageLookMost   = 16  // store calls for the events of one page
)

// Page reads a page of a range: one store call for the stream's state, and one for each MiB of
// events, about; at most 17. Each MiB that has events with subjects costs one more, for the keys of
// all its subjects. A stream that does not exist has no events. ErrChanged if events were deleted
// meanwhile: read the page again.
func (c *Category) Page(ctx context.Context, stream string, r Range, limit PageLimit) (Page, error) {
	p, err := c.readPage(ctx, stream, r, limit)
	if err != nil {
		return Page{}, fmt.Errorf("read a page of stream %q of category %q: %w", shorten(stream), c.Name(), err)
	}
	return p, nil
}

func (c *Category) readPage(ctx context.Context, stream string, r Range, limit PageLimit) (Page, error) {
	if err := r.check(); err != nil {
		return Page{}, err
	}
	if limit.Events < 1 || limit.Events > eventsMax {
		return Page{}, &eventlog.InvalidError{What: "number of events", Value: fmt.Sprint(limit.Events), Why: fmt.Sprintf("a page has 1 to %d", eventsMax)}
	}
	h, err := c.readHead(ctx, stream)
	if err != nil || !h.exists() {
		return Page{State: h.state()}, err
	}
	room, largest := int64(pageMost), max(h.Largest, h.Memory)+eventMemory
	if limit.Room != nil {
		if room, err = limit.Room(ctx, largest); err != nil {
			return Page{}, err
		}
	}
	p := Page{State: h.state()}
	from, to := r.within(h)
	for looks := 0; from < to && looks < pageLookMost; looks++ {
		step := min((room-p.memory())/largest, pageStep(h))
		if len(p.Events) == limit.Events || step < 1 && len(p.Events) > 0 {
			break
		}
		if len(r.Types) == 0 && r.Until.IsZero() { // every event matches
			step = min(step, int64(limit.Events-len(p.Events)))
		}
		events, span, err := c.look(ctx, stream, h, from, to, max(step, 1), r.Backward)
		if err != nil {
			return Page{}, err
		}
		if r.Backward {
			to = span[0]
		} else {
			from = span[1]
		}
		for i, e := range events {
			if !r.matches(e) {
				continue
			}
			p.Events = append(p.Events, e)
			if len(p.Events) == limit.Events && i < len(events)-1 {
				if r.Backward {
					to = e.Version
				} else {
					from = e.Version + 1
				}
				break
			}
		}
	}
	if p.More = from < to; p.More {
		p.Next = from
		if r.Backward {
			p.Next = to
		}
	}
	return p, nil
}

// memory estimates what the page's events take.
func (p *Page) memory() (n int64) {
	for i := range p.Events {
		n += p.Events[i].memory()
	}
	return n
}

func (e *Event) memory() int64 {
	n := eventMemory + len(e.ID) + len(e.Type) + len(e.Data) + len(e.Subject)
	for _, tag := range e.Tags {
		n += tagMemory + len(tag)
	}
	for _, m := range e.Metadata {
		n += metadataMemory + len(m.Key) + len(m.Value)
	}
	return int64(n)
}
