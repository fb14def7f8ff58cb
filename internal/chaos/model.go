package main

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// moment is a time since the run began.
type moment time.Duration

func (m moment) String() string { return fmt.Sprintf("%8.3fs", time.Duration(m).Seconds()) }

// outcome is one of the three: done, certainly not done, unknown. Pending is before any of them.
type outcome int

const (
	pending outcome = iota
	done
	refused
	unknown
)

func (o outcome) String() string { return [...]string{"pending", "done", "refused", "unknown"}[o] }

// place is where a record rests in its topic.
type place struct {
	Partition int32
	Offset    int64
}

// record is one event that a publisher made. Its value names it: no two records have the same value.
type record struct {
	value          string
	topic          string
	session        string // the publisher; within one, and one partition, records keep their order if inOrder
	n              int
	inOrder        bool
	invoked, ended moment
	outcome        outcome
	at             *place // where the acknowledgement said it is; nil: it did not say
	seen           []place
}

// model is what must be true of all that was published, read and committed. It is told by publishers and consumers what they asked for
// and what they were answered, and judges that at once where it can, and in finalCheck otherwise.
type model struct {
	now     func() moment
	history *history

	mu         sync.Mutex // guards what follows
	records    map[string]*record
	made       int
	lives      map[string][]*life // by topic name, oldest first
	slots      map[slot]string    // the one value of an offset
	acked      map[tail]*rising
	ends       map[endSeen]*rising
	delivered  map[string]map[string]int // by group, by value: how often
	registers  map[registerKey]*register
	owners     map[ownerKey]string // who has a partition in a generation
	producers  map[int64]string    // who was given an id
	groupLives map[string]int      // how often somebody may have reset or deleted a group
	violations []violation

	messages    map[string]*message   // of queues, by value
	queued      map[string][]*message // by queue, in the order in which they were made
	paused      map[string]moment     // since when a queue is
	queuePasses map[string]bool       // its topic is deleted now and then

	letters      map[string]*letter // dead letters, by id
	sweeps       map[string][]*take // by queue: redrives of all letters
	lettersTaken map[string]int     // by queue: how many were redriven or discarded, as the answers say
	wrote        map[string]int     // by receipt: how many results a worker had written that acknowledges in its transaction,
	wroteAt      moment             // at this time

	streams streams
}

type slot struct {
	life *life
	place
}

type tail struct {
	life      *life
	partition int32
}

// endSeen is a partition as one process, in one life, shows its end.
type endSeen struct {
	process string
	tail
}

// violation is a promise that was broken.
type violation struct {
	invariant string // its number in docs: see invariants.go
	at        moment
	text      string
	about     []string // what the history around it must speak of: topics, groups, processes
}

func newModel(now func() moment, h *history) *model {
	return &model{
		now: now, history: h, records: map[string]*record{}, lives: map[string][]*life{}, slots: map[slot]string{},
		acked: map[tail]*rising{}, ends: map[endSeen]*rising{}, delivered: map[string]map[string]int{},
		registers: map[registerKey]*register{}, owners: map[ownerKey]string{}, groupLives: map[string]int{},
		producers: map[int64]string{}, messages: map[string]*message{}, queued: map[string][]*message{}, paused: map[string]moment{}, queuePasses: map[string]bool{},
		letters: map[string]*letter{}, sweeps: map[string][]*take{}, lettersTaken: map[string]int{}, wrote: map[string]int{},
		streams: newStreams(),
	}
}

// violate notes that a promise was broken. m.mu is held.
func (m *model) violate(invariant string, about []string, format string, args ...any) {
	v := violation{invariant: invariant, at: m.now(), text: fmt.Sprintf(format, args...), about: about}
	m.violations = append(m.violations, v)
	m.history.add(fmt.Sprintf("VIOLATION %s %s", invariant, v.text), about...)
}

// broken is violate for those that hold nothing.
func (m *model) broken(invariant string, about []string, format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.violate(invariant, about, format, args...)
}

func (m *model) found() []violation {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.violations)
}

// invoke makes records that are about to be published.
func (m *model) invoke(session, topic string, n int, inOrder bool) []*record {
	m.mu.Lock()
	defer m.mu.Unlock()
	made := make([]*record, n)
	for i := range made {
		m.made++
		made[i] = &record{value: fmt.Sprintf("%s/%s/%d", session, topic, m.made), topic: topic, session: session, n: m.made, inOrder: inOrder, invoked: m.now()}
		m.records[made[i].value] = made[i]
	}
	return made
}

// end tells what became of records: places, where they are known, in their order.
func (m *model) end(records []*record, o outcome, places []place) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	for i, r := range records {
		r.outcome, r.ended = o, now
		if places != nil {
			r.at = &places[i]
		}
		m.history.add(fmt.Sprintf("published %s: %v %s", r.value, o, r.where()), r.topic)
		m.judgeEnd(r)
	}
}

func (r *record) where() string {
	if r.at == nil {
		return ""
	}
	return fmt.Sprintf("at %d/%d", r.at.Partition, r.at.Offset)
}

// judgeEnd holds an answer against what is known. m.mu is held.
func (m *model) judgeEnd(r *record) {
	if r.outcome == refused && len(r.seen) > 0 {
		m.violate("L2", []string{r.topic}, "%s was read at %v, and its publisher was told that it certainly was not published", r.value, r.seen)
	}
	l := m.lifeOf(r)
	if r.outcome != done || r.at == nil || l == nil {
		return
	}
	for _, p := range r.seen {
		if p != *r.at {
			m.violate("L3", []string{r.topic}, "%s was acknowledged at %v and read at %v", r.value, *r.at, p)
		}
	}
	m.fill(l, *r.at, r.value)
	acked := m.acked[tail{l, r.at.Partition}]
	if acked == nil {
		acked = &rising{}
		m.acked[tail{l, r.at.Partition}] = acked
	}
	if before, some := acked.before(r.invoked); some && r.at.Offset <= before {
		m.violate("L4", []string{r.topic}, "%s was published at %v after offset %d of partition %d had been acknowledged", r.value, *r.at, before, r.at.Partition)
	}
	acked.note(r.ended, r.at.Offset)
}

// fill notes the value of an offset. m.mu is held.
func (m *model) fill(l *life, p place, value string) {
	s := slot{l, p}
	if other, is := m.slots[s]; is && other != value {
		m.violate("L3", []string{l.name}, "offset %d of %s/%d has two values: %s and %s", p.Offset, l, p.Partition, other, value)
		return
	}
	m.slots[s] = value
}

// lifeOf returns the one topic that a record can be in, and nil where there may be several of the name. m.mu is held.
func (m *model) lifeOf(r *record) *life {
	ended := r.ended
	if r.outcome == pending || r.outcome == unknown {
		ended = m.now()
	}
	var only *life
	for _, l := range m.lives[r.topic] {
		if l.overlaps(r.invoked, ended) {
			if only != nil {
				return nil
			}
			only = l
		}
	}
	return only
}

// sight is a record that somebody read.
type sight struct {
	Topic string
	place
	Value string
}

// read judges what was read, and returns the topic that it rests in; nil where that is not known. m.mu is held.
func (m *model) read(who string, s sight) (*record, *life) {
	r := m.records[s.Value]
	about := []string{s.Topic, who}
	if r == nil {
		m.violate("L2", about, "%s read %q at %s/%d offset %d: nobody published that", who, s.Value, s.Topic, s.Partition, s.Offset)
		return nil, nil
	}
	if r.topic != s.Topic {
		m.violate("L2", about, "%s read %s in topic %s", who, r.value, s.Topic)
		return r, nil
	}
	if r.outcome == refused {
		m.violate("L2", about, "%s read %s at %v, and its publisher was told that it certainly was not published", who, r.value, s.place)
	}
	l := m.lifeOf(r)
	if l == nil {
		return r, nil
	}
	if r.at != nil && *r.at != s.place {
		m.violate("L3", about, "%s read %s at %v, and it was acknowledged at %v", who, r.value, s.place, *r.at)
	}
	if !slices.Contains(r.seen, s.place) {
		r.seen = append(r.seen, s.place)
		if len(r.seen) > 1 {
			m.violate("L3", about, "%s is in the log more than once: at %v", r.value, r.seen)
		}
	}
	m.fill(l, s.place, s.Value)
	return r, l
}

// deliver notes what a member of a group has handled. Groups get every record at least once: finalCheck sees to that. Of groups that commit in
// the transaction that handles it, only what was committed is told: that happens once.
func (m *model) deliver(group, member string, once bool, sights ...sight) {
	m.mu.Lock()
	defer m.mu.Unlock()
	of := m.delivered[group]
	if of == nil {
		of = map[string]int{}
		m.delivered[group] = of
	}
	for _, s := range sights {
		m.history.add(fmt.Sprintf("%s of %s handled %s at %v", member, group, s.Value, s.place), s.Topic, group)
		m.read(member, s)
		if of[s.Value]++; once && of[s.Value] > 1 {
			m.violate("G6", []string{s.Topic, group}, "%s of %s has handled %s at %v, and that had been handled before, in a transaction that committed the offset", member, group, s.Value, s.place)
		}
	}
}

// end of a partition, as a process showed it.
func (m *model) showEnd(process string, l *life, partition int32, invoked moment, end int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := endSeen{process, tail{l, partition}}
	seen := m.ends[key]
	if seen == nil {
		seen = &rising{}
		m.ends[key] = seen
	}
	if before, some := seen.before(invoked); some && end < before {
		m.violate("L6", []string{l.name, process}, "%s shows %d as the end of %s/%d, and had shown %d", process, end, l, partition, before)
	}
	seen.note(m.now(), end)
}

// rising is the highest number that was known at any time.
type rising struct {
	at  []moment
	max []int64
}

func (r *rising) note(at moment, n int64) {
	if len(r.max) > 0 && r.max[len(r.max)-1] >= n {
		return
	}
	r.at, r.max = append(r.at, at), append(r.max, n)
}

// before returns the highest number that was known before a time.
func (r *rising) before(t moment) (int64, bool) {
	i, _ := slices.BinarySearch(r.at, t)
	if i == 0 {
		return 0, false
	}
	return r.max[i-1], true
}
