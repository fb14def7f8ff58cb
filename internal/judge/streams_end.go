package judge

import (
	"slices"
)

// StreamPast is what the category's topic has of one stream: all that was ever appended, and where
// it was deleted.
type StreamPast struct {
	Values    []string // by version
	Deletions []int64  // the versions at which it was deleted
}

// Begins is the version from which on the stream can be read.
func (p *StreamPast) Begins() int64 {
	if len(p.Deletions) == 0 {
		return 0
	}
	return p.Deletions[len(p.Deletions)-1]
}

// deletedAt says whether the stream was deleted at a version; orLater: or at a later one.
func (p *StreamPast) deletedAt(version int64, orLater bool) bool {
	return slices.Contains(p.Deletions, version) || orLater && len(p.Deletions) > 0 && p.Begins() >= version
}

// JudgeProjected compares what a run of the projection got with the streams.
func (m *Model) JudgeProjected(run int64, past map[string]*StreamPast) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for stream, p := range past {
		got := m.streams.projects[projectedStream{run, stream}]
		if got == nil {
			got = &projectedTo{}
		}
		m.judgeAwaited(projectedStream{run, stream}, got, m.now())
		if got.next != int64(len(p.Values)) {
			m.violate("S8", []string{stream}, "run %d got %s up to version %d, and it has had %d events", run, stream, got.next, len(p.Values))
		}
	}
}

// JudgeReadable compares what can be read of a stream at the end, by somebody who began at a time,
// with what its category's topic has.
func (m *Model) JudgeReadable(stream string, p *StreamPast, seen []Sight, began Moment) {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := p.Begins()
	for _, s := range seen {
		if s.Offset != next {
			m.violate("S2", []string{stream}, "%s has version %d where %d is next; it was deleted at %v", stream, s.Offset, next, p.Deletions)
			return
		}
		m.streamSees("the end", stream, s.Offset, s.Value, began)
		next++
	}
	if next != int64(len(p.Values)) {
		m.violate("S5", []string{stream}, "%s has events to below version %d, and its category's topic has them to below %d; it was deleted at %v", stream, next, len(p.Values), p.Deletions)
	}
}

// JudgeStreams compares what was done to all streams with what was answered.
func (m *Model) JudgeStreams(past map[string]*StreamPast) {
	m.mu.Lock()
	defer m.mu.Unlock()
	of := func(stream string) *StreamPast {
		if p := past[stream]; p != nil {
			return p
		}
		return &StreamPast{}
	}
	at := map[string]int64{} // value to version
	byVersion := map[string]map[int64]*StreamCall{}
	for stream, p := range past {
		byVersion[stream] = map[int64]*StreamCall{}
		for version, v := range p.Values {
			if c := m.streams.of[v]; c == nil || c.Stream != stream {
				m.violate("L2", []string{stream}, "%s has %q at version %d, which nobody appended to it", stream, v, version)
				continue
			}
			if _, twice := at[v]; twice {
				m.violate("S2", []string{stream}, "%s has %s twice", stream, v)
			}
			at[v] = int64(version)
			m.streamHas(stream, int64(version), v, "the end")
		}
	}
	for _, c := range m.streams.appends {
		m.judgeAppend(c, of(c.Stream), at, byVersion[c.Stream])
	}
	for stream, p := range past {
		m.judgeStreamOrder(stream, p, byVersion[stream])
	}
	for _, c := range m.streams.appends {
		m.judgeRefusal(c, of(c.Stream), byVersion[c.Stream])
	}
	for stream, changes := range m.streams.changes {
		for _, c := range changes {
			m.judgeRefusal(c, of(stream), byVersion[stream])
			if c.Verb == "delete" && c.outcome == Done && max(c.reached, c.first) > 0 && !of(stream).deletedAt(max(c.reached, c.first), !c.told) {
				m.violate("S7", []string{stream}, "%s was done, and the category's topic does not tell: %v", c, of(stream).Deletions)
			}
		}
	}
	for _, s := range m.streams.skips {
		if !of(s.stream).deletedAt(s.version, s.orLater) {
			m.violate("S2", []string{s.stream}, "%s read nothing of %s below version %d, and it was deleted at %v", s.by, s.stream, s.version, of(s.stream).Deletions)
		}
	}
}

// judgeAppend judges whether the events of an append are there, at the versions that its answer
// told, and notes the append at these.
func (m *Model) judgeAppend(c *StreamCall, p *StreamPast, at map[string]int64, byVersion map[int64]*StreamCall) {
	first, is := at[c.Values[0]]
	for i, v := range c.Values {
		if here, there := at[v]; there != is || is && here != first+int64(i) {
			m.violate("S3", []string{c.Stream}, "of %s, %s is at %d (%v) and %s at %d (%v)", c, c.Values[0], first, is, v, here, there)
		}
	}
	switch {
	case c.outcome == Done && (!is || first != c.first):
		m.violate("L1", []string{c.Stream}, "%s is at %d (%v)", c, first, is)
	case c.outcome == Refused && is && !(c.lost && p.deletedAt(first+int64(len(c.Values)), true)): // a try that was lost is not found once it is deleted
		m.violate("L2", []string{c.Stream}, "%s is there", c)
	case !is:
	case c.Expected >= 0 && first != c.Expected,
		c.Expected == NoStream && first > 0 && !p.deletedAt(first, false),
		c.Expected == StreamExists && (first == 0 || p.deletedAt(first, false)):
		m.violate("S1", []string{c.Stream}, "%s is at %d; the stream was deleted at %v", c, first, p.Deletions)
	}
	if is {
		c.first = first
		for i := range c.Values {
			byVersion[first+int64(i)] = c
		}
	}
	if c.With != nil && c.outcome == Unknown {
		if _, other := at[c.With.Values[0]]; other != is {
			m.violate("S3", []string{c.Stream}, "%s: %v; %s, which was appended with it: %v", c, is, c.With, other)
		}
	}
}

// judgeStreamOrder judges the order of what was done to a stream, in time: S1.
func (m *Model) judgeStreamOrder(stream string, p *StreamPast, byVersion map[int64]*StreamCall) {
	latest := Moment(0) // when what came before was invoked last
	follows := func(c *StreamCall) {
		if c.outcome == Done && c.ended < latest {
			m.violate("S1", []string{stream}, "%s had ended at %v before one that came before it was begun at %v", c, c.ended, latest)
		}
		latest = max(latest, c.invoked)
	}
	for version := int64(0); ; {
		if slices.Contains(p.Deletions, version) {
			i := slices.IndexFunc(m.streams.changes[stream], func(c *StreamCall) bool { return c.mayDelete(version, false) })
			if i < 0 {
				m.violate("L2", []string{stream}, "%s was deleted at version %d by nobody", stream, version)
			} else if c := m.deletionAt(stream, version); c != nil {
				follows(c)
			}
		}
		if version >= int64(len(p.Values)) {
			return
		}
		c := byVersion[version]
		if c == nil {
			m.violate("L2", []string{stream}, "version %d of %s was appended by nobody", version, stream)
			return
		}
		follows(c)
		version = c.first + int64(len(c.Values))
	}
}

// deletionAt returns the only call that can have deleted a stream at a version, if it was done;
// nil: there is none, or there are several.
func (m *Model) deletionAt(stream string, version int64) (only *StreamCall) {
	for _, c := range m.streams.changes[stream] {
		if !c.mayDelete(version, false) {
			continue
		}
		if only != nil {
			return nil
		}
		only = c
	}
	if only != nil && only.outcome != Done {
		return nil
	}
	return only
}

// judgeRefusal judges a conflict: the stream had come to that version by then, and existed there or
// not, as the conflict says (S1). judgeConflict judges that the stream had not passed that version
// before the call.
func (m *Model) judgeRefusal(c *StreamCall, p *StreamPast, byVersion map[int64]*StreamCall) {
	if !c.conflict {
		return
	}
	before := byVersion[c.actual-1]
	deletion := m.deletionAt(c.Stream, c.actual)
	switch {
	case c.actual > 0 && (before == nil || before.first+int64(len(before.Values)) != c.actual || before.invoked > c.ended):
		m.violate("S1", []string{c.Stream}, "%s was refused by %v, as the stream was at version %d, where it never was by then", c, c.ended, c.actual)
	case c.exists && (c.actual == 0 || p.deletedAt(c.actual, false) && deletion != nil && deletion.ended < c.invoked),
		!c.exists && c.actual > 0 && (!p.deletedAt(c.actual, false) || deletion != nil && deletion.invoked > c.ended):
		m.violate("S1", []string{c.Stream}, "%s was refused by %v as the stream was at version %d, and existed: %v; it was deleted at %v", c, c.ended, c.actual, c.exists, p.Deletions)
	}
}
