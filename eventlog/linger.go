package eventlog

import "time"

// lingering says how long records of a topic may wait for a flush, by the settings weir.linger.ms
// and weir.linger.bytes.
type lingering struct {
	topic TopicID
	wait  time.Duration // above 0
	bytes int64         // once so many bytes of the topic wait, they are flushed at once
}

// lingering returns false for a topic whose records do not wait.
func (t Topic) lingering() (lingering, bool) {
	l := lingering{t.ID, time.Duration(t.number("weir.linger.ms")) * time.Millisecond, t.number("weir.linger.bytes")}
	return l, l.wait > 0
}

// schedule says when a queue of tickets is to be flushed. The earliest due time counts for all: a
// flush takes the whole queue.
type schedule struct {
	begun bool              // there are tickets
	at    time.Time         // the zero value: at once
	bytes int64             // the bytes of all tickets
	of    map[TopicID]int64 // bytes of each topic that lingers
}

// waiting is a ticket's part in a topic that lingers.
type waiting struct {
	lingering
	size int64 // bytes of its records
}

// add schedules one more ticket. most bounds the bytes of tickets that wait.
func (s *schedule) add(t *Ticket, most int64) {
	s.bytes += t.size
	at := t.due
	for _, w := range t.waits {
		if s.of == nil {
			s.of = map[TopicID]int64{}
		}
		if s.of[w.topic] += w.size; s.of[w.topic] >= w.bytes {
			at = time.Time{}
		}
	}
	if s.bytes >= most {
		at = time.Time{}
	}
	if !s.begun || at.Before(s.at) {
		s.begun, s.at = true, at
	}
}

// linger notes when a ticket is due. Its entry may wait if it only appends to topics that linger:
// what changes keys, such as the position of a group, the state of a message or an event of a
// stream, goes at once; so does what is built late, because nobody knows yet what it changes.
func (a *appender) linger(t *Ticket) {
	batches := t.entry.Batches
	loose, isLoose := t.shared.(looseRecords)
	switch {
	case isLoose:
		batches = []Batch{{Partition: loose.partition}}
	case len(t.entry.Checks)+len(t.entry.Puts)+len(t.entry.Replaces)+len(t.entry.Forgets) > 0:
		return
	}
	shortest := time.Duration(0)
	for _, b := range batches {
		l, lingers := a.lingering(b.Partition)
		if !lingers {
			t.waits = nil
			return
		}
		if shortest == 0 || l.wait < shortest {
			shortest = l.wait
		}
		size := int64(len(b.Bytes))
		if isLoose {
			size = looseSize(loose.records)
		}
		t.waits = append(t.waits, waiting{l, size})
	}
	if shortest > 0 {
		t.due = time.Now().Add(shortest)
	}
}
