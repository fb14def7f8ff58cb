package httpapi

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/weir-log/weir/door/httpapi/member"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/budget"
	"github.com/weir-log/weir/use/group"
)

// memberPage is the part of a member's answer for one partition.
type memberPage struct {
	page
	of  place
	tp  group.TopicPartition
	had eventlog.Offset // the committed offset

	from eventlog.Offset // where the page starts
}

// deliver marks the partitions of pages as busy. It leaves out pages of partitions that the member
// no longer owns.
func deliver(m *member.Member, pages []memberPage) (kept []memberPage) {
	all := make([]member.Delivery, len(pages))
	for i, p := range pages {
		all[i] = member.Delivery{Assigned: group.Assigned{Topic: p.of.topic, TopicPartition: p.tp, Since: p.of.since}, Events: len(p.events) > 0}
	}
	for i, owned := range m.Deliver(all) {
		if owned {
			kept = append(kept, pages[i])
		}
	}
	return kept
}

// lookAt fetches events of the member's partitions; most bounds their number. It waits for events,
// or for a change of the assignment. The first partition is random, so that none always comes last.
// The claim in the parameter waits is enlarged to the memory that a read of so many partitions
// takes.
func (s *Server) lookAt(ctx, polls context.Context, who *caller, m *member.Member, after cursor, most int, wait time.Duration, waits *budget.Claim) (pages []memberPage, claim *budget.Claim, err error) {
	changed := m.Changed()
	own := m.Peer.Assignment().Own
	round, endRound := context.WithCancel(polls)
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-changed:
		case <-m.Gone():
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
		return nil, nil, nil
	}
	if n := int64(len(own)) * spanBytes; len(own) > spansFree && waits.Held() < waitBytes+n {
		if err := s.growWait(waits, waitBytes+n-waits.Held()); err != nil {
			return nil, nil, err
		}
	}
	spans, pages := after.spans(own)
	got, claim, err := s.fetch(ctx, round, who, spans, rand.IntN(len(spans)), most, wait, nil)
	for i := range got {
		p := &pages[i]
		p.page = got[i]
		p.passTrimmed()
		if p.err != nil {
			p.err = in(p.of.topic, p.of.partition, p.err)
		}
		s.logGap(p.of.topic, p.of.partition, p.gap)
	}
	return pages, claim, err
}

// placedGap is a gap with its topic and partition.
type placedGap struct {
	of place
	gap
}

// answerPages answers with events of several partitions, and with where they end. next needs no
// escaping. A place without a topic is one of the topic in the path.
func answerPages(c *call, next string, pages []memberPage, gaps []placedGap, claim *budget.Claim) error {
	c.Header()["Weir-Next"] = []string{next}
	e, end := pageEncoder(c, claim)
	defer end()
	if wantsLines(c.r) {
		c.Header()["Content-Type"] = ndjsonType
		for i := range pages {
			for k := range pages[i].events {
				e.event(pages[i].of.topic, pages[i].of.partition, &pages[i].events[k])
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
			e.event(pages[i].of.topic, pages[i].of.partition, &pages[i].events[k])
			e.spill()
			divider = ",\n"
		}
	}
	e.string(`],"next":"`)
	e.string(next)
	e.string(`"`)
	divider = `,"gaps":[`
	for _, g := range gaps {
		e.string(divider)
		e.place(g.of.topic, g.of.partition)
		e.buf = fmt.Appendf(e.buf, `,"from":%d,"to":%d}`, g.from, g.to)
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
