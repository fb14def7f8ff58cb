package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// What must be true of work queues: Q1 to Q5, Q7, Q9, Q10, limits and times to live. All of it is judged by the answers that clients got.

// message is one that was enqueued, or was to be. Its value names it.
type message struct {
	queue, value string
	key, unique  string
	delay        time.Duration
	priority     int
	inSQL        bool // enqueued in a transaction: it comes into the queue a little later
	outcome      outcome
	repeated     bool // a message of its unique key was there, and nothing was enqueued
	invoked      moment
	ended        moment
	id           string              // as the answer, or the first claim, said
	grants       map[string][]*grant // by its record: the queue's id (one that was purged, or made anew, has another), and where it is; a redrive makes another one
	purged       moment              // a purge that began after it was enqueued was over then; 0: none
	over         bool                // somebody was told that it is done
	letters      []*letter           // its dead letters, as they were listed
	discarded    moment              // a dead letter of it certainly was by then; 0: none
	copies       int                 // how often it is in its topic at the end
	died         int                 // how many dead letters of it there ever were, and
	dead         int                 // are left
	results      int                 // how many were written in transactions that acknowledged it
}

// grant is a message that was given to a worker.
type grant struct {
	message *message
	worker  string
	receipt string
	inGo    bool
	attempt int
	asked   moment // not known of the Go library's: 0
	got     moment
	until   int64 // when the lease ends, in milliseconds by the store's clock; 0: not told
	lease   time.Duration
	answers []*answered
}

// answered is what a worker said of a message, and what became of that.
type answered struct {
	verb    string // ack, nack, reject or extend
	delay   time.Duration
	lease   time.Duration
	invoked moment
	ended   moment
	outcome outcome
	inSQL   bool // in a transaction, which may have committed after the lease
}

// clockMargin is how much clocks, rounded to milliseconds and set while we run, may differ.
const clockMargin = moment(200 * time.Millisecond)

// ttlMargin is how much later than a message's time to live a claim may be asked for all the same: weir takes the earliest time that the store's clock can
// show. What was enqueued with SQL is not judged: its time begins when it comes into the queue, which may be late.
const ttlMargin = 3 * time.Second

// enqueues makes a message that is about to be enqueued.
func (m *model) enqueues(queue, by, key, unique string, delay time.Duration) *message {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.made++
	msg := &message{queue: queue, value: fmt.Sprintf("%s/%s/%d", by, queue, m.made), key: key, unique: unique, delay: delay, invoked: m.now(), grants: map[string][]*grant{}}
	m.messages[msg.value] = msg
	m.queued[queue] = append(m.queued[queue], msg)
	return msg
}

// enqueued tells what became of it.
func (m *model) enqueued(msg *message, o outcome, id string, repeated bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o == refused && m.queuePasses[msg.queue] {
		o = unknown // it may have been enqueued, and its topic deleted before that was told
	}
	msg.outcome, msg.ended, msg.repeated = o, m.now(), repeated
	m.history.add(fmt.Sprintf("enqueued %s key %q unique %q delay %v: %v %s repeated %v", msg.value, msg.key, msg.unique, msg.delay, o, id, repeated), msg.queue)
	if repeated {
		m.judgeRepeated(msg, id)
		return
	}
	if id != "" && msg.id != "" && id != msg.id {
		m.violate("Q1", []string{msg.queue}, "%s was enqueued as message %s and handed out as %s", msg.value, id, msg.id)
	}
	if id != "" {
		msg.id = id
	}
	if o == refused && len(msg.grants) > 0 {
		m.violate("Q1", []string{msg.queue}, "%s was handed out, and whoever enqueued it was told that it certainly was not enqueued", msg.value)
	}
}

// judgeRepeated: the first message of a unique key is one that was enqueued, and was not done before this one came.
func (m *model) judgeRepeated(msg *message, id string) {
	for _, first := range m.queued[msg.queue] {
		if first.id == id && first != msg && !first.repeated {
			if first.unique != msg.unique {
				m.violate("Q10", []string{msg.queue}, "%s with the unique key %q is said to be a repetition of %s, which has %q", msg.value, msg.unique, first.value, first.unique)
			}
			if at, is := first.finishedAt(); is && at < msg.invoked {
				m.violate("Q10", []string{msg.queue}, "%s is said to be a repetition of %s, which was done at %v", msg.value, first.value, at)
			}
			if len(first.letters) > 0 && first.letters[0].listed < msg.invoked { // a redriven message has no unique key
				m.violate("Q10", []string{msg.queue}, "%s is said to be a repetition of %s, which was a dead letter at %v", msg.value, first.value, first.letters[0].listed)
			}
			return
		}
	}
}

// finishedAt is when somebody was told that the message was acknowledged.
func (msg *message) finishedAt() (at moment, is bool) {
	for _, grants := range msg.grants {
		for _, g := range grants {
			for _, a := range g.answers {
				if a.verb == "ack" && a.outcome == done && !a.inSQL { // the queue hears of those a little later
					return a.ended, true
				}
			}
		}
	}
	return 0, false
}

// grants judges messages that a worker was given, and returns those that are known.
func (m *model) grants(q workQueue, worker string, g *grant, value, id string) *grant {
	m.mu.Lock()
	defer m.mu.Unlock()
	queue := q.name
	g.worker, g.got = worker, m.now()
	msg := m.messages[value]
	m.history.add(fmt.Sprintf("%s has %s of queue %s, message %s, attempt %d", worker, value, queue, id, g.attempt), queue)
	if msg == nil || msg.queue != queue {
		m.violate("Q1", []string{queue}, "%s was given %q by queue %s: nobody enqueued that", worker, value, queue)
		return nil
	}
	g.message = msg
	about := []string{queue}
	switch {
	case msg.outcome == refused:
		m.violate("Q1", about, "%s was given %s, and whoever enqueued it was told that it certainly was not enqueued", worker, value)
	case msg.repeated:
		m.violate("Q10", about, "%s was given %s, which was said not to be enqueued, as one with its unique key was there", worker, value)
	case msg.id != "" && msg.id != id:
		m.violate("Q1", about, "%s was given %s as message %s, and it is known as %s: it is there twice", worker, value, id, msg.id)
	case q.attempts > 0 && g.attempt > q.attempts:
		m.violate("Q5", about, "%s was given %s as attempt %d, and the queue allows %d", worker, value, g.attempt, q.attempts)
	case q.ttl > 0 && !msg.inSQL && m.isTooOld(msg, q, g):
		m.violate("QT", about, "%s asked at %v and was given %s, which was enqueued by %v with a delay of %v, and may wait %v", worker, g.asked, value, msg.ended, msg.delay, q.ttl)
	case msg.purged != 0 && g.asked > msg.purged:
		m.violate("Q2", about, "%s was given %s, which had been purged by %v", worker, value, msg.purged)
	case m.paused[queue] != 0 && g.asked > m.paused[queue]:
		m.violate("QP", about, "%s was given %s, and the queue has been paused since %v", worker, value, m.paused[queue])
	case msg.delay > 0 && g.got+clockMargin < msg.invoked+moment(msg.delay):
		m.violate("Q7", about, "%s was given %s, which was enqueued at %v with a delay of %v", worker, value, msg.invoked, msg.delay)
	}
	msg.id = id
	if !q.passes {
		m.judgeDead(msg, g)
	}
	record := recordOf(g.receipt)
	for _, other := range msg.grants[record] {
		m.judgeGrants(msg, other, g)
	}
	msg.grants[record] = append(msg.grants[record], g)
	return g
}

// recordOf names the record that a receipt was given for: the queue's id, a partition and an offset.
func recordOf(receipt string) string {
	return strings.Join(strings.SplitN(receipt, ".", 4)[:3], ".")
}

// isTooOld says that a claim asked for a message past its time to live. That begins anew with a redrive.
func (m *model) isTooOld(msg *message, q workQueue, g *grant) bool {
	from, known := m.restarted(msg)
	return known && g.asked > from+moment(msg.delay+q.ttl+ttlMargin)+clockMargin
}

// judgeGrants holds two claims of one message against each other.
func (m *model) judgeGrants(msg *message, a, b *grant) {
	if a.attempt > b.attempt {
		a, b = b, a
	}
	about := []string{msg.queue}
	if a.attempt == b.attempt && (a.inGo || b.inGo) {
		return // judgeAttempts: one that a Go worker gives back as it ends does not count
	}
	if a.attempt == b.attempt {
		m.violate("Q4", about, "%s was given out twice as attempt %d: to %s at %v and to %s at %v", msg.value, a.attempt, a.worker, a.got, b.worker, b.got)
		return
	}
	var end moment // the lease of a ends no earlier, by our clock
	if a.asked != 0 {
		end = a.asked + moment(a.lease)
	}
	extended := false
	for _, said := range a.answers {
		switch {
		case said.outcome == refused:
		case said.verb == "extend" && said.outcome == done:
			end, extended = said.invoked+moment(said.lease), true
		case said.verb == "extend":
			end, extended = min(end, said.invoked+moment(said.lease)), true
		case said.inSQL && said.outcome == done && (b.asked <= said.ended || msg.givenBack()):
			return // the lease may have ended before the transaction did, and whoever had it then gave it back beside SQL
		case (said.verb == "ack" || said.verb == "reject") && said.outcome == done:
			m.violate("Q2", about, "%s was answered for (%s) by %s as attempt %d, and %s was given it as attempt %d at %v", msg.value, said.verb, a.worker, a.attempt, b.worker, b.attempt, b.got)
			return
		default: // a nack, or something of unknown outcome: the claim may have ended
			overtaken := said.inSQL && b.got >= end // the lease may have ended before the mover came: then the nack counts for nothing (docs/sql.md)
			if said.verb == "nack" && said.outcome == done && !overtaken && b.attempt == a.attempt+1 && b.got+clockMargin < said.invoked+moment(said.delay) {
				m.violate("Q7", about, "%s was given back by %s at %v for %v, and %s got it at %v", msg.value, a.worker, said.invoked, said.delay, b.worker, b.got)
			}
			return
		}
	}
	if b.got+clockMargin < end {
		m.violate("Q3", about, "%s is %s's (attempt %d) until %v at least, and %s was given it (attempt %d) at %v", msg.value, a.worker, a.attempt, end, b.worker, b.attempt, b.got)
	}
	granted := b.until - b.lease.Milliseconds() // by the store's clock, or later
	if !extended && a.until > 0 && b.until > 0 && granted+time.Duration(clockMargin).Milliseconds() < a.until {
		m.violate("Q3", about, "%s is %s's (attempt %d) until %d by the store's clock, and was given to %s (attempt %d) at %d", msg.value, a.worker, a.attempt, a.until, b.worker, b.attempt, granted)
	}
}

// answers notes that a worker is about to answer for a message.
func (m *model) answers(g *grant, verb string, delay, lease time.Duration) *answered {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := &answered{verb: verb, delay: delay, lease: lease, invoked: m.now()}
	g.answers = append(g.answers, a)
	return a
}

// answered tells what became of that: over when the answer was that the message is done.
func (m *model) answered(g *grant, a *answered, o outcome, over bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a.outcome, a.ended = o, m.now()
	msg := g.message
	msg.over = msg.over || over
	m.history.add(fmt.Sprintf("%s %ss %s, attempt %d: %v, done before: %v", g.worker, a.verb, msg.value, g.attempt, o, over), msg.queue)
	if o != done || a.inSQL {
		return
	}
	for _, later := range msg.grants[recordOf(g.receipt)] {
		if later.attempt <= g.attempt {
			continue
		}
		if later.got < a.invoked || a.verb == "ack" || a.verb == "reject" {
			m.violate("Q4", []string{msg.queue}, "the %s of %s by %s for attempt %d, at %v, was taken, and %s was given it as attempt %d at %v", a.verb, msg.value, g.worker, g.attempt, a.invoked, later.worker, later.attempt, later.got)
		}
	}
}

// pauses notes that a queue is paused, and resumes that somebody is about to let it go on.
func (m *model) pauses(queue string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.paused[queue] = m.now()
	m.history.add("queue "+queue+" is paused", queue)
}

func (m *model) resumesQueue(queue string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.paused, queue)
	m.history.add("queue "+queue+" is about to be resumed", queue)
}

// purges notes that a purge which began at a time is over. What comes for its delayed messages it gave up, too.
func (m *model) purges(queue string, began moment) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.history.add(fmt.Sprintf("queue %s was purged from %v on", queue, began), queue)
	for _, msg := range m.queued[queue] {
		if at, known := m.restarted(msg); known && at < began && msg.purged == 0 && !msg.inSQL {
			msg.purged = m.now()
		}
	}
}

// remakes notes that a queue is about to be made anew: it begins with the oldest message that its topic has.
func (m *model) remakes(queue string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, msg := range m.queued[queue] {
		msg.purged = 0
	}
}

// settled says that a message is acknowledged or dead, as far as its clients know. A transaction of unknown outcome was committed if its result is there.
// m.mu is held.
func (m *model) settled(msg *message) bool {
	if msg.allDead() || msg.over && msg.copies <= 1 {
		return true
	}
	for _, grants := range msg.grants {
		for _, g := range grants {
			for _, a := range g.answers {
				if a.verb == "ack" && (a.outcome == done || a.outcome == unknown && (!a.inSQL || m.wrote[g.receipt] > 0)) {
					return true
				}
			}
		}
	}
	return false
}

// givenBack says that somebody gave the message back, or rejected it, beside SQL: then an ack that was committed may not hold.
func (msg *message) givenBack() bool {
	for _, grants := range msg.grants {
		for _, g := range grants {
			for _, a := range g.answers {
				if (a.verb == "nack" || a.verb == "reject") && !a.inSQL && a.outcome != refused {
					return true
				}
			}
		}
	}
	return false
}

// unsettled lists messages that certainly were enqueued and are neither acknowledged nor dead.
func (m *model) unsettled(queue string) (list []*message) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, msg := range m.queued[queue] {
		if msg.outcome == done && !msg.repeated && !m.settled(msg) {
			list = append(list, msg)
		}
	}
	return list
}

// judgeQueue holds the dead letters that a queue has at the end against what clients were told, and judges order by key and unique keys.
func (m *model) judgeQueue(q workQueue) {
	m.mu.Lock()
	defer m.mu.Unlock()
	queue := q.name
	for _, msg := range m.queued[queue] {
		at, acked := msg.finishedAt()
		switch {
		case msg.dead > 1:
			m.violate("Q5", []string{queue}, "there are %d dead letters of %s", msg.dead, msg.value)
		case msg.dead > 0 && acked:
			m.violate("Q1", []string{queue}, "%s was acknowledged at %v, and there is a dead letter of it", msg.value, at)
		case msg.dead > 0 && msg.repeated:
			m.violate("Q10", []string{queue}, "there is a dead letter of %s, which was said not to be enqueued", msg.value)
		}
	}
	if q.ordered {
		m.judgeKeys(queue)
	}
	if q.limit > 0 {
		m.judgeLimit(q)
	}
	m.judgeAttempts(queue)
	m.judgeLetters(queue)
	m.judgeResults(queue)
	m.judgeUnique(queue)
}

// judgeAttempts is Q4 where a Go worker had a message: what it is about to give back may not count as an attempt, and that is heard late.
func (m *model) judgeAttempts(queue string) {
	for _, msg := range m.queued[queue] {
		for _, grants := range msg.grants {
			had := map[int]*grant{}
			for _, g := range grants {
				other := had[g.attempt]
				had[g.attempt] = g
				if other != nil && (other.inGo || g.inGo) && !other.nacksInGo() && !g.nacksInGo() {
					m.violate("Q4", []string{queue}, "%s was given out twice as attempt %d: to %s at %v and to %s at %v", msg.value, g.attempt, other.worker, other.got, g.worker, g.got)
				}
			}
		}
	}
}

func (g *grant) nacksInGo() bool {
	return g.inGo && slices.ContainsFunc(g.answers, func(a *answered) bool { return a.verb == "nack" })
}

// judgeKeys is Q9: a message is not given out while an older one of its key is not done. Its queue tries for ever, so that only an ack ends a message.
func (m *model) judgeKeys(queue string) {
	byKey := map[string][]*message{}
	for _, msg := range m.queued[queue] {
		if msg.key != "" {
			byKey[msg.key] = append(byKey[msg.key], msg)
		}
	}
	for key, list := range byKey {
		for i, older := range list {
			ack, is := older.firstAck()
			for _, younger := range list[i+1:] {
				if older.outcome != done || older.ended >= younger.invoked {
					continue
				}
				for _, grants := range younger.grants {
					for _, g := range grants {
						if !is || g.got < ack {
							m.violate("Q9", []string{queue}, "%s was given %s of key %q at %v, and %s, which was enqueued before it, was not acknowledged by anybody until then", g.worker, younger.value, key, g.got, older.value)
							return
						}
					}
				}
			}
		}
	}
}

// judgeLimit sees that no more messages were claimed at a time than the queue allows. A claim certainly was there from its answer until its lease ended, or
// somebody first answered for it; a transaction of whoever had the message before may end it, too.
func (m *model) judgeLimit(q workQueue) {
	type change struct {
		at moment
		by int
	}
	var changes []change
	for _, msg := range m.queued[q.name] {
		for _, grants := range msg.grants {
			for _, g := range grants {
				end := g.asked + moment(g.lease)
				for _, by := range grants {
					for _, a := range by.answers {
						if by == g || a.inSQL {
							end = min(end, a.invoked)
						}
					}
				}
				if g.got < end {
					changes = append(changes, change{g.got, 1}, change{end, -1})
				}
			}
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by)) })
	held := 0
	for _, c := range changes {
		if held += c.by; held > q.limit {
			m.violate("QL", []string{q.name}, "at %v %d messages of %s were claimed, and its limit is %d", c.at, held, q.name, q.limit)
			return
		}
	}
}

// result is what a worker wrote in the transaction that acknowledged a message.
type result struct{ Value, Receipt string }

// works notes all results that there were at a time.
func (m *model) works(asked moment, list []result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wrote, m.wroteAt = map[string]int{}, asked
	results := map[string]int{}
	for _, r := range list {
		m.wrote[r.Receipt]++
		results[r.Value]++
	}
	for value, msg := range m.messages {
		msg.results = results[value]
	}
}

// judgeResults is QA: a transaction that acknowledged has its result if it was committed, and a message has one. m.mu is held.
func (m *model) judgeResults(queue string) {
	about := []string{queue}
	for _, msg := range m.queued[queue] {
		switch {
		case msg.results > 1 && !msg.givenBack():
			m.violate("QA", about, "%s has %d results, of transactions that acknowledged it", msg.value, msg.results)
		case msg.results > 0 && msg.allDead() && !msg.givenBack():
			m.violate("Q1", about, "%s was acknowledged in a transaction that was committed, and became a dead letter", msg.value)
		}
		for _, grants := range msg.grants {
			for _, g := range grants {
				for _, a := range g.answers {
					if a.verb != "ack" || !a.inSQL {
						continue
					}
					if n := m.wrote[g.receipt]; n > 1 || n > 0 && a.outcome == refused || n == 0 && a.outcome == done && a.ended < m.wroteAt {
						m.violate("QA", about, "%s wrote %d results of %s, attempt %d, in a transaction that acknowledged it: %v", g.worker, n, msg.value, g.attempt, a.outcome)
					}
				}
			}
		}
	}
}

// firstAck is when somebody first asked to acknowledge a message, with any outcome but a refusal.
func (msg *message) firstAck() (first moment, is bool) {
	for _, grants := range msg.grants {
		for _, g := range grants {
			for _, a := range g.answers {
				if a.verb != "extend" && a.verb != "nack" && a.outcome != refused && (!is || a.invoked < first) {
					first, is = a.invoked, true
				}
			}
		}
	}
	return first, is
}

// judgeUnique is Q10: while a message is not done, no other of its unique key is enqueued.
func (m *model) judgeUnique(queue string) {
	byKey := map[string][]*message{}
	for _, msg := range m.queued[queue] {
		if msg.unique != "" && msg.outcome == done && !msg.repeated {
			byKey[msg.unique] = append(byKey[msg.unique], msg)
		}
	}
	for key, list := range byKey {
		for i, older := range list {
			ack, is := older.firstAck()
			for _, younger := range list[i+1:] {
				if older.died == 0 && older.ended < younger.invoked && (!is || ack > younger.ended) {
					m.violate("Q10", []string{queue}, "%s and %s were both enqueued with the unique key %q, and nobody had acknowledged the first one", older.value, younger.value, key)
					return
				}
			}
		}
	}
}
