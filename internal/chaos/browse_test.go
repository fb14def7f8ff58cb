package main

import "testing"

func TestTheModelFindsWhatIsWrongWithListsOfMessages(t *testing.T) {
	q := workQueue{name: "q"}
	put := func(r *rig, o outcome) *message {
		msg := r.m.enqueues("q", "e", "", "", 0)
		r.m.enqueued(msg, o, "1-0", false)
		return msg
	}
	claim := func(r *rig, msg *message) *grant {
		return r.m.grants(q, "w", &grant{attempt: 1, receipt: "life.1.0.1.a", asked: r.m.now()}, msg.value, "1-0")
	}
	ack := func(r *rig, g *grant, o outcome) { r.m.answered(g, r.m.answers(g, "ack", 0, 0), o, false) }
	list := func(r *rig, q workQueue, asked moment, state string, messages ...*message) {
		var seen []seenMessage
		for _, msg := range messages {
			seen = append(seen, seenMessage{State: "ready", Value: msg.value})
		}
		r.m.browsed(q, asked, state, seen)
	}
	for name, c := range map[string]struct {
		do    func(*rig)
		finds []string
	}{
		"each is there once": {do: func(r *rig) { a, b := put(r, done), put(r, unknown); list(r, q, r.m.now(), "", a, b) }},
		"one is missing":     {finds: []string{"QB"}, do: func(r *rig) { a := put(r, done); put(r, done); list(r, q, r.m.now(), "", a) }},
		"one is not ready":   {do: func(r *rig) { a := put(r, done); put(r, done); list(r, q, r.m.now(), "ready", a) }},
		"one comes meanwhile": {do: func(r *rig) {
			asked := r.m.now()
			put(r, done)
			list(r, q, asked, "")
		}},
		"one is acknowledged meanwhile": {do: func(r *rig) {
			a, b := put(r, done), put(r, done)
			g, asked := claim(r, a), r.m.now()
			h := claim(r, b)
			ack(r, g, done)
			ack(r, h, done)
			list(r, q, asked, "", a)
		}},
		"one was acknowledged, as far as is known": {do: func(r *rig) { a := put(r, done); ack(r, claim(r, a), unknown); list(r, q, r.m.now(), "", a) }},
		"one was acknowledged":                     {finds: []string{"QB"}, do: func(r *rig) { a := put(r, done); ack(r, claim(r, a), done); list(r, q, r.m.now(), "", a) }},
		"one became a dead letter, as it may": {do: func(r *rig) {
			put(r, done)
			list(r, workQueue{name: "q", attempts: 3}, r.m.now(), "")
		}},
		"one is there twice":         {finds: []string{"QB"}, do: func(r *rig) { a := put(r, done); list(r, q, r.m.now(), "", a, a) }},
		"one was redriven meanwhile": {do: func(r *rig) { a := put(r, done); r.m.takes(q, "redrive", nil); list(r, q, r.m.now(), "ready", a, a) }},
		"one is in another state":    {finds: []string{"QB"}, do: func(r *rig) { a := put(r, done); list(r, q, r.m.now(), "delayed", a) }},
		"one was never enqueued":     {finds: []string{"QB"}, do: func(r *rig) { list(r, q, r.m.now(), "", &message{value: "?"}) }},
		"one was refused":            {finds: []string{"QB"}, do: func(r *rig) { a := put(r, refused); list(r, q, r.m.now(), "", a) }},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			c.do(r)
			r.broke(c.finds...)
		})
	}
}
