package main

import (
	"testing"
	"time"
)

func TestAMessageIsSettledOnceItIsAcknowledgedOrDeadForGood(t *testing.T) {
	for name, c := range map[string]struct {
		do     func(*model, *grant)
		copies int
		died   int
		want   bool
	}{
		"nobody answered":        {do: func(*model, *grant) {}, copies: 1},
		"acknowledged":           {do: func(m *model, g *grant) { m.answered(g, m.answers(g, "ack", 0, 0), done, false) }, copies: 1, want: true},
		"refused":                {do: func(m *model, g *grant) { m.answered(g, m.answers(g, "ack", 0, 0), refused, false) }, copies: 1},
		"rejected":               {do: func(m *model, g *grant) { m.answered(g, m.answers(g, "reject", 0, 0), done, false) }, copies: 1, died: 1, want: true},
		"rejected and redriven":  {do: func(m *model, g *grant) { m.answered(g, m.answers(g, "reject", 0, 0), done, true) }, copies: 2, died: 1},
		"a transaction, unknown": {do: func(m *model, g *grant) { m.answers(g, "ack", 0, 0).inSQL = true; g.answers[0].outcome = unknown }, copies: 1},
		"and its result is there": {do: func(m *model, g *grant) {
			m.answers(g, "ack", 0, 0).inSQL = true
			g.answers[0].outcome = unknown
			m.wrote[g.receipt] = 1
		}, copies: 1, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			msg := r.m.enqueues("q", "e", "", "", 0)
			r.m.enqueued(msg, done, "1-0", false)
			c.do(r.m, r.m.grants(workQueue{name: "q"}, "w", &grant{attempt: 1, receipt: "life.1.0.1.a"}, msg.value, "1-0"))
			msg.copies, msg.died = c.copies, c.died
			if got := len(r.m.unsettled("q")) == 0; got != c.want {
				t.Errorf("settled: %v, want %v", got, c.want)
			}
			r.broke()
		})
	}
}

func TestTheModelFindsWhatIsWrongWithDeadLettersAndResults(t *testing.T) {
	const s = moment(time.Second)
	q := workQueue{name: "q", attempts: 3, ttl: 10 * time.Second}
	enqueue := func(r *rig) *message {
		msg := r.m.enqueues("q", "e", "", "u", 0)
		r.m.enqueued(msg, done, "1-0", false)
		return msg
	}
	claim := func(r *rig, msg *message, attempt int, receipt string) *grant {
		return r.m.grants(q, "w", &grant{attempt: attempt, receipt: "life.1." + receipt, asked: r.m.now(), lease: time.Second}, msg.value, "1-0")
	}
	answer := func(r *rig, g *grant, verb string, o outcome) { r.m.answered(g, r.m.answers(g, verb, 0, 0), o, false) }
	list := func(r *rig, msg *message, letter string) {
		r.m.lists(q, r.m.now(), []seenLetter{{Letter: letter, ID: "1-0", Value: msg.value}})
	}
	// die makes a message a dead letter.
	die := func(r *rig, msg *message, receipt, letter string) {
		answer(r, claim(r, msg, 1, receipt), "reject", done)
		list(r, msg, letter)
	}
	take := func(r *rig, verb string, o outcome, n int, letters ...string) {
		r.m.taken(q, r.m.takes(q, verb, letters), o, n, true, nil)
	}
	finish := func(r *rig, msg *message, copies, died, left int) {
		var list []seenLetter
		for range left {
			list = append(list, seenLetter{Value: msg.value})
		}
		r.m.counts(q, list, map[string]int{msg.value: died}, map[string]int{msg.value: copies})
		r.m.judgeQueue(q)
	}
	// inTx acknowledges in a Go handler's transaction.
	inTx := func(r *rig, msg *message, attempt int, receipt string, o outcome) {
		g := claim(r, msg, attempt, receipt)
		j := &job{Queue: "q", Value: msg.value, Attempt: attempt, Answer: "ack", InTx: true, Receipt: g.receipt}
		g.inGo = true
		r.m.answeredInGo(j, pending)
		if o != pending {
			r.m.answeredInGo(j, o)
		}
	}
	wrote := func(r *rig, msg *message, receipts ...string) {
		var list []result
		for _, receipt := range receipts {
			list = append(list, result{msg.value, "life.1." + receipt})
		}
		r.m.works(r.m.now(), list)
		r.m.judgeQueue(q)
	}
	for name, c := range map[string]struct {
		do    func(*rig, *message)
		finds []string
	}{
		"all is well": {do: func(r *rig, msg *message) {
			die(r, msg, "0.1.a", "9-0")
			r.at += 20 * s // its time to live begins anew
			take(r, "redrive", done, 1, "9-0")
			answer(r, claim(r, msg, 1, "7.1.b"), "nack", done)
			answer(r, claim(r, msg, 2, "7.2.c"), "reject", done)
			list(r, msg, "9-1")
			take(r, "redrive", refused, 0, "9-1", "9-0")
			take(r, "discard", done, 1, "9-1")
			finish(r, msg, 2, 2, 0)
		}},
		"a redrive of unknown outcome, which happened": {do: func(r *rig, msg *message) {
			die(r, msg, "0.1.a", "9-0")
			take(r, "redrive", unknown, 0, "9-0")
			answer(r, claim(r, msg, 1, "7.1.b"), "ack", done)
			finish(r, msg, 2, 1, 0)
		}},
		"a redrive of unknown outcome, which did not": {do: func(r *rig, msg *message) {
			die(r, msg, "0.1.a", "9-0")
			take(r, "redrive", unknown, 0, "9-0")
			list(r, msg, "9-0")
			finish(r, msg, 1, 1, 1)
		}},
		"both redrive it, and one does": {do: func(r *rig, msg *message) {
			die(r, msg, "0.1.a", "9-0")
			one, other := r.m.takes(q, "redrive", []string{"9-0"}), r.m.takes(q, "redrive", []string{"9-0"})
			r.m.taken(q, one, done, 1, true, nil)
			r.m.taken(q, other, done, 0, true, nil)
			finish(r, msg, 2, 1, 0)
		}},
		"a broker does not know of all letters yet": {do: func(r *rig, msg *message) {
			die(r, msg, "0.1.a", "9-0")
			other := enqueue(r)
			list(r, other, "9-1")
			take(r, "redrive", done, 1, "9-0", "9-1")
			list(r, msg, "9-0")
		}},
		"all are redriven": {do: func(r *rig, msg *message) {
			die(r, msg, "0.1.a", "9-0")
			take(r, "redrive", done, 1)
			claim(r, msg, 1, "7.1.b")
			finish(r, msg, 2, 1, 0)
		}},
		"both redrive it, and both do": {finds: []string{"QR"}, do: func(r *rig, msg *message) {
			die(r, msg, "0.1.a", "9-0")
			one, other := r.m.takes(q, "redrive", []string{"9-0"}), r.m.takes(q, "redrive", []string{"9-0"})
			r.m.taken(q, one, done, 1, true, nil)
			r.m.taken(q, other, done, 1, true, nil)
		}},
		"more are taken than were named": {finds: []string{"QR"}, do: func(r *rig, msg *message) {
			die(r, msg, "0.1.a", "9-0")
			take(r, "redrive", done, 2, "9-0")
		}},
		"a redriven letter is there": {finds: []string{"QR"}, do: func(r *rig, msg *message) {
			die(r, msg, "0.1.a", "9-0")
			take(r, "redrive", done, 1, "9-0")
			list(r, msg, "9-0")
		}},
		"a discarded one comes back": {finds: []string{"QR"}, do: func(r *rig, msg *message) {
			die(r, msg, "0.1.a", "9-0")
			take(r, "discard", done, 1, "9-0")
			claim(r, msg, 1, "7.1.b")
		}},
		"a dead message is given out": {finds: []string{"QR"}, do: func(r *rig, msg *message) {
			list(r, msg, "9-0")
			claim(r, msg, 1, "0.1.a")
		}},
		"and it was redriven, but died again": {finds: []string{"QR"}, do: func(r *rig, msg *message) {
			die(r, msg, "0.1.a", "9-0")
			take(r, "redrive", done, 1, "9-0")
			list(r, msg, "9-1")
			claim(r, msg, 1, "7.1.b")
		}},
		"redriven once, and given out as two": {finds: []string{"QR"}, do: func(r *rig, msg *message) {
			die(r, msg, "0.1.a", "9-0")
			take(r, "redrive", unknown, 0, "9-0")
			claim(r, msg, 1, "7.1.b")
			claim(r, msg, 1, "8.1.c")
		}},
		"redriven once, and there as two": {finds: []string{"QR"}, do: func(r *rig, msg *message) {
			die(r, msg, "0.1.a", "9-0")
			take(r, "redrive", done, 1, "9-0")
			finish(r, msg, 3, 1, 0)
		}},
		"redriven, and a letter as well": {finds: []string{"QR"}, do: func(r *rig, msg *message) {
			die(r, msg, "0.1.a", "9-0")
			take(r, "redrive", unknown, 0, "9-0")
			finish(r, msg, 2, 1, 1)
		}},
		"redriven, and lost": {finds: []string{"QR"}, do: func(r *rig, msg *message) {
			die(r, msg, "0.1.a", "9-0")
			take(r, "redrive", done, 1, "9-0")
			finish(r, msg, 1, 1, 0)
		}},
		"two letters of one message": {finds: []string{"Q5"}, do: func(r *rig, msg *message) { finish(r, msg, 1, 2, 1) }},
		"a sweep counts what another took": {finds: []string{"QR"}, do: func(r *rig, msg *message) {
			die(r, msg, "0.1.a", "9-0")
			take(r, "redrive", done, 1)
			take(r, "redrive", done, 1)
			finish(r, msg, 2, 1, 0)
		}},
		"a letter of an acknowledged message": {finds: []string{"Q1"}, do: func(r *rig, msg *message) {
			answer(r, claim(r, msg, 1, "0.1.a"), "ack", done)
			list(r, msg, "9-0")
		}},
		"a letter of another id": {finds: []string{"Q1"}, do: func(r *rig, msg *message) {
			r.m.lists(q, r.m.now(), []seenLetter{{Letter: "9-0", ID: "1-1", Value: msg.value}})
		}},
		"a repetition of a dead letter": {finds: []string{"Q10"}, do: func(r *rig, msg *message) {
			die(r, msg, "0.1.a", "9-0")
			take(r, "redrive", done, 1, "9-0")
			r.m.enqueued(r.m.enqueues("q", "e", "", "u", 0), done, "1-0", true)
		}},
		"a redriven message is too old": {finds: []string{"QT"}, do: func(r *rig, msg *message) {
			die(r, msg, "0.1.a", "9-0")
			take(r, "redrive", done, 1, "9-0")
			r.at += 14 * s
			claim(r, msg, 1, "7.1.b")
		}},
		"a result of each": {do: func(r *rig, msg *message) {
			inTx(r, msg, 1, "0.1.a", refused)
			r.at += 2 * s
			inTx(r, msg, 2, "0.2.b", unknown)
			r.at += 2 * s
			inTx(r, msg, 3, "0.3.c", done)
			wrote(r, msg, "0.3.c")
		}},
		"a result of a transaction that was rolled back": {finds: []string{"QA"}, do: func(r *rig, msg *message) {
			inTx(r, msg, 1, "0.1.a", refused)
			wrote(r, msg, "0.1.a")
		}},
		"no result of one that was committed": {finds: []string{"QA"}, do: func(r *rig, msg *message) {
			inTx(r, msg, 1, "0.1.a", done)
			wrote(r, msg)
		}},
		"two results of one message": {finds: []string{"QA"}, do: func(r *rig, msg *message) {
			inTx(r, msg, 1, "0.1.a", pending)
			r.at += 2 * s
			inTx(r, msg, 2, "0.2.b", done)
			wrote(r, msg, "0.1.a", "0.2.b")
		}},
		"it comes back after the commit was known": {finds: []string{"Q2"}, do: func(r *rig, msg *message) {
			inTx(r, msg, 1, "0.1.a", done)
			r.at += 2 * s
			claim(r, msg, 2, "0.2.b")
		}},
		"it comes back after the rollback": {do: func(r *rig, msg *message) {
			inTx(r, msg, 1, "0.1.a", refused)
			r.at += 2 * s
			claim(r, msg, 2, "0.2.b")
		}},
		"one that a Go worker gave back": {do: func(r *rig, msg *message) {
			g := claim(r, msg, 1, "0.1.a")
			g.inGo = true
			claim(r, msg, 1, "0.1.b")
			r.m.answeredInGo(&job{Queue: "q", Value: msg.value, Answer: "nack", Receipt: g.receipt}, pending)
			r.m.judgeQueue(q)
		}},
		"one that it did not": {finds: []string{"Q4"}, do: func(r *rig, msg *message) {
			claim(r, msg, 1, "0.1.a").inGo = true
			claim(r, msg, 1, "0.1.b")
			r.m.judgeQueue(q)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			c.do(r, enqueue(r))
			r.broke(c.finds...)
		})
	}
}
