package judge

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// Moment is a time since the run began.
type Moment time.Duration

func (m Moment) String() string { return fmt.Sprintf("%8.3fs", time.Duration(m).Seconds()) }

// Outcome is one of the three: done, certainly not done, unknown. Pending is before any of them.
type Outcome int

const (
	Pending Outcome = iota
	Done
	Refused
	Unknown
)

func (o Outcome) String() string { return [...]string{"pending", "done", "refused", "unknown"}[o] }

// Place is where a record rests in its topic.
type Place struct {
	Partition int32
	Offset    int64
}

// Record is one event that a publisher made. Its value names it: no two records have the same
// value.
type Record struct {
	Value          string
	Topic          string
	session        string // the publisher; within one, and one partition, records keep their order if inOrder
	n              int
	inOrder        bool
	invoked, ended Moment
	outcome        Outcome
	at             *Place // where the acknowledgement said it is; nil: it did not say
	seen           []Place
}

// Model is what must be true of all that was published, read and committed. It is told by
// publishers and consumers what they asked for and what they were answered, and judges that at once
// where it can, and at the end otherwise.
type Model struct {
	now     func() Moment
	history *History

	// TTLMargin is by how much a message may outlive its time to live, because a process knows the
	// store's clock only within the time that it took to ask. Default 3 s.
	TTLMargin time.Duration

	mu         sync.Mutex // guards what follows
	records    map[string]*Record
	made       int
	lives      map[string][]*Life // by topic name, oldest first
	slots      map[slot]string    // the one value of an offset
	acked      map[Tail]*rising
	ends       map[endSeen]*rising
	delivered  map[string]map[string]int // by group, by value: how often
	registers  map[registerKey]*register
	owners     map[ownerKey]string // who has a partition in a generation
	producers  map[int64]string    // who was given an id
	groupLives map[string]int      // how often somebody may have reset or deleted a group
	violations []Violation

	messages    map[string]*Message   // of queues, by value
	queued      map[string][]*Message // by queue, in the order in which they were made
	paused      map[string]Moment     // since when a queue is
	QueuePasses map[string]bool       // its topic is deleted now and then

	letters      map[string]*letter // dead letters, by id
	sweeps       map[string][]*take // by queue: redrives of all letters
	lettersTaken map[string]int     // by queue: how many were redriven or discarded, as the answers say
	wrote        map[string]int     // by receipt: how many results a worker that acknowledges in its own transaction had written by wroteAt
	wroteAt      Moment

	streams streams
}

type slot struct {
	life *Life
	Place
}

type Tail struct {
	Life      *Life
	Partition int32
}

// endSeen names a partition of a topic's life and a process that shows the partition's end.
type endSeen struct {
	process string
	Tail
}

// Violation is a promise that was broken.
type Violation struct {
	Invariant string // its number in docs: see invariants.go
	At        Moment
	Text      string
	About     []string // what the history around it must speak of: topics, groups, processes
}

func NewModel(now func() Moment, h *History) *Model {
	return &Model{
		now: now, history: h, TTLMargin: ttlMargin, records: map[string]*Record{}, lives: map[string][]*Life{}, slots: map[slot]string{},
		acked: map[Tail]*rising{}, ends: map[endSeen]*rising{}, delivered: map[string]map[string]int{},
		registers: map[registerKey]*register{}, owners: map[ownerKey]string{}, groupLives: map[string]int{},
		producers: map[int64]string{}, messages: map[string]*Message{}, queued: map[string][]*Message{}, paused: map[string]Moment{}, QueuePasses: map[string]bool{},
		letters: map[string]*letter{}, sweeps: map[string][]*take{}, lettersTaken: map[string]int{}, wrote: map[string]int{},
		streams: newStreams(),
	}
}

// violate notes that a promise was broken. m.mu is held.
func (m *Model) violate(invariant string, about []string, format string, args ...any) {
	v := Violation{Invariant: invariant, At: m.now(), Text: fmt.Sprintf(format, args...), About: about}
	m.violations = append(m.violations, v)
	m.history.Add(fmt.Sprintf("VIOLATION %s %s", invariant, v.Text), about...)
}

// Broken is violate for callers that do not hold m.mu.
func (m *Model) Broken(invariant string, about []string, format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.violate(invariant, about, format, args...)
}

func (m *Model) Found() []Violation {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.violations)
}

// Invoke makes records that are about to be published.
func (m *Model) Invoke(session, topic string, n int, inOrder bool) []*Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	made := make([]*Record, n)
	for i := range made {
		m.made++
		made[i] = &Record{Value: fmt.Sprintf("%s/%s/%d", session, topic, m.made), Topic: topic, session: session, n: m.made, inOrder: inOrder, invoked: m.now()}
		m.records[made[i].Value] = made[i]
	}
	return made
}

// End tells what became of records: places, where they are known, in their order.
func (m *Model) End(records []*Record, o Outcome, places []Place) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	for i, r := range records {
		r.outcome, r.ended = o, now
		if places != nil {
			r.at = &places[i]
		}
		m.history.Add(fmt.Sprintf("published %s: %v %s", r.Value, o, r.where()), r.Topic)
		m.judgeEnd(r)
	}
}

func (r *Record) where() string {
	if r.at == nil {
		return ""
	}
	return fmt.Sprintf("at %d/%d", r.at.Partition, r.at.Offset)
}

// judgeEnd compares an answer with what is known. m.mu is held.
func (m *Model) judgeEnd(r *Record) {
	if r.outcome == Refused && len(r.seen) > 0 {
		m.violate("L2", []string{r.Topic}, "%s was read at %v, and its publisher was told that it certainly was not published", r.Value, r.seen)
	}
	l := m.lifeOf(r)
	if r.outcome != Done || r.at == nil || l == nil {
		return
	}
	for _, p := range r.seen {
		if p != *r.at {
			m.violate("L3", []string{r.Topic}, "%s was acknowledged at %v and read at %v", r.Value, *r.at, p)
		}
	}
	m.fill(l, *r.at, r.Value)
	acked := m.acked[Tail{l, r.at.Partition}]
	if acked == nil {
		acked = &rising{}
		m.acked[Tail{l, r.at.Partition}] = acked
	}
	if before, some := acked.before(r.invoked); some && r.at.Offset <= before {
		m.violate("L4", []string{r.Topic}, "%s was published at %v after offset %d of partition %d had been acknowledged", r.Value, *r.at, before, r.at.Partition)
	}
	acked.note(r.ended, r.at.Offset)
}

// fill notes the value of an offset. m.mu is held.
func (m *Model) fill(l *Life, p Place, value string) {
	s := slot{l, p}
	if other, is := m.slots[s]; is && other != value {
		m.violate("L3", []string{l.Name}, "offset %d of %s/%d has two values: %s and %s", p.Offset, l, p.Partition, other, value)
		return
	}
	m.slots[s] = value
}

// lifeOf returns the one topic that a record can be in, and nil where there may be several of the
// name. m.mu is held.
func (m *Model) lifeOf(r *Record) *Life {
	ended := r.ended
	if r.outcome == Pending || r.outcome == Unknown {
		ended = m.now()
	}
	var only *Life
	for _, l := range m.lives[r.Topic] {
		if l.overlaps(r.invoked, ended) {
			if only != nil {
				return nil
			}
			only = l
		}
	}
	return only
}

// Sight is a record that somebody read.
type Sight struct {
	Topic string
	Place
	Value string
}

// read judges what was read, and returns the topic that it rests in; nil where that is not known.
// m.mu is held.
func (m *Model) read(who string, s Sight) (*Record, *Life) {
	r := m.records[s.Value]
	about := []string{s.Topic, who}
	if r == nil {
		m.violate("L2", about, "%s read %q at %s/%d offset %d: nobody published that", who, s.Value, s.Topic, s.Partition, s.Offset)
		return nil, nil
	}
	if r.Topic != s.Topic {
		m.violate("L2", about, "%s read %s in topic %s", who, r.Value, s.Topic)
		return r, nil
	}
	if r.outcome == Refused {
		m.violate("L2", about, "%s read %s at %v, and its publisher was told that it certainly was not published", who, r.Value, s.Place)
	}
	l := m.lifeOf(r)
	if l == nil {
		return r, nil
	}
	if r.at != nil && *r.at != s.Place {
		m.violate("L3", about, "%s read %s at %v, and it was acknowledged at %v", who, r.Value, s.Place, *r.at)
	}
	if !slices.Contains(r.seen, s.Place) {
		r.seen = append(r.seen, s.Place)
		if len(r.seen) > 1 {
			m.violate("L3", about, "%s is in the log more than once: at %v", r.Value, r.seen)
		}
	}
	m.fill(l, s.Place, s.Value)
	return r, l
}

// Deliver notes what a member of a group has handled. JudgeDelivered checks that groups get every
// record at least once. A group that commits in the transaction that handles a record tells only
// what was committed: that happens once for each record.
func (m *Model) Deliver(group, member string, once bool, sights ...Sight) {
	m.mu.Lock()
	defer m.mu.Unlock()
	of := m.delivered[group]
	if of == nil {
		of = map[string]int{}
		m.delivered[group] = of
	}
	for _, s := range sights {
		m.history.Add(fmt.Sprintf("%s of %s handled %s at %v", member, group, s.Value, s.Place), s.Topic, group)
		m.read(member, s)
		if of[s.Value]++; once && of[s.Value] > 1 {
			m.violate("G6", []string{s.Topic, group}, "%s of %s has handled %s at %v, and that had been handled before, in a transaction that committed the offset", member, group, s.Value, s.Place)
		}
	}
}

// ShowEnd judges the end of a partition, as a process showed it.
func (m *Model) ShowEnd(process string, l *Life, partition int32, invoked Moment, end int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := endSeen{process, Tail{l, partition}}
	seen := m.ends[key]
	if seen == nil {
		seen = &rising{}
		m.ends[key] = seen
	}
	if before, some := seen.before(invoked); some && end < before {
		m.violate("L6", []string{l.Name, process}, "%s shows %d as the end of %s/%d, and had shown %d", process, end, l, partition, before)
	}
	seen.note(m.now(), end)
}

// rising is the highest number that was known at any time.
type rising struct {
	at  []Moment
	max []int64
}

func (r *rising) note(at Moment, n int64) {
	if len(r.max) > 0 && r.max[len(r.max)-1] >= n {
		return
	}
	r.at, r.max = append(r.at, at), append(r.max, n)
}

// before returns the highest number that was known before a time.
func (r *rising) before(t Moment) (int64, bool) {
	i, _ := slices.BinarySearch(r.at, t)
	if i == 0 {
		return 0, false
	}
	return r.max[i-1], true
}
