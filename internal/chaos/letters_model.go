package main

import (
	"fmt"
	"strings"
)

// What must be true of dead letters (QR): a letter that was redriven is one message again, one that was discarded is none, and neither is a letter any more.

// letter is a dead letter, and what was done to it.
type letter struct {
	message *message
	asked   moment // the first list that had it
	listed  moment // the answer of that
	takes   []*take
}

// take is a request to redrive or discard letters: those that are named, or all of a queue. Done: all that are named were taken by it. Refused: none.
type take struct {
	verb           string
	letters        []string // none: all
	invoked, ended moment
	outcome        outcome
}

// lists judges the dead letters that somebody was shown.
func (m *model) lists(q workQueue, asked moment, list []seenLetter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	about := []string{q.name}
	for _, l := range list {
		msg := m.messages[l.Value]
		if msg == nil || msg.queue != q.name {
			m.violate("Q1", about, "there is a dead letter %s with the value %q in %s, which nobody enqueued", l.Letter, l.Value, q.name)
			continue
		}
		if msg.id != "" && msg.id != l.ID {
			m.violate("Q1", about, "letter %s of %s says that its message is %s, and it is known as %s", l.Letter, l.Value, l.ID, msg.id)
		}
		known := m.letters[l.Letter]
		if known == nil {
			known = &letter{message: msg, asked: asked, listed: m.now()}
			m.letters[l.Letter] = known
			msg.letters = append(msg.letters, known)
			m.history.add(fmt.Sprintf("%s is a dead letter, %s", l.Value, l.Letter), q.name)
		}
		if known.message != msg {
			m.violate("Q1", about, "letter %s was that of %s, and is that of %s", l.Letter, known.message.value, l.Value)
		}
		for _, t := range known.takes {
			if t.outcome == done && t.ended < asked && !q.passes { // a process that has not heard of a purge yet shows what was taken before it
				m.violate("QR", about, "letter %s of %s was asked for at %v and is there, and the %s of it was over at %v", l.Letter, l.Value, asked, t.verb, t.ended)
			}
		}
		switch at, acked := msg.finishedAt(); {
		case msg.outcome == refused:
			m.violate("Q1", about, "there is a dead letter of %s, and whoever enqueued it was told that it certainly was not enqueued", l.Value)
		case msg.repeated:
			m.violate("Q10", about, "there is a dead letter of %s, which was said not to be enqueued", l.Value)
		case acked && at < asked && !q.passes:
			m.violate("Q1", about, "%s was acknowledged at %v, and there is a dead letter of it at %v", l.Value, at, asked)
		}
	}
}

// takes notes that somebody is about to redrive or discard letters; none named: all.
func (m *model) takes(q workQueue, verb string, letters []string) *take {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := &take{verb: verb, letters: letters, invoked: m.now()}
	m.history.add(fmt.Sprintf("somebody is about to %s %s", verb, t), q.name)
	for _, id := range letters {
		l := m.letters[id]
		l.takes = append(l.takes, t)
		l.message.purged = 0 // it may come back, and so may the others below
	}
	if len(letters) == 0 {
		m.sweeps[q.name] = append(m.sweeps[q.name], t)
		for _, msg := range m.queued[q.name] {
			msg.purged = 0
		}
	}
	return t
}

func (t *take) String() string {
	if len(t.letters) == 0 {
		return "all letters"
	}
	return strings.Join(t.letters, " and ")
}

// taken tells what became of it; whole: the answer tells of no problem.
func (m *model) taken(q workQueue, t *take, o outcome, n int, whole bool, why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t.ended = m.now()
	m.lettersTaken[q.name] += n
	switch most := len(t.letters); {
	case o != done:
	case !whole:
		o = unknown
	case n == 0:
		o = refused
	case most > 0 && n > most:
		m.violate("QR", []string{q.name}, "the %s of %s took %d letters", t.verb, t, n)
	case n < most: // a broker may not know of the others yet
		o = unknown
	}
	t.outcome = o
	m.history.add(fmt.Sprintf("the %s of %s: %v, it took %d, %v", t.verb, t, o, n, why), q.name)
	for _, id := range t.letters {
		l := m.letters[id]
		if o != done {
			break
		}
		for _, other := range l.takes {
			if other != t && other.outcome == done {
				m.violate("QR", []string{q.name}, "letter %s of %s was taken twice: by the %s of %v to %v and by that of %v to %v", id, l.message.value, other.verb, other.invoked, other.ended, t.invoked, t.ended)
			}
		}
		if t.verb == "discard" && !q.passes { // a queue that is made anew hands out again what its topic has
			l.message.discarded = t.ended
		}
	}
}

// redrives lists what may have made letters of a message into a message again. m.mu is held.
func (m *model) redrives(msg *message) (list []*take) {
	add := func(t *take) {
		if before := t.outcome == done && t.ended < msg.invoked; t.verb == "redrive" && t.outcome != refused && !before {
			list = append(list, t)
		}
	}
	for _, t := range m.sweeps[msg.queue] {
		add(t)
	}
	for _, l := range msg.letters {
		for _, t := range l.takes {
			add(t)
		}
	}
	return list
}

// restarted is when a message was enqueued, or redriven last, at the latest; not known while a redrive of it is under way or of unknown outcome. m.mu is held.
func (m *model) restarted(msg *message) (at moment, known bool) {
	at = msg.ended
	for _, t := range m.redrives(msg) {
		if t.outcome != done {
			return 0, false
		}
		at = max(at, t.ended)
	}
	return at, msg.outcome == done
}

// judgeDead sees that a message which is given out is no dead letter, and in its topic no more often than it was redriven. m.mu is held.
func (m *model) judgeDead(msg *message, g *grant) {
	about := []string{msg.queue}
	redrives := m.redrives(msg)
	if msg.discarded != 0 && g.asked > msg.discarded {
		m.violate("QR", about, "%s asked at %v and was given %s, whose dead letter had been discarded by %v", g.worker, g.asked, msg.value, msg.discarded)
	}
	for _, l := range msg.letters {
		back := false
		for _, t := range redrives {
			back = back || t.outcome != done || t.ended >= l.asked
		}
		if !back && g.asked > l.listed {
			m.violate("QR", about, "%s asked at %v and was given %s, which was a dead letter at %v, and nobody has redriven it", g.worker, g.asked, msg.value, l.listed)
		}
	}
	life, _, _ := strings.Cut(g.receipt, ".")
	records := 1
	for other := range msg.grants {
		if strings.HasPrefix(other, life+".") && other != recordOf(g.receipt) {
			records++
		}
	}
	if records > 1+len(redrives) {
		m.violate("QR", about, "%s was given %s with the receipt %s: it is there %d times, and was redriven %d times", g.worker, msg.value, g.receipt, records, len(redrives))
	}
}

// counts notes what a queue has at the end, by value: the letters that are left, all that ever were, and messages in its topic.
func (m *model) counts(q workQueue, left []seenLetter, ever, copies map[string]int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	dead := map[string]int{}
	for _, l := range left {
		dead[l.Value]++
	}
	for _, msg := range m.queued[q.name] {
		msg.dead, msg.died, msg.copies = dead[msg.value], ever[msg.value], copies[msg.value]
	}
}

// judgeLetters holds what a queue has at the end against what was answered. m.mu is held.
func (m *model) judgeLetters(queue string) {
	about := []string{queue}
	gone := 0
	for _, msg := range m.queued[queue] {
		gone += msg.died - msg.dead
		sure := map[string]int{}
		for _, l := range msg.letters {
			for _, t := range l.takes {
				if t.outcome == done {
					sure[t.verb]++
				}
			}
		}
		what := fmt.Sprintf("%s is in its topic %d times, and was a dead letter %d times, of which %d are left; %d letters were discarded for sure, and %d redriven",
			msg.value, msg.copies, msg.died, msg.dead, sure["discard"], sure["redrive"])
		switch {
		case msg.copies == 0 && msg.died == 0:
		case msg.died > msg.copies:
			m.violate("Q5", about, "%s: it died more often than it was there", what)
		case msg.copies-1 > msg.died-msg.dead-sure["discard"]:
			m.violate("QR", about, "%s: that is a message too many", what)
		case msg.copies-1 < sure["redrive"]:
			m.violate("QR", about, "%s: that is a message too few", what)
		}
	}
	if taken := m.lettersTaken[queue]; taken > gone {
		m.violate("QR", about, "%d dead letters of %s were redriven or discarded, as the answers say, and %d are gone", taken, queue, gone)
	}
}

// allDead says that a message was a dead letter each time that it was in its topic. m.mu is held.
func (msg *message) allDead() bool { return msg.copies > 0 && msg.copies == msg.died }
