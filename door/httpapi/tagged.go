package httpapi

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/stream"
)

// taggedBytes bounds the memory of the events in an answer. Each byte is claimed twice, because the
// batches that the events are decoded from take memory, too.
const taggedBytes = 8 << 20

// taggedReads bounds the reads by tags at the same time, because the memory of what a store call
// returns is claimed only after the call.
const taggedReads = 16

// readTagged answers with the events of a category that have one of the tags, and with the boundary
// for an append that depends on them.
func (s *Server) readTagged(c *call) error {
	ctx, cancel := c.withTimeout()
	defer cancel()
	category, err := s.category(ctx, c)
	if err != nil {
		return err
	}
	if s.tagged.acquire(ctx, c.who.ID()) != nil {
		return kindOverloaded.past(taggedReads, "weir is already reading %d times by tags, the limit, or a quarter of them for this client, the limit for one client; try again", taggedReads)
	}
	reading := sync.OnceFunc(func() { s.tagged.release(c.who.ID()) })
	defer reading()
	claim := s.answers.BeginFor(c.who.ID())
	defer claim.Release()
	room := min(taggedBytes, s.answers.Share()/2)
	events, boundary, used, err := category.TaggedUpTo(ctx, room, func(ctx context.Context, n int64) error {
		if _, err := claim.Grow(ctx, 2*n); err != nil {
			return s.overloaded()
		}
		return nil
	}, c.query["tag"]...)
	if errors.Is(err, eventlog.ErrTooLarge) {
		return kindTooLarge.past(room, "the events that have the tags take more than %d bytes of memory, the limit: use tags that fewer events have, or read them in Go", room)
	}
	if err != nil {
		return err
	}
	reading()
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
