package httpapi

import (
	"errors"
	"net/http"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/stream"
)

// taggedBytes bounds the memory of the events in an answer. As much again is claimed for the
// batches that they are decoded from.
const taggedBytes = 8 << 20

// readTagged answers with the events of a category that have one of the tags, and with the boundary
// for an append that depends on them.
func (s *Server) readTagged(c *call) error {
	ctx, cancel := c.withTimeout()
	defer cancel()
	category, err := s.category(ctx, c)
	if err != nil {
		return err
	}
	claim, release, err := c.claimPage(ctx, 2*taggedBytes)
	if err != nil {
		return err
	}
	defer release()
	room := claim.Held() / 2
	events, boundary, used, err := category.TaggedUpTo(ctx, room, c.query["tag"]...)
	if errors.Is(err, eventlog.ErrTooLarge) {
		return kindTooLarge.past(room, "the events that have the tags take more than %d bytes of memory, the limit: use tags that fewer events have, or read them in Go", room)
	}
	if err != nil {
		return err
	}
	claim.Shrink(claim.Held() - 2*used)
	c.Header()["Content-Type"] = jsonType
	c.WriteHeader(http.StatusOK)
	e, end := pageEncoder(c, claim)
	defer end()
	e.string(`{"boundary":"` + boundary.String() + `","events":[`)
	for i := range events {
		if i > 0 {
			e.string(",\n")
		}
		e.taggedEvent(&events[i])
		e.spill()
	}
	e.string("]}\n")
	return nil
}

// taggedEvent writes an event, and the stream that it is in.
func (e *encoder) taggedEvent(ev *stream.Event) {
	e.string(`{`)
	e.field("stream", []byte(ev.Stream))
	e.string(`,`)
	e.eventMembers(ev)
	e.string(`}`)
}
