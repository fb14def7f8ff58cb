package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// What must be true of a list of a queue's messages (QB): it has no message that was acknowledged, and those that stay in their queue while it is read it has once.

// seenMessage is a message as a list over HTTP has it.
type seenMessage struct{ State, Value string }

// browseQueues lists the messages of queues.
func (w *world) browseQueues(ctx context.Context) {
	random := w.random("lists of messages")
	for ctx.Err() == nil {
		pause(ctx, time.Duration(random.IntN(500))*time.Millisecond)
		w.browseQueue(context.WithoutCancel(ctx), random, w.brokers[random.IntN(2)], queues[random.IntN(len(queues))])
	}
}

// browseQueue lists the messages of a queue page by page: those that are ready, claimed or waiting, those that are ready, or those that are delayed.
func (w *world) browseQueue(ctx context.Context, random *rand.Rand, b *broker, q workQueue) {
	state := []string{"", "", "ready", "delayed"}[random.IntN(4)]
	path := fmt.Sprintf("/v1/queues/%s/messages?max=%d", q.name, 1+random.IntN(10))
	if state != "" {
		path += "&state=" + state
	}
	asked := w.now()
	var all []seenMessage
	for from := ""; ; {
		var page struct {
			Messages []seenMessage
			Next     string
		}
		if err := b.get(ctx, path+from, &page); err != nil {
			return
		}
		all = append(all, page.Messages...)
		if page.Next == "" {
			break
		}
		from = "&from=" + page.Next
	}
	w.model.browsed(q, asked, state, all)
	w.counts.add("lists of messages, all pages")
	w.counts.addN("messages listed in "+q.name, len(all))
}

// browsed judges a list that was asked for at a time and has been read to its end.
func (m *model) browsed(q workQueue, asked moment, state string, list []seenMessage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	about := []string{q.name}
	m.history.add(fmt.Sprintf("a list of %d messages by %q, asked for at %v, has been read", len(list), state, asked), q.name)
	times := map[*message]int{}
	for _, l := range list {
		msg := m.messages[l.Value]
		if msg == nil || msg.queue != q.name {
			m.violate("QB", about, "%q is listed in %s, and nobody enqueued that", l.Value, q.name)
			continue
		}
		times[msg]++
		switch at, acked := msg.finishedAt(); {
		case msg.outcome == refused:
			m.violate("QB", about, "%s is listed as %s, and whoever enqueued it was told that it certainly was not enqueued", l.Value, l.State)
		case state != "" && l.State != state:
			m.violate("QB", about, "%s is %s in a list of those that are %s", l.Value, l.State, state)
		case acked && at < asked && !q.passes: // one that was made anew has again what its topic has
			m.violate("QB", about, "%s was acknowledged at %v, and a list that was asked for at %v has it as %s", l.Value, at, asked, l.State)
		}
	}
	for _, msg := range m.queued[q.name] {
		if msg.delay > 0 || q.passes || len(m.redrives(msg)) > 0 {
			continue // it may be there as several records
		}
		if times[msg] > 1 {
			m.violate("QB", about, "%s is listed %d times", msg.value, times[msg])
		}
		if state == "" && times[msg] == 0 && msg.outcome == done && !msg.repeated && !msg.inSQL && msg.ended < asked && q.attempts == 0 && q.ttl == 0 && !msg.answeredFor() {
			m.violate("QB", about, "%s was enqueued by %v, nobody has answered for it, and a list that was asked for at %v does not have it", msg.value, msg.ended, asked)
		}
	}
}

// answeredFor says that somebody has begun to answer for a message in a way that may end it.
func (msg *message) answeredFor() bool {
	for _, grants := range msg.grants {
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
