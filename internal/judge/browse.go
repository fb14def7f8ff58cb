package judge

import (
	"fmt"
)

// SeenMessage is a message as a list over HTTP has it.
type SeenMessage struct{ State, Value string }

// Browsed judges a list that was asked for at a time and has been read to its end.
func (m *Model) Browsed(q WorkQueue, asked Moment, state string, list []SeenMessage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	about := []string{q.Name}
	m.history.Add(fmt.Sprintf("a list of %d messages by %q, asked for at %v, has been read", len(list), state, asked), q.Name)
	times := map[*Message]int{}
	for _, l := range list {
		msg := m.messages[l.Value]
		if msg == nil || msg.Queue != q.Name {
			m.violate("QB", about, "%q is listed in %s, and nobody enqueued that", l.Value, q.Name)
			continue
		}
		times[msg]++
		switch at, acked := msg.finishedAt(); {
		case msg.Outcome == Refused:
			m.violate("QB", about, "%s is listed as %s, and whoever enqueued it was told that it certainly was not enqueued", l.Value, l.State)
		case state != "" && l.State != state:
			m.violate("QB", about, "%s is %s in a list of those that are %s", l.Value, l.State, state)
		case acked && at < asked && !q.Passes: // a queue that was made anew has again what its topic has
			m.violate("QB", about, "%s was acknowledged at %v, and a list that was asked for at %v has it as %s", l.Value, at, asked, l.State)
		}
	}
	for _, msg := range m.queued[q.Name] {
		if msg.Delay > 0 || q.Passes || len(m.redrives(msg)) > 0 {
			continue // it may be there as several records
		}
		if times[msg] > 1 {
			m.violate("QB", about, "%s is listed %d times", msg.Value, times[msg])
		}
		if state == "" && times[msg] == 0 && msg.Outcome == Done && !msg.repeated && !msg.inSQL && msg.ended < asked && q.Attempts == 0 && q.TTL == 0 && !msg.answeredFor() {
			m.violate("QB", about, "%s was enqueued by %v, nobody has answered for it, and a list that was asked for at %v does not have it", msg.Value, msg.ended, asked)
		}
	}
}

// answeredFor says that somebody has begun to answer for a message in a way that may end it.
func (msg *Message) answeredFor() bool {
	for _, grants := range msg.Grants {
		for _, g := range grants {
			for _, a := range g.answers {
				if a.verb == "ack" || a.verb == "reject" {
					return true
				}
			}
		}
	}
	return false
}
