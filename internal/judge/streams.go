package judge

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
	AnyVersion   = int64(weir.AnyVersion)
	NoStream     = int64(weir.NoStream)
	StreamExists = int64(weir.StreamExists)
)

// Accounts is the category whose streams are judged.
const Accounts = "accounts"

// StreamCall is an append to one stream, with events that no other append has; or a deletion, an
// archiving or an unarchiving of the stream.
type StreamCall struct {
	Verb     string // append, delete, archive or unarchive
	Stream   string
	Expected int64
	Subject  string      // whom the events are about; "": nobody
	Values   []string    // of the events: their ids
	Tag      string      // of the events of a decision by tags
	Within   string      // its boundary
	saw      []string    // the events that it rests on: all that had the tag
	With     *StreamCall // of an append to two streams: the other one
	invoked  Moment
	reached  int64  // the version that the stream had reached by then
	ended    Moment // when the last answer came; 0: none has
	outcome  Outcome
	lost     bool  // the outcome of a try is unknown
	told     bool  // the answer had a version
	first    int64 // version of the first event; of a deletion: that of the stream
	conflict bool  // it was refused, since the stream was at version actual
	actual   int64
	exists   bool // what a conflict said
}

func (c *StreamCall) String() string {
	return fmt.Sprintf("the %s of %v to %s at %d, by %v (%v, first %d)", c.Verb, c.Values, c.Stream, c.Expected, c.invoked, c.outcome, c.first)
}

// streams is all that was done to streams.
type streams struct {
	appends   []*StreamCall
	of        map[string]*StreamCall      // by value: the append that has it
	changes   map[string][]*StreamCall    // by stream: all but its appends
	known     map[string]int64            // by stream: the version that it has reached at least
	gone      map[string]int64            // by stream: events below this version were deleted
	skips     []streamSkip                // deletions that readers have seen the effect of
	forgets   map[string][]*forgetting    // by subject
	sights    map[string]map[int64]string // by stream and version: what was read
	projects  map[projectedStream]*projectedTo
	snapshots map[string][]*SnapshotSave // by stream
}

type projectedStream struct {
	run    int64
	stream string
}

// projectedTo is how far a run of a projection has got a stream. What two processes say may be
// heard in another order than they said it: so events that the process before has got are awaited
// for a while.
type projectedTo struct {
	by      string // the process that got the last event
	next    int64
	awaited map[int64]Moment // by version: since when
}

// wordMax is how long after the word of a process the word of the process before it may still be
// heard.
const wordMax = Moment(3 * time.Second)

// streamSkip is a reading without events below a version, which a deletion at that version
// explains; orLater: one at a later version, too.
type streamSkip struct {
	by, stream string
	version    int64
	orLater    bool
}

// forgetting is a call that forgets a subject.
type forgetting struct{ invoked, ended Moment } // ended 0: its outcome is unknown

func newStreams() streams {
	return streams{
		of: map[string]*StreamCall{}, changes: map[string][]*StreamCall{}, known: map[string]int64{}, gone: map[string]int64{},
		forgets: map[string][]*forgetting{}, sights: map[string]map[int64]string{}, projects: map[projectedStream]*projectedTo{}, snapshots: map[string][]*SnapshotSave{},
	}
}

// StreamAppends notes an append that is about to be tried.
func (m *Model) StreamAppends(stream string, expected int64, subject string, events int) *StreamCall {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &StreamCall{Verb: "append", Stream: stream, Expected: expected, Subject: subject, invoked: m.now(), reached: m.streams.known[stream], outcome: Unknown}
	for range events {
		value := fmt.Sprintf("event-%d", len(m.streams.of)+1) // long enough not to be in encrypted data by chance
		m.streams.of[value] = c
		c.Values = append(c.Values, value)
	}
	m.streams.appends = append(m.streams.appends, c)
	return c
}

// StreamChanges notes another call that is about to be tried, once.
func (m *Model) StreamChanges(verb, stream string, expected int64) *StreamCall {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &StreamCall{Verb: verb, Stream: stream, Expected: expected, invoked: m.now(), reached: m.streams.known[stream], outcome: Unknown}
	m.streams.changes[stream] = append(m.streams.changes[stream], c)
	return c
}

// StreamAnswered notes what became of a call. An append of unknown outcome may be tried again,
// which finds it or makes it. If the second try is refused, the first one may still be carried out,
// unless the refusal is for good, as a refusal because of a version is.
func (m *Model) StreamAnswered(by string, c *StreamCall, said Word) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.history.Add(fmt.Sprintf("%s: %s: %v %s, version %d %v: %s", by, c, said.Outcome, said.State, said.Version, said.Places, said.Err), c.Stream)
	if said.Outcome == Unknown {
		c.lost = true
		return
	}
	c.ended = m.now()
	c.conflict = said.State == "conflict"
	switch {
	case c.conflict:
		c.actual, c.exists = said.Version, said.Exists
		m.judgeConflict(c)
	case said.State == "archived" && c.With == nil && !m.mayBeArchived(c):
		m.violate("S10", []string{c.Stream}, "%s was refused by %v since the stream is archived, and nobody can have archived it", c, c.ended)
	case said.Outcome == Done && c.Verb == "append":
		if !m.streamAppended(c, said) {
			return
		}
	case said.Outcome == Done && c.Verb == "delete":
		m.streamDeleted(c, said)
	}
	if said.Outcome == Done || !c.lost || c.Expected >= 0 && c.conflict {
		c.outcome = said.Outcome
	}
}

// judgeConflict judges what a conflict said, by what was known before the call: S1.
func (m *Model) judgeConflict(c *StreamCall) {
	switch {
	case c.actual < c.reached:
		m.violate("S1", []string{c.Stream}, "%s was refused by %v as the stream was at version %d, and it had reached %d before", c, c.ended, c.actual, c.reached)
	case c.Expected == c.actual && (c.exists || c.Verb != "archive"): // except that a deleted stream cannot be archived, whatever its version
		m.violate("S1", []string{c.Stream}, "%s was refused at the version that it expected", c)
	case c.Expected == NoStream && !c.exists, c.Expected == StreamExists && c.exists, c.Expected == AnyVersion && (c.exists || c.Verb == "append"):
		m.violate("S1", []string{c.Stream}, "%s was refused, and what it expected is so: the stream exists: %v", c, c.exists)
	}
	m.streams.known[c.Stream] = max(m.streams.known[c.Stream], c.actual) // S6: readers reach it from now on
}

// streamAppended judges an append that was done.
func (m *Model) streamAppended(c *StreamCall, said Word) (well bool) {
	if len(said.Places) != 1 || c.Expected >= 0 && said.Places[0].Offset != c.Expected || said.Places[0].Offset < c.reached {
		m.violate("S1", []string{c.Stream}, "%s was done, at %v; the stream had reached %d before", c, said.Places, c.reached)
		return false
	}
	c.first = said.Places[0].Offset
	end := c.first + int64(len(c.Values))
	if c.With == nil && said.Version != end {
		m.violate("S1", []string{c.Stream}, "%s was done at %d, and the stream is said to be at %d after it", c, c.first, said.Version)
	}
	if closed := m.archivedFor(c); closed != nil {
		m.violate("S10", []string{c.Stream}, "%s was done at %d by %v, while the stream was archived: %s, done by %v", c, c.first, c.ended, closed, closed.ended)
	}
	m.streams.known[c.Stream] = max(m.streams.known[c.Stream], end)
	for i, v := range c.Values {
		m.streamHas(c.Stream, c.first+int64(i), v, c.String())
	}
	return true
}

// streamDeleted notes a deletion that was done: what the stream had is gone from now on.
func (m *Model) streamDeleted(c *StreamCall, said Word) {
	if c.told = len(said.Places) == 1; c.told {
		c.first = said.Places[0].Offset
		if c.first < c.reached || c.Expected >= 0 && c.first != c.Expected {
			m.violate("S1", []string{c.Stream}, "%s was done at %d; the stream had reached %d before", c, c.first, c.reached)
		}
	}
	m.streams.gone[c.Stream] = max(m.streams.gone[c.Stream], c.reached, c.first, c.Expected)
}

// mayDelete says whether a call may have deleted its stream at a version; orLater: or at a later
// one.
func (c *StreamCall) mayDelete(version int64, orLater bool) bool {
	if c.Verb != "delete" || c.outcome == Refused {
		return false
	}
	from, to := c.reached, int64(math.MaxInt64)
	if c.Expected >= 0 {
		from, to = c.Expected, c.Expected
	}
	if c.told {
		from, to = c.first, c.first
	}
	return version <= to && (orLater || version >= from)
}

// opens says whether a call ends an archiving.
func (c *StreamCall) opens() bool {
	return c.outcome != Refused && (c.Verb == "unarchive" || c.Verb == "delete")
}

// archivedFor returns the archiving for which a stream was closed from the begin of a call to its
// end; nil: it may have been open.
func (m *Model) archivedFor(c *StreamCall) *StreamCall {
	changes := m.streams.changes[c.Stream]
	for _, closed := range changes {
		if closed.Verb != "archive" || closed.outcome != Done || closed.ended >= c.invoked {
			continue
		}
		if !slices.ContainsFunc(changes, func(o *StreamCall) bool {
			return o.opens() && (o.outcome == Unknown || o.ended >= closed.invoked)
		}) {
			return closed
		}
	}
	return nil
}

// mayBeArchived says whether a stream may have been archived at some time of a call.
func (m *Model) mayBeArchived(c *StreamCall) bool {
	changes := m.streams.changes[c.Stream]
	return slices.ContainsFunc(changes, func(closed *StreamCall) bool {
		return closed.Verb == "archive" && closed.outcome != Refused && !slices.ContainsFunc(changes, func(o *StreamCall) bool {
			return o.opens() && closed.outcome == Done && o.outcome == Done && o.invoked > closed.ended && o.ended < c.invoked
		})
	})
}

// Forgets notes that somebody is about to forget a subject.
func (m *Model) Forgets(subject string) *forgetting {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := &forgetting{invoked: m.now()}
	m.streams.forgets[subject] = append(m.streams.forgets[subject], f)
	return f
}

// Forgot notes what became of the call f.
func (m *Model) Forgot(by, subject string, f *forgetting, said Word) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.history.Add(fmt.Sprintf("%s: %s is forgotten, since %v: %v %s", by, subject, f.invoked, said.Outcome, said.Err), Accounts)
	if said.Outcome == Done {
		f.ended = m.now()
	}
}

// erasedMark begins the value of an event that is said to be erased.
const erasedMark = "erased "

// SeenValue is how an event of a stream is told: its id, which is its data, too.
func SeenValue(id, data string, isErased bool) string {
	switch {
	case isErased && data == "":
		return erasedMark + id
	case data == id && !isErased:
		return id
	}
	return fmt.Sprintf("%s with the data %q, erased: %v", id, data, isErased)
}

// streamSees judges an event that was read by somebody who began at a time.
func (m *Model) streamSees(by, stream string, version int64, value string, began Moment) {
	value, isErased := strings.CutPrefix(value, erasedMark)
	m.streamHas(stream, version, value, by)
	c := m.streams.of[value]
	if c == nil || c.Stream != stream {
		m.violate("L2", []string{stream}, "%s: %s has %q at version %d, which nobody appended to it", by, stream, value, version)
		return
	}
	forgets := m.streams.forgets[c.Subject]
	if isErased && !slices.ContainsFunc(forgets, func(f *forgetting) bool { return f.ended == 0 || f.ended >= c.invoked }) {
		m.violate("S11", []string{stream, Accounts}, "%s: %s is erased at version %d of %s, and nobody has forgotten %q since %s", by, value, version, stream, c.Subject, c)
	}
	for _, f := range forgets {
		if !isErased && c.outcome == Done && c.ended < f.invoked && f.ended != 0 && f.ended < began {
			m.violate("S11", []string{stream, Accounts}, "%s: %s can be read at version %d of %s from %v on, and %s was forgotten by %v", by, value, version, stream, began, c.Subject, f.ended)
		}
	}
}

// streamHas judges that a stream has an event at a version.
func (m *Model) streamHas(stream string, version int64, value, by string) {
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

// Reached is the version that a stream has at least, as is known now.
func (m *Model) Reached(stream string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.streams.known[stream]
}

// streamReading is what was known of a stream when somebody began to read it.
type streamReading struct {
	Stream  string
	From    int64
	began   Moment
	reached int64
	gone    int64
}

// StreamReads notes that somebody begins to read the last events of a stream.
func (m *Model) StreamReads(stream string, last int64) streamReading {
	m.mu.Lock()
	defer m.mu.Unlock()
	reached := m.streams.known[stream]
	return streamReading{Stream: stream, From: max(0, reached-last), began: m.now(), reached: reached, gone: m.streams.gone[stream]}
}

// StreamRead judges a reading of a stream, from a version to its end. It may begin later, where the
// stream was deleted.
func (m *Model) StreamRead(by string, r streamReading, seen []Sight) {
	m.mu.Lock()
	defer m.mu.Unlock()
	mayDelete := func(version int64, orLater bool) bool {
		m.streams.skips = append(m.streams.skips, streamSkip{by, r.Stream, version, orLater})
		return slices.ContainsFunc(m.streams.changes[r.Stream], func(c *StreamCall) bool { return c.mayDelete(version, orLater) })
	}
	next := r.From
	for i, s := range seen {
		switch {
		case s.Offset < r.gone:
			m.violate("S7", []string{r.Stream}, "%s read version %d of %s from %v on; it had been deleted at %d before", by, s.Offset, r.Stream, r.began, r.gone)
			return
		case s.Offset == next:
		case i == 0 && s.Offset > next && mayDelete(s.Offset, false):
		default:
			m.violate("S2", []string{r.Stream}, "%s read %s from version %d: version %d came where %d is next", by, r.Stream, r.From, s.Offset, next)
			return
		}
		m.streamSees(by+" reads", r.Stream, s.Offset, s.Value, r.began)
		next = s.Offset + 1
	}
	if next < r.reached && (len(seen) > 0 || !mayDelete(r.reached, true)) {
		m.violate("S1", []string{r.Stream}, "%s read %s from version %d to below %d; it had been appended to up to version %d before", by, r.Stream, r.From, next, r.reached)
	}
	m.streams.known[r.Stream] = max(m.streams.known[r.Stream], next)
}

// Projected judges an event that a projection got. It may come again, and then those after it, too;
// none is left out.
func (m *Model) Projected(consumer string, run int64, s Sight) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.streamSees(consumer, s.Topic, s.Offset, s.Value, 0) // it may have been read before its subject was forgotten
	key := projectedStream{run, s.Topic}
	p := m.streams.projects[key]
	if p == nil {
		p = &projectedTo{awaited: map[int64]Moment{}}
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
func (m *Model) judgeAwaited(key projectedStream, p *projectedTo, before Moment) {
	for version, since := range p.awaited {
		if since < before {
			m.violate("S8", []string{key.stream}, "run %d did not get version %d of %s; what comes after it was got by %v", key.run, version, key.stream, since)
			delete(p.awaited, version)
		}
	}
}

// StreamNames lists the streams that there may be, sorted.
func (m *Model) StreamNames() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	seen := map[string]bool{}
	for _, c := range m.streams.appends {
		seen[c.Stream] = true
	}
	return slices.Sorted(maps.Keys(seen))
}
