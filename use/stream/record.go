package stream

import (
	"context"
	"strconv"

	"github.com/weir-log/weir/eventlog/batch"
)

// EventIn returns the event that a record of the category's topic is, decrypted as Events does it. A deletion comes as an event
// of the type TypeDeleted, with no version and no data. It returns false for a record that is no event of a stream.
func (c *Category) EventIn(ctx context.Context, r batch.Record) (e Event, is bool, err error) {
	if r.Key == nil {
		return Event{}, false, nil
	}
	version := int64(-1)
	for _, h := range r.Headers {
		if h.Key == HeaderVersion {
			if version, err = strconv.ParseInt(string(h.Value), 10, 64); err != nil || version < 0 {
				return Event{}, false, nil
			}
		}
	}
	e = eventOf(r, max(version, 0))
	if version < 0 && e.Type != TypeDeleted {
		return Event{}, false, nil
	}
	one := []Event{e}
	if err := c.reveal(ctx, one); err != nil {
		return Event{}, false, err
	}
	return one[0], true, nil
}
