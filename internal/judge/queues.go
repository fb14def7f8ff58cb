package judge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// What must be true of work queues: Q1 to Q5, Q7, Q9, Q10, limits and times to live. All of it is
// judged by the answers that clients got.

// Message is one that was enqueued, or was to be. Its value names it.
type Message struct {
	Queue, Value string
	Key, Unique  string
	Delay        time.Duration
	Priority     int
	inSQL        bool // enqueued in a transaction: it comes into the queue a little later
	Outcome      Outcome
	repeated     bool // a message of its unique key was there, and nothing was enqueued
	invoked      Moment
	ended        Moment
	ID           string              // as the answer, or the first claim, said
	Grants       map[string][]*Grant // by its record: the queue's id (one that was purged, or made anew, has another), and where it is; a redrive makes another one
	purged       Moment              // a purge that began after it was enqueued was over then; 0: none
	over         bool                // somebody was told that it is done
	letters      []*letter           // its dead letters, as they were listed
	discarded    Moment              // a dead letter of it certainly was by then; 0: none
	copies       int                 // how often it is in its topic at the end
	died         int                 // how many dead letters of it there ever were
	dead         int                 // how many of these are left
	results      int                 // how many were written in transactions that acknowledged it
}

// Grant is a message that was given to a worker.
type Grant struct {
	Message *Message
	Worker  string
	Receipt string
	InGo    bool
	Attempt int
	Asked   Moment // 0: not known, for a claim of the Go library
	got     Moment
	Until   int64 // when the lease ends, in milliseconds by the store's clock; 0: not told
	Lease   time.Duration
	answers []*answered
}

// answered is what a worker said of a message, and what became of that.
type answered struct {
	verb    string // ack, nack, reject or extend
	delay   time.Duration
	lease   time.Duration
	invoked Moment
	ended   Moment
	outcome Outcome
	inSQL   bool // in a transaction, which may have committed after the lease
}

// clockMargin is how much clocks, rounded to milliseconds and set while we run, may differ.
const clockMargin = Moment(200 * time.Millisecond)

// ttlMargin is the default of Model.TTLMargin. A claim that is asked for this long after the end of
// a message's time to live may still get it, because weir takes the earliest time that the store's
// clock can show. What was enqueued with SQL is not judged: its time begins when it comes into the
// queue, which may be late.
const ttlMargin = 3 * time.Second

// Enqueues makes a message that is about to be enqueued.
func (m *Model) Enqueues(queue, by, key, unique string, delay time.Duration) *Message {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.made++
	msg := &Message{Queue: queue, Value: fmt.Sprintf("%s/%s/%d", by, queue, m.made), Key: key, Unique: unique, Delay: delay, invoked: m.now(), Grants: map[string][]*Grant{}}
	m.messages[msg.Value] = msg
	m.queued[queue] = append(m.queued[queue], msg)
	return msg
}

// Enqueued tells what became of a message that was about to be enqueued.
func (m *Model) Enqueued(msg *Message, o Outcome, id string, repeated bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o == Refused && m.QueuePasses[msg.Queue] {
		o = Unknown // it may have been enqueued, and its topic deleted before that was told
	}
	msg.Outcome, msg.ended, msg.repeated = o, m.now(), repeated
	m.history.Add(fmt.Sprintf("enqueued %s key %q unique %q delay %v: %v %s repeated %v", msg.Value, msg.Key, msg.Unique, msg.Delay, o, id, repeated), msg.Queue)
	if repeated {
		m.judgeRepeated(msg, id)
		return
	}
	if id != "" && msg.ID != "" && id != msg.ID {
		m.violate("Q1", []string{msg.Queue}, "%s was enqueued as message %s and handed out as %s", msg.Value, id, msg.ID)
	}
	if id != "" {
		msg.ID = id
	}
	if o == Refused && len(msg.Grants) > 0 {
		m.violate("Q1", []string{msg.Queue}, "%s was handed out, and whoever enqueued it was told that it certainly was not enqueued", msg.Value)
	}
}

// judgeRepeated: the first message of a unique key is one that was enqueued, and was not done
// before this one came.
func (m *Model) judgeRepeated(msg *Message, id string) {
	for _, first := range m.queued[msg.Queue] {
		if first.ID == id && first != msg && !first.repeated {
			if first.Unique != msg.Unique {
				m.violate("Q10", []string{msg.Queue}, "%s with the unique key %q is said to be a repetition of %s, which has %q", msg.Value, msg.Unique, first.Value, first.Unique)
			}
			if at, is := first.finishedAt(); is && at < msg.invoked {
				m.violate("Q10", []string{msg.Queue}, "%s is said to be a repetition of %s, which was done at %v", msg.Value, first.Value, at)
			}
			if len(first.letters) > 0 && first.letters[0].listed < msg.invoked { // a redriven message has no unique key
				m.violate("Q10", []string{msg.Queue}, "%s is said to be a repetition of %s, which was a dead letter at %v", msg.Value, first.Value, first.letters[0].listed)
			}
			return
		}
	}
}

// finishedAt is when somebody was told that the message was acknowledged.
func (msg *Message) finishedAt() (at Moment, is bool) {
	for _, grants := range msg.Grants {
		for _, g := range grants {
			for _, a := range g.answers {
				if a.verb == "ack" && a.outcome == Done && !a.inSQL { // the queue hears of acks in transactions a little later
					return a.ended, true
				}
			}
		}
	}
	return 0, false
}

// Grants judges messages that a worker was given, and returns those that are known.
func (m *Model) Grants(q WorkQueue, worker string, g *Grant, value, id string) *Grant {
	m.mu.Lock()
	defer m.mu.Unlock()
	queue := q.Name
	g.Worker, g.got = worker, m.now()
	msg := m.messages[value]
	m.history.Add(fmt.Sprintf("%s has %s of queue %s, message %s, attempt %d", worker, value, queue, id, g.Attempt), queue)
	if msg == nil || msg.Queue != queue {
		m.violate("Q1", []string{queue}, "%s was given %q by queue %s: nobody enqueued that", worker, value, queue)
		return nil
	}
	g.Message = msg
	about := []string{queue}
	switch {
	case msg.Outcome == Refused:
		m.violate("Q1", about, "%s was given %s, and whoever enqueued it was told that it certainly was not enqueued", worker, value)
	case msg.repeated:
		m.violate("Q10", about, "%s was given %s, which was said not to be enqueued, as one with its unique key was there", worker, value)
	case msg.ID != "" && msg.ID != id:
		m.violate("Q1", about, "%s was given %s as message %s, and it is known as %s: it is there twice", worker, value, id, msg.ID)
	case q.Attempts > 0 && g.Attempt > q.Attempts:
		m.violate("Q5", about, "%s was given %s as attempt %d, and the queue allows %d", worker, value, g.Attempt, q.Attempts)
	case q.TTL > 0 && !msg.inSQL && m.isTooOld(msg, q, g):
		m.violate("QT", about, "%s asked at %v and was given %s, which was enqueued by %v with a delay of %v, and may wait %v", worker, g.Asked, value, msg.ended, msg.Delay, q.TTL)
	case msg.purged != 0 && g.Asked > msg.purged:
		m.violate("Q2", about, "%s was given %s, which had been purged by %v", worker, value, msg.purged)
	case m.paused[queue] != 0 && g.Asked > m.paused[queue]:
		m.violate("QP", about, "%s was given %s, and the queue has been paused since %v", worker, value, m.paused[queue])
	case msg.Delay > 0 && g.got+clockMargin < msg.invoked+Moment(msg.Delay):
		m.violate("Q7", about, "%s was given %s, which was enqueued at %v with a delay of %v", worker, value, msg.invoked, msg.Delay)
	}
	msg.ID = id
	if !q.Passes {
		m.judgeDead(msg, g)
	}
	record := recordOf(g.Receipt)
	for _, other := range msg.Grants[record] {
		m.judgeGrants(msg, other, g)
	}
	msg.Grants[record] = append(msg.Grants[record], g)
	return g
}

// recordOf names the record that a receipt was given for: the queue's id, a partition and an
// offset.
func recordOf(receipt string) string {
	return strings.Join(strings.SplitN(receipt, ".", 4)[:3], ".")
}

// isTooOld says that a claim asked for a message past its time to live. That time begins anew with
// a redrive.
func (m *Model) isTooOld(msg *Message, q WorkQueue, g *Grant) bool {
	from, known := m.restarted(msg)
	return known && g.Asked > from+Moment(msg.Delay+q.TTL+m.TTLMargin)+clockMargin
}

// judgeGrants compares two claims of one message.
func (m *Model) judgeGrants(msg *Message, a, b *Grant) {
	if a.Attempt > b.Attempt {
		a, b = b, a
	}
	about := []string{msg.Queue}
	if a.Attempt == b.Attempt && (a.InGo || b.InGo) {
		return // judgeAttempts judges these: an attempt that a Go worker gives back as it ends does not count
	}
	if a.Attempt == b.Attempt {
		m.violate("Q4", about, "%s was given out twice as attempt %d: to %s at %v and to %s at %v", msg.Value, a.Attempt, a.Worker, a.got, b.Worker, b.got)
		return
	}
	var end Moment // the lease of a ends no earlier, by our clock
	if a.Asked != 0 {
		end = a.Asked + Moment(a.Lease)
	}
	extended := false
	for _, said := range a.answers {
		switch {
		case said.outcome == Refused:
		case said.verb == "extend" && said.outcome == Done:
			end, extended = said.invoked+Moment(said.lease), true
		case said.verb == "extend":
			end, extended = min(end, said.invoked+Moment(said.lease)), true
		case said.inSQL && said.outcome == Done && (b.Asked <= said.ended || msg.givenBack()):
			return // the lease may have ended before the transaction did: then b was claimed, or a worker with a later claim gave the message back beside SQL
		case (said.verb == "ack" || said.verb == "reject") && said.outcome == Done:
			m.violate("Q2", about, "%s was answered for (%s) by %s as attempt %d, and %s was given it as attempt %d at %v", msg.Value, said.verb, a.Worker, a.Attempt, b.Worker, b.Attempt, b.got)
			return
		default: // a nack, or something of unknown outcome: the claim may have ended
			overtaken := said.inSQL && b.got >= end // the lease may have ended before the mover came: then the nack counts for nothing (docs/sql.md)
			if said.verb == "nack" && said.outcome == Done && !overtaken && b.Attempt == a.Attempt+1 && b.got+clockMargin < said.invoked+Moment(said.delay) {
				m.violate("Q7", about, "%s was given back by %s at %v for %v, and %s got it at %v", msg.Value, a.Worker, said.invoked, said.delay, b.Worker, b.got)
			}
			return
		}
	}
	if b.got+clockMargin < end {
		m.violate("Q3", about, "%s is %s's (attempt %d) until %v at least, and %s was given it (attempt %d) at %v", msg.Value, a.Worker, a.Attempt, end, b.Worker, b.Attempt, b.got)
	}
	granted := b.Until - b.Lease.Milliseconds() // by the store's clock, or later
	if !extended && a.Until > 0 && b.Until > 0 && granted+time.Duration(clockMargin).Milliseconds() < a.Until {
		m.violate("Q3", about, "%s is %s's (attempt %d) until %d by the store's clock, and was given to %s (attempt %d) at %d", msg.Value, a.Worker, a.Attempt, a.Until, b.Worker, b.Attempt, granted)
	}
}

// Answers notes that a worker is about to answer for a message.
func (m *Model) Answers(g *Grant, verb string, delay, lease time.Duration) *answered {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := &answered{verb: verb, delay: delay, lease: lease, invoked: m.now()}
	g.answers = append(g.answers, a)
	return a
}

// EnqueuesInSQL notes that a message is enqueued in a transaction.
func (m *Model) EnqueuesInSQL(msg *Message) {
	m.mu.Lock()
	defer m.mu.Unlock()
	msg.inSQL = true
}

// AnswersInSQL is Answers for a worker that answers in a transaction.
func (m *Model) AnswersInSQL(g *Grant, verb string, delay time.Duration) *answered {
	a := m.Answers(g, verb, delay, 0)
	m.mu.Lock()
	defer m.mu.Unlock()
	a.inSQL = true
	return a
}

// Answered tells what became of an answer. over: the worker was told that the message is done.
func (m *Model) Answered(g *Grant, a *answered, o Outcome, over bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a.outcome, a.ended = o, m.now()
	msg := g.Message
	msg.over = msg.over || over
	m.history.Add(fmt.Sprintf("%s %ss %s, attempt %d: %v, done before: %v", g.Worker, a.verb, msg.Value, g.Attempt, o, over), msg.Queue)
	if o != Done || a.inSQL {
		return
	}
	for _, later := range msg.Grants[recordOf(g.Receipt)] {
		if later.Attempt <= g.Attempt {
			continue
		}
		if later.got < a.invoked || a.verb == "ack" || a.verb == "reject" {
			m.violate("Q4", []string{msg.Queue}, "the %s of %s by %s for attempt %d, at %v, was taken, and %s was given it as attempt %d at %v", a.verb, msg.Value, g.Worker, g.Attempt, a.invoked, later.Worker, later.Attempt, later.got)
		}
	}
}

// Pauses notes that a queue is paused, and ResumesQueue that somebody is about to resume it.
func (m *Model) Pauses(queue string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.paused[queue] = m.now()
	m.history.Add("queue "+queue+" is paused", queue)
}

func (m *Model) ResumesQueue(queue string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.paused, queue)
	m.history.Add("queue "+queue+" is about to be resumed", queue)
}

// Purges notes that a purge which began at a time is over. It gave up the delayed messages, too.
func (m *Model) Purges(queue string, began Moment) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.history.Add(fmt.Sprintf("queue %s was purged from %v on", queue, began), queue)
	for _, msg := range m.queued[queue] {
		if at, known := m.restarted(msg); known && at < began && msg.purged == 0 && !msg.inSQL {
			msg.purged = m.now()
		}
	}
}

// Remakes notes that a queue is about to be made anew: it begins with the oldest message that its
// topic has.
func (m *Model) Remakes(queue string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, msg := range m.queued[queue] {
		msg.purged = 0
	}
}

// settled says that a message is acknowledged or dead, as far as its clients know. A transaction of
// unknown outcome was committed if its result is there. m.mu is held.
func (m *Model) settled(msg *Message) bool {
	if msg.allDead() || msg.over && msg.copies <= 1 {
		return true
	}
	for _, grants := range msg.Grants {
		for _, g := range grants {
			for _, a := range g.answers {
				if a.verb == "ack" && (a.outcome == Done || a.outcome == Unknown && (!a.inSQL || m.wrote[g.Receipt] > 0)) {
					return true
				}
			}
		}
	}
	return false
}

// givenBack says that somebody gave the message back, or rejected it, beside SQL: then an ack that
// was committed may not hold.
func (msg *Message) givenBack() bool {
	for _, grants := range msg.Grants {
		for _, g := range grants {
			for _, a := range g.answers {
				if (a.verb == "nack" || a.verb == "reject") && !a.inSQL && a.outcome != Refused {
					return true
				}
			}
		}
	}
	return false
}

// Unsettled lists messages that certainly were enqueued and are neither acknowledged nor dead.
func (m *Model) Unsettled(queue string) (list []*Message) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, msg := range m.queued[queue] {
		if msg.Outcome == Done && !msg.repeated && !m.settled(msg) {
			list = append(list, msg)
		}
	}
	return list
}

// JudgeQueue compares the dead letters that a queue has at the end with what clients were told, and
// judges order by key and unique keys.
func (m *Model) JudgeQueue(q WorkQueue) {
	m.mu.Lock()
	defer m.mu.Unlock()
	queue := q.Name
	for _, msg := range m.queued[queue] {
		at, acked := msg.finishedAt()
		switch {
		case msg.dead > 1:
			m.violate("Q5", []string{queue}, "there are %d dead letters of %s", msg.dead, msg.Value)
		case msg.dead > 0 && acked:
			m.violate("Q1", []string{queue}, "%s was acknowledged at %v, and there is a dead letter of it", msg.Value, at)
		case msg.dead > 0 && msg.repeated:
			m.violate("Q10", []string{queue}, "there is a dead letter of %s, which was said not to be enqueued", msg.Value)
		}
	}
	if q.Ordered {
		m.judgeKeys(queue)
	}
	if q.Limit > 0 {
		m.judgeLimit(q)
	}
	m.judgeAttempts(queue)
	m.judgeLetters(queue)
	m.judgeResults(queue)
	m.judgeUnique(queue)
}

// judgeAttempts is Q4 for messages that a Go worker had. An attempt that the worker gives back as
// it ends may not count, and the model hears late of that.
func (m *Model) judgeAttempts(queue string) {
	for _, msg := range m.queued[queue] {
		for _, grants := range msg.Grants {
			had := map[int]*Grant{}
			for _, g := range grants {
				other := had[g.Attempt]
				had[g.Attempt] = g
				if other != nil && (other.InGo || g.InGo) && !other.nacksInGo() && !g.nacksInGo() {
					m.violate("Q4", []string{queue}, "%s was given out twice as attempt %d: to %s at %v and to %s at %v", msg.Value, g.Attempt, other.Worker, other.got, g.Worker, g.got)
				}
			}
		}
	}
}

func (g *Grant) nacksInGo() bool {
	return g.InGo && slices.ContainsFunc(g.answers, func(a *answered) bool { return a.verb == "nack" })
}

// judgeKeys is Q9: a message is not given out while an older one of its key is not done. Its queue
// tries for ever, so that only an ack ends a message.
func (m *Model) judgeKeys(queue string) {
	byKey := map[string][]*Message{}
	for _, msg := range m.queued[queue] {
		if msg.Key != "" {
			byKey[msg.Key] = append(byKey[msg.Key], msg)
		}
	}
	for key, list := range byKey {
		for i, older := range list {
			ack, is := older.firstAck()
			for _, younger := range list[i+1:] {
				if older.Outcome != Done || older.ended >= younger.invoked {
					continue
				}
				for _, grants := range younger.Grants {
					for _, g := range grants {
						if !is || g.got < ack {
							m.violate("Q9", []string{queue}, "%s was given %s of key %q at %v, and %s, which was enqueued before it, was not acknowledged by anybody until then", g.Worker, younger.Value, key, g.got, older.Value)
							return
						}
					}
				}
			}
		}
	}
}

// judgeLimit sees that no more messages were claimed at a time than the queue allows. A claim
// certainly was there from its answer until its lease ended, or somebody first answered for it; a
// transaction of whoever had the message before may end it, too.
func (m *Model) judgeLimit(q WorkQueue) {
	type change struct {
		at Moment
		by int
	}
	var changes []change
	for _, msg := range m.queued[q.Name] {
		for _, grants := range msg.Grants {
			for _, g := range grants {
				end := g.Asked + Moment(g.Lease)
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
		if held += c.by; held > q.Limit {
			m.violate("QL", []string{q.Name}, "at %v %d messages of %s were claimed, and its limit is %d", c.at, held, q.Name, q.Limit)
			return
		}
	}
}

// Result is what a worker wrote in the transaction that acknowledged a message.
type Result struct{ Value, Receipt string }

// Works notes all results that there were at a time.
func (m *Model) Works(asked Moment, list []Result) {
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

// judgeResults is QA: a transaction that acknowledged has its result if it was committed, and a
// message has one. m.mu is held.
func (m *Model) judgeResults(queue string) {
	about := []string{queue}
	for _, msg := range m.queued[queue] {
		switch {
		case msg.results > 1 && !msg.givenBack():
			m.violate("QA", about, "%s has %d results, of transactions that acknowledged it", msg.Value, msg.results)
		case msg.results > 0 && msg.allDead() && !msg.givenBack():
			m.violate("Q1", about, "%s was acknowledged in a transaction that was committed, and became a dead letter", msg.Value)
		}
		for _, grants := range msg.Grants {
			for _, g := range grants {
				for _, a := range g.answers {
					if a.verb != "ack" || !a.inSQL {
						continue
					}
					if n := m.wrote[g.Receipt]; n > 1 || n > 0 && a.outcome == Refused || n == 0 && a.outcome == Done && a.ended < m.wroteAt {
						m.violate("QA", about, "%s wrote %d results of %s, attempt %d, in a transaction that acknowledged it: %v", g.Worker, n, msg.Value, g.Attempt, a.outcome)
					}
				}
			}
		}
	}
}

// firstAck is when somebody first asked to acknowledge a message, with any outcome but a refusal.
func (msg *Message) firstAck() (first Moment, is bool) {
	for _, grants := range msg.Grants {
		for _, g := range grants {
			for _, a := range g.answers {
				if a.verb != "extend" && a.verb != "nack" && a.outcome != Refused && (!is || a.invoked < first) {
					first, is = a.invoked, true
				}
			}
		}
	}
	return first, is
}

// judgeUnique is Q10: while a message is not done, no other of its unique key is enqueued.
func (m *Model) judgeUnique(queue string) {
	byKey := map[string][]*Message{}
	for _, msg := range m.queued[queue] {
		if msg.Unique != "" && msg.Outcome == Done && !msg.repeated {
			byKey[msg.Unique] = append(byKey[msg.Unique], msg)
		}
	}
	for key, list := range byKey {
		for i, older := range list {
			ack, is := older.firstAck()
			for _, younger := range list[i+1:] {
				if older.died == 0 && older.ended < younger.invoked && (!is || ack > younger.ended) {
					m.violate("Q10", []string{queue}, "%s and %s were both enqueued with the unique key %q, and nobody had acknowledged the first one", older.Value, younger.Value, key)
					return
				}
			}
		}
	}
}

// WorkQueue is a queue, by what is done to it.
type WorkQueue struct {
	Name     string
	Settings map[string]any
	Attempts int // 0: for ever
	Levels   int // of priority; 0: one
	Limit    int // claims at a time; 0: any number
	TTL      time.Duration
	Ordered  bool // messages have keys, and come in their order
	Unique   bool // messages have unique keys
	Goes     bool // Go workers work it, too
	Fails    bool // most of its messages are rejected
	Passes   bool // it is purged, deleted and made anew
}

// AnsweredInGo notes that a handler is about to answer for a message; whether that is taken is not
// known, nor when. Of a transaction it tells twice: before it, and what became of it.
func (m *Model) AnsweredInGo(j *Job, o Outcome) {
	m.mu.Lock()
	defer m.mu.Unlock()
	msg := m.messages[j.Value]
	if msg == nil {
		return
	}
	m.history.Add(fmt.Sprintf("a Go worker is about to %s %s, attempt %d, in a transaction: %v %v", j.Answer, j.Value, j.Attempt, j.InTx, o), j.Queue)
	for _, g := range msg.Grants[recordOf(j.Receipt)] {
		switch {
		case g.Receipt != j.Receipt:
		case j.InTx && o != Pending:
			last := g.answers[len(g.answers)-1]
			last.outcome, last.ended = o, m.now()
		default:
			g.answers = append(g.answers, &answered{verb: j.Answer, outcome: Unknown, inSQL: j.InTx})
		}
	}
}
