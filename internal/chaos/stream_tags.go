package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weir-log/weir"
)

// tagsCount is how many tags decisions rest on.
const tagsCount = 3

func tagName(n int) string { return fmt.Sprintf("tag%d", n) }

// decideByTags reads the events with a tag, and appends another one somewhere if no other came meanwhile.
func (w *world) decideByTags(ctx context.Context, nth int) {
	random := w.random(fmt.Sprintf("decider%d", nth))
	for ctx.Err() == nil {
		pause(ctx, time.Duration(random.IntN(200))*time.Millisecond)
		r := w.model.tagReads(tagName(random.IntN(tagsCount)))
		n := random.IntN(4)
		e, b := w.embedded[n%2], w.brokers[n%2]
		by, said := e.name, word{}
		if n >= 2 {
			by, said = "HTTP at "+b.name, b.readTag(ctx, r.tag)
		} else {
			said = e.ask(ctx, order{Do: "read tag", Topic: accounts, Tag: r.tag})
		}
		w.counts.add("readings of tags, " + said.Outcome.String())
		if said.Outcome != done {
			continue
		}
		saw := w.model.tagRead(by, r, said.Handled)
		pause(ctx, time.Duration(random.IntN(30))*time.Millisecond)
		w.settleAppend(ctx, random, w.model.streamDecides(streamName(random), r.tag, said.State, saw))
	}
}

// streamDecides notes an append that is about to be tried, and rests on events with a tag.
func (m *model) streamDecides(stream, tag, within string, saw []string) *streamCall {
	c := m.streamAppends(stream, anyVersion, "", 1)
	m.mu.Lock()
	defer m.mu.Unlock()
	c.tag, c.within, c.saw = tag, within, saw
	return c
}

// tagReading is what was known when somebody began to read the events with a tag.
type tagReading struct {
	tag   string
	began moment
	gone  map[string]int64
}

// tagReads notes that somebody begins to read the events with a tag.
func (m *model) tagReads(tag string) tagReading {
	m.mu.Lock()
	defer m.mu.Unlock()
	return tagReading{tag, m.now(), maps.Clone(m.streams.gone)}
}

// tagRead judges what somebody read by a tag: events with the tag, and all of them that were appended before. It returns their values.
func (m *model) tagRead(by string, r tagReading, seen []sight) (values []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range seen {
		c := m.streams.of[s.Value]
		switch {
		case c == nil || c.tag != r.tag || slices.Contains(values, s.Value):
			m.violate("S12", []string{s.Topic}, "%s read %s at version %d of %s by the tag %s, which it does not have, or a second time", by, s.Value, s.Offset, s.Topic, r.tag)
		case s.Offset < r.gone[s.Topic]:
			m.violate("S7", []string{s.Topic}, "%s read version %d of %s by the tag %s from %v on; it had been deleted at %d before", by, s.Offset, s.Topic, r.tag, r.began, r.gone[s.Topic])
		default:
			m.streamSees(by+" reads by a tag", s.Topic, s.Offset, s.Value, r.began)
		}
		values = append(values, s.Value)
	}
	for _, c := range m.streams.appends {
		if c.tag != r.tag || c.outcome != done || c.ended >= r.began || slices.Contains(values, c.values[0]) {
			continue
		}
		if !slices.ContainsFunc(m.streams.changes[c.stream], func(d *streamCall) bool { return d.mayDelete(c.first+1, true) }) {
			m.violate("S12", []string{c.stream}, "%s read the tag %s from %v on without %s, done by %v", by, r.tag, r.began, c, c.ended)
		}
	}
	return values
}

// judgeTags reads the events with each tag at the end.
func (w *world) judgeTags(ctx context.Context, c *weir.Category) error {
	for n := range tagsCount {
		r := w.model.tagReads(tagName(n))
		said := readTag(ctx, c, r.tag)
		if said.Outcome != done {
			return fmt.Errorf("read the tag %s: %s", r.tag, said.Err)
		}
		w.model.judgeDecisions(r.tag, w.model.tagRead("the end", r, said.Handled))
		w.counts.addN("events with tags at the end", len(said.Handled))
	}
	return nil
}

// judgeDecisions holds each decision against the events that were appended with its tag before it: it saw all of them.
func (m *model) judgeDecisions(tag string, values []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, v := range values {
		c := m.streams.of[v]
		if c == nil {
			continue // tagRead has told
		}
		saw := map[string]bool{}
		for _, before := range c.saw {
			saw[before] = true
		}
		for _, before := range values[:i] {
			if !saw[before] {
				m.violate("S12", []string{c.stream}, "%s rests on %v, which have the tag %s, and %s came before it", c, c.saw, tag, before)
				break
			}
		}
	}
}
