package main

import (
	"fmt"
	"slices"
)

// streamAppend is an append to one stream, with events that no other append has.
type streamAppend struct {
	stream   string
	expected int64
	values   []string // they are the events' ids, too
	with     *streamAppend
	invoked  moment
	ended    moment // 0: its outcome is unknown
	outcome  outcome
	first    int64 // version of its first event
	conflict bool  // it was refused, since the stream was at version actual
	actual   int64
}

func (a *streamAppend) String() string {
	return fmt.Sprintf("the append of %v to %s at %d, by %v (%v, first %d)", a.values, a.stream, a.expected, a.invoked, a.outcome, a.first)
}

// streams is all that was done to streams.
type streams struct {
	appends  []*streamAppend
	known    map[string]int64            // by stream: the version that it has reached at least
	sights   map[string]map[int64]string // by stream and version: what was read
	values   int
	projects map[int64]map[string]int64 // by run and stream: the version that a projection gets next
}

func newStreams() streams {
	return streams{known: map[string]int64{}, sights: map[string]map[int64]string{}, projects: map[int64]map[string]int64{}}
}

// streamAppends notes an append that is about to be tried.
func (m *model) streamAppends(stream string, expected int64, events int) *streamAppend {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := &streamAppend{stream: stream, expected: expected, invoked: m.now(), outcome: unknown}
	for range events {
		m.streams.values++
		a.values = append(a.values, fmt.Sprintf("s%d", m.streams.values))
	}
	m.streams.appends = append(m.streams.appends, a)
	return a
}

// streamAppended notes what became of an append. One of unknown outcome may be tried again, which finds it or makes it.
func (m *model) streamAppended(by string, a *streamAppend, said word) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.history.add(fmt.Sprintf("%s: %s: %s, actual %d: %s", by, a, said.State, said.Members, said.Err), a.stream)
	if said.Outcome == unknown {
		return
	}
	if said.Outcome == done && (len(said.Places) != 1 || a.expected >= 0 && said.Places[0].Offset != a.expected) {
		m.violate("S1", []string{a.stream}, "%s was done, at %v", a, said.Places)
		return
	}
	a.outcome, a.ended = said.Outcome, m.now()
	if a.conflict = said.State == "conflict"; a.conflict {
		a.actual = int64(said.Members)
		return
	}
	if said.Outcome == done {
		a.first = said.Places[0].Offset
		m.streams.known[a.stream] = max(m.streams.known[a.stream], a.first+int64(len(a.values)))
		for i, v := range a.values {
			m.streamHas(a.stream, a.first+int64(i), v, a.String())
		}
	}
}

// streamHas judges that a stream has an event at a version.
func (m *model) streamHas(stream string, version int64, value, by string) {
	at := m.streams.sights[stream]
	if at == nil {
		at = map[int64]string{}
		m.streams.sights[stream] = at
	}
	if other, is := at[version]; is && other != value {
		m.violate("S2", []string{stream}, "%s: %s has %s at version %d, which had %s", by, stream, value, version, other)
	}
	at[version] = value
}

// reached is the version that a stream has at least, as is known now.
func (m *model) reached(stream string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.streams.known[stream]
}

// streamRead judges a read of a stream, from a version to its end, that began when the stream had reached another.
func (m *model) streamRead(by, stream string, from, reached int64, seen []sight) {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := from
	for _, s := range seen {
		if s.Offset != next {
			m.violate("S2", []string{stream}, "%s read %s from version %d: version %d came where %d is next", by, stream, from, s.Offset, next)
			return
		}
		m.streamHas(stream, s.Offset, s.Value, by+" reads")
		next++
	}
	if next < reached {
		m.violate("S1", []string{stream}, "%s read %s from version %d to below %d; it had been appended to up to version %d before", by, stream, from, next, reached)
	}
	m.streams.known[stream] = max(m.streams.known[stream], next)
}

// projected judges an event that a projection got. It may come again, and then those after it, too; none is left out.
func (m *model) projected(consumer string, run int64, s sight) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.streamHas(s.Topic, s.Offset, s.Value, consumer)
	if m.streams.projects[run] == nil {
		m.streams.projects[run] = map[string]int64{}
	}
	if next := m.streams.projects[run][s.Topic]; s.Offset > next {
		m.violate("S8", []string{s.Topic}, "%s got version %d of %s in run %d, where %d is next", consumer, s.Offset, s.Topic, run, next)
	}
	m.streams.projects[run][s.Topic] = max(m.streams.projects[run][s.Topic], s.Offset+1)
}

// judgeProjected holds what a run of the projection got against the streams.
func (m *model) judgeProjected(run int64, held map[string][]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for stream, values := range held {
		if got := m.streams.projects[run][stream]; got != int64(len(values)) {
			m.violate("S8", []string{stream}, "run %d got %s up to version %d, and it has %d events", run, stream, got, len(values))
		}
	}
}

// judgeStreams holds what all streams have at the end against what was answered.
func (m *model) judgeStreams(held map[string][]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := map[string]int64{} // value to version
	byVersion := map[string]map[int64]*streamAppend{}
	for stream, values := range held {
		byVersion[stream] = map[int64]*streamAppend{}
		for version, v := range values {
			if _, twice := at[v]; twice {
				m.violate("S2", []string{stream}, "%s has %s twice", stream, v)
			}
			at[v] = int64(version)
			m.streamHas(stream, int64(version), v, "the end")
		}
	}
	for _, a := range m.streams.appends {
		first, is := at[a.values[0]]
		for i, v := range a.values {
			if here, there := at[v]; there != is || is && here != first+int64(i) {
				m.violate("S3", []string{a.stream}, "of %s, %s is at %d (%v) and %s at %d (%v)", a, a.values[0], first, is, v, here, there)
			}
		}
		switch {
		case a.outcome == done && (!is || first != a.first):
			m.violate("L1", []string{a.stream}, "%s is at %d (%v)", a, first, is)
		case a.outcome == refused && is:
			m.violate("L2", []string{a.stream}, "%s is there", a)
		case is && a.expected >= 0 && first != a.expected:
			m.violate("S1", []string{a.stream}, "%s is at %d", a, first)
		}
		if is {
			a.first = first
			for i := range a.values {
				byVersion[a.stream][first+int64(i)] = a
			}
		}
		if a.with != nil && a.outcome == unknown {
			if _, other := at[a.with.values[0]]; other != is {
				m.violate("S3", []string{a.stream}, "%s: %v; %s, which was appended with it: %v", a, is, a.with, other)
			}
		}
	}
	m.judgeStreamOrder(byVersion)
}

// judgeStreamOrder judges the order of what was done to each stream, in time: S1, conflicts included.
func (m *model) judgeStreamOrder(byVersion map[string]map[int64]*streamAppend) {
	for stream, appends := range byVersion {
		latest := moment(0) // when the appends before were invoked last
		for version := int64(0); version < int64(len(appends)); {
			a := appends[version]
			if a == nil {
				m.violate("L2", []string{stream}, "version %d of %s was appended by nobody", version, stream)
				return
			}
			if a.ended != 0 && a.ended < latest {
				m.violate("S1", []string{stream}, "%s had ended at %v before one with a lower version was begun at %v", a, a.ended, latest)
			}
			latest = max(latest, a.invoked)
			version = a.first + int64(len(a.values))
		}
	}
	for _, a := range m.streams.appends {
		if !a.conflict {
			continue
		}
		before, next := byVersion[a.stream][a.actual-1], byVersion[a.stream][a.actual]
		switch {
		case a.expected == a.actual:
			m.violate("S1", []string{a.stream}, "%s was refused at the version that it expected", a)
		case a.actual > 0 && (before == nil || before.first+int64(len(before.values)) != a.actual || before.invoked > a.ended):
			m.violate("S1", []string{a.stream}, "%s was refused by %v, as the stream was at version %d, where it never was by then", a, a.ended, a.actual)
		case next != nil && next.ended != 0 && next.ended < a.invoked:
			m.violate("S1", []string{a.stream}, "%s was refused as the stream was at version %d; it had gone on before, by %s", a, a.actual, next)
		}
	}
}

// streamNames lists the streams that there are, sorted.
func (m *model) streamNames() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	seen := map[string]bool{}
	for _, a := range m.streams.appends {
		seen[a.stream] = true
	}
	var names []string
	for name := range seen {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
