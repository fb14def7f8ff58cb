package judge

import (
	"testing"
)

func TestTheModelFindsWhatIsWrongWithListsOfMessages(t *testing.T) {
	q := WorkQueue{Name: "q"}
	put := func(r *rig, o Outcome) *Message {
		msg := r.m.Enqueues("q", "e", "", "", 0)
		r.m.Enqueued(msg, o, "1-0", false)
		return msg
	}
	claim := func(r *rig, msg *Message) *Grant {
		return r.m.Grants(q, "w", &Grant{Attempt: 1, Receipt: "life.1.0.1.a", Asked: r.m.now()}, msg.Value, "1-0")
	}
	ack := func(r *rig, g *Grant, o Outcome) { r.m.Answered(g, r.m.Answers(g, "ack", 0, 0), o, false) }
	list := func(r *rig, q WorkQueue, asked Moment, state string, messages ...*Message) {
		var seen []SeenMessage
		for _, msg := range messages {
			seen = append(seen, SeenMessage{State: "ready", Value: msg.Value})
		}
		r.m.Browsed(q, asked, state, seen)
	}
	for name, c := range map[string]struct {
		do    func(*rig)
		finds []string
	}{
		"each is there once": {do: func(r *rig) { a, b := put(r, Done), put(r, Unknown); list(r, q, r.m.now(), "", a, b) }},
		"one is missing":     {finds: []string{"QB"}, do: func(r *rig) { a := put(r, Done); put(r, Done); list(r, q, r.m.now(), "", a) }},
		"one is not ready":   {do: func(r *rig) { a := put(r, Done); put(r, Done); list(r, q, r.m.now(), "ready", a) }},
		"one comes meanwhile": {do: func(r *rig) {
			asked := r.m.now()
			put(r, Done)
			list(r, q, asked, "")
		}},
		"one is acknowledged meanwhile": {do: func(r *rig) {
			a, b := put(r, Done), put(r, Done)
			g, asked := claim(r, a), r.m.now()
			h := claim(r, b)
			ack(r, g, Done)
			ack(r, h, Done)
			list(r, q, asked, "", a)
		}},
		"one was acknowledged, as far as is known": {do: func(r *rig) { a := put(r, Done); ack(r, claim(r, a), Unknown); list(r, q, r.m.now(), "", a) }},
		"one was acknowledged":                     {finds: []string{"QB"}, do: func(r *rig) { a := put(r, Done); ack(r, claim(r, a), Done); list(r, q, r.m.now(), "", a) }},
		"one became a dead letter, as it may": {do: func(r *rig) {
			put(r, Done)
			list(r, WorkQueue{Name: "q", Attempts: 3}, r.m.now(), "")
		}},
		"one is there twice":         {finds: []string{"QB"}, do: func(r *rig) { a := put(r, Done); list(r, q, r.m.now(), "", a, a) }},
		"one was redriven meanwhile": {do: func(r *rig) { a := put(r, Done); r.m.Takes(q, "redrive", nil); list(r, q, r.m.now(), "ready", a, a) }},
		"one is in another state":    {finds: []string{"QB"}, do: func(r *rig) { a := put(r, Done); list(r, q, r.m.now(), "delayed", a) }},
		"one was never enqueued":     {finds: []string{"QB"}, do: func(r *rig) { list(r, q, r.m.now(), "", &Message{Value: "?"}) }},
		"one was refused":            {finds: []string{"QB"}, do: func(r *rig) { a := put(r, Refused); list(r, q, r.m.now(), "", a) }},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			c.do(r)
			r.broke(c.finds...)
		})
	}
}
