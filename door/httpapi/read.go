package httpapi

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/budget"
)

// read answers with events of one partition from an offset on. If there are none it waits, if the
// client asked for it.
func (s *Server) read(c *call) error {
	topic, err := s.topic(c)
	if err != nil {
		return err
	}
	number, partition, err := partitionOf(topic, c.r.PathValue("partition"))
	if err != nil {
		return err
	}
	most, wait, err := paging(c.query)
	if err != nil {
		return err
	}
	if wait > 0 {
		if err := s.polls.begin(c.who); err != nil {
			return err
		}
		defer s.polls.end(c.who)
		memory, err := s.beginWait(c.who, 0)
		if err != nil {
			return err
		}
		defer memory.Release()
	}
	c.waits(wait)
	ctx, cancel := c.withTimeout()
	defer cancel()
	asked := readDefault
	if c.query.Has("offset") {
		asked = c.query.Get("offset")
	}
	from, err := s.offsetAsked(ctx, partition, asked)
	if err != nil {
		return err
	}
	polls, stop := untilDraining(c.r)
	defer stop()
	pages, claim, err := s.fetch(ctx, polls, c.who, []eventlog.Span{{Partition: partition, From: from}}, 0, most, wait, nil)
	defer claim.Release()
	if err == nil && wait > 0 {
		err = s.again(c, toRead, topic.Name)
	}
	if err != nil {
		return err
	}
	p := &pages[0]
	if p.err != nil {
		return p.err
	}
	s.logGap(topic.Name, number, p.gap)
	answerPage(c, number, p, claim)
	return nil
}

// Default start of a read.
const (
	readDefault   = "earliest"
	streamDefault = "latest"
)

// offsetAsked parses an offset in a request.
func (s *Server) offsetAsked(ctx context.Context, p eventlog.Partition, text string) (eventlog.Offset, error) {
	switch text {
	case "earliest", "latest":
		got, err := s.cfg.Log.Bounds(ctx, p)
		if err == nil {
			err = got[0].Err
		}
		if err != nil {
			return 0, err
		}
		if text == "latest" {
			return got[0].Bounds.Stable(), nil
		}
		return got[0].Bounds.First, nil
	}
	n, whole := wholeNumber(text)
	if !whole {
		return 0, kindInvalidRequest.because("offset=%s: it must be a whole number (0 or more), earliest or latest", shorten(text))
	}
	return eventlog.Offset(n), nil
}

// answerPage writes events as one JSON object, or one per line.
func answerPage(c *call, partition int32, p *page, claim *budget.Claim) {
	h := c.Header()
	h.Set("Weir-Next-Offset", strconv.FormatInt(int64(p.next), 10))
	e, end := pageEncoder(c, claim)
	defer end()
	if wantsLines(c.r) {
		h["Content-Type"] = ndjsonType
		for i := range p.events {
			e.event("", partition, &p.events[i])
			e.string("\n")
			e.spill()
		}
		if p.gap != nil {
			e.gapLine("", partition, *p.gap)
		}
		return
	}
	h["Content-Type"] = jsonType
	e.string(`{"events":[`)
	for i := range p.events {
		if i > 0 {
			e.string(",\n")
		}
		e.event("", partition, &p.events[i])
		e.spill()
	}
	e.string(`],"next_offset":`)
	e.int(int64(p.next))
	e.string(`,"first_offset":`)
	e.int(int64(p.bounds.First))
	e.string(`,"end_offset":`)
	e.int(int64(max(p.bounds.Next, p.next)))
	if p.gap != nil {
		e.string(`,"gap":`)
		e.gap(*p.gap)
	}
	e.string("}\n")
}

// wantsLines reports whether the client asks for one event per line.
func wantsLines(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "ndjson")
}
