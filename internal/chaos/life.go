package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// life is one topic. Topics of one name come one after the other, and have nothing to do with each other.
//
//	makes ........ made ................. ends ........ ended
//	perhaps there  |---- it is there -----| perhaps there   not any more
type life struct {
	name        string
	nth         int // among those of its name, from 1
	id          eventlog.TopicID
	keeps       time.Duration // how long its settings keep events for sure; 0: for ever
	now         func() moment
	makes, made moment
	ends, ended moment          // 0: nobody has begun to delete it, nobody has finished
	trimmed     map[int32]int64 // by partition: below here events may be gone, as somebody asked for it
}

func (l *life) String() string { return fmt.Sprintf("%s#%d", l.name, l.nth) }

// there says that the topic is there for sure.
func (l *life) there() bool { return l.made != 0 && l.ends == 0 }

// lossy says that its settings may have dropped events.
func (l *life) lossy() bool { return l.keeps != 0 && l.now() >= l.makes+moment(l.keeps) }

func (l *life) overlaps(from, to moment) bool {
	return l.makes <= to && (l.ended == 0 || from <= l.ended)
}

// mayMiss says that events of a partition below an offset may be gone.
func (l *life) mayMiss(partition int32, below int64) bool {
	return l.lossy() || below <= l.trimmed[partition]
}

// begins notes that somebody begins to make a topic: from now on records may be in it.
func (m *model) begins(name string, keeps time.Duration) *life {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := &life{name: name, nth: len(m.lives[name]) + 1, keeps: keeps, now: m.now, makes: m.now(), trimmed: map[int32]int64{}}
	m.lives[name] = append(m.lives[name], l)
	return l
}

// born notes that a topic is there.
func (m *model) born(l *life, id eventlog.TopicID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, other := range m.lives[l.name] {
		if other.id == id {
			m.violate("L10", []string{l.name}, "topic %s was made anew and has the id of %s", l.name, other)
		}
	}
	l.id, l.made = id, m.now()
	m.history.add(fmt.Sprintf("topic %s is there, id %v", l, id), l.name)
}

// dies notes that somebody begins to delete a topic.
func (m *model) dies(l *life) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l.ends == 0 {
		l.ends = m.now()
	}
	m.history.add(fmt.Sprintf("topic %s is being deleted", l), l.name)
}

func (m *model) dead(l *life) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l.ended = m.now()
	m.history.add(fmt.Sprintf("topic %s is gone", l), l.name)
}

// trims notes that somebody asks to drop what is below an offset.
func (m *model) trims(l *life, partition int32, below int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l.trimmed[partition] = max(l.trimmed[partition], below)
	m.history.add(fmt.Sprintf("%s/%d is trimmed below %d", l, partition, below), l.name)
}

// living returns the topic of a name that is there for sure, and nil when there is none.
func (m *model) living(name string) *life {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.lives[name]
	if len(all) == 0 || !all[len(all)-1].there() {
		return nil
	}
	return all[len(all)-1]
}

// alive lists the topics that are there for sure.
func (m *model) alive() (list []*life) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, all := range m.lives {
		if l := all[len(all)-1]; l.there() {
			list = append(list, l)
		}
	}
	slices.SortFunc(list, func(a, b *life) int { return slices.Compare([]byte(a.name), []byte(b.name)) })
	return list
}

// reader follows the topics of a name in order: of each partition every event from the beginning, and nothing twice.
type reader struct {
	who    string
	life   *life
	next   map[int32]int64
	unsure bool // what was read before an offset that next does not name is not known
}

func (r *reader) begin(l *life) { r.life, r.next, r.unsure = l, map[int32]int64{}, false }

// follow judges an event that a reader got.
func (m *model) follow(r *reader, s sight) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.history.add(fmt.Sprintf("%s read %s at %v", r.who, s.Value, s.place), s.Topic, r.who)
	_, l := m.read(r.who, s)
	if next, is := r.next[s.Partition]; l == nil && !(is && s.Offset == next) { // perhaps the next topic has begun
		r.begin(nil)
		r.unsure = true
	}
	defer func() { r.next[s.Partition] = s.Offset + 1 }()
	if l == nil {
		return
	}
	if r.life != nil && l.nth < r.life.nth {
		m.violate("L10", []string{s.Topic, r.who}, "%s reads %s, and got %s of %s, which is gone", r.who, r.life, s.Value, l)
	}
	if r.life == nil {
		r.life = l
	} else if l != r.life {
		r.begin(l)
	}
	want, is := r.next[s.Partition]
	switch {
	case !is && r.unsure:
	case s.Offset < want:
		m.violate("L5", []string{s.Topic, r.who}, "%s got offset %d of %s/%d after %d", r.who, s.Offset, l, s.Partition, want-1)
	case s.Offset > want && !l.mayMiss(s.Partition, s.Offset):
		m.violate("L5", []string{s.Topic, r.who}, "%s got offset %d of %s/%d where %d is next: %s", r.who, s.Offset, l, s.Partition, want, m.skipped(l, s.Partition, want, s.Offset))
	}
}

// skipped names what is known of the offsets that a reader did not get. m.mu is held.
func (m *model) skipped(l *life, partition int32, from, to int64) string {
	for o := from; o < to; o++ {
		if value, is := m.slots[slot{l, place{partition, o}}]; is {
			return fmt.Sprintf("offset %d, for one, is %s", o, value)
		}
	}
	return "what was skipped is not known"
}
