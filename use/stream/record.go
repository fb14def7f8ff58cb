package stream

import (
	"context"
	"strconv"

	"github.com/weir-log/weir/eventlog/batch"
)

// EventsIn returns the events in records of the category's topic, decrypted as Events does it, and
// for each event the index of its record. A deletion comes as an event of the type TypeDeleted,
// with no version and no data. Records that are no events of a stream are left out.
func (c *Category) EventsIn(ctx context.Context, records ...batch.Record) (events []Event, of []int, err error) {
	for i, r := range records {
		if e, is := streamEvent(r); is {
			events, of = append(events, e), append(of, i)
		}
	}
	return events, of, c.reveal(ctx, events)
}

// streamEvent reads the event in a record, without decrypting it.
func streamEvent(r batch.Record) (Event, bool) {
	if r.Key == nil {
		return Event{}, false
	}
	version := int64(-1)
	for _, h := range r.Headers {
		if h.Key == HeaderVersion {
			n, err := strconv.ParseInt(string(h.Value), 10, 64)
			if err != nil || n < 0 {
				return Event{}, false
			}
			version = n
		}
	}
	e := eventOf(r, max(version, 0))
	return e, version >= 0 || e.Type == TypeDeleted
}
