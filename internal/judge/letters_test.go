package judge

import (
	"testing"
	"time"
)

func TestAMessageIsSettledOnceItIsAcknowledgedOrDeadForGood(t *testing.T) {
	for name, c := range map[string]struct {
		do     func(*Model, *Grant)
		copies int
		died   int
		want   bool
	}{
		"nobody answered":        {do: func(*Model, *Grant) {}, copies: 1},
		"acknowledged":           {do: func(m *Model, g *Grant) { m.Answered(g, m.Answers(g, "ack", 0, 0), Done, false) }, copies: 1, want: true},
		"refused":                {do: func(m *Model, g *Grant) { m.Answered(g, m.Answers(g, "ack", 0, 0), Refused, false) }, copies: 1},
		"rejected":               {do: func(m *Model, g *Grant) { m.Answered(g, m.Answers(g, "reject", 0, 0), Done, false) }, copies: 1, died: 1, want: true},
		"rejected and redriven":  {do: func(m *Model, g *Grant) { m.Answered(g, m.Answers(g, "reject", 0, 0), Done, true) }, copies: 2, died: 1},
		"a transaction, unknown": {do: func(m *Model, g *Grant) { m.Answers(g, "ack", 0, 0).inSQL = true; g.answers[0].outcome = Unknown }, copies: 1},
		"and its result is there": {do: func(m *Model, g *Grant) {
			m.Answers(g, "ack", 0, 0).inSQL = true
			g.answers[0].outcome = Unknown
			m.wrote[g.Receipt] = 1
		}, copies: 1, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			msg := r.m.Enqueues("q", "e", "", "", 0)
			r.m.Enqueued(msg, Done, "1-0", false)
			c.do(r.m, r.m.Grants(WorkQueue{Name: "q"}, "w", &Grant{Attempt: 1, Receipt: "life.1.0.1.a"}, msg.Value, "1-0"))
			msg.copies, msg.died = c.copies, c.died
			if got := len(r.m.Unsettled("q")) == 0; got != c.want {
				t.Errorf("settled: %v, want %v", got, c.want)
			}
			r.broke()
		})
	}
}

func TestTheModelFindsWhatIsWrongWithDeadLettersAndResults(t *testing.T) {
	const s = Moment(time.Second)
	q := WorkQueue{Name: "q", Attempts: 3, TTL: 10 * time.Second}
	enqueue := func(r *rig) *Message {
		msg := r.m.Enqueues("q", "e", "", "u", 0)
		r.m.Enqueued(msg, Done, "1-0", false)
		return msg
	}
	claim := func(r *rig, msg *Message, attempt int, receipt string) *Grant {
		return r.m.Grants(q, "w", &Grant{Attempt: attempt, Receipt: "life.1." + receipt, Asked: r.m.now(), Lease: time.Second}, msg.Value, "1-0")
	}
	answer := func(r *rig, g *Grant, verb string, o Outcome) { r.m.Answered(g, r.m.Answers(g, verb, 0, 0), o, false) }
	list := func(r *rig, msg *Message, letter string) {
		r.m.Lists(q, r.m.now(), []SeenLetter{{Letter: letter, ID: "1-0", Value: msg.Value}})
	}
	// die makes a message a dead letter.
	die := func(r *rig, msg *Message, receipt, letter string) {
		answer(r, claim(r, msg, 1, receipt), "reject", Done)
		list(r, msg, letter)
	}
	take := func(r *rig, verb string, o Outcome, n int, letters ...string) {
		r.m.Taken(q, r.m.Takes(q, verb, letters), o, n, true, nil)
	}
	finish := func(r *rig, msg *Message, copies, died, left int) {
		var list []SeenLetter
		for range left {
			list = append(list, SeenLetter{Value: msg.Value})
		}
		r.m.Counts(q, list, map[string]int{msg.Value: died}, map[string]int{msg.Value: copies})
		r.m.JudgeQueue(q)
	}
	// inTx acknowledges in a Go handler's transaction.
	inTx := func(r *rig, msg *Message, attempt int, receipt string, o Outcome) {
		g := claim(r, msg, attempt, receipt)
		j := &Job{Queue: "q", Value: msg.Value, Attempt: attempt, Answer: "ack", InTx: true, Receipt: g.Receipt}
		g.InGo = true
		r.m.AnsweredInGo(j, Pending)
		if o != Pending {
			r.m.AnsweredInGo(j, o)
		}
	}
	wrote := func(r *rig, msg *Message, receipts ...string) {
		var list []Result
		for _, receipt := range receipts {
			list = append(list, Result{msg.Value, "life.1." + receipt})
		}
		r.m.Works(r.m.now(), list)
		r.m.JudgeQueue(q)
	}
	for name, c := range map[string]struct {
		do    func(*rig, *Message)
		finds []string
	}{
		"all is well": {do: func(r *rig, msg *Message) {
			die(r, msg, "0.1.a", "9-0")
			r.at += 20 * s // its time to live begins anew
			take(r, "redrive", Done, 1, "9-0")
			answer(r, claim(r, msg, 1, "7.1.b"), "nack", Done)
			answer(r, claim(r, msg, 2, "7.2.c"), "reject", Done)
			list(r, msg, "9-1")
			take(r, "redrive", Refused, 0, "9-1", "9-0")
			take(r, "discard", Done, 1, "9-1")
			finish(r, msg, 2, 2, 0)
		}},
		"a redrive of unknown outcome, which happened": {do: func(r *rig, msg *Message) {
			die(r, msg, "0.1.a", "9-0")
			take(r, "redrive", Unknown, 0, "9-0")
			answer(r, claim(r, msg, 1, "7.1.b"), "ack", Done)
			finish(r, msg, 2, 1, 0)
		}},
		"a redrive of unknown outcome, which did not": {do: func(r *rig, msg *Message) {
			die(r, msg, "0.1.a", "9-0")
			take(r, "redrive", Unknown, 0, "9-0")
			list(r, msg, "9-0")
			finish(r, msg, 1, 1, 1)
		}},
		"both redrive it, and one does": {do: func(r *rig, msg *Message) {
			die(r, msg, "0.1.a", "9-0")
			one, other := r.m.Takes(q, "redrive", []string{"9-0"}), r.m.Takes(q, "redrive", []string{"9-0"})
			r.m.Taken(q, one, Done, 1, true, nil)
			r.m.Taken(q, other, Done, 0, true, nil)
			finish(r, msg, 2, 1, 0)
		}},
		"a broker does not know of all letters yet": {do: func(r *rig, msg *Message) {
			die(r, msg, "0.1.a", "9-0")
			other := enqueue(r)
			list(r, other, "9-1")
			take(r, "redrive", Done, 1, "9-0", "9-1")
			list(r, msg, "9-0")
		}},
		"all are redriven": {do: func(r *rig, msg *Message) {
			die(r, msg, "0.1.a", "9-0")
			take(r, "redrive", Done, 1)
			claim(r, msg, 1, "7.1.b")
			finish(r, msg, 2, 1, 0)
		}},
		"both redrive it, and both do": {finds: []string{"QR"}, do: func(r *rig, msg *Message) {
			die(r, msg, "0.1.a", "9-0")
			one, other := r.m.Takes(q, "redrive", []string{"9-0"}), r.m.Takes(q, "redrive", []string{"9-0"})
			r.m.Taken(q, one, Done, 1, true, nil)
			r.m.Taken(q, other, Done, 1, true, nil)
		}},
		"more are taken than were named": {finds: []string{"QR"}, do: func(r *rig, msg *Message) {
			die(r, msg, "0.1.a", "9-0")
			take(r, "redrive", Done, 2, "9-0")
		}},
		"a redriven letter is there": {finds: []string{"QR"}, do: func(r *rig, msg *Message) {
			die(r, msg, "0.1.a", "9-0")
			take(r, "redrive", Done, 1, "9-0")
			list(r, msg, "9-0")
		}},
		"a discarded one comes back": {finds: []string{"QR"}, do: func(r *rig, msg *Message) {
			die(r, msg, "0.1.a", "9-0")
			take(r, "discard", Done, 1, "9-0")
			claim(r, msg, 1, "7.1.b")
		}},
		"a dead message is given out": {finds: []string{"QR"}, do: func(r *rig, msg *Message) {
			list(r, msg, "9-0")
			claim(r, msg, 1, "0.1.a")
		}},
		"and it was redriven, but died again": {finds: []string{"QR"}, do: func(r *rig, msg *Message) {
			die(r, msg, "0.1.a", "9-0")
			take(r, "redrive", Done, 1, "9-0")
			list(r, msg, "9-1")
			claim(r, msg, 1, "7.1.b")
		}},
		"redriven once, and given out as two": {finds: []string{"QR"}, do: func(r *rig, msg *Message) {
			die(r, msg, "0.1.a", "9-0")
			take(r, "redrive", Unknown, 0, "9-0")
			claim(r, msg, 1, "7.1.b")
			claim(r, msg, 1, "8.1.c")
		}},
		"redriven once, and there as two": {finds: []string{"QR"}, do: func(r *rig, msg *Message) {
			die(r, msg, "0.1.a", "9-0")
			take(r, "redrive", Done, 1, "9-0")
			finish(r, msg, 3, 1, 0)
		}},
		"redriven, and a letter as well": {finds: []string{"QR"}, do: func(r *rig, msg *Message) {
			die(r, msg, "0.1.a", "9-0")
			take(r, "redrive", Unknown, 0, "9-0")
			finish(r, msg, 2, 1, 1)
		}},
		"redriven, and lost": {finds: []string{"QR"}, do: func(r *rig, msg *Message) {
			die(r, msg, "0.1.a", "9-0")
			take(r, "redrive", Done, 1, "9-0")
			finish(r, msg, 1, 1, 0)
		}},
		"two letters of one message": {finds: []string{"Q5"}, do: func(r *rig, msg *Message) { finish(r, msg, 1, 2, 1) }},
		"a sweep counts what another took": {finds: []string{"QR"}, do: func(r *rig, msg *Message) {
			die(r, msg, "0.1.a", "9-0")
			take(r, "redrive", Done, 1)
			take(r, "redrive", Done, 1)
			finish(r, msg, 2, 1, 0)
		}},
		"a letter of an acknowledged message": {finds: []string{"Q1"}, do: func(r *rig, msg *Message) {
			answer(r, claim(r, msg, 1, "0.1.a"), "ack", Done)
			list(r, msg, "9-0")
		}},
		"a letter of another id": {finds: []string{"Q1"}, do: func(r *rig, msg *Message) {
			r.m.Lists(q, r.m.now(), []SeenLetter{{Letter: "9-0", ID: "1-1", Value: msg.Value}})
		}},
		"a repetition of a dead letter": {finds: []string{"Q10"}, do: func(r *rig, msg *Message) {
			die(r, msg, "0.1.a", "9-0")
			take(r, "redrive", Done, 1, "9-0")
			r.m.Enqueued(r.m.Enqueues("q", "e", "", "u", 0), Done, "1-0", true)
		}},
		"a redriven message is too old": {finds: []string{"QT"}, do: func(r *rig, msg *Message) {
			die(r, msg, "0.1.a", "9-0")
			take(r, "redrive", Done, 1, "9-0")
			r.at += 14 * s
			claim(r, msg, 1, "7.1.b")
		}},
		"a result of each": {do: func(r *rig, msg *Message) {
			inTx(r, msg, 1, "0.1.a", Refused)
			r.at += 2 * s
			inTx(r, msg, 2, "0.2.b", Unknown)
			r.at += 2 * s
			inTx(r, msg, 3, "0.3.c", Done)
			wrote(r, msg, "0.3.c")
		}},
		"a result of a transaction that was rolled back": {finds: []string{"QA"}, do: func(r *rig, msg *Message) {
			inTx(r, msg, 1, "0.1.a", Refused)
			wrote(r, msg, "0.1.a")
		}},
		"no result of one that was committed": {finds: []string{"QA"}, do: func(r *rig, msg *Message) {
			inTx(r, msg, 1, "0.1.a", Done)
			wrote(r, msg)
		}},
		"two results of one message": {finds: []string{"QA"}, do: func(r *rig, msg *Message) {
			inTx(r, msg, 1, "0.1.a", Pending)
			r.at += 2 * s
			inTx(r, msg, 2, "0.2.b", Done)
			wrote(r, msg, "0.1.a", "0.2.b")
		}},
		"it comes back after the commit was known": {finds: []string{"Q2"}, do: func(r *rig, msg *Message) {
			inTx(r, msg, 1, "0.1.a", Done)
			r.at += 2 * s
			claim(r, msg, 2, "0.2.b")
		}},
		"it comes back after the rollback": {do: func(r *rig, msg *Message) {
			inTx(r, msg, 1, "0.1.a", Refused)
			r.at += 2 * s
			claim(r, msg, 2, "0.2.b")
		}},
		"one that a Go worker gave back": {do: func(r *rig, msg *Message) {
			g := claim(r, msg, 1, "0.1.a")
			g.InGo = true
			claim(r, msg, 1, "0.1.b")
			r.m.AnsweredInGo(&Job{Queue: "q", Value: msg.Value, Answer: "nack", Receipt: g.Receipt}, Pending)
			r.m.JudgeQueue(q)
		}},
		"one that it did not": {finds: []string{"Q4"}, do: func(r *rig, msg *Message) {
			claim(r, msg, 1, "0.1.a").InGo = true
			claim(r, msg, 1, "0.1.b")
			r.m.JudgeQueue(q)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			c.do(r, enqueue(r))
			r.broke(c.finds...)
		})
	}
}
