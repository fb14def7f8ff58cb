package judge

import (
	"testing"
	"time"
)

func TestTheModelFindsWhatAQueueDoesWrongAndNothingElse(t *testing.T) {
	const s = Moment(time.Second)
	enqueue := func(r *rig, unique, key string, o Outcome) *Message {
		msg := r.m.Enqueues("q", "e", key, unique, 0)
		r.m.Enqueued(msg, o, "1-0", false)
		msg.ID = ""
		return msg
	}
	claim := func(r *rig, msg *Message, attempt int, receipt string) *Grant {
		asked := r.m.now()
		return r.m.Grants(WorkQueue{Name: "q", Attempts: 3, TTL: time.Minute, Limit: 1}, "w", &Grant{Attempt: attempt, Receipt: "life.1.0." + receipt, Asked: asked, Lease: time.Second}, msg.Value, "1-0")
	}
	answer := func(r *rig, g *Grant, verb string, o Outcome) {
		a := r.m.Answers(g, verb, 0, time.Second)
		r.m.Answered(g, a, o, false)
	}
	// inSQL acknowledges in a transaction that is open past the lease, and claims the message again
	// some time after that one was over.
	inSQL := func(r *rig, later Moment) {
		msg := enqueue(r, "", "", Done)
		g := claim(r, msg, 1, "a")
		a := r.m.Answers(g, "ack", 0, 0)
		a.inSQL = true
		r.at += later
		if later > 2*s {
			r.m.Answered(g, a, Done, false)
		}
		r.at += s
		claim(r, msg, 2, "b")
		if later <= 2*s {
			r.m.Answered(g, a, Done, false)
		}
	}
	// nackFor gives a message back for a while, and claims it again after a shorter one.
	nackFor := func(r *rig, delay, after Moment, inSQL bool) {
		msg := enqueue(r, "", "", Done)
		g := claim(r, msg, 1, "a")
		a := r.m.Answers(g, "nack", time.Duration(delay), 0)
		a.inSQL = inSQL
		r.m.Answered(g, a, Done, false)
		r.at += after
		claim(r, msg, 2, "b")
	}
	for name, c := range map[string]struct {
		do    func(*rig)
		finds []string
	}{
		"all is well": {do: func(r *rig) {
			msg := enqueue(r, "", "", Done)
			g := claim(r, msg, 1, "a")
			answer(r, g, "nack", Done)
			g = claim(r, msg, 2, "b")
			r.at += 2 * s
			h := claim(r, msg, 3, "c") // the lease was over
			answer(r, g, "ack", Refused)
			answer(r, h, "ack", Done)
			r.m.JudgeQueue(WorkQueue{Name: "q", Ordered: true, Attempts: 3})
		}},
		"nobody enqueued it":   {finds: []string{"Q1"}, do: func(r *rig) { claim(r, &Message{Value: "?"}, 1, "a") }},
		"it was certainly not": {finds: []string{"Q1"}, do: func(r *rig) { claim(r, enqueue(r, "", "", Refused), 1, "a") }},
		"it is too old": {finds: []string{"QT"}, do: func(r *rig) {
			msg := enqueue(r, "", "", Done)
			r.at += 64 * s
			claim(r, msg, 1, "a")
		}},
		"more are claimed than the queue allows": {finds: []string{"QL"}, do: func(r *rig) {
			claim(r, enqueue(r, "", "", Done), 1, "a")
			claim(r, enqueue(r, "", "", Done), 1, "b")
			r.m.JudgeQueue(WorkQueue{Name: "q", Limit: 1})
		}},
		"an answer makes room for another claim": {do: func(r *rig) {
			answer(r, claim(r, enqueue(r, "", "", Done), 1, "a"), "nack", Done)
			r.at += s / 10
			claim(r, enqueue(r, "", "", Done), 1, "b")
			r.m.JudgeQueue(WorkQueue{Name: "q", Limit: 1})
		}},
		"a transaction of an earlier claim makes room for another": {do: func(r *rig) {
			msg := enqueue(r, "", "", Done)
			r.m.Answers(claim(r, msg, 1, "a"), "ack", 0, 0).inSQL = true
			r.at += 2 * s
			claim(r, msg, 2, "b")
			claim(r, enqueue(r, "", "", Done), 1, "c")
			r.m.JudgeQueue(WorkQueue{Name: "q", Limit: 1})
		}},
		"an ack commits after the lease":            {do: func(r *rig) { inSQL(r, s/2) }},
		"it comes back after an ack that committed": {finds: []string{"Q2"}, do: func(r *rig) { inSQL(r, 3*s) }},
		"it comes back after an ack": {finds: []string{"Q2"}, do: func(r *rig) {
			msg := enqueue(r, "", "", Done)
			answer(r, claim(r, msg, 1, "a"), "ack", Done)
			claim(r, msg, 2, "b")
		}},
		"an ack of unknown outcome": {do: func(r *rig) {
			msg := enqueue(r, "", "", Done)
			answer(r, claim(r, msg, 1, "a"), "ack", Unknown)
			claim(r, msg, 2, "b")
		}},
		"two live claims": {finds: []string{"Q3"}, do: func(r *rig) { msg := enqueue(r, "", "", Done); claim(r, msg, 1, "a"); claim(r, msg, 2, "b") }},
		"an extended claim is another": {finds: []string{"Q3"}, do: func(r *rig) {
			msg := enqueue(r, "", "", Done)
			g := claim(r, msg, 1, "a")
			r.at += s
			answer(r, g, "extend", Done)
			r.at += s / 2
			claim(r, msg, 2, "b")
		}},
		"one attempt twice": {finds: []string{"Q4"}, do: func(r *rig) {
			msg := enqueue(r, "", "", Done)
			claim(r, msg, 1, "a")
			r.at += 2 * s
			claim(r, msg, 1, "b")
		}},
		"a stale receipt is taken": {finds: []string{"Q4"}, do: func(r *rig) {
			msg := enqueue(r, "", "", Done)
			g := claim(r, msg, 1, "a")
			r.at += 2 * s
			claim(r, msg, 2, "b")
			answer(r, g, "nack", Done)
		}},
		"too many attempts":          {finds: []string{"Q5"}, do: func(r *rig) { claim(r, enqueue(r, "", "", Done), 4, "a") }},
		"before its time":            {finds: []string{"Q7"}, do: func(r *rig) { claim(r, r.m.Enqueues("q", "e", "", "", 5*time.Second), 1, "a") }},
		"before the delay of a nack": {finds: []string{"Q7"}, do: func(r *rig) { nackFor(r, 5*s, s/2, false) }},
		"before the delay of a nack with SQL, while the lease lasts": {finds: []string{"Q7"}, do: func(r *rig) { nackFor(r, 5*s, s/2, true) }},
		"a nack with SQL that the end of the lease overtook":         {do: func(r *rig) { nackFor(r, 5*s, 2*s, true) }},
		"a younger message of its key": {finds: []string{"Q9"}, do: func(r *rig) {
			enqueue(r, "", "k", Done)
			claim(r, enqueue(r, "", "k", Done), 1, "a")
			r.m.JudgeQueue(WorkQueue{Name: "q", Ordered: true, Attempts: 3})
		}},
		"a second message of its unique key": {finds: []string{"Q10"}, do: func(r *rig) {
			enqueue(r, "u", "", Done)
			enqueue(r, "u", "", Done)
			r.m.JudgeQueue(WorkQueue{Name: "q", Attempts: 3})
		}},
		"a repetition of what was done": {finds: []string{"Q10"}, do: func(r *rig) {
			msg := enqueue(r, "u", "", Done)
			answer(r, claim(r, msg, 1, "a"), "ack", Done)
			r.m.Enqueued(r.m.Enqueues("q", "e", "", "u", 0), Done, "1-0", true)
		}},
		"a paused queue": {finds: []string{"QP"}, do: func(r *rig) { msg := enqueue(r, "", "", Done); r.m.Pauses("q"); claim(r, msg, 1, "a") }},
		"a purged message": {finds: []string{"Q2"}, do: func(r *rig) {
			msg := enqueue(r, "", "", Done)
			r.m.Purges("q", r.m.now())
			claim(r, msg, 1, "a")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			c.do(r)
			r.broke(c.finds...)
		})
	}
}
