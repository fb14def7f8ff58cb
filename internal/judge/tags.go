package judge

import (
	"maps"
	"slices"
)

// StreamDecides notes an append that is about to be tried, and rests on events with a tag.
func (m *Model) StreamDecides(stream, tag, within string, saw []string) *StreamCall {
	c := m.StreamAppends(stream, AnyVersion, "", 1)
	m.mu.Lock()
	defer m.mu.Unlock()
	c.Tag, c.Within, c.saw = tag, within, saw
	return c
}

// tagReading is what was known when somebody began to read the events with a tag.
type tagReading struct {
	Tag   string
	began Moment
	gone  map[string]int64
}

// TagReads notes that somebody begins to read the events with a tag.
func (m *Model) TagReads(tag string) tagReading {
	m.mu.Lock()
	defer m.mu.Unlock()
	return tagReading{tag, m.now(), maps.Clone(m.streams.gone)}
}

// TagRead judges what somebody read by a tag: events with the tag, and all of them that were
// appended before. It returns their values.
func (m *Model) TagRead(by string, r tagReading, seen []Sight) (values []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range seen {
		c := m.streams.of[s.Value]
		switch {
		case c == nil || c.Tag != r.Tag || slices.Contains(values, s.Value):
			m.violate("S12", []string{s.Topic}, "%s read %s at version %d of %s by the tag %s, which it does not have, or a second time", by, s.Value, s.Offset, s.Topic, r.Tag)
		case s.Offset < r.gone[s.Topic]:
			m.violate("S7", []string{s.Topic}, "%s read version %d of %s by the tag %s from %v on; it had been deleted at %d before", by, s.Offset, s.Topic, r.Tag, r.began, r.gone[s.Topic])
		default:
			m.streamSees(by+" reads by a tag", s.Topic, s.Offset, s.Value, r.began)
		}
		values = append(values, s.Value)
	}
	for _, c := range m.streams.appends {
		if c.Tag != r.Tag || c.outcome != Done || c.ended >= r.began || slices.Contains(values, c.Values[0]) {
			continue
		}
		if !slices.ContainsFunc(m.streams.changes[c.Stream], func(d *StreamCall) bool { return d.mayDelete(c.first+1, true) }) {
			m.violate("S12", []string{c.Stream}, "%s read the tag %s from %v on without %s, done by %v", by, r.Tag, r.began, c, c.ended)
		}
	}
	return values
}

// JudgeDecisions compares each decision with the events that were appended with its tag before it:
// it saw all of them.
func (m *Model) JudgeDecisions(tag string, values []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, v := range values {
		c := m.streams.of[v]
		if c == nil {
			continue // TagRead has reported it
		}
		saw := map[string]bool{}
		for _, before := range c.saw {
			saw[before] = true
		}
		for _, before := range values[:i] {
			if !saw[before] {
				m.violate("S12", []string{c.Stream}, "%s rests on %v, which have the tag %s, and %s came before it", c, c.saw, tag, before)
				break
			}
		}
	}
}
