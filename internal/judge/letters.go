package judge

import (
	"fmt"
	"strings"
)

// What must be true of dead letters (QR): a letter that was redriven is one message again, one that
// was discarded is none, and neither is a letter any more.

// letter is a dead letter, and what was done to it.
type letter struct {
	message *Message
	asked   Moment // the first list that had it
	listed  Moment // the answer of that
	takes   []*take
}

// take is a request to redrive or discard letters: those that are named, or all of a queue. Done:
// all that are named were taken by it. Refused: none.
type take struct {
	verb           string
	letters        []string // none: all
	invoked, ended Moment
	outcome        Outcome
}

// Lists judges the dead letters that somebody was shown.
func (m *Model) Lists(q WorkQueue, asked Moment, list []SeenLetter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	about := []string{q.Name}
	for _, l := range list {
		msg := m.messages[l.Value]
		if msg == nil || msg.Queue != q.Name {
			m.violate("Q1", about, "there is a dead letter %s with the value %q in %s, which nobody enqueued", l.Letter, l.Value, q.Name)
			continue
		}
		if msg.ID != "" && msg.ID != l.ID {
			m.violate("Q1", about, "letter %s of %s says that its message is %s, and it is known as %s", l.Letter, l.Value, l.ID, msg.ID)
		}
		known := m.letters[l.Letter]
		if known == nil {
			known = &letter{message: msg, asked: asked, listed: m.now()}
			m.letters[l.Letter] = known
			msg.letters = append(msg.letters, known)
			m.history.Add(fmt.Sprintf("%s is a dead letter, %s", l.Value, l.Letter), q.Name)
		}
		if known.message != msg {
			m.violate("Q1", about, "letter %s was that of %s, and is that of %s", l.Letter, known.message.Value, l.Value)
		}
		for _, t := range known.takes {
			if t.outcome == Done && t.ended < asked && !q.Passes { // a process that has not heard of a purge yet shows what was taken before it
				m.violate("QR", about, "letter %s of %s was asked for at %v and is there, and the %s of it was over at %v", l.Letter, l.Value, asked, t.verb, t.ended)
			}
		}
		switch at, acked := msg.finishedAt(); {
		case msg.Outcome == Refused:
			m.violate("Q1", about, "there is a dead letter of %s, and whoever enqueued it was told that it certainly was not enqueued", l.Value)
		case msg.repeated:
			m.violate("Q10", about, "there is a dead letter of %s, which was said not to be enqueued", l.Value)
		case acked && at < asked && !q.Passes:
			m.violate("Q1", about, "%s was acknowledged at %v, and there is a dead letter of it at %v", l.Value, at, asked)
		}
	}
}

// Takes notes that somebody is about to redrive or discard letters; none named: all.
func (m *Model) Takes(q WorkQueue, verb string, letters []string) *take {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := &take{verb: verb, letters: letters, invoked: m.now()}
	m.history.Add(fmt.Sprintf("somebody is about to %s %s", verb, t), q.Name)
	for _, id := range letters {
		l := m.letters[id]
		l.takes = append(l.takes, t)
		l.message.purged = 0 // the message may come back
	}
	if len(letters) == 0 {
		m.sweeps[q.Name] = append(m.sweeps[q.Name], t)
		for _, msg := range m.queued[q.Name] {
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

// Taken tells what became of the request t. whole: the answer tells of no problem.
func (m *Model) Taken(q WorkQueue, t *take, o Outcome, n int, whole bool, why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t.ended = m.now()
	m.lettersTaken[q.Name] += n
	switch most := len(t.letters); {
	case o != Done:
	case !whole:
		o = Unknown
	case n == 0:
		o = Refused
	case most > 0 && n > most:
		m.violate("QR", []string{q.Name}, "the %s of %s took %d letters", t.verb, t, n)
	case n < most: // a broker may not know of the others yet
		o = Unknown
	}
	t.outcome = o
	m.history.Add(fmt.Sprintf("the %s of %s: %v, it took %d, %v", t.verb, t, o, n, why), q.Name)
	for _, id := range t.letters {
		l := m.letters[id]
		if o != Done {
			break
		}
		for _, other := range l.takes {
			if other != t && other.outcome == Done {
				m.violate("QR", []string{q.Name}, "letter %s of %s was taken twice: by the %s of %v to %v and by that of %v to %v", id, l.message.Value, other.verb, other.invoked, other.ended, t.invoked, t.ended)
			}
		}
		if t.verb == "discard" && !q.Passes { // a queue that is made anew hands out again what its topic has
			l.message.discarded = t.ended
		}
	}
}

// redrives lists what may have made letters of a message into a message again. m.mu is held.
func (m *Model) redrives(msg *Message) (list []*take) {
	add := func(t *take) {
		if before := t.outcome == Done && t.ended < msg.invoked; t.verb == "redrive" && t.outcome != Refused && !before {
			list = append(list, t)
		}
	}
	for _, t := range m.sweeps[msg.Queue] {
		add(t)
	}
	for _, l := range msg.letters {
		for _, t := range l.takes {
			add(t)
		}
	}
	return list
}

// restarted is when a message was enqueued, or redriven last, at the latest; not known while a
// redrive of it is under way or of unknown outcome. m.mu is held.
func (m *Model) restarted(msg *Message) (at Moment, known bool) {
	at = msg.ended
	for _, t := range m.redrives(msg) {
		if t.outcome != Done {
			return 0, false
		}
		at = max(at, t.ended)
	}
	return at, msg.Outcome == Done
}

// judgeDead sees that a message which is given out is no dead letter, and in its topic no more
// often than it was redriven. m.mu is held.
func (m *Model) judgeDead(msg *Message, g *Grant) {
	about := []string{msg.Queue}
	redrives := m.redrives(msg)
	if msg.discarded != 0 && g.Asked > msg.discarded {
		m.violate("QR", about, "%s asked at %v and was given %s, whose dead letter had been discarded by %v", g.Worker, g.Asked, msg.Value, msg.discarded)
	}
	for _, l := range msg.letters {
		back := false
		for _, t := range redrives {
			back = back || t.outcome != Done || t.ended >= l.asked
		}
		if !back && g.Asked > l.listed {
			m.violate("QR", about, "%s asked at %v and was given %s, which was a dead letter at %v, and nobody has redriven it", g.Worker, g.Asked, msg.Value, l.listed)
		}
	}
	life, _, _ := strings.Cut(g.Receipt, ".")
	records := 1
	for other := range msg.Grants {
		if strings.HasPrefix(other, life+".") && other != recordOf(g.Receipt) {
			records++
		}
	}
	if records > 1+len(redrives) {
		m.violate("QR", about, "%s was given %s with the receipt %s: it is there %d times, and was redriven %d times", g.Worker, msg.Value, g.Receipt, records, len(redrives))
	}
}

// Counts notes what a queue has at the end, by value: the letters that are left, all that ever
// were, and messages in its topic.
func (m *Model) Counts(q WorkQueue, left []SeenLetter, ever, copies map[string]int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	dead := map[string]int{}
	for _, l := range left {
		dead[l.Value]++
	}
	for _, msg := range m.queued[q.Name] {
		msg.dead, msg.died, msg.copies = dead[msg.Value], ever[msg.Value], copies[msg.Value]
	}
}

// judgeLetters compares what a queue has at the end with what was answered. m.mu is held.
func (m *Model) judgeLetters(queue string) {
	about := []string{queue}
	gone := 0
	for _, msg := range m.queued[queue] {
		gone += msg.died - msg.dead
		sure := map[string]int{}
		for _, l := range msg.letters {
			for _, t := range l.takes {
				if t.outcome == Done {
					sure[t.verb]++
				}
			}
		}
		what := fmt.Sprintf("%s is in its topic %d times, and was a dead letter %d times, of which %d are left; %d letters were discarded for sure, and %d redriven",
			msg.Value, msg.copies, msg.died, msg.dead, sure["discard"], sure["redrive"])
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
func (msg *Message) allDead() bool { return msg.copies > 0 && msg.copies == msg.died }

// SeenLetter is a dead letter as a list over HTTP has it.
type SeenLetter struct{ Letter, ID, Value string }
