package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/weir-log/weir"
)

// Expectations of a call, beside a version.
const (
	anyVersion   = int64(weir.AnyVersion)
	noStream     = int64(weir.NoStream)
	streamExists = int64(weir.StreamExists)
)

// streamCall is an append to one stream, with events that no other append has; or a deletion, an archiving or an unarchiving of the stream.
type streamCall struct {
	verb     string // append, delete, archive or unarchive
	stream   string
	expected int64
	subject  string      // whom the events are about; "": nobody
	values   []string    // of the events: their ids
	tag      string      // of the events of a decision by tags
	within   string      // its boundary
	saw      []string    // the events that it rests on: all that had the tag
	with     *streamCall // of an append to two streams: the other one
	invoked  moment
	reached  int64  // the version that the stream had reached by then
	ended    moment // when the last answer came; 0: none has
	outcome  outcome
	lost     bool  // the outcome of a try is unknown
	told     bool  // the answer had a version
	first    int64 // version of the first event; of a deletion: that of the stream
	conflict bool  // it was refused, since the stream was at version actual
	actual   int64
	exists   bool // what a conflict said
}

func (c *streamCall) String() string {
	return fmt.Sprintf("the %s of %v to %s at %d, by %v (%v, first %d)", c.verb, c.values, c.stream, c.expected, c.invoked, c.outcome, c.first)
}

// streams is all that was done to streams.
type streams struct {
	appends   []*streamCall
	of        map[string]*streamCall      // by value: the append that has it
	changes   map[string][]*streamCall    // by stream: all but its appends
	known     map[string]int64            // by stream: the version that it has reached at least
	gone      map[string]int64            // by stream: events below this version were deleted
	skips     []streamSkip                // deletions that readers have seen the effect of
	forgets   map[string][]*forgetting    // by subject
	sights    map[string]map[int64]string // by stream and version: what was read
	projects  map[projectedStream]*projectedTo
	snapshots map[string][]*snapshotSave // by stream
}

type projectedStream struct {
	run    int64
	stream string
}

// projectedTo is how far a run of a projection has got a stream. What two processes say may be heard in another order than they said it:
// what the one before has got is awaited for a while.
type projectedTo struct {
	by      string // the process that got the last event
	next    int64
	awaited map[int64]moment // by version: since when
}

// wordMax is how long after another process's word that of the one before may be heard.
const wordMax = moment(3 * time.Second)

// streamSkip is a reading without events below a version, which a deletion at that version explains; orLater: one at a later version, too.
type streamSkip struct {
	by, stream string
	version    int64
	orLater    bool
}

// forgetting is a call that forgets a subject.
type forgetting struct{ invoked, ended moment } // ended 0: its outcome is unknown

func newStreams() streams {
	return streams{
		of: map[string]*streamCall{}, changes: map[string][]*streamCall{}, known: map[string]int64{}, gone: map[string]int64{},
		forgets: map[string][]*forgetting{}, sights: map[string]map[int64]string{}, projects: map[projectedStream]*projectedTo{}, snapshots: map[string][]*snapshotSave{},
	}
}

// streamAppends notes an append that is about to be tried.
func (m *model) streamAppends(stream string, expected int64, subject string, events int) *streamCall {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &streamCall{verb: "append", stream: stream, expected: expected, subject: subject, invoked: m.now(), reached: m.streams.known[stream], outcome: unknown}
	for range events {
		value := fmt.Sprintf("s%d", len(m.streams.of)+1)
		m.streams.of[value] = c
		c.values = append(c.values, value)
	}
	m.streams.appends = append(m.streams.appends, c)
	return c
}

// streamChanges notes another call that is about to be tried, once.
func (m *model) streamChanges(verb, stream string, expected int64) *streamCall {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &streamCall{verb: verb, stream: stream, expected: expected, invoked: m.now(), reached: m.streams.known[stream], outcome: unknown}
	m.streams.changes[stream] = append(m.streams.changes[stream], c)
	return c
}

// streamAnswered notes what became of a call. An append of unknown outcome may be tried again, which finds it or makes it. Where it is
// refused then, the first try may still be carried out if the refusal was not for good: one by a version is.
func (m *model) streamAnswered(by string, c *streamCall, said word) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.history.add(fmt.Sprintf("%s: %s: %v %s, version %d %v: %s", by, c, said.Outcome, said.State, said.Version, said.Places, said.Err), c.stream)
	if said.Outcome == unknown {
		c.lost = true
		return
	}
	c.ended = m.now()
	c.conflict = said.State == "conflict"
	switch {
	case c.conflict:
		c.actual, c.exists = said.Version, said.Exists
		m.judgeConflict(c)
	case said.State == "archived" && c.with == nil && !m.mayBeArchived(c):
		m.violate("S10", []string{c.stream}, "%s was refused by %v since the stream is archived, and nobody can have archived it", c, c.ended)
	case said.Outcome == done && c.verb == "append":
		if !m.streamAppended(c, said) {
			return
		}
	case said.Outcome == done && c.verb == "delete":
		m.streamDeleted(c, said)
	}
	if said.Outcome == done || !c.lost || c.expected >= 0 && c.conflict {
		c.outcome = said.Outcome
	}
}

// judgeConflict judges what a conflict said, by what was known before the call: S1.
func (m *model) judgeConflict(c *streamCall) {
	switch {
	case c.actual < c.reached:
		m.violate("S1", []string{c.stream}, "%s was refused by %v as the stream was at version %d, and it had reached %d before", c, c.ended, c.actual, c.reached)
	case c.expected == c.actual && (c.exists || c.verb != "archive"): // what is deleted is not archived at any version
		m.violate("S1", []string{c.stream}, "%s was refused at the version that it expected", c)
	case c.expected == noStream && !c.exists, c.expected == streamExists && c.exists, c.expected == anyVersion && (c.exists || c.verb == "append"):
		m.violate("S1", []string{c.stream}, "%s was refused, and what it expected is so: the stream exists: %v", c, c.exists)
	}
	m.streams.known[c.stream] = max(m.streams.known[c.stream], c.actual) // S6: readers reach it from now on
}

// streamAppended judges an append that was done.
func (m *model) streamAppended(c *streamCall, said word) (well bool) {
	if len(said.Places) != 1 || c.expected >= 0 && said.Places[0].Offset != c.expected || said.Places[0].Offset < c.reached {
		m.violate("S1", []string{c.stream}, "%s was done, at %v; the stream had reached %d before", c, said.Places, c.reached)
		return false
	}
	c.first = said.Places[0].Offset
	end := c.first + int64(len(c.values))
	if c.with == nil && said.Version != end {
		m.violate("S1", []string{c.stream}, "%s was done at %d, and the stream is said to be at %d after it", c, c.first, said.Version)
	}
	if closed := m.archivedFor(c); closed != nil {
		m.violate("S10", []string{c.stream}, "%s was done at %d by %v, while the stream was archived: %s, done by %v", c, c.first, c.ended, closed, closed.ended)
	}
	m.streams.known[c.stream] = max(m.streams.known[c.stream], end)
	for i, v := range c.values {
		m.streamHas(c.stream, c.first+int64(i), v, c.String())
	}
	return true
}

// streamDeleted notes a deletion that was done: what the stream had is gone from now on.
func (m *model) streamDeleted(c *streamCall, said word) {
	if c.told = len(said.Places) == 1; c.told {
		c.first = said.Places[0].Offset
		if c.first < c.reached || c.expected >= 0 && c.first != c.expected {
			m.violate("S1", []string{c.stream}, "%s was done at %d; the stream had reached %d before", c, c.first, c.reached)
		}
	}
	m.streams.gone[c.stream] = max(m.streams.gone[c.stream], c.reached, c.first, c.expected)
}

// mayDelete says whether a call may have deleted its stream at a version; orLater: or at a later one.
func (c *streamCall) mayDelete(version int64, orLater bool) bool {
	if c.verb != "delete" || c.outcome == refused {
		return false
	}
	from, to := c.reached, int64(math.MaxInt64)
	if c.expected >= 0 {
		from, to = c.expected, c.expected
	}
	if c.told {
		from, to = c.first, c.first
	}
	return version <= to && (orLater || version >= from)
}

// opens says whether a call ends an archiving.
func (c *streamCall) opens() bool {
	return c.outcome != refused && (c.verb == "unarchive" || c.verb == "delete")
}

// archivedFor returns the archiving for which a stream was closed from the begin of a call to its end; nil: it may have been open.
func (m *model) archivedFor(c *streamCall) *streamCall {
	changes := m.streams.changes[c.stream]
	for _, closed := range changes {
		if closed.verb != "archive" || closed.outcome != done || closed.ended >= c.invoked {
			continue
		}
		if !slices.ContainsFunc(changes, func(o *streamCall) bool {
			return o.opens() && (o.outcome == unknown || o.ended >= closed.invoked)
		}) {
			return closed
		}
	}
	return nil
}

// mayBeArchived says whether a stream may have been archived at some time of a call.
func (m *model) mayBeArchived(c *streamCall) bool {
	changes := m.streams.changes[c.stream]
	return slices.ContainsFunc(changes, func(closed *streamCall) bool {
		return closed.verb == "archive" && closed.outcome != refused && !slices.ContainsFunc(changes, func(o *streamCall) bool {
			return o.opens() && closed.outcome == done && o.outcome == done && o.invoked > closed.ended && o.ended < c.invoked
		})
	})
}

// forgets notes that somebody is about to forget a subject.
func (m *model) forgets(subject string) *forgetting {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := &forgetting{invoked: m.now()}
	m.streams.forgets[subject] = append(m.streams.forgets[subject], f)
	return f
}

// forgot notes what became of that.
func (m *model) forgot(by, subject string, f *forgetting, said word) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.history.add(fmt.Sprintf("%s: %s is forgotten, since %v: %v %s", by, subject, f.invoked, said.Outcome, said.Err), accounts)
	if said.Outcome == done {
		f.ended = m.now()
	}
}

// erasedMark begins the value of an event that is said to be erased.
const erasedMark = "erased "

// seenValue is how an event of a stream is told: its id, which is its data, too.
func seenValue(id, data string, isErased bool) string {
	switch {
	case isErased && data == "":
		return erasedMark + id
	case data == id && !isErased:
		return id
	}
	return fmt.Sprintf("%s with the data %q, erased: %v", id, data, isErased)
}

// streamSees judges an event that was read by somebody who began at a time.
func (m *model) streamSees(by, stream string, version int64, value string, began moment) {
	value, isErased := strings.CutPrefix(value, erasedMark)
	m.streamHas(stream, version, value, by)
	c := m.streams.of[value]
	if c == nil || c.stream != stream {
		m.violate("L2", []string{stream}, "%s: %s has %q at version %d, which nobody appended to it", by, stream, value, version)
		return
	}
	forgets := m.streams.forgets[c.subject]
	if isErased && !slices.ContainsFunc(forgets, func(f *forgetting) bool { return f.ended == 0 || f.ended >= c.invoked }) {
		m.violate("S11", []string{stream, accounts}, "%s: %s is erased at version %d of %s, and nobody has forgotten %q since %s", by, value, version, stream, c.subject, c)
	}
	for _, f := range forgets {
		if !isErased && c.outcome == done && c.ended < f.invoked && f.ended != 0 && f.ended < began {
			m.violate("S11", []string{stream, accounts}, "%s: %s can be read at version %d of %s from %v on, and %s was forgotten by %v", by, value, version, stream, began, c.subject, f.ended)
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

// streamReading is what was known of a stream when somebody began to read it.
type streamReading struct {
	stream  string
	from    int64
	began   moment
	reached int64
	gone    int64
}

// streamReads notes that somebody begins to read the last events of a stream.
func (m *model) streamReads(stream string, last int64) streamReading {
	m.mu.Lock()
	defer m.mu.Unlock()
	reached := m.streams.known[stream]
	return streamReading{stream: stream, from: max(0, reached-last), began: m.now(), reached: reached, gone: m.streams.gone[stream]}
}

// streamRead judges a reading of a stream, from a version to its end. It may begin later, where the stream was deleted.
func (m *model) streamRead(by string, r streamReading, seen []sight) {
	m.mu.Lock()
	defer m.mu.Unlock()
	mayDelete := func(version int64, orLater bool) bool {
		m.streams.skips = append(m.streams.skips, streamSkip{by, r.stream, version, orLater})
		return slices.ContainsFunc(m.streams.changes[r.stream], func(c *streamCall) bool { return c.mayDelete(version, orLater) })
	}
	next := r.from
	for i, s := range seen {
		switch {
		case s.Offset < r.gone:
			m.violate("S7", []string{r.stream}, "%s read version %d of %s from %v on; it had been deleted at %d before", by, s.Offset, r.stream, r.began, r.gone)
			return
		case s.Offset == next:
		case i == 0 && s.Offset > next && mayDelete(s.Offset, false):
		default:
			m.violate("S2", []string{r.stream}, "%s read %s from version %d: version %d came where %d is next", by, r.stream, r.from, s.Offset, next)
			return
		}
		m.streamSees(by+" reads", r.stream, s.Offset, s.Value, r.began)
		next = s.Offset + 1
	}
	if next < r.reached && (len(seen) > 0 || !mayDelete(r.reached, true)) {
		m.violate("S1", []string{r.stream}, "%s read %s from version %d to below %d; it had been appended to up to version %d before", by, r.stream, r.from, next, r.reached)
	}
	m.streams.known[r.stream] = max(m.streams.known[r.stream], next)
}

// projected judges an event that a projection got. It may come again, and then those after it, too; none is left out.
func (m *model) projected(consumer string, run int64, s sight) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.streamSees(consumer, s.Topic, s.Offset, s.Value, 0) // it may have been read before its subject was forgotten
	key := projectedStream{run, s.Topic}
	p := m.streams.projects[key]
	if p == nil {
		p = &projectedTo{awaited: map[int64]moment{}}
		m.streams.projects[key] = p
	}
	if s.Offset > p.next && p.by == consumer {
		m.violate("S8", []string{s.Topic}, "%s got version %d of %s in run %d, where %d is next", consumer, s.Offset, s.Topic, run, p.next)
	} else {
		for version := p.next; version < s.Offset; version++ {
			p.awaited[version] = m.now()
		}
	}
	delete(p.awaited, s.Offset)
	p.by, p.next = consumer, max(p.next, s.Offset+1)
	m.judgeAwaited(key, p, m.now()-wordMax)
}

// judgeAwaited sees that no version is awaited since before a time.
func (m *model) judgeAwaited(key projectedStream, p *projectedTo, before moment) {
	for version, since := range p.awaited {
		if since < before {
			m.violate("S8", []string{key.stream}, "run %d did not get version %d of %s; what comes after it was got by %v", key.run, version, key.stream, since)
			delete(p.awaited, version)
		}
	}
}

// streamNames lists the streams that there may be, sorted.
func (m *model) streamNames() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	seen := map[string]bool{}
	for _, c := range m.streams.appends {
		seen[c.stream] = true
	}
	return slices.Sorted(maps.Keys(seen))
}
