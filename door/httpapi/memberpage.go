package httpapi

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/use/group"
)

// memberPage is what a member gets of one partition.
type memberPage struct {
	of     place
	tp     group.TopicPartition
	events []event
	from   eventlog.Offset
	next   eventlog.Offset
	had    eventlog.Offset // what was committed
	gap    *gap            // behind the events
	err    error           // why there are none
}

// lookAt fetches what the member owns, or waits for it, or for its assignment to change.
func (s *Server) lookAt(ctx, polls context.Context, m *member, after cursor, wait time.Duration) (pages []memberPage, release func(), err error) {
	changed := m.changed()
	own := m.peer.Assignment().Own
	round, endRound := context.WithCancel(polls)
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-changed:
		case <-m.gone:
		case <-round.Done():
		}
		endRound()
	})
	defer watching.Wait()
	defer endRound()
	if len(own) == 0 {
		select {
		case <-round.Done():
		case <-time.After(max(wait, 0)):
		}
		return nil, func() {}, nil
	}
	spans, pages := after.spans(own)
	turn := rand.Perm(len(spans)) // they are served in their order, and none is to come last always
	inTurn := make([]eventlog.Span, len(spans))
	for k, i := range turn {
		inTurn[k] = spans[i]
	}
	got, release, err := s.fetch(ctx, round, inTurn, wait)
	for k, slice := range got {
		i := turn[k]
		pages[i].fill(slice)
		s.logGap(pages[i].of.topic, pages[i].of.partition, pages[i].gap)
	}
	if err != nil {
		release()
	}
	return pages, release, err
}

// fill takes over what was fetched.
func (p *memberPage) fill(slice eventlog.Slice) {
	var outside *eventlog.RangeError
	switch {
	case errors.As(slice.Err, &outside) && outside.Asked < outside.First:
		p.gap = &gap{from: p.from, to: outside.First}
	case slice.Err != nil:
		p.err = in(p.of.topic, p.of.partition, slice.Err)
	default:
		size := 0
		p.gap = eachRecord(slice, p.from, func(rec batch.Record) bool {
			p.events = append(p.events, event{topic: p.of.topic, partition: p.of.partition, Record: rec})
			p.next = eventlog.Offset(rec.Offset) + 1
			size += len(rec.Key) + len(rec.Value)
			return len(p.events) < eventsMax && size < fetchBytes
		})
	}
	if p.gap != nil {
		p.next = p.gap.to
	}
}

// placedGap is a gap and where it is.
type placedGap struct {
	of place
	gap
}

// trim leaves out what is more than the client wants. Partitions take turns by chance, so that none always comes last.
func trim(pages []memberPage, most int) []memberPage {
	for _, i := range rand.Perm(len(pages)) {
		p := &pages[i]
		if len(p.events) > most {
			p.events = p.events[:most]
			p.next, p.gap = p.from, nil
			if most > 0 {
				p.next = eventlog.Offset(p.events[most-1].Offset) + 1
			}
		}
		most -= len(p.events)
	}
	return pages
}

// answerMember answers with events of several partitions, and with the cursor behind them.
func (s *Server) answerMember(c *call, pages []memberPage, gaps []placedGap) error {
	next := cursorBehind(pages)
	c.Header()["Weir-Next"] = []string{next}
	e := newEncoder(c)
	defer e.flush()
	if wantsLines(c.r) {
		c.Header()["Content-Type"] = ndjsonType
		for i := range pages {
			for k := range pages[i].events {
				e.event(&pages[i].events[k])
				e.string("\n")
				e.spill()
			}
		}
		for _, g := range gaps {
			e.gapLine(g.of.topic, g.of.partition, g.gap)
		}
		return nil
	}
	c.Header()["Content-Type"] = jsonType
	e.string(`{"events":[`)
	divider := ""
	for i := range pages {
		for k := range pages[i].events {
			e.string(divider)
			e.event(&pages[i].events[k])
			e.spill()
			divider = ",\n"
		}
	}
	e.string(`],"next":"`)
	e.string(next) // nothing in it needs escaping
	e.string(`"`)
	divider = `,"gaps":[`
	for _, g := range gaps {
		e.string(divider)
		e.buf = fmt.Appendf(e.buf, `{"topic":"%s","partition":%d,"from":%d,"to":%d}`, g.of.topic, g.of.partition, g.from, g.to)
		divider = ","
	}
	if len(gaps) > 0 {
		e.string("]")
	}
	divider = `,"problems":[`
	for i := range pages {
		if err := pages[i].err; err != nil {
			e.string(divider)
			e.buf = append(e.buf, c.problem(err)...)
			divider = ","
		}
	}
	if divider == "," {
		e.string("]")
	}
	e.string("}\n")
	return nil
}
