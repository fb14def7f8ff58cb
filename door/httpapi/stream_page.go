package httpapi

import (
	"context"
	"math"
	"time"

	"github.com/weir-log/weir/internal/budget"
	"github.com/weir-log/weir/use/stream"
)

const (
	streamPageDefault = 100
	streamPageMax     = 1000
	streamPageEvents  = 16 // how many events of the largest size a page has memory for, if so much is free
)

// readStream answers with a page of a stream's events, or with its events as they come.
func (s *Server) readStream(c *call) error {
	if follows(c.r) {
		return s.followStream(c)
	}
	asked, most, err := rangeOf(c)
	if err != nil {
		return err
	}
	ctx, cancel := c.withTimeout()
	defer cancel()
	category, err := s.category(ctx, c)
	if err != nil {
		return err
	}
	var memory *budget.Claim
	defer func() { memory.Release() }()
	page, err := category.Page(ctx, c.r.PathValue("stream"), asked, c.pageLimit(most, &memory))
	if err != nil {
		return err
	}
	if !page.State.Exists {
		return unknownStream(c)
	}
	c.Header().Set("Etag", etag(page.State.Version))
	c.Header()["Content-Type"] = jsonType
	e, end := pageEncoder(c, memory)
	defer end()
	e.string(`{"version":`)
	e.int(page.State.Version)
	e.string(`,"first":`)
	e.int(page.State.First)
	if page.State.Archived {
		e.string(`,"archived":true`)
	}
	if page.More {
		e.string(`,"next":`)
		e.int(page.Next)
	}
	e.string(`,"events":[`)
	for i := range page.Events {
		if i > 0 {
			e.string(",\n")
		}
		e.streamEvent(&page.Events[i])
		e.spill()
	}
	e.string("]}\n")
	return nil
}

// pageLimit bounds a page of a stream by the memory for answers. While the page is read, it claims
// this memory, and stores the claim in *claim.
func (c *call) pageLimit(events int, claim **budget.Claim) stream.PageLimit {
	return stream.PageLimit{Events: events, Room: func(ctx context.Context, largest int64) (room int64, err error) {
		want, least := max(fetchBytes, min(streamPageEvents*largest, lettersBytes)), max(claimStep, largest)
		*claim, err = c.claimAnswer(ctx, 2*want, 2*least)
		return (*claim).Held() / 2, err // the other half is for the batches that the events are decoded from
	}}
}

func unknownStream(c *call) error {
	return kindUnknownStream.because("stream %q of category %s has no events yet, or was deleted", shorten(c.r.PathValue("stream")), shorten(c.r.PathValue("category")))
}

// rangeOf reads which events of a stream are asked for, and how many at most.
func rangeOf(c *call) (asked stream.Range, most int, err error) {
	q := c.query
	if asked.From, err = version(q, "from", 0, 0); err != nil {
		return asked, 0, err
	}
	if asked.To, err = version(q, "to", 1, 0); err != nil {
		return asked, 0, err
	}
	if q.Has("until") {
		until, err := number(q, "until", 0, timestampMax, 0)
		if err != nil {
			return asked, 0, err
		}
		asked.Until = time.UnixMilli(until)
	}
	if q.Has("type") {
		asked.Types = []string{q.Get("type")}
	}
	if asked.Backward, err = truth(q, "backward"); err != nil {
		return asked, 0, err
	}
	n, err := number(q, "max", 1, math.MaxInt64, streamPageDefault)
	return asked, int(min(n, streamPageMax)), err
}

// streamEvent writes an event of a stream.
func (e *encoder) streamEvent(ev *stream.Event) {
	e.string(`{`)
	e.eventMembers(ev)
	e.string(`}`)
}

// eventMembers writes all of an event but the name of its stream.
func (e *encoder) eventMembers(ev *stream.Event) {
	e.string(`"version":`)
	e.int(ev.Version)
	for _, text := range [...]struct{ name, value string }{{"id", ev.ID}, {"type", ev.Type}, {"subject", ev.Subject}} {
		if text.value != "" {
			e.string(`,`)
			e.field(text.name, []byte(text.value))
		}
	}
	e.string(`,"timestamp":`)
	e.int(ev.Time.UnixMilli())
	e.string(`,`)
	if ev.Erased {
		e.string(`"erased":true,`)
	}
	e.field("value", ev.Data)
	if len(ev.Tags) > 0 {
		e.string(`,"tags":[`)
		for i, tag := range ev.Tags {
			if i > 0 {
				e.string(`,`)
			}
			e.string(`"`)
			e.text([]byte(tag))
			e.string(`"`)
		}
		e.string(`]`)
	}
	e.headerList("metadata", ev.Metadata)
}
