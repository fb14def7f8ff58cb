package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weir-log/weir/internal/judge"
)

// What must be true of a list of a queue's messages (QB): it has no message that was acknowledged,
// and it has each message once that stays in the queue while the list is read.

// browseQueues lists the messages of queues.
func (w *world) browseQueues(ctx context.Context) {
	random := w.random("lists of messages")
	for ctx.Err() == nil {
		pause(ctx, time.Duration(random.IntN(500))*time.Millisecond)
		w.browseQueue(context.WithoutCancel(ctx), random, w.brokers[random.IntN(2)], queues[random.IntN(len(queues))])
	}
}

// browseQueue lists the messages of a queue page by page: those that are ready, claimed or waiting,
// those that are ready, or those that are delayed.
func (w *world) browseQueue(ctx context.Context, random *rand.Rand, b *broker, q judge.WorkQueue) {
	state := []string{"", "", "ready", "delayed"}[random.IntN(4)]
	path := fmt.Sprintf("/v1/queues/%s/messages?max=%d", q.Name, 1+random.IntN(10))
	if state != "" {
		path += "&state=" + state
	}
	asked := w.now()
	var all []judge.SeenMessage
	for from := ""; ; {
		var page struct {
			Messages []judge.SeenMessage
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
	w.model.Browsed(q, asked, state, all)
	w.counts.add("lists of messages, all pages")
	w.counts.addN("messages listed in "+q.Name, len(all))
}
