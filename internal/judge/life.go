package judge

import (
	"fmt"
	"slices"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// Life is one topic. Topics of one name come one after the other, and have nothing to do with each
// other.
//
//	makes ........ made ................. ends ........ ended
//	perhaps there  |---- it is there -----| perhaps there   not any more
type Life struct {
	Name        string
	nth         int // among those of its name, from 1
	ID          eventlog.TopicID
	keeps       time.Duration // how long its settings keep events for sure; 0: for ever
	now         func() Moment
	makes, made Moment
	ends, ended Moment          // 0: nobody has begun to delete it, nobody has finished
	trimmed     map[int32]int64 // by partition: below here events may be gone, as somebody asked for it
}

func (l *Life) String() string { return fmt.Sprintf("%s#%d", l.Name, l.nth) }

// there says that the topic is there for sure.
func (l *Life) there() bool { return l.made != 0 && l.ends == 0 }

// lossy says that its settings may have dropped events.
func (l *Life) lossy() bool { return l.keeps != 0 && l.now() >= l.makes+Moment(l.keeps) }

func (l *Life) overlaps(from, to Moment) bool {
	return l.makes <= to && (l.ended == 0 || from <= l.ended)
}

// MayMiss says that events of a partition below an offset may be gone.
func (l *Life) MayMiss(partition int32, below int64) bool {
	return l.lossy() || below <= l.trimmed[partition]
}

// Begins notes that somebody begins to make a topic: from now on records may be in it.
func (m *Model) Begins(name string, keeps time.Duration) *Life {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := &Life{Name: name, nth: len(m.lives[name]) + 1, keeps: keeps, now: m.now, makes: m.now(), trimmed: map[int32]int64{}}
	m.lives[name] = append(m.lives[name], l)
	return l
}

// Born notes that a topic is there.
func (m *Model) Born(l *Life, id eventlog.TopicID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, other := range m.lives[l.Name] {
		if other.ID == id {
			m.violate("L10", []string{l.Name}, "topic %s was made anew and has the id of %s", l.Name, other)
		}
	}
	l.ID, l.made = id, m.now()
	m.history.Add(fmt.Sprintf("topic %s is there, id %v", l, id), l.Name)
}

// Dies notes that somebody begins to delete a topic.
func (m *Model) Dies(l *Life) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l.ends == 0 {
		l.ends = m.now()
	}
	m.history.Add(fmt.Sprintf("topic %s is being deleted", l), l.Name)
}

func (m *Model) Dead(l *Life) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l.ended = m.now()
	m.history.Add(fmt.Sprintf("topic %s is gone", l), l.Name)
}

// Trims notes that somebody asks to drop what is below an offset.
func (m *Model) Trims(l *Life, partition int32, below int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l.trimmed[partition] = max(l.trimmed[partition], below)
	m.history.Add(fmt.Sprintf("%s/%d is trimmed below %d", l, partition, below), l.Name)
}

// Living returns the topic of a name that is there for sure, and nil when there is none.
func (m *Model) Living(name string) *Life {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.lives[name]
	if len(all) == 0 || !all[len(all)-1].there() {
		return nil
	}
	return all[len(all)-1]
}

// Alive lists the topics that are there for sure.
func (m *Model) Alive() (list []*Life) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, all := range m.lives {
		if l := all[len(all)-1]; l.there() {
			list = append(list, l)
		}
	}
	slices.SortFunc(list, func(a, b *Life) int { return slices.Compare([]byte(a.Name), []byte(b.Name)) })
	return list
}

// Reader follows the topics of a name in order: of each partition every event from the beginning,
// and nothing twice.
type Reader struct {
	Who    string
	Life   *Life
	Next   map[int32]int64
	unsure bool // it is not known what the reader has read of partitions that are not in Next
}

func (r *Reader) Begin(l *Life) { r.Life, r.Next, r.unsure = l, map[int32]int64{}, false }

// Follow judges an event that a reader got.
func (m *Model) Follow(r *Reader, s Sight) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.history.Add(fmt.Sprintf("%s read %s at %v", r.Who, s.Value, s.Place), s.Topic, r.Who)
	_, l := m.read(r.Who, s)
	if next, is := r.Next[s.Partition]; l == nil && !(is && s.Offset == next) { // perhaps the next topic has begun
		r.Begin(nil)
		r.unsure = true
	}
	defer func() { r.Next[s.Partition] = s.Offset + 1 }()
	if l == nil {
		return
	}
	if r.Life != nil && l.nth < r.Life.nth {
		m.violate("L10", []string{s.Topic, r.Who}, "%s reads %s, and got %s of %s, which is gone", r.Who, r.Life, s.Value, l)
	}
	if r.Life == nil {
		r.Life = l
	} else if l != r.Life {
		r.Begin(l)
	}
	want, is := r.Next[s.Partition]
	switch {
	case !is && r.unsure:
	case s.Offset < want:
		m.violate("L5", []string{s.Topic, r.Who}, "%s got offset %d of %s/%d after %d", r.Who, s.Offset, l, s.Partition, want-1)
	case s.Offset > want && !l.MayMiss(s.Partition, s.Offset):
		m.violate("L5", []string{s.Topic, r.Who}, "%s got offset %d of %s/%d where %d is next: %s", r.Who, s.Offset, l, s.Partition, want, m.skipped(l, s.Partition, want, s.Offset))
	}
}

// skipped names what is known of the offsets that a reader did not get. m.mu is held.
func (m *Model) skipped(l *Life, partition int32, from, to int64) string {
	for o := from; o < to; o++ {
		if value, is := m.slots[slot{l, Place{partition, o}}]; is {
			return fmt.Sprintf("offset %d, for one, is %s", o, value)
		}
	}
	return "what was skipped is not known"
}

// MayLose says that somebody asked to drop events of a partition.
func (m *Model) MayLose(l *Life, partition int32) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return l.lossy() || l.trimmed[partition] > 0
}

func (l *Life) GoneAt(m *Model) Moment {
	m.mu.Lock()
	defer m.mu.Unlock()
	return l.ended
}

// PassGap notes that a reader was told of events that are gone.
func (m *Model) PassGap(r *Reader, topic string, partition int32, from, to int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.history.Add(fmt.Sprintf("%s was told of a gap in partition %d: %d to %d", r.Who, partition, from, to), topic, r.Who)
	if r.Life != nil && !r.Life.MayMiss(partition, to) {
		m.violate("L9", []string{topic, r.Who}, "%s was told that %s/%d lost offsets %d to %d, which nobody asked to drop", r.Who, r.Life, partition, from, to)
	}
	r.Next[partition] = to
}
